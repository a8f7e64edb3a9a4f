// Planted faults must be found, and the same run without them must be good. Otherwise "0 mismatches" would mean nothing.
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <tuple>

namespace terrace::test {
namespace {

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
  EXPECT_EQ(ended.status, 1) << ended.err;
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
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
  EXPECT_EQ(ended.status, 3);
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
}

}  // namespace
}  // namespace terrace::test
