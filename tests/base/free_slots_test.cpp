#include "base/free_slots.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <set>
#include <string>

namespace terrace {
namespace {

/// Sizes around those at which a word, a summary word and a summary of summaries are full.
constexpr std::uint32_t telling_sizes[] = {1, 2, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 4160, 262'143, 262'144, 262'145};

class FreeSlotsOfSize : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, FreeSlotsOfSize, ::testing::ValuesIn(telling_sizes));

TEST_P(FreeSlotsOfSize, are_all_handed_out_lowest_first_and_then_none) {
  FreeSlots slots{GetParam()};
  slots.check_invariants();
  EXPECT_EQ(slots.capacity(), GetParam());
  for (std::uint32_t i = 0; i < GetParam(); ++i) {
    ASSERT_EQ(slots.size(), GetParam() - i);
    ASSERT_EQ(slots.take(), SlotId{i});
  }
  EXPECT_TRUE(slots.empty());
  EXPECT_EQ(slots.take(), std::nullopt);
  EXPECT_EQ(slots.take_after(SlotId{0}), std::nullopt);
  slots.check_invariants();
}

TEST_P(FreeSlotsOfSize, find_the_one_that_came_back_wherever_it_is) {
  FreeSlots slots{GetParam()};
  while (slots.take()) {
  }
  for (const std::uint32_t back : {GetParam() - 1, GetParam() / 2, std::uint32_t{0}}) {
    slots.put(SlotId{back});
    slots.check_invariants();
    EXPECT_TRUE(slots.contains(SlotId{back}));
    EXPECT_EQ(slots.take(), SlotId{back});
    EXPECT_FALSE(slots.contains(SlotId{back}));
  }
}

TEST_P(FreeSlotsOfSize, grow_and_keep_what_is_taken) {
  for (const std::uint32_t more : {1U, 63U, 64U, 5000U}) {
    FreeSlots slots{GetParam()};
    slots.take_exactly(SlotId{GetParam() - 1});
    slots.grow(GetParam() + more);
    slots.check_invariants();
    EXPECT_EQ(slots.capacity(), GetParam() + more);
    EXPECT_EQ(slots.size(), GetParam() - 1 + more);
    EXPECT_FALSE(slots.contains(SlotId{GetParam() - 1}));
    EXPECT_TRUE(slots.contains(SlotId{GetParam()}));
    EXPECT_EQ(slots.take_last(), SlotId{GetParam() + more - 1});
    EXPECT_FALSE(slots.contains(SlotId{GetParam() + more}));
  }
}

TEST_P(FreeSlotsOfSize, do_not_contain_what_is_past_the_end) {
  FreeSlots slots{GetParam()};
  EXPECT_TRUE(slots.contains(SlotId{GetParam() - 1}));
  EXPECT_FALSE(slots.contains(SlotId{GetParam()}));
  EXPECT_FALSE(slots.contains(SlotId{0xFFFF'FFFF}));
}

TEST_P(FreeSlotsOfSize, are_all_handed_out_highest_first_where_asked_for) {
  FreeSlots slots{GetParam()};
  for (std::uint32_t i = GetParam(); i > 0; --i) ASSERT_EQ(slots.take_last(), SlotId{i - 1});
  EXPECT_EQ(slots.take_last(), std::nullopt);
  slots.check_invariants();
}

TEST(FreeSlots, may_be_none_at_all) {
  FreeSlots slots{0};
  slots.check_invariants();
  EXPECT_TRUE(slots.empty());
  EXPECT_EQ(slots.take(), std::nullopt);
  EXPECT_EQ(slots.take_last(), std::nullopt);
  EXPECT_EQ(slots.take_after(SlotId{0}), std::nullopt);
}

TEST(FreeSlots, prefer_the_one_after_a_neighbour) {
  FreeSlots slots{200};
  EXPECT_EQ(slots.take_after(SlotId{99}), SlotId{100});
  EXPECT_EQ(slots.take_after(SlotId{100}), SlotId{101});
  slots.take_exactly(SlotId{64});
  EXPECT_EQ(slots.take_after(SlotId{63}), SlotId{0});   // slot 64 is taken: takes the lowest free slot instead
  EXPECT_EQ(slots.take_after(SlotId{199}), SlotId{1});  // there is no slot after the last one
  EXPECT_EQ(slots.take_after(SlotId{0xFFFF'FFFF}), SlotId{2});
  slots.check_invariants();
}

TEST(FreeSlots, agree_with_a_set_over_random_operations) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (const std::uint32_t capacity : {1U, 63U, 64U, 65U, 4095U, 4096U, 4097U, 5000U}) {
    FreeSlots slots{capacity};
    std::set<std::uint32_t> model;
    for (std::uint32_t i = 0; i < capacity; ++i) model.insert(i);
    bool filling = true;  // phases, so that the bitmap becomes full and empty
    for (int step = 0; step < 20'000; ++step) {
      if (model.empty()) filling = false;
      if (model.size() == capacity) filling = true;
      const auto any = static_cast<std::uint32_t>(random.below(capacity));
      if (random.chance(filling ? 0.7 : 0.3)) {
        std::optional<std::uint32_t> expected;
        if (!model.empty()) expected = *model.begin();
        std::optional<SlotId> got;
        if (random.chance(0.2)) {
          if (!model.empty()) expected = *model.rbegin();
          got = slots.take_last();
        } else if (random.chance(0.5)) {
          if (model.contains(any + 1)) expected = any + 1;
          got = slots.take_after(SlotId{any});
        } else if (model.contains(any) && random.chance(0.5)) {
          expected = any;
          slots.take_exactly(SlotId{any});
          got = SlotId{any};
        } else {
          got = slots.take();
        }
        ASSERT_EQ(got.has_value(), expected.has_value());
        if (got) {
          ASSERT_EQ(got->value(), *expected);
          model.erase(*expected);
        }
      } else if (!model.contains(any)) {
        slots.put(SlotId{any});
        model.insert(any);
      }
      ASSERT_EQ(slots.size(), model.size());
      ASSERT_EQ(slots.contains(SlotId{any}), model.contains(any));
      if (step % 64 == 0) slots.check_invariants();
    }
    slots.check_invariants();
  }
}

TEST(FreeSlots, are_taken_many_at_a_time_as_one_by_one) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (const std::uint32_t capacity : {1U, 63U, 64U, 65U, 200U, 5000U}) {
    FreeSlots slots{capacity};
    FreeSlots one_by_one{capacity};
    std::vector<SlotId> taken;
    for (int step = 0; step < 3000; ++step) {
      if (random.chance(0.5)) {
        const auto wanted = static_cast<std::uint32_t>(random.below(capacity + 2));
        std::optional<SlotId> neighbour;
        if (random.chance(0.7)) neighbour = SlotId{static_cast<std::uint32_t>(random.below(capacity))};
        std::vector<SlotId> got;
        const bool highest = random.chance(0.3);
        if (highest) slots.take_last_many(wanted, got);
        else slots.take_many(wanted, neighbour, got);
        ASSERT_EQ(got.size(), std::min(wanted, one_by_one.size()));
        for (auto slot = got.rbegin(); highest && slot != got.rend(); ++slot) ASSERT_EQ(one_by_one.take_last(), *slot);
        for (const SlotId slot : highest ? std::span<SlotId>{} : std::span{got}) {
          ASSERT_EQ(neighbour ? one_by_one.take_after(*neighbour) : one_by_one.take(), slot);
          neighbour = slot;
        }
        taken.insert(taken.end(), got.begin(), got.end());
      } else if (!taken.empty()) {
        const std::size_t from = random.below(taken.size());
        slots.put_many(std::span{taken}.subspan(from));
        for (std::size_t i = from; i < taken.size(); ++i) one_by_one.put(taken[i]);
        taken.resize(from);
      }
      ASSERT_EQ(slots.size(), one_by_one.size());
    }
    slots.check_invariants();
  }
}

TEST(FreeSlotsDeathTest, stop_at_a_slot_given_back_twice) {
  FreeSlots slots{100};
  const SlotId slot = slots.take().value();
  slots.put(slot);
  EXPECT_DEATH(slots.put(slot), "broken invariant");
  const std::array<SlotId, 2> twice{SlotId{7}, SlotId{7}};
  slots.take_exactly(SlotId{7});
  EXPECT_DEATH(slots.put_many(twice), "broken invariant");
  EXPECT_DEATH(slots.put(SlotId{50}), "broken invariant");
}

TEST(FreeSlotsDeathTest, stop_at_a_slot_that_is_not_theirs_or_not_free) {
  FreeSlots slots{100};
  EXPECT_DEATH(slots.put(SlotId{100}), "broken invariant");
  EXPECT_DEATH(slots.take_exactly(SlotId{100}), "broken invariant");
  slots.take_exactly(SlotId{7});
  EXPECT_DEATH(slots.take_exactly(SlotId{7}), "broken invariant");
}

}  // namespace
}  // namespace terrace
