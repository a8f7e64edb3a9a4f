#include "base/check.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace terrace {
namespace {

TEST(Check, that_holds_costs_one_evaluation_and_does_nothing) {
  int evaluations = 0;
  TERRACE_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(Check, is_one_statement) {
  bool other_branch = false;
  if (other_branch == false) TERRACE_CHECK(true);
  else other_branch = true;
  EXPECT_FALSE(other_branch);
}

TEST(CheckDeathTest, that_breaks_says_what_and_where_and_ends_the_process) {
  const int answer = 41;
  EXPECT_DEATH(TERRACE_CHECK(answer == 42), "broken invariant: answer == 42 \\(.*check_test.cpp:[0-9]+\\)");
}

TEST(CheckDeathTest, calls_the_handler_it_was_given_and_still_ends_the_process) {
  const auto handler = [](const char* condition, const char*, int) { std::fprintf(stderr, "handled: %s\n", condition); };
  EXPECT_EXIT(
      {
        set_check_handler(handler);
        TERRACE_CHECK(1 + 1 == 3);
      },
      ::testing::KilledBySignal(SIGABRT), "handled: 1 \\+ 1 == 3");
  EXPECT_EXIT(
      {
        set_check_handler([](const char*, const char*, int) { std::_Exit(3); });
        TERRACE_CHECK(false);
      },
      ::testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace terrace
