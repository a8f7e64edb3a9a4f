#include "tools/replay/options/options.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/replay/options/preflight.hpp"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

/// Parses as the program does.
ReplayOptions parse(std::vector<std::string> words) {
  CLI::App app;
  ReplayArguments arguments;
  add_replay_options(app, arguments);
  std::ranges::reverse(words);  // CLI11 expects this order
  app.parse(words);
  return resolve(arguments);
}

struct Bad {
  std::vector<std::string> words;
  std::string message;  ///< a part of the message
};

class BadOptions : public testing::TestWithParam<Bad> {};

/// Returns why the words are refused; nothing if they are not.
std::string refusal(const std::vector<std::string>& words) {
  return test::refusal_of<UsageError>([&] { (void)parse(words); });
}

TEST_P(BadOptions, are_refused_with_one_clear_line) {
  const std::string text = refusal(GetParam().words);
  EXPECT_NE(text.find(GetParam().message), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

using Words = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    All, BadOptions,
    testing::Values(
        Bad{{"--device", "cuda:999"}, "emulated works everywhere"}, Bad{{"--device", "cuda:x"}, "there is no \"cuda:x\""},
        Bad{{"--device", "cuda:-1"}, "there is no \"cuda:-1\""}, Bad{{"--device", "tpu"}, "there is: emulated, cuda, cuda:N"},
        Bad{{"--device", "emulated,emulated,emulated", "--ranks", "2"}, "--device names 3 devices, for 2 ranks"},
        Bad{{"--device", "emulated,emulated", "--ranks", "1"}, "--device names 2 devices, for 1 rank"},
        Bad{{"--device", "emulated,"}, "there is no \"\""}, Bad{{"--device", "emulated,cuda:999"}, "--device cuda:999: "},
        Bad{{"--device", "emulated,emulated,emulated"}, "cannot be divided among 3 ranks"},
        Bad{{"--ranks", "0"}, "--ranks: 0 is not from 1 to 64"}, Bad{{"--ranks", "65"}, "is not from 1 to 64"},
        Bad{{"--ranks", "3"}, "cannot be divided among 3 ranks: use a multiple of 24 bytes"},
        Bad{{"--rank-payload", "sharded"}, "--rank-payload needs --ranks"},
        Bad{{"--ranks", "2", "--rank-payload", "all"}, "there is: sharded, replicated"},
        Bad{{"--policy", "mru"}, "there is: adaptive, lru"}, Bad{{"--workload", "talk"}, "there is: chat, agent, rag"},
        Bad{{"t.jsonl", "--workload", "chat"}, "not both"}, Bad{{"--device-blocks", "0"}, "--device-blocks: 0 is not from 1"},
        Bad{{"--device-blocks", "x"}, "not a whole number"}, Bad{{"--device-blocks", "1.5"}, "not a whole number"},
        Bad{{"--device-blocks", "99999999999999999999"}, "is not from 1"},
        Bad{{"--device-blocks", "4294967297"}, "is not from 1"},
        Bad{{"--device-blocks", "10", "--device-capacity", "1GiB"}, "--device-blocks or --device-capacity, not both"},
        Bad{{"--host-blocks", "10", "--host-capacity", "1GiB"}, "--host-blocks or --host-capacity, not both"},
        Bad{{"--device-capacity", "1GB"}, "is not a size"}, Bad{{"--device-capacity", "0"}, "must be more than 0"},
        Bad{{"--device-capacity", "17179869184GiB"}, "is not a size"},
        Bad{{"--device-capacity", "63KiB"}, "less than one block of 64KiB"},
        Bad{{"--device-capacity", "1024TiB", "--block-bytes", "64KiB"}, "more than"},
        Bad{{"--host-capacity", "63KiB"}, "less than one block"}, Bad{{"--host-capacity", "half"}, "is not a size"},
        Bad{{"--host-blocks", "-1"}, "not a whole number"}, Bad{{"--block-bytes", "0"}, "must be more than 0"},
        Bad{{"--block-bytes", "64kb"}, "is not a size"}, Bad{{"--block-bytes", "1GiB"}, "more than 512MiB"},
        Bad{{"--groups", "full"}, "\"full\" is not KIND:BLOCK_TOKENS"},
        Bad{{"--groups", "full:64,window:64"}, "\"window:64\" is not"}, Bad{{"--groups", "full:64:7"}, "\"full:64:7\" is not"},
        Bad{{"--groups", "half:64"}, "\"half:64\" is not"}, Bad{{"--groups", "full:0"}, "\"full:0\" is not"},
        Bad{{"--groups", "window:64:256"}, "--groups: one group must be full, and not optional"},
        Bad{{"--groups", "full:128"}, "blocks of 64 tokens and their multiples"},
        Bad{{"--groups", "full:64,full:96"}, "blocks of 64 tokens and their multiples"},
        Bad{{"--groups", "full:64,window:128:512:optional"}, "a hit may end within them"},
        Bad{{"--groups", "full:64", "--mode", "loop"}, "--groups runs in --mode confined"},
        Bad{{"--groups", "full:64", "--reference"}, "--groups makes no sense"}, Bad{{"--layers", "0"}, "--layers: 0"},
        Bad{{"--layers", "4", "--mode", "loop"}, "--layers runs in --mode confined"},
        Bad{{"--layers", "4", "--reference"}, "--layers makes no sense"},
        Bad{{"--layers", "3"}, "--block-bytes: 64KiB cannot be divided into 3 layers: use a multiple of 3 bytes"},
        Bad{{"--layers", "16384"}, "--block-bytes: 64KiB cannot be divided into 16384 layers: use a multiple of 131072 bytes"},
        Bad{{"--block-tokens", "0"}, "--block-tokens: 0"}, Bad{{"--storage", "disk"}, "there is: none, memory:, file:DIR"},
        Bad{{"--storage", "file:", "--storage-capacity", "1GiB"}, "needs a directory"},
        Bad{{"--storage", "file:/x"}, "needs --storage-capacity"}, Bad{{"--storage", "memory:"}, "needs --storage-capacity"},
        Bad{{"--storage", "memory:", "--storage-capacity", "0"}, "must be more than 0"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1KiB"}, "less than one block"},
        Bad{{"--storage-capacity", "1GiB"}, "no --storage"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--block-bytes", "6KiB"}, "a multiple of 4KiB"},
        Bad{{"--write-policy", "write-back"}, "needs --storage"},
        Bad{{"--write-policy", "sometimes"}, "there is: none, write-through"},
        Bad{{"--inclusion", "none"}, "there is: non-inclusive, exclusive, inclusive, lazy-exclusive"},
        Bad{{"--mode", "threads"}, "there is: confined, loop"}, Bad{{"--verify", "most"}, "there is: all, sample, none"},
        Bad{{"--release", "never"}, "there is: done, launch"}, Bad{{"--concurrency", "0"}, "--concurrency: 0"},
        Bad{{"--speed", "0"}, "greater than 0"}, Bad{{"--speed", "-1"}, "greater than 0"},
        Bad{{"--speed", "inf"}, "greater than 0"}, Bad{{"--speed", "nan"}, "greater than 0"},
        Bad{{"--speed", "fast"}, "greater than 0"}, Bad{{"--speed", "2", "--concurrency", "4"}, "not both"},
        Bad{{"--prefill-speed", "0"}, "--prefill-speed: \"0\" is not a number greater than 0"},
        Bad{{"--prefill-speed", "1000", "--loads", "some"}, "there is: measured, always, host, none"},
        Bad{{"--reference", "--prefill-speed", "1000"}, "--prefill-speed makes no sense"},
        Bad{{"--storage-bandwidth", "1MiB"}, "no --storage"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--storage-bandwidth", "1MiB"}, "for --storage file:DIR"},
        Bad{{"--storage-floor", "1MiB"}, "no --storage"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--storage-floor", "1MiB"}, "for --storage file:DIR"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-floor", "some"}, "--storage-floor"},
        Bad{{"--storage-io", "uring"}, "no --storage"},
        Bad{{"--storage-stripe", "/y"}, "--storage-stripe is given, but no --storage"},
        Bad{{"--storage-accept-lost"}, "--storage-accept-lost is given, but no --storage"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--storage-stripe", "/y"}, "for --storage file:DIR"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-stripe", ""}, "--storage-stripe needs a directory"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-accept-lost"},
            "--storage-accept-lost is for storage with --storage-stripe"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-stripe-size", "1MiB"},
            "--storage-stripe-size is for storage with --storage-stripe"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-stripe", "/y", "--storage-stripe-size", "0"},
            "must be more than 0"},
        Bad{{"--checkpoint", "5"}, "--checkpoint needs --storage"},
        Bad{{"--prefetch-ahead", "1"}, "--prefetch-ahead needs --speed, and --mode confined"},
        Bad{{"--prefetch-ahead", "1", "--speed", "2", "--mode", "loop"}, "--prefetch-ahead needs --speed, and --mode confined"},
        Bad{{"--prefetch-ahead", "1", "--speed", "2", "--host-blocks", "0"}, "there is none"},
        Bad{{"--prefetch-ahead", "1", "--speed", "2", "--loads", "host"}, "which --loads host forbids"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--checkpoint", "0"}, "must be more than 0"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--checkpoint", "1e9"}, "1e9 is more than 24h"},
        Bad{{"--skip", "some"}, "--skip: \"some\" is not a whole number"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--storage-io", "uring"}, "for --storage file:DIR"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-io", "aio"}, "there is: auto, uring, threads"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-io", "uring", "--storage-bandwidth", "1MiB"},
            "--storage-io threads"},
        Bad{{"--storage-retries", "2"}, "--storage-retries is given, but no --storage"},
        Bad{{"--storage", "memory:", "--storage-capacity", "1GiB", "--storage-retries", "2"}, "for --storage file:DIR"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-retries", "101"}, "101 is not from 0 to 100"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-breaker-failures", "0"}, "0 is not from 1"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-breaker-window", "0"}, "must be more than 0"},
        Bad{{"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-breaker-probe", "90000"}, "90000 is more than 24h"},
        Bad{{"--step-tokens", "0"}, "--step-tokens: 0 is not from 1"}, Bad{{"--step-tokens", "few"}, "not a whole number"},
        Bad{{"--output-tokens-max", "-1"}, "not a whole number"},
        Bad{{"--output-tokens-max", "99999999999"}, "--output-tokens-max: 99999999999 is not from 0"},
        Bad{{"--cache-output", "maybe"}, "there is: on, off"}, Bad{{"--tell-output", "1"}, "there is: on, off"},
        Bad{{"--abort-rate", "1.5"}, "not a number from 0 to 1"}, Bad{{"--abort-rate", "-0.1"}, "not a number from 0 to 1"},
        Bad{{"--abort-rate", "nan"}, "not a number from 0 to 1"}, Bad{{"--abort-rate", "often"}, "not a number from 0 to 1"},
        Bad{{"--reference", "--step-tokens", "100"}, "--step-tokens makes no sense"},
        Bad{{"--reference", "--output-tokens-max", "1"}, "--output-tokens-max makes no sense"},
        Bad{{"--reference", "--cache-output", "off"}, "--cache-output makes no sense"},
        Bad{{"--reference", "--abort-rate", "0.1"}, "--abort-rate makes no sense"}, Bad{{"--threads", "2"}, "--mode loop"},
        Bad{{"--mode", "loop", "--threads", "0"}, "--threads: 0"}, Bad{{"--requests", "0"}, "--requests: 0"},
        Bad{{"--seed", "-1"}, "not a whole number"}, Bad{{"--report", ""}, "--report"}, Bad{{""}, "name is empty"},
        Bad{{"--reference", "--speed", "2"}, "one request at a time"},
        Bad{{"--reference", "--concurrency", "2"}, "one request at a time"},
        Bad{{"--reference", "--release", "launch"}, "one request at a time"},
        Bad{{"--reference", "--mode", "loop"}, "--mode confined"}, Bad{{"--reference", "--inject", "no-fence"}, "makes no sense"},
        Bad{{"--reference", "--loads", "measured"}, "--loads measured makes no sense"},
        Bad{{"--inject", "rust"}, "there is: flip, late, no-fence"},
        Bad{{"--inject", "flip", "--host-blocks", "0"}, "needs a host tier or storage"},
        Bad{{"--inject", "flip", "--verify", "none"}, "needs --verify all"},
        Bad{{"--inject", "no-fence", "--release", "done"}, "needs --release launch"}));

