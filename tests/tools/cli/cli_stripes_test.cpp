// A striped store, run as a program: replays over it, `terrace store`, and a missing directory.
#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

class CliStripes : public testing::Test {
 protected:
  Ended replay(const Words& more = {}) const {
    Words words = small({"--storage", "file:" + (directory_.path() / "a").string(), "--storage-capacity", "64MiB",
                         "--storage-stripe", (directory_.path() / "b").string(), "--storage-stripe",
                         (directory_.path() / "c").string(), "--storage-stripe-size", "64KiB", "--report", report_});
    words.insert(words.end(), more.begin(), more.end());
    return run(replay_words(words));
  }
  Ended store(Words words) const {
    words.insert(words.begin(), {paths.program, "store"});
    words.push_back((directory_.path() / "a").string());
    return run(words);
  }
  [[nodiscard]] json::value report() const { return report_in(directory_); }

  TemporaryDirectory directory_;
  std::string report_ = (directory_.path() / "r.json").string();
};

TEST_F(CliStripes, a_replay_finds_again_what_the_last_one_stored_over_three_directories) {
  const Ended first = replay();
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.out.find(" and 2 more"), std::string::npos) << first.out;
  const int misses = report().at_pointer("/blocks/miss").to_number<int>();
  ASSERT_EQ(replay().status, 0);
  EXPECT_LT(report().at_pointer("/blocks/miss").to_number<int>(), misses);
  EXPECT_EQ(report().at_pointer("/verify/mismatches").to_number<int>(), 0);
  EXPECT_EQ(report().at_pointer("/store/directories").to_number<int>(), 3);
  EXPECT_EQ(report().at_pointer("/config/storage/stripes").as_array().size(), 2U);

  EXPECT_EQ(store({"verify"}).status, 0);
  const Ended stat = store({"stat"});
  EXPECT_NE(stat.out.find("striped      over 3 directories, 64KiB side by side"), std::string::npos) << stat.out;
  EXPECT_NE(stat.out.find((directory_.path() / "c").string()), std::string::npos) << stat.out;
  const Ended removed = store({"remove", "--all", "--yes"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_NE(removed.out.find(", 0 left"), std::string::npos) << removed.out;
}

TEST_F(CliStripes, stat_tells_whose_the_store_is) {
  ASSERT_EQ(replay({"--storage-label", "engine 1, model A"}).status, 0);
  ASSERT_EQ(replay({"--storage-label", "engine 1, model B"}).status, 0);
  const Ended stat = store({"stat"});
  for (const char* const part :
       {"engine 1, model A; opened 20", "engine 1, model B; opened 20", "striped      over 3", "deletable    yes: "}) {
    EXPECT_NE(stat.out.find(part), std::string::npos) << part << " is missing in\n" << stat.out;
  }
  const json::value object = json::parse(store({"stat", "--json"}).out);
  EXPECT_EQ(object.at("labels").as_array().size(), 2U);
}

TEST_F(CliStripes, a_directory_that_is_not_mounted_is_named_once_and_all_commands_count_alike) {
  ASSERT_EQ(replay().status, 0);
  const auto in = [](const Ended& ended) { return json::parse(ended.out); };
  const auto count = [](const json::value& value, const char* at) { return value.at_pointer(at).to_number<int>(); };
  for (const bool mounted : {true, false}) {
    if (!mounted) fs::rename(directory_.path() / "b", directory_.path() / "hidden");
    const json::value stat = in(store({"stat", "--json"}));
    const Ended verified = store({"verify", "--json"});
    const Ended listed = store({"list", "--json"});
    const int blocks = count(stat, "/slots/blocks");
    EXPECT_GT(blocks, 0);
    EXPECT_EQ(count(stat, "/slots/damaged"), 0);
    EXPECT_EQ(count(stat, "/slots/orphans"), 0);
    EXPECT_EQ(count(in(verified), "/blocks"), blocks);
    EXPECT_EQ(count(in(listed), "/matching"), blocks);
    EXPECT_EQ(count(in(verified), "/missing"), count(stat, "/slots/missing"));
    EXPECT_EQ(count(in(verified), "/verified"), blocks - count(stat, "/slots/missing"));
    EXPECT_EQ(verified.status, mounted ? 0 : 1);
    EXPECT_EQ(listed.status, 0);
    EXPECT_EQ(count(stat, "/slots/missing") > 0, !mounted);
    EXPECT_EQ(stat.at("missing_directories").as_array().size(), mounted ? 0U : 1U);
  }
  const std::string said = "1 of 3 directories of the store is missing, with ";
  const Ended verified = store({"verify"});
  EXPECT_EQ(verified.status, 1);
  EXPECT_TRUE(is_one_line(verified.err)) << verified.err;
  EXPECT_NE(verified.err.find(said), std::string::npos) << verified.err;
  EXPECT_LT(std::count(verified.out.begin(), verified.out.end(), '\n'), 8) << verified.out;
  EXPECT_NE(store({"stat"}).out.find(said), std::string::npos);
  EXPECT_TRUE(is_one_line(store({"list"}).err));
}

TEST_F(CliStripes, a_directory_that_is_gone_is_refused_and_then_left_out) {
  ASSERT_EQ(replay().status, 0);
  fs::remove_all(directory_.path() / "b");
  const Ended refused = replay();
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(is_one_line(refused.err)) << refused.err;
  EXPECT_NE(refused.err.find("mount its disk"), std::string::npos) << refused.err;
  const Ended removed = store({"remove", "--all", "--yes"});
  EXPECT_NE(removed.status, 0) << "what is on that disk would be given up unasked";
  EXPECT_TRUE(is_one_line(removed.err)) << removed.err;

  const Ended accepted = replay({"--storage-accept-lost"});
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_NE(accepted.out.find("degraded: 1 of the directories"), std::string::npos) << accepted.out;
  EXPECT_EQ(report().at_pointer("/store/directories_lost").to_number<int>(), 1);
  EXPECT_EQ(report().at_pointer("/storage_health/lost_directories/0").as_string(), (directory_.path() / "b" / "store").string());
  EXPECT_EQ(report().at_pointer("/verify/mismatches").to_number<int>(), 0);
}

}  // namespace
}  // namespace terrace::test
