#pragma once

#include "terrace/config.hpp"
#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "tools/replay/options/options.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace::tools {

/// Reads the groups of --groups: KIND:BLOCK_TOKENS[:SPAN][:optional],... for example "full:512,window:512:2048". Throws
/// UsageError.
[[nodiscard]] std::vector<GroupConfig> to_groups(const std::string& option, const std::string& word);

/// Takes the groups of the configuration, with their pools. One group with full attention is a model without groups, whose blocks
/// have as many tokens. Without --block-tokens and without a trace, a key stands for as many tokens as the groups allow.
void take_groups(ReplayOptions& options, bool has_block_tokens);

/// Checks groups and layers against the other options, and gives each group of --groups its pool: groups with blocks of as many
/// tokens share one. `config` says how the user names what is wrong. Throws UsageError.
void choose_groups(ReplayOptions& options, const Config& config = Config{});

/// The groups of the model: those of the options, or one with full attention.
[[nodiscard]] std::vector<GroupConfig> groups_of(const ReplayOptions& options);

/// The number of the group whose hits are counted: the first one with full attention that is not optional.
[[nodiscard]] std::size_t counted_group(std::span<const GroupConfig> groups);

/// The pools of the replay, by PoolId: those of the configuration, if it describes groups. For --groups, a block has
/// --block-bytes for each --block-tokens tokens. Each group has room for as many tokens as --device-blocks and --host-blocks say;
/// null blocks come in addition.
[[nodiscard]] std::vector<PoolOptions> pools_of(const ReplayOptions& options);

/// The most hash units for which every group has device blocks. A recurrent group needs only the last block.
[[nodiscard]] std::uint32_t device_units(const ReplayOptions& options);

}  // namespace terrace::tools
