#include "tests/tools/program.hpp"

#include <gtest/gtest.h>

namespace terrace::test {
namespace {

Words bench_words(const Words& words) {
  Words all{TERRACE_PROGRAM, "bench"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

TEST(CliBench, of_keys_reports_every_size_of_block) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(bench_words({"keys", "--block-tokens", "16,48", "--prompt-tokens", "200", "--prompts", "3", "--rounds",
                                       "2", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("prompts"), 3);
  const boost::json::array& rows = report.at("keys").as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("block_tokens"), 16);
  EXPECT_EQ(rows[1].at("block_tokens"), 48);
  for (const boost::json::value& row : rows) {
    for (const char* const field : {"digest_ns", "append_ns", "append_ratio", "append_all_ns", "append_all_ratio"}) {
      EXPECT_GT(row.at(field).to_number<double>(), 0) << field;
    }
  }
}

class BadBench : public testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(All, BadBench,
                         testing::Values(Words{}, Words{"speed"}, Words{"keys", "--block-tokens", "0"},
                                         Words{"keys", "--block-tokens", "64", "--prompt-tokens", "63"},
                                         Words{"keys", "--prompts", "0"}, Words{"keys", "--rounds", "0"},
                                         Words{"keys", "--rounds", "-1"}, Words{"copy", "--area", "1KiB"}));

TEST_P(BadBench, ends_with_2_and_one_line) {
  const Ended ended = run(bench_words(GetParam()));
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
  EXPECT_EQ(ended.out, "");
}

}  // namespace
}  // namespace terrace::test
