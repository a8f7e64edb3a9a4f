#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

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
  for (const char* const option : {"--device",        "--device-blocks", "--device-capacity",  "--host-blocks",
                                   "--host-capacity", "--storage",       "--storage-capacity", "--storage-floor",
                                   "--relation",      "--write-policy",  "--policy",           "--block-tokens",
                                   "--block-bytes",   "--reference",     "--concurrency",      "--speed",
                                   "--mode",          "--requests",      "--verify",           "--seed",
                                   "--report",        "--inject",        "--workload",         "--step-tokens",
                                   "--abort-rate",    "--cache-output",  "--tell-output",      "--output-tokens-max",
                                   "--skip",          "--checkpoint"}) {
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
INSTANTIATE_TEST_SUITE_P(
    All, BadInput,
    testing::Values(Words{"--frobnicate"}, Words{"--concurrency"}, Words{"--concurrency", "0"},
                    Words{"--seed", "1", "--seed", "2"}, Words{"a.jsonl", "b.jsonl"}, Words{"absent.jsonl"},
                    Words{"--device", "cuda:999"}, Words{"--workload", "talk"}, Words{"--step-tokens", "0"},
                    Words{"--step-tokens", "-5"}, Words{"--output-tokens-max", "many"}, Words{"--cache-output", "yes"},
                    Words{"--abort-rate", "1.01"}, Words{"--abort-rate", "half"}, Words{"--reference", "--abort-rate", "0.1"},
                    Words{"--bound"}, Words{"--reference", "--bound", "--storage", "memory", "--storage-capacity", "1MiB"},
                    Words{"--device-capacity", "1000TiB", "--block-bytes", "512MiB"}, Words{"--block-bytes", "6KiB"},
                    Words{"--storage-capacity", "8KiB"}, Words{"BAD_TRACE"}, Words{"--storage", "file:/proc/nowhere"}));

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

/// A loop over three blocks with room for two: LRU has no hit, and a cache that knows the future keeps one block.
TEST(Cli, says_how_far_a_reference_run_goes_from_lru_to_the_bound) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [)" + std::to_string(1 + i % 3) + "]}\n";
  }
  const std::string trace = directory.write("t.jsonl", text).string();
  const Words words = replay_words({trace, "--reference", "--bound", "--host-blocks", "0", "--device-blocks", "2", "--report",
                                    (directory.path() / "r.json").string()});
  const Ended ended = run(words);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(report_in(directory).at("requests").to_number<int>(), 12);
  const boost::json::value bound = report_in(directory).at("bound");
  EXPECT_EQ(bound.at("lru_hits").to_number<int>(), 0);
  EXPECT_EQ(bound.at("opt_hits").to_number<int>(), 5);
  EXPECT_EQ(bound.at("share_of_way").to_number<double>(), 0);
  EXPECT_NE(ended.out.find("  0.00 of the way from LRU to the bound"), std::string::npos) << ended.out;
  Words skipped = words;
  skipped.insert(skipped.end(), {"--skip", "6", "--requests", "3"});
  ASSERT_EQ(run(skipped).status, 0);
  EXPECT_EQ(report_in(directory).at("bound").at("opt_hits").to_number<int>(), 0) << "only what is served counts";
  EXPECT_TRUE(report_in(directory).at("bound").at("share_of_way").is_null());
  ASSERT_EQ(run(replay_words({trace, "--reference", "--report", (directory.path() / "r.json").string()})).status, 0);
  EXPECT_TRUE(report_in(directory).at("bound").is_null());
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

// ---- outputs of results and errors: closed and full outputs, and names that must not reach a terminal unchanged

/// Runs the program with redirections of the shell: "2>&-", ">/dev/full".
Ended run_redirected(const std::string& redirections, const Words& words) {
  return run_in_shell("exec \"$@\" " + redirections, words);
}

bool has_control_characters(const std::string& text) {
  return std::ranges::any_of(text, [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f; });
}

class BrokenStandardError : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, BrokenStandardError, testing::Values("2>&-", "2>/dev/full", "0<&- 2>&-"));