TEST(Options, of_files_are_refused_without_them) {
  for (const Words& option :
       {Words{"--storage-floor", "0"}, Words{"--storage-name", "x"}, Words{"--storage-stripe", "/y"},
        Words{"--storage-stripe-size", "1MiB"}, Words{"--storage-accept-lost"}, Words{"--storage-bandwidth", "1MiB"},
        Words{"--storage-io", "auto"}, Words{"--storage-retries", "2"}, Words{"--storage-breaker-failures", "2"},
        Words{"--storage-breaker-window", "2"}, Words{"--storage-breaker-probe", "2"}}) {
    Words memory{"--storage", "memory:", "--storage-capacity", "1GiB"};
    memory.insert(memory.end(), option.begin(), option.end());
    EXPECT_EQ(refusal(memory), option.front() + " is for --storage file:DIR");
    EXPECT_EQ(refusal(option), option.front() + " is given, but no --storage");
  }
}

// A machine with one GPU has no second one, and a machine without a GPU has no first one.
TEST(Options, say_why_a_device_cannot_be_used) {
  const std::string text = refusal({"--device", "cuda", "--ranks", "64"});
  EXPECT_NE(text.find("CUDA"), std::string::npos) << text;
}

TEST(Options, of_the_cache_come_from_the_configuration_and_flags_win) {
  CLI::App app;
  ReplayArguments arguments;
  arguments.config = Config{{{"mine", lru_policy}}};
  add_replay_options(app, arguments);
  arguments.config.read_text("policy = \"mine\"\nloads = \"measured\"\n[[pool]]\nhost-blocks = 7\ndevice-blocks = 9", "t.toml");
  app.parse(std::vector<std::string>{"11", "--host-blocks"});  // CLI11 expects this order
  const ReplayOptions options = resolve(arguments);
  EXPECT_EQ(options.host_blocks, 11U);
  EXPECT_EQ(options.device_blocks, 9U);
  EXPECT_EQ(options.policy.name, "mine");
  EXPECT_NE(options.policy.make(1), nullptr);
  EXPECT_EQ(options.loads, Loads::measured);
  EXPECT_EQ(options.system.pools.front().host_blocks, Blocks{11});
}

