#pragma once

#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "tools/replay/options/options.hpp"

#include <string>
#include <vector>

namespace terrace::tools {

/// Reads the groups of --groups: KIND:BLOCK_TOKENS[:SPAN][:optional],... for example "full:512,window:512:2048". Throws
/// UsageError.
[[nodiscard]] std::vector<GroupConfig> to_groups(const std::string& option, const std::string& word);

/// Checks groups and layers against the other options, and gives each group its pool: groups with blocks of as many tokens share
/// one. Throws UsageError.
void choose_groups(ReplayOptions& options);

/// The groups of the model: those of the options, or one with full attention.
[[nodiscard]] std::vector<GroupConfig> groups_of(const ReplayOptions& options);

/// The pools of the replay, by PoolId. A block has --block-bytes for each --block-tokens tokens. Each group has room for as many
/// tokens as --device-blocks and --host-blocks say; null blocks come in addition.
[[nodiscard]] std::vector<PoolOptions> pools_of(const ReplayOptions& options);

}  // namespace terrace::tools
