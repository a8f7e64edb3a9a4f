#include "runtime/cache/index/slot_allocator.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace terrace {
namespace {

TEST(SlotAllocator, keeps_its_ledger_through_every_change) {
  SlotAllocator pool{4};
  pool.make_null(SlotId{0});
  const SlotId a = pool.take(SlotState::held).value();
  const SlotId b = pool.take(SlotState::filling).value();
  EXPECT_EQ(a, SlotId{1});
  EXPECT_EQ(b, SlotId{2});
  pool.change(a, SlotState::ready);
  pool.change(b, SlotState::quarantined);
  const Ledger ledger = pool.ledger();
  EXPECT_EQ(ledger.free, 1U);
  EXPECT_EQ(ledger.ready, 1U);
  EXPECT_EQ(ledger.quarantined, 1U);
  EXPECT_EQ(ledger.null, 1U);
  EXPECT_TRUE(ledger.balanced());
  pool.check_invariants();
  pool.put(b);
  pool.put(a);
  EXPECT_EQ(pool.ledger().free, 3U);
  pool.check_invariants();
}

TEST(SlotAllocator, counts_readers_and_leavers) {
  SlotAllocator pool{1};
  const SlotId slot = pool.take(SlotState::ready).value();
  pool.add_reader(slot);
  pool.set_evicting(slot, true);
  EXPECT_EQ(pool.readers_total(), 1U);
  EXPECT_EQ(pool.evicting_total(), 1U);
  pool.remove_reader(slot);
  pool.put(slot);
  EXPECT_EQ(pool.evicting_total(), 0U);
  pool.check_invariants();
}

TEST(SlotAllocator, ends_the_reads_of_many_slots_only_if_all_are_alike) {
  for (const bool evicting : {false, true}) {
    SlotAllocator pool{4};
    std::vector<SlotId> slots;
    pool.take_many(4, std::nullopt, SlotState::ready, slots);
    pool.add_readers(slots, evicting);
    EXPECT_EQ(pool.readers_total(), 4U);
    EXPECT_EQ(pool.evicting_total(), evicting ? 4U : 0U);
    EXPECT_FALSE(pool.end_reads(slots, !evicting));
    pool.add_reader(slots[2]);
    EXPECT_FALSE(pool.end_reads(slots, evicting));  // this slot has another reader
    EXPECT_EQ(pool.readers_total(), 5U);
    pool.check_invariants();
    pool.remove_reader(slots[2]);
    EXPECT_TRUE(pool.end_reads(slots, evicting));
    EXPECT_EQ(pool.reads_ended(), 5U);
    EXPECT_EQ(pool.readers_total() + pool.evicting_total(), 0U);
    pool.check_invariants();
    // In a pool with closed slots, or with one that is read already, each slot is counted by itself.
    pool.add_reader(slots[0]);
    pool.resize(3);
    pool.add_readers(slots, evicting);
    EXPECT_EQ(pool.readers(slots[0]), 2U);
    EXPECT_EQ(pool.readers_total(), 5U);
    EXPECT_EQ(pool.closed_evicting(), evicting ? 1U : 0U);
    EXPECT_FALSE(pool.end_reads(slots, evicting));
    pool.check_invariants();
  }
}

TEST(SlotAllocator, knows_what_fills_a_slot_for_as_long_as_it_does) {
  SlotAllocator pool{2};
  const SlotId slot = pool.take(SlotState::held).value();
  EXPECT_EQ(pool.load(slot), SlotAllocator::no_load);
  pool.begin_load({&slot, 1}, 0, Source::storage);
  EXPECT_EQ(pool.load(slot), 0U);
  EXPECT_EQ(pool.source(slot), Source::storage);
  pool.raise_fence(slot, Fence{0x1'0000'0002});
  pool.raise_fence(slot, Fence{7});
  pool.change(slot, SlotState::ready);
  EXPECT_EQ(pool.load(slot), SlotAllocator::no_load);
  EXPECT_EQ(pool.readers(slot), 0U);
  EXPECT_EQ(pool.add_reader(slot), 1U);
  EXPECT_EQ(pool.load(slot), SlotAllocator::no_load);
  EXPECT_EQ(pool.remove_reader(slot), 0U);
  EXPECT_EQ(pool.fence(slot), Fence{0x1'0000'0002});
  pool.check_invariants();
}

TEST(SlotAllocator, retires_the_highest_slots_and_takes_them_back) {
  SlotAllocator pool{6};
  const SlotId low = pool.take(SlotState::held).value();
  const SlotId high = pool.take_last(SlotState::ready).value();
  pool.set_evicting(high, true);
  pool.resize(3);
  EXPECT_EQ(pool.capacity(), 3U);
  EXPECT_EQ(pool.ledger().retired, 2U);
  EXPECT_EQ(pool.ledger().free, 2U);
  EXPECT_EQ(pool.closed_ready(), 1U);
  EXPECT_EQ(pool.closed_evicting(), 1U);
  pool.check_invariants();
  pool.put(high);
  EXPECT_EQ(pool.ledger().retired, 3U);
  pool.put(low);
  EXPECT_EQ(pool.ledger().free, 3U);
  pool.check_invariants();
  pool.resize(8);
  EXPECT_EQ(pool.ledger().free, 8U);
  EXPECT_EQ(pool.ledger().total, 8U);
  EXPECT_EQ(pool.take_last(SlotState::held), SlotId{7});
  pool.check_invariants();
}

TEST(SlotAllocator, never_hands_out_what_is_retired) {
  SlotAllocator pool{8};
  pool.resize(5);
  pool.retire_free();
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(pool.take(SlotState::held), SlotId{i});
  EXPECT_EQ(pool.take(SlotState::held), std::nullopt);
  EXPECT_TRUE(pool.unretire());
  EXPECT_FALSE(pool.unretire());
  EXPECT_EQ(pool.take(SlotState::held), SlotId{4});
  pool.check_invariants();
}

TEST(SlotAllocator, that_was_made_smaller_takes_many_back_each_to_its_place) {
  SlotAllocator pool{8};
  std::vector<SlotId> slots;
  pool.take_many(8, std::nullopt, SlotState::held, slots);
  pool.resize(5);
  pool.change_all(slots, SlotState::held, SlotState::ready);
  EXPECT_EQ(pool.closed_ready(), 3U);
  pool.remember_freed();
  pool.put_all(slots);
  EXPECT_EQ(pool.ledger().free, 5U);
  EXPECT_EQ(pool.ledger().retired, 3U);
  std::vector<SlotId> freed;
  pool.take_freed(freed);
  EXPECT_EQ(freed.size(), 5U);  // the memory of a retired slot may belong to something else by now
  pool.check_invariants();
}

TEST(SlotAllocatorDeathTest, refuses_to_free_what_is_free_or_read) {
  SlotAllocator pool{2};
  const SlotId slot = pool.take(SlotState::ready).value();
  EXPECT_DEATH(pool.put(SlotId{1}), "broken invariant");
  pool.add_reader(slot);
  EXPECT_DEATH(pool.put(slot), "broken invariant");
}

TEST(SlotAllocator, hands_out_no_closed_slot_and_retires_those_first) {
  SlotAllocator pool{6};
  const SlotId busy = pool.take_last(SlotState::ready).value();  // slot 5
  pool.close({SlotId{3}, 3});
  pool.check_invariants();
  EXPECT_EQ(pool.closed_total(), 3U);
  EXPECT_EQ(pool.closed_ready(), 1U);
  EXPECT_EQ(pool.take_last(SlotState::held), SlotId{2});
  EXPECT_EQ(pool.take(SlotState::held), SlotId{0});
  for (int i = 0; i < 3; ++i) pool.retire_free();  // 3 and 4, then 1
  EXPECT_EQ(pool.state(SlotId{3}), SlotState::retired);
  EXPECT_EQ(pool.state(SlotId{4}), SlotState::retired);
  EXPECT_EQ(pool.state(SlotId{1}), SlotState::retired);
  EXPECT_FALSE(pool.retire_closed_instead());
  pool.put(busy);
  EXPECT_FALSE(pool.take(SlotState::held).has_value());
  pool.check_invariants();
  // It retires instead of slot 1.
  EXPECT_TRUE(pool.retire_closed_instead());
  EXPECT_EQ(pool.take(SlotState::held), SlotId{1});
  EXPECT_EQ(pool.count(SlotState::retired), 3U);
  pool.check_invariants();
}

TEST(SlotAllocator, opens_what_was_closed_and_what_is_new) {
  SlotAllocator pool{2};
  pool.extend(5);
  pool.check_invariants();
  EXPECT_EQ(pool.ledger().retired, 3U);
  EXPECT_FALSE(pool.unretire());
  pool.open({SlotId{3}, 2});
  EXPECT_EQ(pool.take_last(SlotState::held), SlotId{4});
  pool.close({SlotId{0}, 2});
  EXPECT_EQ(pool.take(SlotState::held), SlotId{3});
  EXPECT_EQ(pool.take_closed(SlotState::held), SlotId{1});
  pool.put(SlotId{1});
  pool.open({SlotId{0}, 2});
  EXPECT_EQ(pool.take_last(SlotState::held), SlotId{1});
  EXPECT_EQ(pool.ledger().total, 5U);
  pool.check_invariants();
}

}  // namespace
}  // namespace terrace
