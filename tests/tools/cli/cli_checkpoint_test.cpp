// A replay that is stopped and started again, run as a program.

#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace terrace::test {
namespace {

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
  const auto line = [](const std::string& timestamp) {
    return R"({"timestamp": )" + timestamp +
           R"(, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
           "\n";
  };
  const std::string trace = directory.write("t.jsonl", line("0") + line("0") + line("1e12")).string();
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
