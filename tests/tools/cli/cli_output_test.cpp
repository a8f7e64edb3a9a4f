// Outputs of results and errors: closed and full outputs, and names that must not reach a terminal unchanged.
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

namespace terrace::test {
namespace {

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
