#include "terrace/config.hpp"

#include "runtime/config/table/nearest_name.hpp"
#include "runtime/config/table/table.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"
#include "tests/refusal.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;

/// Returns why the text is refused; nothing if it is not.
std::string refusal(const std::string& text) {
  return test::refusal_of<ConfigError>([&] { (void)parse_config(text, "t.toml"); });
}

const FileStorage& files(const CacheSystemOptions& options) { return std::get<FileStorage>(options.storage); }

TEST(ConfigText, that_is_empty_gives_the_defaults_of_the_options) {
  const CacheSystemOptions options = parse_config("");
  const CacheSystemOptions expected;
  ASSERT_EQ(options.pools.size(), 1U);
  EXPECT_EQ(options.pools[0].block_bytes, expected.pools[0].block_bytes);
  EXPECT_EQ(options.pools[0].device_blocks, Blocks{3000});
  EXPECT_EQ(options.pools[0].host_blocks, Blocks{8000});
  EXPECT_EQ(options.ranks.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<EmulatedGpu>(options.ranks[0].device));
  EXPECT_TRUE(std::holds_alternative<NoStorage>(options.storage));
  EXPECT_EQ(options.write_policy, WritePolicy::none);
  EXPECT_EQ(expected.write_policy, std::nullopt) << "the same, because there is no storage";
  EXPECT_EQ(options.loads, expected.loads);
  EXPECT_EQ(options.flush_interval, expected.flush_interval);
  EXPECT_EQ(options.write_back_blocks_ahead, expected.write_back_blocks_ahead);
  EXPECT_TRUE(options.groups.empty());
}

TEST(ConfigText, reads_each_form_of_a_value) {
  const CacheSystemOptions options = parse_config(R"(
inclusion = "keep"
unit-prefill = "2ms"
ranks = 3

[[rank]]
device = "cuda:1"
calibration = "/c.json"

[[pool]]
block-bytes = "1536KiB"
device-capacity = "1.5GiB"

[device]
low-watermark = 0.1
high-watermark = "20%"

[storage]
where = "file:/a"
stripe = ["/b", "/c"]
capacity = "1GiB"
floor = 4096
bandwidth = "50MiB/s"
flush-interval = 1.5
breaker-window = "1min"
)");
  ASSERT_EQ(options.ranks.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& gpu = std::get<CudaGpu>(options.ranks[static_cast<std::size_t>(rank)].device);
    EXPECT_EQ(gpu.ordinal, rank + 1);
    EXPECT_EQ(gpu.calibration, "/c.json");
  }
  EXPECT_EQ(options.inclusion, InclusionPolicy::non_inclusive);
  EXPECT_DOUBLE_EQ(options.unit_prefill_seconds, 0.002);
  EXPECT_EQ(options.pools[0].device_blocks, Blocks{1024});
  EXPECT_EQ(options.device_watermarks.low, 0.1);
  EXPECT_EQ(options.device_watermarks.high, 0.2);
  EXPECT_EQ(files(options).directories, (std::vector<std::filesystem::path>{"/a", "/b", "/c"}));
  EXPECT_EQ(files(options).capacity, GiB);
  EXPECT_EQ(files(options).floor, KiB * 4);
  EXPECT_EQ(files(options).bandwidth, per_second(MiB * 50));
  EXPECT_EQ(options.flush_interval, 1500ms);
  EXPECT_EQ(options.storage_guard->breaker.window, 1min);
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
  EXPECT_EQ(options.pools[1].device_blocks, Blocks{20});
  EXPECT_EQ(options.pools[1].host_blocks, Blocks{8000});
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

TEST(ConfigText, has_no_shared_store_unless_it_names_one) {
  EXPECT_FALSE(parse_config("").shared);
  const auto shared = parse_config("[shared]\nurl = \"rediss://kv@a:1,b:2?cluster=1&verify=0\"").shared;
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->url, "rediss://kv@a:1,b:2?cluster=1&verify=0");
  EXPECT_EQ(shared->write_policy, WritePolicy::selective);
  EXPECT_EQ(parse_config("[shared]\nurl = \"memory:\"\nwrite-policy = \"none\"").shared->write_policy, WritePolicy::none);
  EXPECT_FALSE(parse_config("[shared]\nurl = \"none\"\nprefix = \"a\"").shared) << "a file keeps the options of what is off";
}

