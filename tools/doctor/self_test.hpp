#pragma once

#include "terrace/config.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/replay.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace::tools {

/// The result of the self-test of one tier.
struct TierTest {
  std::string tier;
  std::uint64_t hits = 0;  ///< blocks that were found there, loaded and compared
  std::string failure{};   ///< one sentence; empty: the tier works
};

/// The options of the self-test of a configuration: a replay over tiers of the same kinds, on the same devices and disks, that
/// are so small that its few requests are served from each of them. Storage is a store of its own, "doctor", beside the
/// configured ones. `trace` is the file for its requests. Throws UsageError if the configuration is wrong.
[[nodiscard]] ReplayOptions self_test_options(const Config& config, const std::filesystem::path& trace);
/// The requests: prompts that push each other down to storage, then fewer that fit into host and device, then one.
[[nodiscard]] std::string self_test_trace(const ReplayOptions& options);
/// Judges the replay, tier by tier. `before` is the replay that filled storage; it may be the same.
[[nodiscard]] std::vector<TierTest> judge_tiers(const ReplayOptions& options, const ReplayResult& before,
                                                const ReplayResult& result);

/// Stores, drops, finds, loads and compares blocks in every tier of the configuration, through the path that requests take. Files
/// are filled by a first replay, which waits for the disk, and are found again after a restart.
/// Prints a line for each tier. Leaves nothing behind. Returns whether all of them work. Throws UsageError if the configuration
/// is wrong, and std::exception if a part cannot be made.
[[nodiscard]] bool run_self_test(const Config& config);

}  // namespace terrace::tools
