#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace terrace::test {
namespace {

Words plan(Words words) {
  words.insert(words.begin(), {paths.program, "plan"});
  return words;
}

class CliPlan : public testing::Test {
 protected:
  /// Two prompts in turn, of two blocks each.
  std::string trace() const {
    std::string text;
    for (int request = 0; request < 6; ++request) {
      const std::string ids = request % 2 == 0 ? "[1, 2]" : "[3, 4]";
      text += R"({"timestamp": )" + std::to_string(1000 * request) +
              R"(, "input_length": 1024, "output_length": 1, "hash_ids": )" + ids + "}\n";
    }
    return directory_.write("t.jsonl", text).string();
  }

  TemporaryDirectory directory_;
};

TEST_F(CliPlan, prints_a_table_and_writes_plots) {
  const std::string plots = (directory_.path() / "plots").string();
  const Ended ended = run(plan({trace(), "--plot", plots, "--target", "50%"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_LE(width(ended.out), 80U) << ended.out;
  EXPECT_NE(ended.out.find("t.jsonl: 6 requests in 5.0 s"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("50.00 %  lru      4 blocks (256MiB)"), std::string::npos) << ended.out;
  EXPECT_TRUE(read_file(directory_.path() / "plots" / "hit-rate.svg").starts_with("<svg"));
  EXPECT_TRUE(read_file(directory_.path() / "plots" / "first-token.svg").starts_with("<svg"));
}

TEST_F(CliPlan, reads_standard_input_and_prints_one_json_object) {
  const Ended ended = run_in_shell("cat '" + trace() + "' | \"$@\"", plan({"-", "--json", "--sizes", "4"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value all = boost::json::parse(ended.out);
  EXPECT_EQ(all.at("source").as_string(), "standard input");
  EXPECT_EQ(all.at("policies").at("lru").at(0).at("hits").at("all").to_number<int>(), 8);
}

TEST_F(CliPlan, only_reads_as_many_requests_as_it_is_told) {
  const Ended ended = run(plan({"--workload", "rag", "--requests", "50", "--json"}));
  EXPECT_EQ(boost::json::parse(ended.out).at("requests").to_number<int>(), 50);
}

TEST_F(CliPlan, refuses_bad_input_with_one_line_and_no_output) {
  const std::string plots = (directory_.path() / "plots").string();
  const std::string file = directory_.write("file", "x").string();
  const std::string empty = directory_.write("empty", "").string();
  const std::string bad = directory_.write("bad", "{]\n").string();
  const std::string good = trace();
  const std::vector<std::pair<Words, std::string>> expected{
      {{file + ".missing"}, file + ".missing: cannot open: No such file or directory"},
      {{directory_.path().string()}, directory_.path().string() + ": is a directory"},
      {{empty}, empty + ": no requests"},
      {{bad}, bad + ":1: "},
      {{good, "--block-tokens", "512", "--requests", "1", "--workload", "chat"}, "give a trace or --workload, not both"},
      {{"--block-tokens", "3000000", "--block-bytes", "1B"},
       "chat workload, seed 1: no prompt has a full block of 3000000 tokens"},
      {{good, "--size", "3"}, "there is no option --size; did you mean --sizes?"},
      {{good, "--sizes", "3kb"}, "--sizes: \"3kb\" is not a size"},
      {{good, "--plot", file}, "--plot: cannot write " + file + ": it is not a directory"},
      {{good, "--device-blocks", "1", "--device-capacity", "1GiB"}, "give --device-blocks or --device-capacity, not both"}};
  for (const auto& [words, sentence] : expected) {
    Words with_plots = words;
    if (words.back() != file) with_plots.insert(with_plots.end(), {"--plot", plots});
    const Ended ended = run(plan(with_plots));
    expect_refusal(ended);
    EXPECT_TRUE(ended.err.starts_with("terrace plan: " + sentence)) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(plots));
}

/// A workload without end: it reads until the signal comes.
TEST_F(CliPlan, ends_with_130_when_it_is_interrupted) {
  for (const int number : {SIGINT, SIGTERM}) {
    OnTerminal program{
        plan({"--workload", "chat", "--requests", "1000000000", "--plot", (directory_.path() / "plots").string()})};
    ASSERT_TRUE(program.wait_for("reading the trace"));
    program.signal(number);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 130) << ended.err;
    EXPECT_NE(ended.err.find("terrace plan: interrupted"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "plots"));
  }
}

}  // namespace
}  // namespace terrace::test