TEST(Options, show_the_help_even_with_a_wrong_value) {
  EXPECT_THROW((void)parse({"--policy", "mru", "--help"}), CLI::CallForHelp);
  EXPECT_THROW((void)parse({"--help-all", "--policy", "mru"}), CLI::CallForAllHelp);
}

TEST(Options, are_complete_where_nothing_is_given) {
  const ReplayOptions options = parse({});
  EXPECT_TRUE(options.trace.empty());
  EXPECT_EQ(options.workload, "chat");
  EXPECT_EQ(options.device_blocks, 3000);
  EXPECT_EQ(options.host_blocks, 8000);
  EXPECT_EQ(options.block_bytes, KiB * 64);
  EXPECT_EQ(options.concurrency, 16);
  EXPECT_EQ(options.step_tokens, 8192);
  EXPECT_EQ(options.output_tokens_max, 128);
  EXPECT_TRUE(options.cache_output);
  EXPECT_EQ(options.abort_rate, 0);
  EXPECT_EQ(options.requests_max, 2000);
  EXPECT_EQ(options.verify, Verify::all);
  EXPECT_EQ(options.write_policy, WritePolicy::none);
  EXPECT_FALSE(options.has_storage());
}

TEST(Options, know_every_workload) {
  for (const char* const name : {"chat", "agent", "rag"}) EXPECT_EQ(parse({"--workload", name}).workload, name);
}

