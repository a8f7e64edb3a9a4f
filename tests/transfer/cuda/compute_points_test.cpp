#include "transfer/device/compute_points.hpp"
#include "tests/transfer/cuda/cuda_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using test::Gate;
using Event = EventPool::Event;

/// Fences whose events are numbers. They happen when their gates open.
class ComputePointsTest : public testing::Test {
 protected:
  ~ComputePointsTest() override { stop(); }
  void start() {
    runner_ = std::thread{[this] {
      points_.run([this](ComputeWork& work) { return work(nobody_), true; }, [this](const Event&) { happen_.wait(); });
    }};
  }
  void stop() {
    points_.stop();
    happen_.open();
    if (runner_.joinable()) runner_.join();
  }
  static Event event() { return std::make_shared<const CUevent>(nullptr); }
  void await_reached(Fence point) {
    while (points_.reached() < point) std::this_thread::yield();
  }
  std::vector<Event> open_up_to(Fence point) {
    std::vector<Event> open;
    EXPECT_TRUE(points_.wait_for(point, open));
    return open;
  }

  class Nothing final : public BlockAccess {
    std::span<const std::byte> read(PoolId, SlotId, std::span<std::byte>) override { return {}; }
    std::span<std::byte> write_target(PoolId, SlotId, std::span<std::byte>) override { return {}; }
    void written(PoolId, SlotId, std::span<std::byte>) override {}
  };
  Nothing nobody_;
  Gate happen_;
  ComputePoints<Event> points_;
  std::thread runner_;
};

TEST_F(ComputePointsTest, are_numbered_as_they_are_given_out) {
  EXPECT_TRUE(points_.exists(Fence{0}));
  EXPECT_FALSE(points_.exists(Fence{1}));
  EXPECT_EQ(points_.add_event(event()), Fence{1});
  EXPECT_EQ(points_.add_work([](BlockAccess&) {}), Fence{2});
  EXPECT_TRUE(points_.exists(Fence{2}));
  EXPECT_EQ(points_.reached(), Fence{0});
}

TEST_F(ComputePointsTest, name_the_events_that_stand_before_a_point_and_no_later_ones) {
  const auto first = event();
  const auto second = event();
  points_.add_event(first);
  const Fence point = points_.add_event(second);
  points_.add_event(event());
  EXPECT_EQ(open_up_to(Fence{0}).size(), 0U);
  EXPECT_EQ(open_up_to(Fence{1}), (std::vector{first}));
  EXPECT_EQ(open_up_to(point), (std::vector{first, second}));
}

TEST_F(ComputePointsTest, that_are_reached_name_nothing) {
  const Fence point = points_.add_event(event());
  start();
  EXPECT_EQ(open_up_to(point).size(), 1U);
  happen_.open();
  await_reached(point);
  EXPECT_EQ(open_up_to(point).size(), 0U);
}

TEST_F(ComputePointsTest, are_waited_for_as_far_as_they_are_work) {
  const Gate work_gate;
  std::atomic<bool> waited{false};
  const Fence work = points_.add_work([&](BlockAccess&) { work_gate.wait(); });
  const auto marked = event();
  const Fence point = points_.add_event(marked);
  points_.add_work([](BlockAccess&) {});
  start();
  std::vector<Event> open;
  std::thread waiter{[&] {
    EXPECT_TRUE(points_.wait_for(point, open));
    waited = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{10});
  EXPECT_FALSE(waited);
  EXPECT_LT(points_.reached(), work);
  work_gate.open();
  waiter.join();
  EXPECT_EQ(open, (std::vector{marked})) << "not for the event, nor for later work";
}

TEST_F(ComputePointsTest, end_waits_and_begin_no_more_work_when_stopped) {
  bool worked = false;
  const Fence first = points_.add_event(event());
  const Fence work = points_.add_work([&](BlockAccess&) { worked = true; });
  start();
  std::thread waiter{[&] {
    std::vector<Event> open;
    EXPECT_FALSE(points_.wait_for(work, open));
  }};
  stop();
  waiter.join();
  EXPECT_FALSE(worked);
  EXPECT_LE(points_.reached(), first);
}

}  // namespace
}  // namespace terrace
