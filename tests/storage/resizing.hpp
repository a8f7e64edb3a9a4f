#pragma once

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace terrace::test {

inline void expect_ledger(const BlockStore& store) {
  const StoreStat stat = store.stat();
  EXPECT_EQ(stat.free + stat.blocks + stat.writing + stat.quarantined, stat.capacity_blocks);
  EXPECT_EQ(stat.orphans, 0U);
  store.check_invariants();
}

/// Waits until the store has reached its wanted size. Returns the events until then.
inline std::vector<StoreEvent> settle(StoreHarness& h) {
  std::vector<StoreEvent> events = h.drain();
  for (int n = 0; n < 100'000; ++n) {
    const StoreStat stat = h.store().stat();
    if (stat.capacity_blocks == stat.wanted_blocks) return events;
    h.advance();
    h.store().poll(events);
    expect_ledger(h.store());
  }
  ADD_FAILURE() << "it never came to its size";
  return events;
}

inline std::vector<StoreEvent> resize(StoreHarness& h, std::uint32_t blocks) {
  EXPECT_TRUE(h.store().resize(Blocks{blocks}).has_value());
  EXPECT_EQ(h.store().stat().wanted_blocks, blocks);
  return settle(h);
}

}  // namespace terrace::test