TEST(Options, of_a_trace_are_all_of_it_in_blocks_of_512_tokens) {
  const ReplayOptions options = parse({"t.jsonl"});
  EXPECT_EQ(options.trace, "t.jsonl");
  EXPECT_EQ(options.requests_max, ReplayOptions::all_requests);
  EXPECT_EQ(options.block_tokens, 512);
}

TEST(Options, take_capacities_as_whole_blocks) {
  const ReplayOptions options = parse({"--block-bytes", "1MiB", "--device-capacity", "1.5GiB", "--host-capacity", "2047.5MiB"});
  EXPECT_EQ(options.device_blocks, 1536);
  EXPECT_EQ(options.host_blocks, 2047);
  EXPECT_EQ(parse({"--host-capacity", "0"}).host_blocks, 0);
  EXPECT_EQ(parse({"--host-blocks", "0"}).host_blocks, 0);
}

TEST(Options, write_through_where_there_is_storage_and_nothing_else_is_said) {
  const ReplayOptions options = parse({"--storage", "file:/some/where", "--storage-capacity", "1GiB"});
  EXPECT_EQ(options.write_policy, WritePolicy::write_through);
  EXPECT_EQ(std::get<FileStorage>(options.system.storage).directories, std::vector<std::filesystem::path>{"/some/where"});
  EXPECT_EQ(std::get<FileStorage>(options.system.storage).capacity, GiB);
  EXPECT_EQ(std::get<FileStorage>(options.system.storage).floor, Bytes{});
}

