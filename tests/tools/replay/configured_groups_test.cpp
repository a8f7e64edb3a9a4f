// Replays of the groups and pools that a configuration describes.
#include "tests/refusal.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/replay.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace terrace::tools {
namespace {

/// Takes the file and the flags as the program does.
ReplayOptions parsed(const std::string& file, std::vector<std::string> words = {}) {
  CLI::App app;
  ReplayArguments arguments;
  add_replay_options(app, arguments);
  std::ranges::reverse(words);  // CLI11 expects this order
  app.parse(words);
  as_usage([&] { arguments.config.read_text(file, "t.toml"); });
  return resolve(arguments);
}

ReplayResult replay_configured(const ReplayOptions& options) {
  ReplayResult result = run_replay(options);
  const Verdict verdict = judge(options, result);
  EXPECT_EQ(verdict.status, ExitStatus::done) << verdict.line;
  EXPECT_EQ(result.checked, result.counts.hits());
  EXPECT_GT(result.counts.found[Source::device], 0U);
  EXPECT_GT(result.counts.found[Source::host], 0U);
  EXPECT_GT(result.group_blocks, 0U);
  return result;
}

/// Blocks are so large, and the link so slow, that layers arrive one by one.
constexpr const char* two_groups_by_layer = R"(
[[rank]]
swap-in-bandwidth = "1GiB/s"

[[pool]]
block-bytes = "4MiB"
layers = 4
device-blocks = 60
host-blocks = 120

[[pool]]
block-bytes = "2MiB"
layers = 2
device-blocks = 61
host-blocks = 120
null-block = true

[[group]]
block-tokens = 64

[[group]]
kind = "sliding-window"
block-tokens = 64
span-tokens = 256
pool = 1
)";

TEST(ConfiguredGroups, are_replayed_by_layer_and_every_block_is_compared) {
  const ReplayOptions options = parsed(two_groups_by_layer, {"--requests", "24", "--output-tokens-max", "200"});
  EXPECT_EQ(options.layers, 4U);
  const ReplayResult result = replay_configured(options);
  EXPECT_GT(result.engine.layer_events, 0U);
  EXPECT_GT(result.layered_blocks, 0U);
  ASSERT_EQ(result.pools.size(), 2U);
  EXPECT_EQ(result.pools[0].block_bytes, MiB * 4);
  EXPECT_EQ(result.pools[0].device.blocks, 60U);
  EXPECT_EQ(result.pools[1].block_bytes, MiB * 2);
  EXPECT_EQ(result.pools[1].host.blocks, 120U);
}

/// A window comes first, and groups with blocks of different lengths share a pool whose slots do not begin at 0.
constexpr const char* three_groups = R"(
[[pool]]
block-bytes = "1KiB"
device-blocks = 300
host-blocks = 600
null-block = true
first-slot = 5

[[pool]]
block-bytes = "2KiB"
device-blocks = 150
host-blocks = 300

[[group]]
kind = "sliding-window"
block-tokens = 64
span-tokens = 256

[[group]]
block-tokens = 32
pool = 1

[[group]]
block-tokens = 96
)";

TEST(ConfiguredGroups, may_come_in_any_order_and_share_a_pool) {
  const ReplayOptions options = parsed(three_groups, {"--requests", "150", "--output-tokens-max", "200"});
  EXPECT_EQ(options.block_tokens, 32U) << "what the groups allow";
  EXPECT_EQ(device_units(options), 150U) << "the second pool has fewer";
  (void)replay_configured(options);
}

TEST(ConfiguredGroups, show_a_planted_fault) {
  for (const char* const file : {two_groups_by_layer, three_groups}) {
    const ReplayResult result = run_replay(parsed(file, {"--requests", "24", "--inject", "flip"}));
    EXPECT_GT(result.faults_planted, 0U);
    EXPECT_GT(result.mismatches, 0U);
  }
}

