#include "runtime/prefill_speed.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using namespace std::chrono_literals;

class PrefillSpeedOf : public ::testing::Test {
 protected:
  /// So many pieces, each committed as its compute is launched.
  void compute(int pieces, std::uint32_t units, Duration each) {
    for (int i = 0; i < pieces; ++i) {
      speed.on_ready(now);
      speed.on_commit(units, Fence{++launched});
      now += each;
      speed.on_reached(Fence{launched}, now);
    }
  }

  PrefillSpeed speed;
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
  for (int i = 0; i < 8; ++i) {
    speed.on_ready(now);
    now += 100ms;
    speed.on_commit(10, Fence{});
    speed.on_reached(Fence{}, now);
    now += 5s;  // idle
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, pieces_launched_ahead_do_not_count_their_wait) {
  speed.on_ready(now);
  speed.on_commit(10, Fence{++launched});
  for (int i = 0; i < 8; ++i) {
    speed.on_commit(10, Fence{++launched});
    now += 100ms;
    speed.on_reached(Fence{launched - 1}, now);
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, no_more_pieces_are_kept_than_the_bound_and_none_is_lost) {
  for (int i = 0; i < 8; ++i) {
    speed.on_ready(now);
    for (int piece = 0; piece < 5000; ++piece) speed.on_commit(1, Fence{++launched});
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
}

}  // namespace
}  // namespace terrace