TEST(Options, read_groups_and_give_them_pools) {
  const ReplayOptions options =
      parse({"--groups", "full:64,window:64:256:optional,chunked:128:512,recurrent:128", "--layers", "4"});
  ASSERT_EQ(options.groups.size(), 4U);
  EXPECT_EQ(options.groups[1].kind, GroupKind::sliding_window);
  EXPECT_EQ(options.groups[1].span_tokens, 256U);
  EXPECT_TRUE(options.groups[1].optional);
  EXPECT_EQ(options.groups[1].pool, PoolId{0});
  EXPECT_EQ(options.groups[2].kind, GroupKind::chunked_local);
  EXPECT_EQ(options.groups[3].kind, GroupKind::recurrent);
  EXPECT_EQ(options.groups[3].pool, PoolId{1});
  EXPECT_EQ(options.layers, 4U);
  EXPECT_TRUE(parse({}).groups.empty());
}

TEST(Options, take_a_floor_of_free_space) {
  const ReplayOptions options = parse({"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-floor", "2GiB"});
  EXPECT_EQ(std::get<FileStorage>(options.system.storage).floor, GiB * 2);
}

TEST(Options, stripe_storage_over_the_directories_in_their_order) {
  const Words file{"--storage", "file:/a", "--storage-capacity", "1GiB"};
  EXPECT_EQ(std::get<FileStorage>(parse(file).system.storage).directories, std::vector<std::filesystem::path>{"/a"});
  Words words = file;
  words.insert(words.end(),
               {"--storage-stripe", "/b", "--storage-stripe", "/c", "--storage-stripe-size", "1MiB", "--storage-name", "mine"});
  const ReplayOptions options = parse(words);
  const auto& storage = std::get<FileStorage>(options.system.storage);
  EXPECT_EQ(storage.directories, (std::vector<std::filesystem::path>{"/a", "/b", "/c"}));
  EXPECT_EQ(storage.stripe_bytes, MiB);
  EXPECT_EQ(storage.name, "mine");
  EXPECT_FALSE(storage.accept_lost_directories);
  words.emplace_back("--storage-accept-lost");
  EXPECT_TRUE(std::get<FileStorage>(parse(words).system.storage).accept_lost_directories);
}

TEST(Options, let_the_kernel_decide_about_io_uring_where_nothing_is_said) {
  const Words file{"--storage", "file:/some/where", "--storage-capacity", "1GiB"};
  EXPECT_EQ(std::get<FileStorage>(parse(file).system.storage).io, IoChoice::automatic);
  for (const IoChoice io : {IoChoice::automatic, IoChoice::uring, IoChoice::threads}) {
    Words words = file;
    words.insert(words.end(), {"--storage-io", std::string{to_string(io)}});
    EXPECT_EQ(std::get<FileStorage>(parse(words).system.storage).io, io);
  }
}

