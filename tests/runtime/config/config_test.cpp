#include "terrace/config.hpp"

#include "runtime/config/nearest_name.hpp"
#include "runtime/config/table.hpp"
#include "runtime/system/options.hpp"
#include "terrace/bandwidth.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;

/// Returns why the text is refused; nothing if it is not.
std::string refusal(const std::string& text) {
  try {
    (void)parse_config(text, "t.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const FileStorage& files(const CacheSystemOptions& options) { return std::get<FileStorage>(options.storage); }

TEST(ConfigText, that_is_empty_gives_the_defaults_of_the_options) {
  const CacheSystemOptions options = parse_config("");
  const CacheSystemOptions expected;
  ASSERT_EQ(options.pools.size(), 1U);
  EXPECT_EQ(options.pools[0].block_bytes, expected.pools[0].block_bytes);
  EXPECT_EQ(options.pools[0].device_blocks, 3000U);
  EXPECT_EQ(options.pools[0].host_blocks, 8000U);
  EXPECT_EQ(options.ranks.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<EmulatedGpu>(options.ranks[0].device));
  EXPECT_TRUE(std::holds_alternative<NoStorage>(options.storage));
  EXPECT_EQ(options.write_policy, expected.write_policy);
  EXPECT_EQ(options.loads, expected.loads);
  EXPECT_EQ(options.flush_interval, expected.flush_interval);
  EXPECT_EQ(options.write_back_blocks_ahead, expected.write_back_blocks_ahead);
  EXPECT_TRUE(options.groups.empty());
}

TEST(ConfigText, sets_what_it_names) {
  const CacheSystemOptions options = parse_config(R"(
policy = "lru"
inclusion = "keep"
write-policy = "selective"
selective-hits = 3
daily-writes = "1TiB"
loads = "always"
unit-prefill = "2ms"
rank-payload = "replicated"
ranks = 3

[[rank]]
device = "cuda:1"
calibration = "/c.json"

[[pool]]
block-bytes = "1MiB"
device-capacity = "1.5GiB"
host-blocks = 7
layers = 4
null-block = true

[device]
low-watermark = 0.1
high-watermark = "20%"

[host]
warm-up = "while-serving"
numa-node = 1
huge-pages = false

[transfers]
store-bandwidth = "2GiB/s"

[storage]
where = "file:/a"
stripe = ["/b", "/c"]
capacity = "1GiB"
floor = 4096
bandwidth = "50MiB/s"
io = "threads"
flush-interval = 1.5
retries = 2
breaker-window = "1min"

[log]
level = "info"
)");
  ASSERT_EQ(options.ranks.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& gpu = std::get<CudaGpu>(options.ranks[static_cast<std::size_t>(rank)].device);
    EXPECT_EQ(gpu.ordinal, rank + 1);
    EXPECT_EQ(gpu.calibration, "/c.json");
  }
  EXPECT_EQ(options.rank_payload, RankPayload::replicated);
  EXPECT_EQ(options.inclusion, InclusionPolicy::non_inclusive);
  EXPECT_EQ(options.write_policy, WritePolicy::selective);
  EXPECT_EQ(options.selective_hits, 3U);
  EXPECT_EQ(options.daily_write_bytes, TiB);
  EXPECT_EQ(options.loads, LoadPolicy::always);
  EXPECT_DOUBLE_EQ(options.unit_prefill_seconds, 0.002);
  EXPECT_EQ(options.pools[0].device_blocks, 1536U);
  EXPECT_EQ(options.pools[0].host_blocks, 7U);
  EXPECT_EQ(options.pools[0].layers, 4U);
  EXPECT_TRUE(options.pools[0].null_block);
  EXPECT_EQ(options.device_watermarks.low, 0.1);
  EXPECT_EQ(options.device_watermarks.high, 0.2);
  EXPECT_EQ(options.host_warm_up, HostWarmUp::while_serving);
  EXPECT_EQ(options.host_touch.numa_node, 1U);
  EXPECT_EQ(options.host_touch.huge_pages, HugePages::no);
  EXPECT_EQ(options.lane_rates[static_cast<std::size_t>(Urgency::store)], GiB * 2);
  EXPECT_EQ(options.lane_rates[static_cast<std::size_t>(Urgency::request)], Bytes{});
  EXPECT_EQ(files(options).directories, (std::vector<std::filesystem::path>{"/a", "/b", "/c"}));
  EXPECT_EQ(files(options).capacity, GiB);
  EXPECT_EQ(files(options).floor, KiB * 4);
  EXPECT_EQ(files(options).bandwidth, MiB * 50);
  EXPECT_EQ(files(options).io, IoChoice::threads);
  EXPECT_EQ(options.flush_interval, 1500ms);
  EXPECT_EQ(options.storage_guard->read_retries, 2U);
  EXPECT_EQ(options.storage_guard->write_retries, 2U);
  EXPECT_EQ(options.storage_guard->breaker.window, 1min);
  EXPECT_EQ(options.log.least, LogLevel::info);
}

TEST(ConfigText, describes_groups_and_pools) {
  const CacheSystemOptions options = parse_config(R"(
[[pool]]
device-blocks = 10
host-blocks = 0
[[pool]]
device-blocks = 20
null-block = true
[[group]]
block-tokens = 16
[[group]]
kind = "sliding-window"
block-tokens = 32
span-tokens = 128
pool = 1
)");
  ASSERT_EQ(options.pools.size(), 2U);
  EXPECT_EQ(options.pools[1].device_blocks, 20U);
  EXPECT_EQ(options.pools[1].host_blocks, 8000U);
  ASSERT_EQ(options.groups.size(), 2U);
  EXPECT_EQ(options.groups[0].kind, GroupKind::full);
  EXPECT_EQ(options.groups[1].kind, GroupKind::sliding_window);
  EXPECT_EQ(options.groups[1].span_tokens, 128U);
  EXPECT_EQ(options.groups[1].pool, PoolId{1});
}

TEST(ConfigText, with_storage_writes_through_unless_it_says_otherwise) {
  EXPECT_EQ(parse_config("[storage]\nwhere = \"memory:\"\ncapacity = \"1GiB\"").write_policy, WritePolicy::write_through);
  EXPECT_EQ(parse_config("write-policy = \"none\"\n[storage]\nwhere = \"memory:\"\ncapacity = \"1GiB\"").write_policy,
            WritePolicy::none);
}

TEST(ConfigText, may_keep_the_options_of_storage_that_it_switches_off) {
  EXPECT_EQ(refusal("[storage]\nwhere = \"none\"\ncapacity = \"1GiB\"\nretries = 3"), "");
}

struct Bad {
  std::string text;
  std::string sentence;
};
class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, is_refused_with_one_sentence_that_names_the_place) { EXPECT_EQ(refusal(GetParam().text), GetParam().sentence); }

INSTANTIATE_TEST_SUITE_P(
    All, BadConfig,
    testing::Values(
        // names
        Bad{"polcy = \"lru\"", "t.toml:1: there is no option \"polcy\" in front of the tables; did you mean policy?"},
        Bad{"\n[[pool]]\nhost_blocks = 3", "t.toml:3: there is no option \"host_blocks\" in [[pool]]; did you mean host-blocks?"},
        Bad{"host-blocks = 3", "t.toml:1: there is no option \"host-blocks\" in front of the tables; it belongs in [[pool]]"},
        Bad{"[storage]\npolicy = \"lru\"",
            "t.toml:2: there is no option \"policy\" in [storage]; it belongs in front of the tables"},
        Bad{"[storage]\nhost-block = 3", "t.toml:2: there is no option \"host-block\" in [storage]; did you mean host-blocks in "
                                         "[[pool]]?"},
        Bad{"[storage]\nfrobnicate = 3", "t.toml:2: there is no option \"frobnicate\" in [storage]"},
        Bad{"\n[storge]\n", "t.toml:2: there is no table [storge]; did you mean storage?"},
        Bad{"[[pol]]\n", "t.toml:1: there is no table [pol]; did you mean pool?"},
        Bad{"[pool]\nlayers = 1", "t.toml:1: pool is an array of tables, [[pool]], not a table"},
        Bad{"pool = 3", "t.toml:1: pool is an array of tables, [[pool]], not a whole number"},
        Bad{"[[storage]]\n", "t.toml:1: storage is a table, [storage], not a list"},
        Bad{"\"a\\nb\" = 3", "t.toml:1: there is no option \"a b\" in front of the tables"},
        // types
        Bad{"\n\nselective-hits = \"3\"", "t.toml:3: selective-hits: a whole number is needed, not a text"},
        Bad{"selective-hits = 1.5", "t.toml:1: selective-hits: a whole number is needed, not a number"},
        Bad{"caching = \"on\"", "t.toml:1: caching: true or false is needed, not a text"},
        Bad{"caching = 1", "t.toml:1: caching: true or false is needed, not a whole number"},
        Bad{"policy = true", "t.toml:1: policy: a text is needed, not true or false"},
        Bad{"policy = 1979-05-27", "t.toml:1: policy: a text is needed, not a date or time"},
        Bad{"policy = [\"lru\"]", "t.toml:1: policy: a text is needed, not a list"},
        Bad{"policy.x = 1", "t.toml:1: there is no table [policy]"},
        Bad{"daily-writes = 1.5", "t.toml:1: daily-writes: a size in quotes, as in \"64KiB\", is needed, not a number"},
        Bad{"unit-prefill = true", "t.toml:1: unit-prefill: a duration in quotes, as in \"500ms\", is needed, not true or false"},
        Bad{"[storage]\nstripe = [1]", "t.toml:2: storage.stripe: a list of texts is needed, with no a whole number"},
        Bad{"[storage]\nstripe = 1", "t.toml:2: storage.stripe: a list of texts is needed, not a whole number"},
        // limits
        Bad{"selective-hits = 0", "t.toml:1: selective-hits: 0 is not from 1 to 255"},
        Bad{"selective-hits = 256", "t.toml:1: selective-hits: 256 is not from 1 to 255"},
        Bad{"selective-hits = -1", "t.toml:1: selective-hits: \"-1\" is not a whole number"},
        Bad{"daily-writes = \"1GB\"", "t.toml:1: daily-writes: \"1GB\" is not a size (a number and B, KiB, MiB, GiB or TiB)"},
        Bad{"[[pool]]\nblock-bytes = 0", "t.toml:2: pool.block-bytes: 0 is too small: it must be more than 0"},
        Bad{"[[pool]]\nblock-bytes = \"1GiB\"", "t.toml:2: pool.block-bytes: 1GiB is more than 512MiB"},
        Bad{"[storage]\nbandwidth = \"fast\"", "t.toml:2: storage.bandwidth: \"fast\" is not a size per second, as in 50MiB/s"},
        Bad{"[storage]\nbreaker-window = \"0s\"", "t.toml:2: storage.breaker-window: 0s is too short: it must be more than 0"},
        Bad{"[storage]\nbreaker-window = \"25h\"", "t.toml:2: storage.breaker-window: 25h is more than 24h"},
        Bad{"[storage]\nbreaker-window = \"5 s\"",
            "t.toml:2: storage.breaker-window: \"5 s\" is not a duration (a number and ns, us, ms, s, min or h; without a unit: "
            "seconds)"},
        Bad{"unit-prefill = inf",
            "t.toml:1: unit-prefill: \"inf\" is not a duration (a number and ns, us, ms, s, min or h; without a unit: seconds)"},
        Bad{"[host]\nlow-watermark = \"120%\"",
            "t.toml:2: host.low-watermark: \"120%\" is not a number from 0 to 1, or a percentage"},
        Bad{"policy = \"mru\"", "t.toml:1: policy: there is no \"mru\"; there is: adaptive, lru"},
        Bad{"[[rank]]\ndevice = \"tpu\"", "t.toml:2: rank.device: there is no \"tpu\"; there is: emulated, cuda, cuda:N"},
        Bad{"[storage]\nwhere = \"disk\"", "t.toml:2: storage.where: there is no \"disk\"; there is: none, memory:, file:DIR"},
        Bad{"ranks = 65", "t.toml:1: ranks: 65 is not from 1 to 64"},
        // syntax
        Bad{"policy = \"lru\"\npolicy = \"lru\"", ""}, Bad{"policy", ""}),
    [](const auto& info) { return "n" + std::to_string(info.index); });

}  // namespace
}  // namespace terrace