TEST(SharedStorage, is_refused_by_a_start_for_the_same_reasons) {
  const auto why_not = [](const SharedStorage& shared) {
    return test::refusal_of<std::invalid_argument>([&] { (void)open_shared_store(shared); });
  };
  EXPECT_EQ(why_not({.url = "redis://h?prefix=a"}),
            "the URL of the shared store: there is no parameter \"prefix\"; there is: cluster, verify, cert_file, key_file");
  EXPECT_EQ(why_not({.url = "redis://h", .prefix = "a{b}"}),
            "the shared store: prefix has 1 to 64 letters, digits or characters of -_.:/");
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
        Bad{"[storage]\nstripe = [1]", "t.toml:2: storage.stripe: a list of texts is needed, but it has a whole number"},
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
        Bad{"policy = \"a\\nb\"", "t.toml:1: policy: there is no \"a b\"; there is: adaptive, lru"},
        Bad{"policy = \"mru\"", "t.toml:1: policy: there is no \"mru\"; there is: adaptive, lru"},
        Bad{"[[rank]]\ndevice = \"tpu\"", "t.toml:2: rank.device: there is no \"tpu\"; there is: emulated, cuda, cuda:N"},
        Bad{"[storage]\nwhere = \"/data/kv\"",
            "t.toml:2: storage.where: there is no \"/data/kv\"; a directory is written file:/data/kv"},
        Bad{"[storage]\nwhere = \"disk\"", "t.toml:2: storage.where: there is no \"disk\"; there is: none, memory:, file:DIR"},
        Bad{"ranks = 65", "t.toml:1: ranks: 65 is not from 1 to 64"},
        // contradictions
        Bad{"[[pool]]\ndevice-blocks = 3\ndevice-capacity = \"1GiB\"",
            "t.toml:2: give pool.device-blocks or pool.device-capacity, not both"},
        Bad{"[[pool]]\nhost-blocks = 3\nhost-capacity = \"1GiB\"",
            "t.toml:2: give pool.host-blocks or pool.host-capacity, not both"},
        Bad{"[[pool]]\ndevice-capacity = \"63KiB\"", "t.toml:2: pool.device-capacity: 63KiB is less than one block of 64KiB"},
        Bad{"[[pool]]\ndevice-blocks-max = 3",
            "t.toml:2: pool.device-blocks-max: 3 is less than the 3000 device blocks of the pool"},
        Bad{"[storage]\ncapacity = \"1GiB\"", "t.toml:2: storage.capacity is given, but no storage.where"},
        Bad{"[storage]\nwhere = \"memory:\"\ncapacity = \"1GiB\"\nfloor = 1",
            "t.toml:4: storage.floor is for storage.where file:DIR"},
        Bad{"[storage]\nwhere = \"file:/x\"", "t.toml:2: storage.where file:DIR needs storage.capacity"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = 1", "t.toml:3: storage.capacity: 1B is less than one block of 64KiB"},
        Bad{"[[pool]]\nblock-bytes = \"6KiB\"\n[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"",
            "t.toml:2: pool.block-bytes: with file storage a multiple of 4KiB, not 6KiB"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nstripe-size = \"1MiB\"",
            "t.toml:4: storage.stripe-size is for storage with storage.stripe"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nio = \"uring\"\nbandwidth = \"1MiB\"",
            "t.toml:5: storage.bandwidth needs storage.io threads, or auto"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nbreaker-probe = 5\nbreaker-probe-max = 4",
            "t.toml:5: storage.breaker-probe-max: 4s is less than the first time, 5s"},
        Bad{"write-policy = \"write-back\"", "t.toml:1: write-policy write-back needs storage.where"},
        Bad{"store-uncached = true", "t.toml:1: store-uncached needs storage.where or shared.url"},
        Bad{"store-uncached = true\n[storage]\nwhere = \"memory:\"\ncapacity = \"1GiB\"",
            "t.toml:1: store-uncached needs caching off"},
        Bad{"store-uncached = true\ncaching = false\ninclusion = \"inclusive\"\n[storage]\nwhere = \"memory:\"\ncapacity = "
            "\"1GiB\"",
            "t.toml:1: store-uncached keeps no copies in the host, but inclusion inclusive needs them there"},
        Bad{"host-admission = true\nengine-owns-slots = true",
            "t.toml:1: host-admission is about blocks that the cache evicts from the device: it cannot be combined with "
            "engine-owns-slots"},
        Bad{"host-admission = true\ninclusion = \"inclusive\"",
            "t.toml:1: host-admission leaves blocks out of the host, but inclusion inclusive copies all of them"},
        Bad{"[device]\nlow-watermark = 0.5\nhigh-watermark = 0.25",
            "t.toml:2: device.low-watermark: 0.5 is more than device.high-watermark, which is 0.25"},
        Bad{"[device]\nreserve-max = 1", "t.toml:2: device.reserve-max: 1 must be less than 1"},
        Bad{"[host]\nhigh-watermark = 1", "t.toml:2: host.high-watermark: 1 must be less than 1"},
        Bad{"ranks = 3", "pool.block-bytes: 64KiB cannot be divided among 3 ranks: use a multiple of 24 bytes"},
        Bad{"ranks = 3\n[[rank]]\n[[rank]]\ndevice = \"cuda\"", "rank.device names 2 devices, for 3 ranks"},
        Bad{"rank-payload = \"replicated\"", "t.toml:1: rank-payload needs ranks, or a rank.device for each"},
        Bad{"[[pool]]\nlayers = 1\n[[pool]]", "t.toml:2: several pools need several groups, but no group is given"},
        Bad{"\n[[group]]\npool = 1", "t.toml:3: group 0 uses pool 1, but there are 1 pools"},
        Bad{"[[group]]\nkind = \"sliding-window\"\nspan-tokens = 4",
            "t.toml:2: group 0 (sliding-window) may have gaps: its pool 0 needs a null block"},
        Bad{"[[pool]]\nnull-block = true\ndevice-blocks = 1",
            "t.toml:3: pool 0: the device needs at least one block in addition to the null block"},
        Bad{"[[pool]]\nlayers = 3", "pool.block-bytes: 64KiB cannot be divided into 3 layers: use a multiple of 3 bytes"},
        Bad{"ranks = 2\n[[pool]]\nlayers = 3\nblock-bytes = \"64KiB\"",
            "t.toml:4: pool.block-bytes: 64KiB cannot be divided into 3 layers: use a multiple of 6 bytes"},
        Bad{"key-order = \"flat\"", "t.toml:1: key-order flat needs engine-owns-slots on"},
        Bad{"engine-owns-slot = true",
            "t.toml:1: there is no option \"engine-owns-slot\" in front of the tables; did you mean engine-owns-slots?"},
        Bad{"engine-owns-slots = true\n[[pool]]\nnull-block = true",
            "t.toml:3: pool.null-block cannot be combined with engine-owns-slots: the engine numbers all slots of its device"},
        Bad{"engine-owns-slots = true\n[[pool]]\nfirst-slot = 1",
            "t.toml:3: pool.first-slot cannot be combined with engine-owns-slots: the engine numbers all slots of its device"},
        Bad{"fingerprint = \"12\"", "t.toml:1: fingerprint: \"12\" is not 64 hexadecimal digits"},
        Bad{"fingerprint = 12", "t.toml:1: fingerprint: a text is needed, not a whole number"},
        Bad{"[[rank]]\ncalibration = \"/c\"", "t.toml:2: rank.calibration is for rank.device cuda:N"},
        Bad{"[[rank]]\n[[rank]]\ndevice = \"cuda\"\nlink-latency = \"1ms\"",
            "t.toml:4: rank.link-latency is for rank.device emulated"},
        Bad{"[[rank]]\nlink-latency = \"25h\"", "t.toml:2: rank.link-latency: 25h is more than 24h"},
        Bad{"[[rank]]\nbandwidth = \"1KiB/s\"",
            "t.toml:2: there is no option \"bandwidth\" in [[rank]]; it belongs in [storage]"},
        Bad{"[[rank]]\nswapin-bandwidth = \"1KiB/s\"",
            "t.toml:2: there is no option \"swapin-bandwidth\" in [[rank]]; did you mean swap-in-bandwidth?"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nguard = false\nretries = 3",
            "t.toml:5: storage.retries needs storage.guard on"},
        Bad{"[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nname = \"My store\"",
            "t.toml:4: storage.name: \"My store\" is not a name of at most 64 digits, lower-case letters and '-'"},
        Bad{"[storage]\nwhere = \"memory:\"\ncapacity = \"64KiB\"\n[[pool]]\n[[pool]]\n[[group]]\n[[group]]\npool = 1",
            "t.toml:3: storage.capacity: a storage capacity of 64KiB gives pool 0 no block of 64KiB: at least 131072 bytes are "
            "needed"},
        Bad{"[storage]\nwhere = \"redis://u:secret@h\"",
            "t.toml:2: storage.where: there is no \"redis\"; there is: none, memory:, file:DIR"},
        // a shared store
        Bad{"[shared]\nurl = \"http://u:secret@h\"",
            "t.toml:2: shared.url: there is no \"http\"; there is: none, memory:, redis://HOST, rediss://HOST"},
        Bad{"[shared]\nurl = \"redis\"",
            "t.toml:2: shared.url: there is no \"redis\"; there is: none, memory:, redis://HOST, rediss://HOST"},
        Bad{"[shared]\nurl = \"redis://\"", "t.toml:2: shared.url: redis:// needs a server, as in redis://cache:6379"},
        Bad{"[shared]\nurl = \"rediss://user@/0\"", "t.toml:2: shared.url: rediss:// needs a server, as in rediss://cache:6379"},
        Bad{"[shared]\nurl = \"redis://a b\"", "t.toml:2: shared.url: redis:// needs a server, as in redis://cache:6379"},
        Bad{"[shared]\nurl = \"redis://user:secret@cache\"",
            "t.toml:2: shared.url: a URL is shown to operators, so it has no password: use TERRACE_SHARED_PASSWORD, or a file"},
        Bad{"[shared]\nurl = \"redis://user:sec/ret@cache\"",
            "t.toml:2: shared.url: a URL is shown to operators, so it has no password: use TERRACE_SHARED_PASSWORD, or a file"},
        Bad{"[shared]\nurl = \"redis://cache?cluster=1&prefix=a\"",
            "t.toml:2: shared.url: prefix in the URL has an option of its own, shared.prefix"},
        Bad{"[shared]\nurl = \"redis://cache?window=1MiB\"",
            "t.toml:2: shared.url: window in the URL has an option of its own, shared.window-bytes"},
        Bad{"[shared]\nurl = \"redis://h/x\"",
            "t.toml:2: shared.url: what follows the / after the host is not the number of a database, such as /1"},
        Bad{"[shared]\nurl = \"redis://h?verify=0\"",
            "t.toml:2: shared.url: the parameter verify is for rediss://, because redis:// has no TLS"},
        Bad{"[shared]\nurl = \"redis://h?color=red\"",
            "t.toml:2: shared.url: there is no parameter \"color\"; there is: cluster, verify, cert_file, key_file"},
        Bad{"[shared]\nurl = \"redis://h?cluster=1&cluster=1\"", "t.toml:2: shared.url: the parameter cluster is given twice"},
        Bad{"[shared]\nurl = \"redis://u:secret\"",
            "t.toml:2: shared.url: \"u\" is not the beginning of HOST or HOST:PORT, with a port from 1 to 65535"},
        Bad{"[shared]\nprefix = \"a\"", "t.toml:2: shared.prefix is given, but no shared.url"},
        Bad{"[shared]\nurl = \"memory:\"\npassword-file = \"/p\"",
            "t.toml:3: shared.password-file is for shared.url redis://HOST or rediss://HOST"},
        Bad{"[shared]\nurl = \"redis://cache\"\nca-file = \"/c\"", "t.toml:3: shared.ca-file is for shared.url rediss://HOST"},
        Bad{"[shared]\nurl = \"redis://cache\"\nprefix = \"a{b}\"",
            "t.toml:3: shared.prefix: \"a{b}\" is not 1 to 64 letters, digits or characters of -_.:/"},
        Bad{"[shared]\nurl = \"redis://cache\"\nwrite-policy = \"write-back\"",
            "t.toml:3: shared.write-policy: there is no \"write-back\"; there is: none, selective, write-through"},
        Bad{"[shared]\nurl = \"redis://cache\"\nprobe-deadline = 0",
            "t.toml:3: shared.probe-deadline: 0 is too short: it must be more than 0"},
        Bad{"[shared]\nurl = \"redis://cache\"\nexpiry = \"0s\"",
            "t.toml:3: shared.expiry: 0s is too short: it must be more than 0"},
        Bad{"[shared]\nurl = \"redis://cache\"\nconnections-per-node = 65",
            "t.toml:3: shared.connections-per-node: 65 is not from 1 to 64"},
        Bad{"[log]\nwaiting-max = 0", "t.toml:2: log.waiting-max: 0 is not from 1 to 65536"}));

