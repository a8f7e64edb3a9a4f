// Replays of models with several KV cache groups, and by layer.
#include "tools/replay/options/options.hpp"
#include "tools/replay/replay.hpp"

#include <gtest/gtest.h>

#include <string>

namespace terrace::tools {
namespace {

/// Tiers that are too small for the work.
ReplayOptions small_tiers(const std::string& groups) {
  ReplayOptions options;
  options.block_tokens = 64;
  options.block_bytes = Bytes{1024};
  options.device_blocks = 150;
  options.host_blocks = 300;
  options.system.storage = MemoryStorage{KiB * 2400};
  options.write_policy = WritePolicy::write_back;
  options.requests_max = 150;
  options.concurrency = 8;
  options.output_tokens_max = 200;
  if (!groups.empty()) options.groups = to_groups("--groups", groups);
  choose_groups(options);
  return options;
}

ReplayResult replay_groups_well(const ReplayOptions& options) {
  ReplayResult result = run_replay(options);
  const Verdict verdict = judge(options, result);
  EXPECT_EQ(verdict.status, ExitStatus::done) << verdict.line;
  EXPECT_EQ(result.checked, result.counts.hits());
  return result;
}

TEST(GroupsReplay, compares_the_hits_of_every_group_in_every_tier) {
  const ReplayOptions options = small_tiers("full:64,window:64:256,full:128,recurrent:128,window:64:128:optional");
  const ReplayResult result = replay_groups_well(options);
  EXPECT_EQ(result.counts.requests + result.counts.rejected, options.requests_max);
  EXPECT_GT(result.counts.found[Source::device], 0U);
  EXPECT_GT(result.counts.found[Source::host] + result.counts.found[Source::storage], 0U);
  EXPECT_GT(result.group_blocks, result.checked / 2) << "blocks of the other groups, in addition to those of the first";
  EXPECT_EQ(result.layered_blocks, 0U);
  ASSERT_EQ(result.pools.size(), 2U);
  EXPECT_EQ(result.pools[1].block_bytes, KiB * 2);
  for (const ReplayResult::Pool& pool : result.pools) EXPECT_GT(pool.stored, 0U);
}

TEST(GroupsReplay, catches_a_planted_fault_in_any_group) {
  ReplayOptions options = small_tiers("full:64,window:64:256");
  options.system.storage = NoStorage{};
  options.write_policy = WritePolicy::none;
  options.inject = Fault::flip;
  const ReplayResult result = run_replay(options);
  EXPECT_GT(result.faults_planted, 0U);
  EXPECT_GT(result.mismatches, 0U);
}

TEST(GroupsReplay, compares_each_layer_as_it_arrives) {
  for (const char* const groups : {"", "full:64,window:64:256"}) {
    ReplayOptions options = small_tiers(groups);
    options.block_bytes = MiB * 2;  // a layer of one block is one piece
    options.device_blocks = 60;
    options.host_blocks = 120;
    options.system.storage = NoStorage{};
    options.write_policy = WritePolicy::none;
    options.requests_max = 30;
    options.layers = 2;
    // On a link without a limit all layers would arrive at once.
    EmulatedGpu device;
    device.link[Direction::swap_in].bytes_per_second = per_second(GiB);
    options.system.ranks.front().device = device;
    const ReplayResult result = replay_groups_well(options);
    EXPECT_GT(result.counts.found[Source::host], 0U);
    EXPECT_GT(result.engine.layer_events, 0U);
    EXPECT_GT(result.layered_blocks, 0U);
  }
}

TEST(GroupsReplay, gives_each_group_room_for_as_many_tokens) {
  const ReplayOptions options = small_tiers("full:64,window:64:256,full:256");
  const std::vector<PoolOptions> pools = pools_of(options);
  ASSERT_EQ(pools.size(), 2U);
  EXPECT_EQ(pools[0].device_blocks, Blocks{301}) << "two groups, and a null block";
  EXPECT_EQ(pools[0].host_blocks, Blocks{600});
  EXPECT_TRUE(pools[0].null_block);
  EXPECT_EQ(pools[1].device_blocks, Blocks{38});
  EXPECT_EQ(pools[1].host_blocks, Blocks{75});
  EXPECT_EQ(pools[1].block_bytes, KiB * 4);
  EXPECT_FALSE(pools[1].null_block);
}

}  // namespace
}  // namespace terrace::tools