TEST(Options, make_file_storage_resilient_as_they_are_told) {
  const Words file{"--storage", "file:/some/where", "--storage-capacity", "1GiB"};
  EXPECT_EQ(parse(file).system.storage_guard->read_retries, 1U);
  Words words = file;
  words.insert(words.end(), {"--storage-retries", "3", "--storage-breaker-failures", "9", "--storage-breaker-window", "0.25",
                             "--storage-breaker-probe", "60"});
  const ReplayOptions options = parse(words);
  EXPECT_EQ(options.system.storage_guard->read_retries, 3U);
  EXPECT_EQ(options.system.storage_guard->write_retries, 3U);
  EXPECT_EQ(options.system.storage_guard->breaker.failures_max, 9U);
  EXPECT_EQ(options.system.storage_guard->breaker.window, std::chrono::milliseconds{250});
  EXPECT_EQ(options.system.storage_guard->breaker.probe_first, std::chrono::seconds{60});
  EXPECT_EQ(options.system.storage_guard->breaker.probe_max, std::chrono::seconds{60}) << "no less than the first";
}

TEST(Options, know_every_inclusion_policy_mode_and_fault) {
  const Words storage{"--storage", "memory:", "--storage-capacity", "1GiB"};
  const auto with = [&](const std::string& option, const std::string& value) {
    Words words = storage;
    words.insert(words.end(), {option, value});
    return parse(words);
  };
  EXPECT_EQ(with("--inclusion", "non-inclusive").system.inclusion, InclusionPolicy::non_inclusive);
  EXPECT_EQ(with("--inclusion", "exclusive").system.inclusion, InclusionPolicy::exclusive);
  EXPECT_EQ(with("--relation", "inclusive").system.inclusion, InclusionPolicy::inclusive) << "the earlier name";
  EXPECT_EQ(with("--inclusion", "lazy-exclusive").system.inclusion, InclusionPolicy::lazy_exclusive);
  EXPECT_EQ(with("--relation", "keep").system.inclusion, InclusionPolicy::non_inclusive) << "and word";
  EXPECT_EQ(with("--write-policy", "none").write_policy, WritePolicy::none);
  EXPECT_EQ(with("--write-policy", "selective").write_policy, WritePolicy::selective);
  EXPECT_EQ(with("--write-policy", "write-back").write_policy, WritePolicy::write_back);
  EXPECT_EQ(with("--mode", "loop").mode, Mode::loop);
  EXPECT_EQ(with("--inject", "late").inject, Fault::late);
  EXPECT_EQ(with("--speed", "2.5").speed, 2.5);
}

TEST(Options, take_the_speeds_of_compute_and_disk) {
  EXPECT_EQ(parse({}).prefill_speed, 0);
  EXPECT_EQ(parse({}).loads, Loads::always);
  EXPECT_EQ(parse({"--prefill-speed", "20000"}).loads, Loads::measured);
  EXPECT_EQ(parse({"--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-bandwidth", "50MiB"}).loads, Loads::measured);
  const ReplayOptions options = parse({"--prefill-speed", "20000", "--loads", "none", "--storage", "file:/x",
                                       "--storage-capacity", "1GiB", "--storage-bandwidth", "50MiB"});
  EXPECT_EQ(options.prefill_speed, 20000);
  EXPECT_EQ(options.loads, Loads::none);
  EXPECT_EQ(std::get<FileStorage>(options.system.storage).bandwidth, per_second(MiB * 50));
}

TEST(Options, take_an_engines_limits_as_they_are_given) {
  const ReplayOptions options = parse(
      {"--step-tokens", "512", "--output-tokens-max", "0", "--cache-output", "off", "--abort-rate", "0.25", "--mode", "loop"});
  EXPECT_EQ(options.step_tokens, 512);
  EXPECT_EQ(options.output_tokens_max, 0);
  EXPECT_FALSE(options.cache_output);
  EXPECT_EQ(options.abort_rate, 0.25);
}

TEST(Options, no_fence_releases_at_launch_since_nothing_shows_otherwise) {
  EXPECT_EQ(parse({"--inject", "no-fence"}).release, Release::launch);
  EXPECT_EQ(parse({"--inject", "flip"}).release, Release::done);
}

