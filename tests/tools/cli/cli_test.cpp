#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace terrace::test {
namespace {

TEST(Cli, explains_itself) {
  const Ended help = run({paths.program, "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("replay"), std::string::npos);
  const Ended replay_help = run(replay_words({"--help-all"}));
  EXPECT_EQ(replay_help.status, 0);
  EXPECT_NE(replay_help.out.find("Examples:"), std::string::npos);
  for (const char* const option : {"--device",
                                   "--device-blocks",
                                   "--device-capacity",
                                   "--host-blocks",
                                   "--host-capacity",
                                   "--storage",
                                   "--storage-capacity",
                                   "--storage-floor",
                                   "--relation",
                                   "--write-policy",
                                   "--policy",
                                   "--block-tokens",
                                   "--block-bytes",
                                   "--reference",
                                   "--concurrency",
                                   "--speed",
                                   "--mode",
                                   "--requests",
                                   "--verify",
                                   "--seed",
                                   "--report",
                                   "--inject",
                                   "--workload",
                                   "--step-tokens",
                                   "--abort-rate",
                                   "--cache-output",
                                   "--output-tokens-max",
                                   "--skip",
                                   "--checkpoint"}) {
    EXPECT_NE(replay_help.out.find(option), std::string::npos) << option;
  }
  const Ended version = run({paths.program, "--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("terrace "));
}

TEST(Cli, prints_a_table_and_nothing_on_standard_error_where_all_is_well) {
  const Ended ended = run(replay_words(small({})));
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_NE(ended.out.find("prompt blocks found in"), std::string::npos);
  EXPECT_NE(ended.out.find(" 0 mismatches"), std::string::npos);
}

TEST(Cli, wants_a_command_it_knows) {
  for (const Words& words : {Words{}, {"reply"}, {"--frobnicate"}}) {
    Words all{paths.program};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    expect_refusal(ended);
  }
}

class BadInput : public testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(All, BadInput,
                         testing::Values(Words{"--frobnicate"}, Words{"--concurrency"}, Words{"--concurrency", "0"},
                                         Words{"--seed", "1", "--seed", "2"}, Words{"a.jsonl", "b.jsonl"}, Words{"absent.jsonl"},
                                         Words{"--device", "cuda:999"}, Words{"--workload", "talk"}, Words{"--step-tokens", "0"},
                                         Words{"--step-tokens", "-5"}, Words{"--output-tokens-max", "many"},
                                         Words{"--cache-output", "yes"}, Words{"--abort-rate", "1.01"},
                                         Words{"--abort-rate", "half"}, Words{"--reference", "--abort-rate", "0.1"},
                                         Words{"--device-capacity", "1000TiB", "--block-bytes", "512MiB"},
                                         Words{"--block-bytes", "6KiB"}, Words{"--storage-capacity", "8KiB"}, Words{"BAD_TRACE"},
                                         Words{"--storage", "file:/proc/nowhere"}));

TEST_P(BadInput, ends_with_2_and_one_line_and_leaves_nothing_behind) {
  const TemporaryDirectory directory;
  const TemporaryDirectory input;
  Words words = GetParam();
  for (std::string& word : words) {
    if (word == "BAD_TRACE") {
      // The error is in the last line, far behind what a reader without look-ahead would already have served.
      const std::string good = R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
                               "\n";
      std::string text;
      for (int i = 0; i < 2000; ++i) text += good;
      word = input.write("t.jsonl", text + "{]\n").string();
    }
  }
  // The arguments of the caller take precedence: only missing options are added.
  const auto add = [&](const std::string& option, const std::string& value) {
    if (std::ranges::find(words, option) == words.end()) words.insert(words.end(), {option, value});
  };
  add("--storage", "file:" + (directory.path() / "store").string());
  add("--storage-capacity", "16MiB");
  add("--report", (directory.path() / "r.json").string());
  const Ended ended = run(replay_words(words));
  expect_refusal(ended);
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Cli, names_file_and_line_of_a_bad_trace) {
  const TemporaryDirectory directory;
  const auto file = directory.write("t.jsonl", "\n{}\n");
  const Ended ended = run(replay_words({file.string()}));
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err, "terrace replay: " + file.string() + ":2: \"timestamp\" is missing\n");
}

TEST(Cli, says_how_much_memory_would_fit) {
  const Ended ended = run(replay_words({"--host-capacity", "500TiB", "--block-bytes", "1MiB"}));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("at most"), std::string::npos) << ended.err;
}

class EveryWay : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Modes, EveryWay,
                         testing::Combine(testing::Values("confined", "loop"),
                                          testing::Values("keep", "exclusive", "inclusive", "lazy-exclusive"),
                                          testing::Values("none", "write-through", "selective", "write-back")),
                         [](const auto& row) {
                           std::string name =
                               std::get<0>(row.param) + "_" + std::get<1>(row.param) + "_" + std::get<2>(row.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(EveryWay, serves_right_blocks_and_counts_them) {
  const auto& [mode, inclusion, policy] = GetParam();
  const TemporaryDirectory directory;
  Words words{"--mode", mode, "--relation", inclusion, "--report", (directory.path() / "r.json").string()};
  // Smaller than the written data, so that storage has to evict blocks too.
  if (policy != "none")
    words.insert(words.end(), {"--write-policy", policy, "--storage", "memory:", "--storage-capacity", "3MiB"});
  const Ended ended = run(replay_words(small(words)));
  ASSERT_EQ(ended.status, 0) << ended.err;

  const boost::json::value report = report_in(directory);
  const auto number = [&](const char* pointer) { return report.at_pointer(pointer).to_number<std::uint64_t>(); };
  EXPECT_EQ(number("/requests"), 300);
  EXPECT_EQ(number("/blocks/device") + number("/blocks/host") + number("/blocks/storage") + number("/blocks/miss"),
            number("/blocks/total"));
  EXPECT_EQ(number("/verify/checked"), number("/blocks/total") - number("/blocks/miss"));
  EXPECT_EQ(number("/verify/mismatches"), 0);
  EXPECT_GT(number("/blocks/host"), 0);
  EXPECT_LE(number("/blocks/joined"), number("/blocks/host") + number("/blocks/storage"));
  EXPECT_EQ(number("/moved/swap_out/bytes"), number("/moved/swap_out/blocks") * 4096);
  EXPECT_EQ(number("/moved/persist/blocks") > 0, policy != "none");
  EXPECT_EQ(number("/checks/leases"), 0);
  EXPECT_EQ(number("/checks/readers"), 0);
  EXPECT_TRUE(report.at("checks").at("ok").as_bool());
  EXPECT_EQ(report.at("checks").at("stored_with_all_ancestors").to_number<double>(), 1);
}

TEST(Cli, serves_right_blocks_over_several_ranks_and_sees_a_fault_on_any) {
  for (const char* const payload : {"sharded", "replicated"}) {
    const Ended ended = run(replay_words(small({"--ranks", "4", "--rank-payload", payload})));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.out.find(std::string{"ranks    4, "} + payload), std::string::npos);
    EXPECT_NE(ended.out.find(" 0 mismatches"), std::string::npos);
  }
  const Ended named = run(replay_words(small({"--device", "emulated,emulated"})));
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_NE(named.out.find("ranks    2, sharded"), std::string::npos);
  const Ended flipped = run(replay_words(small({"--ranks", "4", "--inject", "flip"})));
  expect_refusal(flipped, 1);
}

// It loads always, because on a busy machine a read may be expected to take longer than to compute the block; and there is a
// staging slot for each block, because otherwise a slow disk leaves blocks unsaved.
TEST(Cli, finds_again_after_a_restart_what_a_file_store_holds) {
  const TemporaryDirectory directory;
  const Words words{"--storage",
                    "file:" + (directory.path() / "store").string(),
                    "--storage-capacity",
                    "64MiB",
                    "--loads",
                    "always",
                    "--staging-blocks",
                    "4096",
                    "--report",
                    (directory.path() / "r.json").string()};
  ASSERT_EQ(run(replay_words(small(words))).status, 0);
  const auto cold = report_in(directory).at_pointer("/blocks/miss").to_number<std::uint64_t>();
  const Ended ended = run(replay_words(small(words)));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto warm = report_in(directory).at_pointer("/blocks/miss").to_number<std::uint64_t>();
  EXPECT_LT(warm * 10, cold);
}

TEST(Cli, refuses_a_store_of_blocks_of_another_size) {
  const TemporaryDirectory directory;
  const Words storage{"--storage", "file:" + (directory.path() / "store").string(), "--storage-capacity", "64MiB"};
  ASSERT_EQ(run(replay_words(small(storage))).status, 0);
  Words words{"--block-bytes", "8KiB"};
  words.insert(words.end(), storage.begin(), storage.end());
  const Ended ended = run(replay_words(words));
  expect_refusal(ended);
}

TEST(Cli, keeps_a_floor_of_free_space) {
  const TemporaryDirectory directory;
  const std::filesystem::path store = directory.path() / "store";
  const Ended refused = run(
      replay_words(small({"--storage", "file:" + store.string(), "--storage-capacity", "64MiB", "--storage-floor", "1024TiB"})));
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(is_one_line(refused.err)) << refused.err;
  EXPECT_NE(refused.err.find("1024TiB must stay free"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("not one block fits"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(store));
  const Ended kept =
      run(replay_words(small({"--storage", "file:" + store.string(), "--storage-capacity", "64MiB", "--storage-floor", "1KiB"})));
  EXPECT_EQ(kept.status, 0) << kept.err;
}

TEST(Cli, works_without_a_host_tier_and_with_a_request_larger_than_the_device) {
  const TemporaryDirectory directory;
  const Ended ended =
      run(replay_words({"--block-bytes", "4KiB", "--device-blocks", "40", "--host-blocks", "0", "--requests", "200", "--storage",
                        "memory:", "--storage-capacity", "8MiB", "--report", (directory.path() / "r.json").string()}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_GT(report.at("rejected").to_number<int>(), 0);
  EXPECT_EQ(report.at("rejected").to_number<int>() + report.at("requests").to_number<int>(), 200);
  EXPECT_GT(report.at_pointer("/blocks/storage").to_number<int>(), 0);
}

class EveryMode : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, testing::Values("confined", "loop"));

TEST_P(EveryMode, serves_at_the_traces_own_times_and_releases_at_launch) {
  Words words = small({"--mode", GetParam(), "--speed", "1000", "--release", "launch"});
  const Ended ended = run(replay_words(words));
  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(Cli, runs_an_event_loop_on_several_threads) {
  const Ended ended = run(replay_words(small({"--mode", "loop", "--threads", "3", "--concurrency", "40"})));
  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(Cli, leaves_one_token_to_compute_but_not_in_the_reference_mode) {
  const TemporaryDirectory directory;
  const std::string line = R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
                           "\n";
  const std::string trace = directory.write("t.jsonl", line + line).string();
  const std::string report = (directory.path() / "r.json").string();
  ASSERT_EQ(
      run(replay_words({trace, "--concurrency", "1", "--device-blocks", "9", "--host-blocks", "0", "--report", report})).status,
      0);
  EXPECT_EQ(report_in(directory).at_pointer("/blocks/device").to_number<int>(), 1);
  ASSERT_EQ(run(replay_words({trace, "--reference", "--device-blocks", "9", "--host-blocks", "0", "--report", report})).status,
            0);
  EXPECT_EQ(report_in(directory).at_pointer("/blocks/device").to_number<int>(), 2);
}

TEST(Cli, cuts_a_prompt_longer_than_the_device_in_the_reference_mode) {
  const TemporaryDirectory directory;
  const std::string line = R"({"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": [1, 2, 3, 4]})"
                           "\n";
  const std::string trace = directory.write("t.jsonl", line + line).string();
  ASSERT_EQ(run(replay_words({trace, "--reference", "--device-blocks", "3", "--host-blocks", "0", "--report",
                              (directory.path() / "r.json").string()}))
                .status,
            0);
  const boost::json::value blocks = report_in(directory).at("blocks");
  EXPECT_EQ(blocks.at("device").to_number<int>(), 3);
  EXPECT_EQ(blocks.at("miss").to_number<int>(), 5);
  EXPECT_EQ(blocks.at("total").to_number<int>(), 8);
}

// ---- planted faults must be found, and the same run without them must be good. Otherwise "0 mismatches" would mean nothing

class EveryFault : public testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Faults, EveryFault,
                         testing::Combine(testing::Values("flip", "late", "no-fence"), testing::Values("confined", "loop")),
                         [](const auto& row) {
                           const std::string fault = std::get<0>(row.param) == "no-fence" ? "no_fence" : std::get<0>(row.param);
                           return fault + "_" + std::get<1>(row.param);
                         });

/// Late and unfenced copies race with compute on purpose.
const std::map<std::string, std::string> no_race_reports{{"TSAN_OPTIONS", "report_bugs=0"}};

TEST_P(EveryFault, is_caught_and_without_it_the_run_is_good) {
  const auto& [fault, mode] = GetParam();
  const TemporaryDirectory directory;
  Words words = small({"--mode", mode, "--relation", "inclusive", "--report", (directory.path() / "r.json").string()});
  // With this fault every launch is late, so there must be few.
  if (fault == "no-fence") words.insert(words.end(), {"--release", "launch", "--output-tokens-max", "16"});
  const Ended good = run(replay_words(words));
  EXPECT_EQ(good.status, 0) << good.err;

  words.insert(words.end(), {"--inject", fault});
  const Ended ended = run(replay_words(words), no_race_reports);
  expect_refusal(ended, 1);
  EXPECT_NE(ended.err.find("--inject " + fault), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("mismatches caught; first: request "), std::string::npos) << ended.err;
  EXPECT_GT(report_in(directory).at_pointer("/verify/mismatches").to_number<int>(), 0);
  EXPECT_GT(report_in(directory).at("faults_planted").to_number<int>(), 0);
}

TEST(Faults, flipped_on_their_way_to_storage_are_caught_when_they_come_back) {
  const Ended ended = run(replay_words({"--block-bytes", "4KiB", "--device-blocks", "300", "--host-blocks", "0", "--requests",
                                        "300", "--storage", "memory:", "--storage-capacity", "16MiB", "--inject", "flip"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.err.find("found in storage"), std::string::npos) << ended.err;
}

TEST(Faults, that_could_not_be_planted_end_with_3) {
  const Ended ended = run(replay_words({"--block-bytes", "4KiB", "--requests", "1", "--inject", "flip"}));
  expect_refusal(ended, 3);
}

}  // namespace
}  // namespace terrace::test