TEST_P(BrokenStandardError, leaves_the_exit_status_as_it_is) {
  const std::string& redirections = GetParam();
  EXPECT_EQ(run_redirected(redirections, replay_words(small({}))).status, 0);
  EXPECT_EQ(run_redirected(redirections, replay_words(small({"--inject", "flip"}))).status, 1);
  EXPECT_EQ(run_redirected(redirections, replay_words({"--frobnicate"})).status, 2);
  EXPECT_EQ(run_redirected(redirections, replay_words({"absent.jsonl"})).status, 2);
  const Words nothing_planted{"--block-bytes", "4KiB", "--requests", "1", "--inject", "flip"};
  EXPECT_EQ(run_redirected(redirections, replay_words(nothing_planted)).status, 3);
}

class BrokenStandardOutput : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, BrokenStandardOutput, testing::Values(">/dev/full", ">&-"));

TEST_P(BrokenStandardOutput, is_a_failure_with_one_line) {
  for (const Words& words : {Words{"--help"}, {"--version"}, {"replay", "--help"}, {"doctor"}}) {
    const Ended ended = run_redirected(GetParam(), program(words));
    EXPECT_EQ(ended.status, 3) << words.front();
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_NE(ended.err.find("cannot write to standard output: "), std::string::npos) << ended.err;
  }
  const Ended replayed = run_redirected(GetParam(), replay_words(small({})));
  expect_refusal(replayed, 3);
}

TEST_P(BrokenStandardOutput, hides_no_failed_check_and_no_report) {
  const TemporaryDirectory directory;
  const Ended ended =
      run_redirected(GetParam(), replay_words(small({"--inject", "flip", "--report", (directory.path() / "r.json").string()})));
  expect_refusal(ended, 1);
  EXPECT_GT(report_in(directory).at_pointer("/verify/mismatches").to_number<int>(), 0);
}

TEST(StandardOutput, that_is_closed_is_never_a_file_of_the_store) {
  const TemporaryDirectory directory;
  const std::string store = (directory.path() / "store").string();
  const Words words = small({"--storage", "file:" + store, "--storage-capacity", "16MiB"});
  EXPECT_EQ(run_redirected("0<&- >&- 2>&-", replay_words(words)).status, 3);
  const Ended verified = run(program({"store", "verify", store}));
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
}

TEST(Report, that_cannot_be_written_to_its_end_is_a_failure) {
  const Ended ended = run(replay_words(small({"--report", "/dev/full"})));
  expect_refusal(ended, 3);
}

TEST(Report, that_is_a_pipe_needs_somebody_who_reads_it) {
  const TemporaryDirectory directory;
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Ended alone = run(replay_words(small({"--report", pipe})));
  EXPECT_EQ(alone.status, 3);
  EXPECT_EQ(alone.err, "terrace replay: cannot write the report " + pipe + ": nobody reads this pipe\n");
  Words words{"/bin/bash", "-c", "exec \"$@\" --report >(cat)", "bash"};
  for (const std::string& word : replay_words(small({}))) words.push_back(word);
  const Ended read = run(words);
  EXPECT_EQ(read.status, 0) << read.err;
}

TEST(Trace, that_cannot_be_written_to_its_end_is_a_failure) {
  const Ended ended = run(replay_words(small({"--trace-out", "/dev/full"})));
  EXPECT_EQ(ended.status, 3) << ended.err;
  EXPECT_NE(ended.err.find("terrace replay: cannot write the trace: No space left on device\n"), std::string::npos) << ended.err;
}

