#include "transfer/device/compute_points.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace terrace {
namespace {

TEST(ComputeWaits, wait_for_no_point_that_is_reached) {
  ComputePoints<std::shared_ptr<int>> points;
  EXPECT_EQ(points.reached(), Fence{0});
  const Fence first = points.add_reached();
  const Fence second = points.add_reached();
  EXPECT_EQ(points.reached(), second);
  EXPECT_TRUE(points.await_reached(first));
  EXPECT_TRUE(points.await_reached(second));
  EXPECT_TRUE(points.wait_until(std::chrono::steady_clock::now()));
}

TEST(ComputeWaits, end_once_stopped) {
  ComputePoints<std::shared_ptr<int>> points;
  points.stop();
  EXPECT_FALSE(points.await_reached(Fence{1}));
  EXPECT_FALSE(points.wait_until(std::chrono::steady_clock::now() + std::chrono::hours{1}));
}

}  // namespace
}  // namespace terrace
