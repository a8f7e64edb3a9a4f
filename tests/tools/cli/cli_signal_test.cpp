#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <tuple>

namespace terrace::test {
namespace {

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