TEST(ConfigText, that_is_no_toml_is_refused_with_its_line) {
  for (const std::string text :
       {"a = 1\npolicy = \"lru\"\npolicy = \"lru\"", "\n\npolicy", "\n\npolicy = \"lru", "\n\n[storage"}) {
    const std::string sentence = refusal(text);
    EXPECT_TRUE(sentence.starts_with("t.toml:3: ")) << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  }
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, ' ')), "t.toml: 1048577 bytes are too long for a configuration: at most 1048576");
}

TEST(ConfigText, that_is_wrong_changes_nothing) {
  Config config;
  config.read_text("policy = \"lru\"", "a");
  EXPECT_THROW(config.read_text("selective-hits = 3\npolicy = 1", "b"), ConfigError);
  EXPECT_EQ(config.value("policy"), "lru");
  EXPECT_FALSE(config.has("selective-hits"));
}

// ---- precedence ----------------------------------------------------------------------------------------------------------

constexpr std::array<const char*, 2> host_variable{"TERRACE_HOST_BLOCKS=2", nullptr};
constexpr const char* host_file = "[[pool]]\nhost-blocks = 1";

TEST(ConfigPrecedence, is_flag_environment_file_default_in_any_order_of_calls) {
  std::array<int, 3> order{0, 1, 2};
  do {
    Config config;
    std::size_t highest = 0;
    for (const int level : order) {
      if (level == 0) config.read_text(host_file, "t.toml");
      if (level == 1) config.read_environment(host_variable.data());
      if (level == 2) config.set("--host-blocks", "3");
      highest = std::max(highest, static_cast<std::size_t>(level));
      EXPECT_EQ(config.value("pool.host-blocks"), std::to_string(highest + 1));
    }
    EXPECT_EQ(config.options().pools[0].host_blocks, Blocks{3});
    EXPECT_EQ(config.origin("pool.host-blocks").where, "--host-blocks");
  } while (std::ranges::next_permutation(order).found);
}