TEST(ConfiguredGroups, of_one_full_group_are_a_model_without_groups) {
  const std::string file = "[[pool]]\nblock-bytes = \"1KiB\"\n[[group]]\nblock-tokens = 16";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, std::vector<std::string>{"--reference"}, std::vector<std::string>{"--mode", "loop"}}) {
    const ReplayOptions options = parsed(file, words);
    EXPECT_TRUE(options.groups.empty());
    EXPECT_EQ(options.block_tokens, 16U);
    ASSERT_EQ(pools_of(options).size(), 1U);
    EXPECT_EQ(pools_of(options)[0].block_bytes, KiB);
  }
}

TEST(ConfiguredGroups, give_way_to_the_flag) {
  const ReplayOptions options = parsed(three_groups, {"--groups", "full:64,full:128", "--block-tokens", "64"});
  ASSERT_EQ(options.groups.size(), 2U);
  EXPECT_EQ(options.groups[0].kind, GroupKind::full);
  const std::vector<PoolOptions> pools = pools_of(options);
  ASSERT_EQ(pools.size(), 2U);
  EXPECT_EQ(pools[0].block_bytes, KiB) << "from the first pool of the file";
  EXPECT_EQ(pools[0].device_blocks.value(), 300U);
  EXPECT_FALSE(pools[0].null_block);
}

TEST(ConfiguredGroups, leave_a_null_block_out_of_what_a_request_can_have) {
  EXPECT_EQ(device_units(parsed("[[pool]]\ndevice-blocks = 10\nnull-block = true")), 9U);
  EXPECT_EQ(device_units(parsed("", {"--device-blocks", "10"})), 10U);
  EXPECT_EQ(device_units(parsed("", {"--device-blocks", "10", "--groups", "full:64,recurrent:128"})), 10U);
}

TEST(ConfiguredLinks, belong_to_the_ranks) {
  const ReplayOptions options = parsed("[[rank]]\nlink-latency = \"1ms\"\n[[rank]]\n");
  ASSERT_EQ(options.system.ranks.size(), 2U);
  EXPECT_EQ(std::get<EmulatedGpu>(options.system.ranks[0].device).link[Direction::swap_out].latency,
            std::chrono::milliseconds{1});
  EXPECT_EQ(std::get<EmulatedGpu>(options.system.ranks[1].device).link[Direction::swap_out].latency, Duration{});
}

// ---- refusals ------------------------------------------------------------------------------------------------------------

struct BadGroups {
  std::string file;
  std::vector<std::string> words;
  std::string sentence;
};
class BadReplayConfig : public testing::TestWithParam<BadGroups> {};

TEST_P(BadReplayConfig, is_refused_with_one_sentence_that_names_what_the_user_wrote) {
  EXPECT_EQ(test::refusal_of<UsageError>([&] { (void)parsed(GetParam().file, GetParam().words); }), GetParam().sentence);
}

const std::string two = "[[group]]\nblock-tokens = 16\n[[group]]\nblock-tokens = 48\n";
const std::string window =
    "[[pool]]\nnull-block = true\n[[group]]\nkind = \"sliding-window\"\nspan-tokens = 64\nblock-tokens = 16\n";

