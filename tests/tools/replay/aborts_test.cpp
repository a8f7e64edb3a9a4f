#include "tools/replay/engine/scheduler.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

TEST(Aborts, come_at_the_rate_that_was_asked_for) {
  for (const double rate : {0.0, 0.25, 1.0}) {
    Aborts aborts{1, rate};
    int drawn = 0;
    for (int i = 0; i < 4000; ++i) drawn += aborts.draw(100, 10) ? 1 : 0;
    EXPECT_NEAR(drawn, 4000 * rate, 120);
  }
}

TEST(Aborts, come_at_every_point_of_a_life) {
  Aborts aborts{2, 1.0};
  int waiting = 0;
  int at_once = 0;
  int in_prompt = 0;
  int in_output = 0;
  for (int i = 0; i < 4000; ++i) {
    const AbortPoint point = aborts.draw(100, 10).value();
    waiting += point.waiting ? 1 : 0;
    at_once += !point.waiting && point.tokens == 0 ? 1 : 0;
    in_prompt += point.tokens > 0 && point.tokens <= 100 ? 1 : 0;
    in_output += point.tokens > 100 ? 1 : 0;
    ASSERT_LE(point.tokens, 110U);
  }
  for (const int count : {waiting, at_once, in_prompt, in_output}) EXPECT_NEAR(count, 1000, 120);
}

TEST(Aborts, are_the_same_for_the_same_seed) {
  Aborts one{3, 0.5};
  Aborts same{3, 0.5};
  Aborts other{4, 0.5};
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const auto point = one.draw(1000, 100);
    EXPECT_EQ(same.draw(1000, 100), point);
    differ += other.draw(1000, 100) != point ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

}  // namespace
}  // namespace terrace::tools