TEST(ConfigPrecedence, lets_a_capacity_of_a_higher_level_displace_blocks) {
  Config config;
  config.read_text("[[pool]]\ndevice-blocks = 5\nhost-capacity = \"1GiB\"", "t.toml");
  config.set("--device-capacity", "640KiB");
  config.set("--host-blocks", "0");
  EXPECT_EQ(config.options().pools[0].device_blocks, Blocks{10});
  EXPECT_EQ(config.options().pools[0].host_blocks, Blocks{0});
  EXPECT_EQ(config.value("pool.device-blocks"), "");
  EXPECT_EQ(config.value("pool.host-capacity"), "");
}

TEST(ConfigPrecedence, lets_a_higher_level_switch_storage_off) {
  Config config;
  config.read_text("[storage]\nwhere = \"file:/x\"\ncapacity = \"1GiB\"\nretries = 3", "t.toml");
  config.set("--storage", "none");
  EXPECT_TRUE(std::holds_alternative<NoStorage>(config.options().storage));
  EXPECT_EQ(config.options().write_policy, WritePolicy::none);
}

TEST(ConfigPrecedence, of_devices_replaces_all_ranks) {
  Config config;
  config.set("--device", "emulated");
  config.read_text("[[rank]]\ndevice = \"cuda:3\"\n[[rank]]\ndevice = \"cuda:4\"", "t.toml");
  EXPECT_EQ(config.options().ranks.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<EmulatedGpu>(config.options().ranks[0].device));
  config.set("--device", "cuda:5,emulated");
  ASSERT_EQ(config.options().ranks.size(), 2U);
  EXPECT_EQ(std::get<CudaGpu>(config.options().ranks[0].device).ordinal, 5);
}

