#include "runtime/cache/pool/watermark_reclaimer.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace terrace {
namespace {

/// Slots that are kept free as the reserve says, and are refilled when the caller wants.
class Slots {
 public:
  /// Returns whether the request finds enough.
  bool take(std::uint64_t slots) {
    reserve.on_request(slots, free_, promised_, kept_);
    const bool enough = free_ >= slots;
    promised_ += enough ? 0 : slots - free_;
    free_ -= enough ? slots : free_;
    return enough;
  }
  void refill() {
    kept_ = free_ = reserve.slots();
    promised_ = 0;
  }

  BurstReserve reserve;

 private:
  std::uint64_t kept_ = 0;
  std::uint64_t free_ = 0;
  std::uint64_t promised_ = 0;
};

TEST(BurstReserve, keeps_nothing_before_the_first_request) { EXPECT_EQ(BurstReserve{}.slots(), 0U); }

TEST(BurstReserve, is_enough_for_199_requests_of_200_and_not_for_all) {
  Slots slots;
  Random random{1};
  std::uint64_t too_few = 0;
  constexpr std::uint64_t requests = 100'000;
  for (std::uint64_t n = 0; n < requests; ++n) {
    too_few += slots.take(random.between(1, 1000)) ? 0U : 1U;
    slots.refill();
  }
  EXPECT_GT(too_few, requests / 400);
  EXPECT_LT(too_few, requests / 100);
  EXPECT_GT(slots.reserve.slots(), 900U);
}

TEST(BurstReserve, adds_up_requests_that_come_before_it_is_filled_again) {
  Slots slots;
  for (int burst = 0; burst < 1000; ++burst) {
    for (int n = 0; n < 10; ++n) (void)slots.take(20);
    slots.refill();
  }
  EXPECT_GE(slots.reserve.slots(), 190U);
  EXPECT_LE(slots.reserve.slots(), 240U);
}

TEST(BurstReserve, becomes_smaller_when_requests_need_less) {
  Slots slots;
  for (int n = 0; n < 100; ++n) {
    (void)slots.take(1000);
    slots.refill();
  }
  EXPECT_GE(slots.reserve.slots(), 900U);
  for (int n = 0; n < 100'000; ++n) {
    (void)slots.take(10);
    slots.refill();
  }
  EXPECT_LE(slots.reserve.slots(), 40U);
}

}  // namespace
}  // namespace terrace
