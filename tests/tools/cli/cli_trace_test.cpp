// Traces that are no plain files, or that are malformed, and replays that are interrupted or go on where another stopped.

#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <csignal>
#include <string>
#include <tuple>

namespace terrace::test {
namespace {

/// A request of two blocks.
std::string line_at(const std::string& timestamp) {
  return R"({"timestamp": )" + timestamp +
         R"(, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
         "\n";
}

class CliTrace : public testing::Test {
 protected:
  /// Seven requests.
  std::string trace() const {
    std::string text;
    for (int i = 0; i < 7; ++i) text += line_at("0");
    return directory_.write("t.jsonl", text).string();
  }
  std::string compressed() const {
    const std::string file = (directory_.path() / "t.gz").string();
    const gzFile out = ::gzopen(file.c_str(), "wb");
    for (int i = 0; i < 7; ++i) ::gzputs(out, line_at("0").c_str());
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
  for (const std::string& input : {std::string{"/dev/null"}, directory_.write("bad.jsonl", line_at("0") + "{]\n").string()}) {
    const Ended ended = run_in_shell("cat '" + input + "' | \"$@\"", words("-"));
    expect_refusal(ended);
    EXPECT_EQ(ended.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "r.json"));
}

TEST_F(CliTrace, that_never_ends_its_line_or_has_no_finite_time_is_refused) {
  const Ended endless = run_in_shell("\"$@\" </dev/zero", words("-"));
  expect_refusal(endless);
  const Ended long_line = run(words(directory_.write("long", std::string(std::size_t{17} << 20, 'x')).string()));
  EXPECT_EQ(long_line.status, 2);
  EXPECT_NE(long_line.err.find(":1: the line is longer than 16MiB"), std::string::npos) << long_line.err;
  const std::string infinite = R"({"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": []})";
  const Ended timeless = run(words(directory_.write("inf", infinite).string()));
  expect_refusal(timeless);
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
  return directory.write("t.jsonl", line_at("0") + line_at("0") + line_at("0") + line_at("1e12")).string();
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

// ---- a replay that is stopped and started again, run as a program

class CliCheckpoint : public testing::Test {
 protected:
  [[nodiscard]] Words words(Words more) const {
    Words all{"--block-bytes",      "4KiB",
              "--device-blocks",    "300",
              "--host-blocks",      "600",
              "--storage",          "file:" + (directory.path() / "store").string(),
              "--storage-capacity", "64MiB",
              "--storage-io",       "threads",
              "--report",           (directory.path() / "r.json").string()};
    all.insert(all.end(), more.begin(), more.end());
    return replay_words(all);
  }
  boost::json::value replay(const Words& more) {
    const Ended ended = run(words(more));
    EXPECT_EQ(ended.status, 0) << ended.err;
    out = ended.out;
    return report_in(directory);
  }
  static std::uint64_t number(const boost::json::value& report, const std::string& at) {
    return report.at_pointer(at).to_number<std::uint64_t>();
  }
  static std::uint64_t hits(const boost::json::value& report) {
    return number(report, "/blocks/device") + number(report, "/blocks/host") + number(report, "/blocks/storage");
  }

  TemporaryDirectory directory;
  std::string out;
};

TEST_F(CliCheckpoint, a_replay_goes_on_where_another_was_stopped) {
  const std::uint64_t first = hits(replay({"--reference", "--write-policy", "none", "--requests", "200"}));
  const std::uint64_t whole = hits(replay({"--reference", "--write-policy", "none", "--requests", "400"}));

  const auto stopped = replay({"--reference", "--write-policy", "none", "--requests", "200", "--checkpoint", "60"});
  EXPECT_EQ(stopped.at_pointer("/checkpoint/state").as_string(), "done");
  EXPECT_GT(number(stopped, "/checkpoint/durable_blocks"), 0U);
  EXPECT_EQ(number(stopped, "/checkpoint/lost_blocks"), 0U);
  EXPECT_EQ(number(stopped, "/checkpoint/durable_bytes"), 4096 * number(stopped, "/checkpoint/durable_blocks"));
  EXPECT_NE(out.find("checkpoint: done in "), std::string::npos) << out;

  const auto again = replay({"--reference", "--write-policy", "none", "--skip", "200", "--requests", "200"});
  EXPECT_EQ(number(again, "/requests"), 200U);
  // The upper tiers work as before. Storage, to which nothing else writes, has the blocks of the checkpoint.
  EXPECT_GT(number(again, "/blocks/storage"), 0U);
  EXPECT_GE(hits(again) * 100, (whole - first) * 98);

  const auto cold = [&] {
    std::filesystem::remove_all(directory.path() / "store");
    return replay({"--reference", "--write-policy", "none", "--skip", "200", "--requests", "200"});
  }();
  EXPECT_LT(hits(cold), hits(again));
}

TEST_F(CliCheckpoint, on_a_slow_disk_ends_with_its_time_and_says_what_is_lost) {
  const auto report = replay({"--write-policy", "none", "--requests", "100", "--storage-bandwidth", "1MiB", "--checkpoint", "1"});
  EXPECT_EQ(report.at_pointer("/checkpoint/state").as_string(), "deadline exceeded");
  const std::uint64_t durable = number(report, "/checkpoint/durable_blocks");
  EXPECT_GT(number(report, "/checkpoint/lost_blocks"), 0U);
  EXPECT_NE(out.find("storage was still busy"), std::string::npos) << out;

  // Nothing waited for the disk, and what was reported durable is there.
  const Ended stat = run({paths.program, "store", "stat", (directory.path() / "store").string(), "--json"});
  ASSERT_EQ(stat.status, 0) << stat.err;
  EXPECT_GE(boost::json::parse(stat.out).at_pointer("/slots/blocks").to_number<std::uint64_t>(), durable);
}

TEST_F(CliCheckpoint, is_taken_when_the_replay_is_interrupted) {
  const std::string trace = directory.write("t.jsonl", line_at("0") + line_at("0") + line_at("1e12")).string();
  OnTerminal program{words({trace, "--speed", "1", "--write-policy", "none", "--checkpoint", "60"})};
  ASSERT_TRUE(program.wait_for("2 requests  hits"));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 130) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at_pointer("/checkpoint/state").as_string(), "done");
  EXPECT_EQ(number(report, "/checkpoint/durable_blocks"), 2U);
  EXPECT_EQ(number(report, "/checkpoint/lost_blocks"), 0U);
}

TEST_F(CliCheckpoint, of_a_trace_that_ends_before_what_is_skipped_says_so) {
  const std::string trace = directory
                                .write("t.jsonl", R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
                                                  "\n")
                                .string();
  const Ended ended = run(words({trace, "--skip", "1"}));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("has 1 requests, which leaves none"), std::string::npos) << ended.err;
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
}

}  // namespace
}  // namespace terrace::test