TEST(ConfigPrecedence, of_pools_cannot_name_one_of_several) {
  Config config;
  config.read_text("[[pool]]\n[[pool]]\n[[group]]\n[[group]]\npool = 1", "t.toml");
  EXPECT_EQ(config.options().pools.size(), 2U);
  config.set("--host-blocks", "3");
  EXPECT_EQ(test::refusal_of<ConfigError>([&] { (void)config.options(); }),
            "--host-blocks: there are 2 pools; set host-blocks in the [[pool]] tables of the file");
}

// ---- environment and flags -----------------------------------------------------------------------------------------------

std::string refused_variable(const char* variable) {
  const std::array<const char*, 2> variables{variable, nullptr};
  return test::refusal_of<ConfigError>([&] {
    Config config;
    config.read_environment(variables.data());
  });
}

TEST(ConfigEnvironment, is_refused_with_the_name_of_the_variable) {
  EXPECT_EQ(refused_variable("TERRACE_HOST_BLOCKS=x"), "TERRACE_HOST_BLOCKS: \"x\" is not a whole number");
  EXPECT_EQ(refused_variable("TERRACE_HOST_BLOCKS"), "TERRACE_HOST_BLOCKS: \"\" is not a whole number");
  EXPECT_EQ(refused_variable("TERRACE_POLICI=lru"), "TERRACE_POLICI: there is no such option; did you mean TERRACE_POLICY?");
}