TEST(Report, that_cannot_be_written_is_told_behind_what_is_worse) {
  const Ended ended = run(replay_words(small({"--inject", "flip", "--report", "/dev/full"})));
  expect_refusal(ended, 1);
  EXPECT_NE(ended.err.find("terrace replay: --inject flip: "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("; cannot write the report /dev/full: "), std::string::npos) << ended.err;
}

TEST(Names, never_reach_the_terminal_with_control_characters) {
  const TemporaryDirectory directory;
  const std::string name = "a\x1b]0;b\x07\xc2\x9b"
                           "31m\r\n\x7f\xff.jsonl";
  for (const Words& words : {replay_words({directory.write(name, "{").string()}), replay_words({name}),
                             replay_words({"--" + name}), program({name}), program({"store", "stat", name})}) {
    const Ended ended = run(words);
    expect_refusal(ended);
    EXPECT_FALSE(has_control_characters(ended.err)) << ended.err;
    EXPECT_EQ(ended.err.find('\xff'), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("\xc2\x9b"), std::string::npos) << ended.err;
  }
  const std::string store = (directory.path() / (name + ".d")).string();
  const Ended replayed = run(replay_words(
      small({"--storage", "file:" + store, "--storage-capacity", "16MiB", "--report", (directory.path() / "r.json").string()})));
  EXPECT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_FALSE(has_control_characters(replayed.out)) << replayed.out;
  for (const std::string command : {"stat", "verify"}) {
    const Ended ended = run(program({"store", command, store}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_FALSE(has_control_characters(ended.out)) << ended.out;
  }
  // Parsing fails if the JSON or its UTF-8 is invalid.
  EXPECT_EQ(report_in(directory).at_pointer("/config/storage/kind").as_string(), "file");
  const Ended stat = run(program({"store", "stat", store, "--json"}));
  EXPECT_EQ(stat.status, 0) << stat.err;
  EXPECT_TRUE(boost::json::parse(stat.out).as_object().contains("directory")) << stat.out;
  EXPECT_EQ(stat.out.find("\xc2\x9b"), std::string::npos);
}

TEST(Report, is_never_written_over_the_trace_or_a_store) {
  const TemporaryDirectory directory;
  const std::string line = R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
                           "\n";
  const std::string trace = directory.write("t.jsonl", line).string();
  const std::string link = (directory.path() / "link").string();
  std::filesystem::create_symlink(trace, link);
  const std::string store = (directory.path() / "store").string();
  const Words words{trace, "--block-bytes", "4KiB", "--storage", "file:" + store, "--storage-capacity", "1MiB"};
  ASSERT_EQ(run(replay_words(words)).status, 0);
  // A file of the store itself, by its name and by a link from outside, and a file next to its files.
  std::string some_file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{store}) {
    if (entry.is_regular_file() && entry.file_size() > 0) some_file = entry.path().string();
  }
  const std::string link_in = (directory.path() / "link-in").string();
  std::filesystem::create_symlink(some_file, link_in);
  for (const std::string& report : {trace, link, some_file, link_in, store + "/store/report.json"}) {
    Words all = words;
    all.insert(all.end(), {"--report", report});
    const Ended ended = run(replay_words(all));
    EXPECT_EQ(ended.status, 2) << report;
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
  }
  EXPECT_EQ(read_file(trace), line);
  // A store with another name, over two directories, also when it is not said that they belong to a store.
  const std::string further = (directory.path() / "further").string();
  const Words striped{trace,   "--block-bytes",  "4KiB", "--storage",        "file:" + store, "--storage-capacity",
                      "16MiB", "--storage-name", "mine", "--storage-stripe", further,         "--storage-stripe-size",
                      "64KiB"};
  ASSERT_EQ(run(replay_words(striped)).status, 0);
  for (const Words& told : {striped, Words{trace, "--block-bytes", "4KiB"}}) {
    for (const std::string& report : {store + "/mine/report.json", further + "/mine/report.json", store + "/store/report.json"}) {
      SCOPED_TRACE(report);
      Words all = told;
      all.insert(all.end(), {"--report", report});
      const Ended ended = run(replay_words(all));
      expect_refusal(ended);
      EXPECT_NE(ended.err.find(" is inside the store "), std::string::npos) << ended.err;
      EXPECT_FALSE(std::filesystem::exists(report));
    }
  }
  // A file that is not JSON is not overwritten either.
  EXPECT_EQ(run(replay_words({"--requests", "1", "--report", directory.write("precious", "text").string()})).status, 2);
  EXPECT_EQ(read_file(trace), line);
}

}  // namespace
}  // namespace terrace::test
