#include "runtime/cache/measure/prefill_speed.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using namespace std::chrono_literals;

class PrefillSpeedOf : public ::testing::Test {
 protected:
  /// Computes this number of pieces. Each belongs to its own request and is committed when its compute is launched.
  void compute(int pieces, std::uint32_t units, Duration each) {
    for (int i = 0; i < pieces; ++i) {
      speed.on_ready(RequestId{++requests}, units, now);
      speed.on_commit(RequestId{requests}, 0, Fence{++launched});
      now += each;
      speed.on_reached(Fence{launched}, now);
    }
  }

  PrefillSpeed speed;
  std::uint64_t requests = 0;
  std::uint64_t launched = 0;
  TimePoint now = TimePoint{} + 1h;
};

TEST_F(PrefillSpeedOf, little_evidence_is_not_known) {
  compute(7, 10, 100ms);
  EXPECT_EQ(speed.unit_seconds(), 0);
  compute(1, 10, 100ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, an_engine_that_commits_what_is_computed_is_the_same) {
  for (std::uint64_t i = 1; i <= 8; ++i) {
    speed.on_ready(RequestId{i}, 10, now);
    now += 100ms;
    speed.on_commit(RequestId{i}, 0, Fence{});
    speed.on_reached(Fence{}, now);
    now += 5s;  // idle
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, a_request_that_becomes_ready_during_the_compute_of_another_does_not_shorten_it) {
  speed.on_ready(RequestId{1}, 10, now);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    now += 95ms;
    speed.on_ready(RequestId{i + 1}, 10, now);
    now += 5ms;
    speed.on_commit(RequestId{i}, 0, Fence{});
    speed.on_reached(Fence{}, now);
    speed.on_released(RequestId{i});
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, a_request_that_ends_uncomputed_is_waited_for_no_longer) {
  speed.on_ready(RequestId{100}, 10, now);
  now += 5s;
  speed.on_released(RequestId{100});
  EXPECT_FALSE(speed.computes(RequestId{100}));
  compute(8, 10, 100ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, only_a_request_that_was_announced_counts) {
  for (int i = 0; i < 8; ++i) {
    speed.on_ready(RequestId{1}, 0, now);  // nothing to compute: all hits, or computed elsewhere
    EXPECT_FALSE(speed.computes(RequestId{1}));
    speed.on_commit(RequestId{1}, 0, Fence{++launched});
    now += 100ms;
    speed.on_reached(Fence{launched}, now);
  }
  EXPECT_EQ(speed.unit_seconds(), 0);
}

TEST_F(PrefillSpeedOf, pieces_launched_ahead_do_not_count_their_wait) {
  speed.on_ready(RequestId{1}, 90, now);
  speed.on_commit(RequestId{1}, 80, Fence{++launched});
  for (std::uint32_t left = 80; left > 0; left -= 10) {
    speed.on_commit(RequestId{1}, left - 10, Fence{++launched});
    now += 100ms;
    speed.on_reached(Fence{launched - 1}, now);
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, no_more_pieces_are_kept_than_the_bound_and_none_is_lost) {
  for (std::uint64_t i = 1; i <= 8; ++i) {
    speed.on_ready(RequestId{i}, 5000, now);
    for (std::uint32_t left = 5000; left > 0; --left) speed.on_commit(RequestId{i}, left - 1, Fence{++launched});
    now += 5s;
    speed.on_reached(Fence{launched}, now);
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.001);
}

TEST_F(PrefillSpeedOf, the_shape_that_is_computed_fastest_counts) {
  compute(20, 1, 25ms);
  compute(8, 64, 80ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.080 / 64);
  compute(20, 1, 25ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.080 / 64);
}

TEST_F(PrefillSpeedOf, an_engine_that_has_changed_is_soon_known_again) {
  compute(8, 64, 640ms);
  compute(30, 64, 64ms);
  EXPECT_NEAR(speed.unit_seconds(), 0.001, 0.0005);
  compute(30, 64, 640ms);
  EXPECT_NEAR(speed.unit_seconds(), 0.010, 0.0005);
}

}  // namespace
}  // namespace terrace