TEST(ConfigEnvironment, may_have_variables_of_other_programs) {
  // Variables of a cluster's service "terrace", and of our own tests.
  for (const char* const variable :
       {"TERRACE_PORT=tcp://10.0.0.1:80", "TERRACE_SERVICE_HOST=10.0.0.1", "TERRACE_SERVICE_PORT=80", "TERRACE_SEED=1",
        "TERRACE_SEEDS=1", "TERRACE_LONG=1", "TERRACE_TRACES=/t", "TERRACE_KILLS=1", "TERRACE_VERBOSE=1", "HOST_BLOCKS=x"}) {
    EXPECT_EQ(refused_variable(variable), "") << variable;
  }
}

TEST(ConfigEnvironment, separates_directories_by_colons) {
  Config config;
  const std::array<const char*, 4> variables{"TERRACE_STORAGE=file:/a", "TERRACE_STORAGE_CAPACITY=1GiB",
                                             "TERRACE_STORAGE_STRIPE=/b:/c", nullptr};
  config.read_environment(variables.data());
  EXPECT_EQ(files(config.options()).directories, (std::vector<std::filesystem::path>{"/a", "/b", "/c"}));
}

TEST(ConfigEnvironment, has_the_password_of_a_shared_store_and_shows_it_nowhere) {
  Config config;
  const std::array<const char*, 3> variables{"TERRACE_SHARED_PASSWORD=hush=1", "TERRACE_SHARED=redis://cache", nullptr};
  config.read_environment(variables.data());
  const CacheSystemOptions options = config.options();
  ASSERT_TRUE(options.shared);
  EXPECT_EQ(options.shared->password, "hush=1");
  for (const ConfigValue& value : options.admin.config) {
    EXPECT_EQ(value.value.find("hush"), std::string::npos) << value.name;
  }
  EXPECT_TRUE(config.ignored_variables().empty());
  EXPECT_EQ(refused_variable("TERRACE_SHARED_PASWORD=hush"),
            "TERRACE_SHARED_PASWORD: there is no such option; did you mean TERRACE_SHARED_PASSWORD?");
  config.set("--shared", "none");
  EXPECT_FALSE(config.options().shared);
  config.set("--shared", "redis://cache");
  config.set("--shared-password-file", "/etc/password");
  EXPECT_EQ(config.options().shared->password, "") << "the file goes before the variable";
}

