#include "transfer/device/compute_points.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

TEST(Timeline, waits_for_no_point_that_is_reached) {
  Timeline timeline;
  EXPECT_EQ(timeline.reached(), Fence{0});
  timeline.reach(Fence{3});
  EXPECT_EQ(timeline.reached(), Fence{3});
  EXPECT_TRUE(timeline.wait_for(Fence{2}));
  EXPECT_TRUE(timeline.wait_for(Fence{3}));
  EXPECT_TRUE(timeline.wait_until(std::chrono::steady_clock::now()));
}

TEST(Timeline, ends_every_wait_once_stopped) {
  Timeline timeline;
  timeline.stop();
  EXPECT_FALSE(timeline.wait_for(Fence{1}));
  EXPECT_FALSE(timeline.wait_until(std::chrono::steady_clock::now() + std::chrono::hours{1}));
}

}  // namespace
}  // namespace terrace
