#include "terrace/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using namespace std::chrono_literals;

TEST(ManualClock, moves_only_when_told_to) {
  ManualClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(5ms);
  EXPECT_EQ(clock.now() - start, Duration{5ms});
  clock.advance(1ns);
  EXPECT_EQ(clock.now() - start, Duration{5ms + 1ns});
}

TEST(ManualClock, starts_where_a_deadline_may_lie_in_the_past) {
  const ManualClock clock;
  EXPECT_GT(clock.now() - 30min, TimePoint{});
  EXPECT_LT(clock.now(), never);
}

TEST(SteadyClock, never_goes_back) {
  const SteadyClock clock;
  TimePoint last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_LT(last, never);
}

}  // namespace
}  // namespace terrace