TEST(Options, have_as_many_ranks_as_are_asked_for) {
  EXPECT_EQ(parse({}).ranks(), 1U);
  EXPECT_EQ(parse({"--ranks", "4"}).ranks(), 4U);
  EXPECT_EQ(parse({"--ranks", "4"}).system.rank_payload, RankPayload::sharded);
  EXPECT_EQ(parse({"--device", "emulated,emulated"}).ranks(), 2U);
  EXPECT_EQ(parse({"--device", "emulated,emulated", "--ranks", "2", "--rank-payload", "replicated"}).ranks(), 2U);
  EXPECT_EQ(parse({"--device", "emulated,emulated", "--rank-payload", "replicated"}).system.rank_payload,
            RankPayload::replicated);
  // A replicated block need not be divisible by the number of ranks.
  EXPECT_EQ(parse({"--ranks", "3", "--rank-payload", "replicated"}).system.rank_payload, RankPayload::replicated);
}

TEST(Options, know_every_policy) {
  for (const std::string name : {"adaptive", "lru"}) {
    EXPECT_EQ(parse({"--policy", name}).policy.name, name);
    EXPECT_EQ(parse({"--reference", "--policy", name}).policy.name, name);
  }
}

TEST(Options, follow_the_adaptive_policy_unless_told_otherwise_or_a_reference_run) {
  EXPECT_EQ(parse({}).policy.name, "adaptive");
  EXPECT_EQ(parse({"--reference"}).policy.name, "lru");
  EXPECT_EQ(parse({"--reference", "--policy", "adaptive"}).policy.name, "adaptive");
}

TEST(Options, of_the_reference_are_one_at_a_time) { EXPECT_EQ(parse({"--reference"}).concurrency, 1); }

TEST(Options, of_the_reference_take_every_hit_however_slow_the_disk) {
  Words words{"--reference", "--storage", "file:/x", "--storage-capacity", "1GiB", "--storage-bandwidth", "50MiB"};
  EXPECT_EQ(parse(words).loads, Loads::always);
  words.insert(words.end(), {"--loads", "host"});
  EXPECT_EQ(parse(words).loads, Loads::host);
}

ReplayOptions of_blocks(std::uint32_t device, std::uint32_t host) {
  ReplayOptions options;
  options.block_bytes = MiB;
  options.device_blocks = device;
  options.host_blocks = host;
  return options;
}

std::string refusal(const ReplayOptions& options, std::optional<Bytes> available) {
  return test::refusal_of<UsageError>([&] { check_feasible(options, available); });
}

TEST(Preflight, lets_pass_what_fits_and_what_nobody_can_tell) {
  EXPECT_EQ(refusal(of_blocks(100, 100), GiB), "");
  EXPECT_EQ(refusal(of_blocks(100'000'000, 0), std::nullopt), "");
}

TEST(Preflight, refuses_more_memory_than_there_is_and_says_what_fits) {
  const std::string text = refusal(of_blocks(1000, 1000), GiB);
  EXPECT_NE(text.find("1GiB is available: at most 959 blocks of 1MiB"), std::string::npos) << text;
  EXPECT_EQ(refusal(of_blocks(959, 0), GiB), "") << "the figure it gave";
  EXPECT_NE(refusal(of_blocks(961, 0), GiB), "");
}

TEST(Preflight, counts_storage_in_memory_and_does_not_overflow) {
  ReplayOptions options = of_blocks(1, 1);
  options.system.storage = MemoryStorage{GiB};
  EXPECT_NE(refusal(options, GiB), "");
  options.system.storage = MemoryStorage{TiB * 16'000'000};
  options.host_blocks = 1'000'000'000;
  options.block_bytes = MiB * 512;
  EXPECT_NE(refusal(options, GiB), "");
}

TEST(Preflight, finds_out_what_this_machine_has) {
  const std::optional<Bytes> available = available_memory();
  ASSERT_TRUE(available);
  EXPECT_GT(*available, MiB);
}

TEST(Preflight, refuses_a_report_that_could_not_be_written) {
  const test::TemporaryDirectory directory;
  ReplayOptions options = of_blocks(1, 1);
  options.report = directory.path() / "absent" / "report.json";
  EXPECT_NE(refusal(options, GiB).find("cannot write"), std::string::npos);
  options.report = directory.path();
  EXPECT_NE(refusal(options, GiB).find("is a directory"), std::string::npos);
  options.report = directory.path() / "report.json";
  EXPECT_EQ(refusal(options, GiB), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace terrace::tools