INSTANTIATE_TEST_SUITE_P(
    All, BadReplayConfig,
    testing::Values(
        BadGroups{"[[pool]]\nlayers = 4", {"--mode", "loop"}, "t.toml:2: pool.layers runs in --mode confined"},
        BadGroups{"[[pool]]\nlayers = 4",
                  {"--reference"},
                  "--reference copies whole blocks: t.toml:2: pool.layers makes no sense with it"},
        BadGroups{
            "[[pool]]\nlayers = 3", {}, "pool.block-bytes: 64KiB cannot be divided into 3 layers: use a multiple of 3 bytes"},
        BadGroups{"[[pool]]\nblock-bytes = 1000\nlayers = 50",
                  {},
                  "t.toml:2: pool.block-bytes: 1000B cannot be divided into 50 layers: use a multiple of 400 bytes"},
        BadGroups{"[[pool]]\nblock-bytes = 1000",
                  {"--layers", "50"},
                  "t.toml:2: pool.block-bytes: 1000B cannot be divided into 50 layers: use a multiple of 400 bytes"},
        BadGroups{"",
                  {"--layers", "16384"},
                  "--block-bytes: 64KiB cannot be divided into 16384 layers: use a multiple of 131072 bytes"},
        BadGroups{"[[pool]]\n[[pool]]\nlayers = 4\nblock-bytes = 16\n[[group]]\n[[group]]\npool = 1",
                  {},
                  "t.toml:4: pool.block-bytes: 16B cannot be divided into 4 layers: use a multiple of 32 bytes"},
        // A key has as many tokens as the hash unit.
        BadGroups{two,
                  {"--block-tokens", "64"},
                  "[[group]] (t.toml:2): the hash unit is 16 tokens, so --block-tokens must be 16, not 64"},
        BadGroups{two,
                  {"--block-tokens", "1048576"},
                  "[[group]] (t.toml:2): the hash unit is 16 tokens, so --block-tokens must be 16, not "
                  "1048576"},
        BadGroups{two,
                  {"--block-tokens", "10"},
                  "[[group]] (t.toml:2): the hash unit is 16 tokens, so --block-tokens must be 16, not 10"},
        BadGroups{two,
                  {"trace.jsonl"},
                  "[[group]] (t.toml:2): the hash unit is 16 tokens, so --block-tokens must be 16, not "
                  "512"},
        BadGroups{"[[group]]\nblock-tokens = 16",
                  {"--block-tokens", "64", "--reference"},
                  "[[group]] (t.toml:2): the hash unit is 16 tokens, so --block-tokens must be 16, not 64"},
        BadGroups{
            "[[group]]\nblock-tokens = 4294967295",
            {},
            "[[group]] (t.toml:2): the greatest common divisor of all blocks is 4294967295 tokens: a replay can have at most "
            "1048576"},
        BadGroups{two + "layers = 4", {}, "t.toml:5: there is no option \"layers\" in [[group]]; it belongs in [[pool]]"},
        BadGroups{"[[pool]]\nlayers = 4\n",
                  {"--groups", "full:32", "--block-tokens", "64"},
                  "--groups: blocks of 64 tokens and their multiples are possible (--block-tokens), and one group must have such "
                  "blocks"},
        BadGroups{
            "[[group]]\nblock-tokens = 65537\n[[group]]\nblock-tokens = 65539",
            {},
            "t.toml:2: hits end at common multiples of the blocks of all groups, and these have none under 2^32 hash units"},
        BadGroups{
            "",
            {"--groups", "full:1,full:65537,full:65539", "--block-tokens", "1"},
            "--groups: hits end at common multiples of the blocks of all groups, and these have none under 2^32 hash units"},
        // Options that a replay does not have.
        BadGroups{two, {"--mode", "loop"}, "[[group]] (t.toml:2) runs in --mode confined"},
        BadGroups{two, {"--reference"}, "--reference is for one group: [[group]] (t.toml:2) makes no sense with it"},
        BadGroups{window, {}, "[[group]] (t.toml:4): one group must be full, and not optional"},
        BadGroups{"[[group]]\n[[group]]\nkind = \"cross\"",
                  {},
                  "[[group]] (t.toml:3): a replay has no encoder, so it cannot have a group with cross attention"},
        BadGroups{"[[group]]\nkind = \"cross\"", {}, "t.toml:2: a hash unit needs at least one group"},
        BadGroups{window + "optional = true\nblock-tokens-x = 1",
                  {},
                  "t.toml:8: there is no option \"block-tokens-x\" in [[group]]; did "
                  "you mean block-tokens?"},
        BadGroups{
            "[[pool]]\nnull-block = true\n[[group]]\nblock-tokens = 16\n[[group]]\nblock-tokens = 32\noptional = true",
            {},
            "[[group]] (t.toml:4): blocks of 32 tokens in an optional group: a hit may end within them, because no required "
            "group "
            "has such blocks"},
        BadGroups{"engine-owns-slots = true", {}, "t.toml:1: engine-owns-slots: a replay has no engine with slots of its own"}));

// ---- replays of models with several KV cache groups, and by layer

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
