// Traces that are no plain files, or that are malformed.
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <csignal>
#include <string>
#include <tuple>

namespace terrace::test {
namespace {

const std::string line = R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
                         "\n";

class CliTrace : public testing::Test {
 protected:
  /// Seven requests.
  std::string trace() const {
    std::string text;
    for (int i = 0; i < 7; ++i) text += line;
    return directory_.write("t.jsonl", text).string();
  }
  std::string compressed() const {
    const std::string file = (directory_.path() / "t.gz").string();
    const gzFile out = ::gzopen(file.c_str(), "wb");
    for (int i = 0; i < 7; ++i) ::gzputs(out, line.c_str());
    ::gzclose(out);
    return file;
  }
  std::string fifo() const {
    const std::string file = (directory_.path() / "fifo").string();
    EXPECT_EQ(::mkfifo(file.c_str(), 0600), 0);
    return file;
  }
  Words words(const std::string& name) const {
    return replay_words({name, "--block-bytes", "4KiB", "--device-blocks", "100", "--host-blocks", "100", "--report",
                         (directory_.path() / "r.json").string()});
  }
  void expect_seven(const Ended& ended) const {
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(report_in(directory_).at("requests").to_number<int>(), 7);
  }

  TemporaryDirectory directory_;
};

TEST_F(CliTrace, is_read_from_a_pipe_a_fifo_and_standard_input) {
  expect_seven(run_in_shell("cat '" + trace() + "' | \"$@\"", words("-")));
  expect_seven(run_in_shell("cat '" + trace() + "' | \"$@\"", words("/dev/stdin")));
  expect_seven(run_in_shell("cat '" + compressed() + "' | \"$@\"", words("-")));
  expect_seven(run_in_shell("\"$@\" <'" + trace() + "'", words("-")));
  const std::string pipe = fifo();
  expect_seven(run_in_shell("cat '" + trace() + "' >'" + pipe + "' & \"$@\"", words(pipe)));
}

TEST_F(CliTrace, from_a_pipe_is_found_to_be_bad_before_anything_is_made) {
  for (const std::string& input : {std::string{"/dev/null"}, directory_.write("bad.jsonl", line + "{]\n").string()}) {
    const Ended ended = run_in_shell("cat '" + input + "' | \"$@\"", words("-"));
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "r.json"));
}

TEST_F(CliTrace, that_never_ends_its_line_or_has_no_finite_time_is_refused) {
  const Ended endless = run_in_shell("\"$@\" </dev/zero", words("-"));
  EXPECT_EQ(endless.status, 2);
  EXPECT_TRUE(is_one_line(endless.err)) << endless.err;
  const Ended long_line = run(words(directory_.write("long", std::string(std::size_t{17} << 20, 'x')).string()));
  EXPECT_EQ(long_line.status, 2);
  EXPECT_NE(long_line.err.find(":1: the line is longer than 16MiB"), std::string::npos) << long_line.err;
  const std::string infinite = R"({"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": []})";
  const Ended timeless = run(words(directory_.write("inf", infinite).string()));
  EXPECT_EQ(timeless.status, 2);
  EXPECT_TRUE(is_one_line(timeless.err)) << timeless.err;
}

TEST_F(CliTrace, that_nobody_writes_can_be_interrupted) {
  OnTerminal program{words(fifo())};
  ASSERT_TRUE(program.wait_for("reading the trace"));
  program.signal(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 130);
  EXPECT_NE(ended.err.find("terrace replay: interrupted"), std::string::npos) << ended.err;
}

class Interrupted : public testing::TestWithParam<std::tuple<std::string, int>> {};
INSTANTIATE_TEST_SUITE_P(Modes, Interrupted,
                         testing::Combine(testing::Values("confined", "loop"), testing::Values(SIGINT, SIGTERM)),
                         [](const auto& row) {
                           return std::get<0>(row.param) + (std::get<1>(row.param) == SIGINT ? "_by_SIGINT" : "_by_SIGTERM");
                         });

/// Three requests, then none for a long time: the program sleeps when the signal comes.
std::string waiting_trace(const TemporaryDirectory& directory) {
  const auto line = [](const std::string& timestamp) {
    return R"({"timestamp": )" + timestamp +
           R"(, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
           "\n";
  };
  return directory.write("t.jsonl", line("0") + line("0") + line("0") + line("1e12")).string();
}

TEST_P(Interrupted, prints_what_was_done_and_ends_with_130) {
  const auto& [mode, signal] = GetParam();
  const TemporaryDirectory directory;
  OnTerminal program{replay_words({waiting_trace(directory), "--speed", "1", "--mode", mode, "--block-bytes", "4KiB", "--report",
                                   (directory.path() / "r.json").string()})};
  // The first request has ended and is displayed.
  ASSERT_TRUE(program.wait_for("3 requests  hits"));
  program.signal(signal);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 130) << ended.err;
  EXPECT_NE(ended.err.find("terrace replay: interrupted after"), std::string::npos) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_TRUE(report.at("interrupted").as_bool());
  EXPECT_EQ(report.at("requests").to_number<int>(), 3);
  EXPECT_TRUE(report.at("checks").at("ok").as_bool());
}

}  // namespace
}  // namespace terrace::test
