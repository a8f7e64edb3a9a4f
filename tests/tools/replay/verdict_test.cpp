#include "tools/replay/replay.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

ReplayResult good() {
  ReplayResult result;
  result.counts = {.requests = 3, .total = 10, .miss = 4};
  result.counts.found[Source::device] = 4;
  result.counts.found[Source::host] = 2;
  result.checked = 6;
  result.compared = 6;
  result.checks.ledgers_balanced = true;
  return result;
}

ReplayResult with_mismatch() {
  ReplayResult result = good();
  result.mismatches = 1;
  result.first_mismatch = Mismatch{};
  return result;
}

ReplayOptions injecting(Fault fault) {
  ReplayOptions options;
  options.inject = fault;
  return options;
}

TEST(Verdict, of_a_good_run_is_silence) {
  EXPECT_EQ(judge({}, good()).status, ExitStatus::done);
  EXPECT_EQ(judge({}, good()).line, "");
}

TEST(Verdict, of_a_mismatch_is_1_whatever_else_happened) {
  ReplayResult result = with_mismatch();
  result.interrupted = true;
  result.failure = "something else";
  const Verdict verdict = judge({}, result);
  EXPECT_EQ(verdict.status, ExitStatus::check_failed);
  EXPECT_NE(verdict.line.find("1 of 6"), std::string::npos);
}

TEST(Verdict, of_a_broken_check_is_1) {
  for (const auto breakage : {+[](FinalChecks& c) { c.leases = 1; }, +[](FinalChecks& c) { c.readers = 1; },
                              +[](FinalChecks& c) { c.orphans = 1; }, +[](FinalChecks& c) { c.stored = 1; },
                              +[](FinalChecks& c) { c.device.held = 1; }, +[](FinalChecks& c) { c.ledgers_balanced = false; }}) {
    ReplayResult result = good();
    breakage(result.checks);
    EXPECT_EQ(judge({}, result).status, ExitStatus::check_failed);
  }
}

TEST(Verdict, wants_every_hit_compared_where_all_were_to_be) {
  ReplayResult result = good();
  result.checked = 5;
  EXPECT_EQ(judge({}, result).status, ExitStatus::check_failed);
  ReplayOptions options;
  options.verify = Verify::sample;
  EXPECT_EQ(judge(options, result).status, ExitStatus::done);
}

TEST(Verdict, of_a_failed_run_is_3_and_of_an_interrupted_one_130) {
  ReplayResult result = good();
  result.interrupted = true;
  EXPECT_EQ(judge({}, result).status, ExitStatus::interrupted);
  result.failure = "no room";
  EXPECT_EQ(judge({}, result).status, ExitStatus::run_failed);
  EXPECT_EQ(judge({}, result).line, "no room");
}

TEST(Verdict, of_a_planted_fault_is_1_caught_or_not) {
  ReplayResult result = with_mismatch();
  result.faults_planted = 9;
  EXPECT_EQ(judge(injecting(Fault::flip), result).status, ExitStatus::check_failed);
  EXPECT_NE(judge(injecting(Fault::flip), result).line.find("9 blocks planted, 1 mismatches caught"), std::string::npos);
  result = good();
  result.faults_planted = 9;
  EXPECT_EQ(judge(injecting(Fault::late), result).status, ExitStatus::check_failed);
  EXPECT_NE(judge(injecting(Fault::late), result).line.find("9 copies planted, and none was caught"), std::string::npos);
}

TEST(Verdict, of_a_fault_that_could_not_be_planted_is_3) {
  EXPECT_EQ(judge(injecting(Fault::flip), good()).status, ExitStatus::run_failed);
}

}  // namespace
}  // namespace terrace::tools
