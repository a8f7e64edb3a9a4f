#include "runtime/slot_pool.hpp"

#include <gtest/gtest.h>

namespace terrace {
namespace {

TEST(SlotPool, keeps_its_ledger_through_every_change) {
  SlotPool pool{4};
  pool.make_null(SlotId{0});
  const SlotId a = pool.take(SlotState::held).value();
  const SlotId b = pool.take_after(a, SlotState::filling).value();
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

TEST(SlotPool, counts_readers_and_leavers) {
  SlotPool pool{1};
  const SlotId slot = pool.take(SlotState::ready).value();
  pool.add_reader(slot);
  pool.set_leaving(slot, true);
  EXPECT_EQ(pool.readers_total(), 1U);
  EXPECT_EQ(pool.leaving_total(), 1U);
  pool.remove_reader(slot);
  pool.put(slot);
  EXPECT_EQ(pool.leaving_total(), 0U);
  pool.check_invariants();
}

TEST(SlotPoolDeathTest, refuses_to_free_what_is_free_or_read) {
  SlotPool pool{2};
  const SlotId slot = pool.take(SlotState::ready).value();
  EXPECT_DEATH(pool.put(SlotId{1}), "broken invariant");
  pool.add_reader(slot);
  EXPECT_DEATH(pool.put(slot), "broken invariant");
}

}  // namespace
}  // namespace terrace