TEST(ConfigFlags, have_older_names_and_near_ones) {
  Config config;
  config.set("--relation", "keep");
  EXPECT_EQ(config.value("inclusion"), "non-inclusive");
  EXPECT_EQ(test::refusal_of<ConfigError>([&] { config.set("--host-block", "3"); }),
            "there is no option --host-block; did you mean --host-blocks?");
}

// ---- the table -----------------------------------------------------------------------------------------------------------

TEST(ConfigTable, has_every_name_once) {
  std::set<std::string> names;
  std::set<std::string> variables;
  for (const config::Option& option : config::options()) {
    EXPECT_TRUE(names.insert(option.name()).second) << option.name();
    if (!option.variable().empty()) {
      EXPECT_TRUE(variables.insert(option.variable()).second) << option.variable();
    }
    EXPECT_FALSE(option.help.empty() || option.help.ends_with('.')) << option.name();
    EXPECT_EQ(config::find_option(option.table, option.key), &option);
    EXPECT_EQ(option.otherwise.empty(), option.example.empty()) << option.name();
  }
}

TEST(ConfigTable, keeps_every_default_within_its_limits_and_writes_it_exactly) {
  config::Draft draft = config::default_draft(1, 1, 1);
  for (const config::Option& option : config::options()) {
    const std::optional<config::Value> value = option.get(draft, 0);
    if (!value || option.type == config::Type::paths || !option.otherwise.empty()) continue;
    const std::string word = config::to_word(option.type, *value);
    EXPECT_EQ(config::read_value(option.type, option.name(), word, option.limits, option.names), *value) << option.name();
    option.set(draft, 0, *value);
    EXPECT_EQ(option.get(draft, 0), value) << option.name();
  }
}

TEST(ConfigTable, says_what_more_policies_there_are) {
  const Config config{{{"fifo", adaptive_policy}}};
  EXPECT_EQ(config.table().front().limits, "adaptive, lru, fifo");
  Config other = config;
  other.set("--policy", "fifo");
  EXPECT_EQ(other.value("policy"), "fifo");
  EXPECT_EQ(config.value("policy"), "adaptive");
}

TEST(ConfigValues, are_exact) {
  using config::read_value;
  using config::Type;
  const auto round = [](Type type, const std::string& word) {
    return config::to_word(type, read_value(type, "x", word, {}, {}));
  };
  EXPECT_EQ(round(Type::size, "1.5KiB"), "1536B");
  EXPECT_EQ(round(Type::size, "1024GiB"), "1TiB");
  EXPECT_EQ(round(Type::bandwidth, "50MiB"), "50MiB/s");
  EXPECT_EQ(round(Type::bandwidth, "50MiB/s"), "50MiB/s");
  EXPECT_EQ(round(Type::duration, "0.5"), "500ms");
  EXPECT_EQ(round(Type::duration, "90s"), "90s");
  EXPECT_EQ(round(Type::duration, "120s"), "2min");
  EXPECT_EQ(round(Type::duration, "1e-12"), "1ns");
  EXPECT_EQ(round(Type::share, "12.5%"), "0.125");
  EXPECT_EQ(round(Type::yes_no, "true"), "on");
  EXPECT_EQ(round(Type::device, "cuda"), "cuda:0");
  EXPECT_EQ(config::toml_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
  EXPECT_EQ(to_string(BytesPerSecond{1 << 20}), "1MiB/s");
}

TEST(NearestName, is_near) {
  const std::vector<std::string> known{"host-blocks", "host-capacity", "io"};
  EXPECT_EQ(nearest_name("host-blokcs", known), "host-blocks");
  EXPECT_EQ(nearest_name("host_capacity", known), "host-capacity");
  EXPECT_EQ(nearest_name("oi", known), "io");
  EXPECT_EQ(nearest_name("frobnicate", known), "");
  EXPECT_EQ(nearest_name(std::string(1000, 'x'), known), "");
  EXPECT_EQ(suggestion("hostblocks", known), "; did you mean host-blocks?");
}

}  // namespace
}  // namespace terrace
