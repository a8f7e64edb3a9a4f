// Help texts, error messages about arguments, and the width of lines.
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

const std::vector<Words> all_commands{{},
                                      {"replay"},
                                      {"plan"},
                                      {"doctor"},
                                      {"config"},
                                      {"config", "show"},
                                      {"config", "check"},
                                      {"config", "init"},
                                      {"config", "reference"},
                                      {"store"},
                                      {"store", "stat"},
                                      {"store", "list"},
                                      {"store", "show"},
                                      {"store", "verify"},
                                      {"store", "remove"},
                                      {"shared"},
                                      {"shared", "check"},
                                      {"set"},
                                      {"version"},
                                      {"manual"},
                                      {"completion"}};

Words with(Words words, const std::string& word) {
  words.push_back(word);
  return words;
}

TEST(Help, fits_on_a_screen_of_80_columns_and_says_what_options_take) {
  for (const Words& command : all_commands) {
    std::vector<std::string> flags{"--help"};
    if (command == Words{"replay"} || command == Words{"config", "show"}) flags.emplace_back("--help-all");
    for (const std::string& flag : flags) {
      const Ended ended = run(program(with(command, flag)));
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_LE(width(ended.out), 80U) << ended.out;
      std::string usage = "Usage: terrace";
      for (const std::string& word : command) usage += " " + word;
      EXPECT_NE(ended.out.find(usage), std::string::npos) << ended.out;
      for (const char* const type : {"TEXT", "UINT", "FLOAT", "INT "}) {
        EXPECT_EQ(ended.out.find(type), std::string::npos) << ended.out;
      }
    }
  }
}

TEST(Help, of_replay_begins_with_what_people_need_and_has_the_rest_elsewhere) {
  const std::string few = run(replay_words({"--help"})).out;
  const std::string all = run(replay_words({"--help-all"})).out;
  for (const char* const option :
       {"--workload NAME", "--requests COUNT", "--device DEVICE", "--device-capacity SIZE", "--host-capacity SIZE",
        "--storage WHERE", "--storage-capacity SIZE", "--write-policy NAME", "--policy NAME", "--report FILE"}) {
    EXPECT_NE(few.find(option), std::string::npos) << option;
    EXPECT_NE(all.find(option), std::string::npos) << option;
  }
  const std::size_t examples = few.find("Examples:");
  EXPECT_LE(std::count(few.begin(), few.begin() + static_cast<std::ptrdiff_t>(few.find("Sizes take")), '\n'), 40);
  EXPECT_NE(few.find("--admin unix:", examples), std::string::npos);
  EXPECT_EQ(few.substr(0, examples).find("--storage-breaker-probe"), std::string::npos);
  EXPECT_NE(all.find("--storage-breaker-probe DURATION"), std::string::npos);
  EXPECT_NE(all.find("--storage-stripe DIR"), std::string::npos);
}

TEST(Complaints, name_the_wrong_word_and_the_nearest_right_one) {
  const std::vector<std::pair<Words, std::string>> expected{
      {{"repaly"}, "there is no command repaly; did you mean replay?"},
      {{"frobnicate"}, "there is no command frobnicate"},
      {{"store", "verfy", "x"}, "there is no command verfy; did you mean verify?"},
      {{"replay", "--reqests", "3"}, "there is no option --reqests; did you mean --requests?"},
      {{"replay", "--requests", "3", "--host-block=4"}, "there is no option --host-block; did you mean --host-blocks?"},
      {{"replay", "--xyzzy"}, "there is no option --xyzzy"},
      {{"bench", "index"}, "there is no command bench; the program terrace-lab measures, and a build from source has it"},
      {{},
       "a command is missing: replay, plan, doctor, store, shared, config, top, why, set, clear, update, pause, resume, "
       "job, trace, record, version, manual, completion"},
      {{"store"}, "a command is missing: stat, list, show, verify, remove"}};
  for (const auto& [words, sentence] : expected) {
    const Ended ended = run(program(words));
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_TRUE(ended.err.ends_with(": " + sentence + "\n")) << ended.err;
  }
}

TEST(Tables, fit_on_a_screen_of_80_columns) {
  const TemporaryDirectory directory;
  const std::string store = (directory.path() / "store").string();
  const Words three_tiers{"--storage", "file:" + store,   "--storage-capacity", "16MiB",        "--checkpoint",
                          "10",        "--prefill-speed", "10000000",           "--abort-rate", "0.2"};
  for (const std::string mode : {"confined", "loop"}) {
    Words words = three_tiers;
    words.insert(words.end(), {"--mode", mode});
    const Ended ended = run(replay_words(small(words)));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(width(ended.out), 80U) << ended.out;
  }
  for (const std::string command : {"stat", "list", "verify"}) {
    const Ended ended = run(program({"store", command, store}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(width(ended.out), 80U) << ended.out;
  }
}

class Progress : public testing::TestWithParam<unsigned short> {};
INSTANTIATE_TEST_SUITE_P(Columns, Progress, testing::Values(20, 50, 80, 200));

TEST_P(Progress, begins_at_the_first_moment_and_never_fills_more_than_its_line) {
  OnTerminal program{replay_words(small({})), GetParam()};
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 0);
  const std::string erase = "\r\x1b[K";
  EXPECT_TRUE(ended.err.starts_with(erase)) << ended.err;
  EXPECT_TRUE(ended.err.ends_with(erase)) << ended.err;
  if (GetParam() >= 50) {
    EXPECT_NE(ended.err.find("starting: "), std::string::npos);
    EXPECT_NE(ended.err.find("requests  hits"), std::string::npos);
  }
  for (std::size_t at = 0; at < ended.err.size();) {
    const std::size_t begin = at + erase.size();
    at = std::min(ended.err.find(erase, begin), ended.err.size());
    EXPECT_LT(at - begin, GetParam()) << ended.err.substr(begin, at - begin);
  }
}

}  // namespace
}  // namespace terrace::test
