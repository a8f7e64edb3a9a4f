// A ResilientStore allocates nothing once it is warm. This is a separate program, because it counts every allocation.
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/allocation_count.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t capacity = 256;

/// A store in front of another one. Blocks are written that evict others, and read.
class StoreAllocations : public testing::Test {
 protected:
  void serve(ResilientStore& guard, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (std::uint64_t i = 0; i < writes_.size(); ++i) {
        const StoredBlock block = root_block(next_++ % (2 * capacity));
        writes_[i] = {next_, block, content_.span()};
        reads_[i] = {next_, root_block((next_ - 9) % (2 * capacity)).key, buffers_[i].span()};
      }
      guard.write(writes_);
      guard.read(reads_);
      settle(guard);
      clock.advance(milliseconds{10});
    }
  }
  void settle(ResilientStore& guard) {
    do {
      events_.clear();
      guard.poll(events_);
      if (guard.in_flight() > 0) clock.advance(milliseconds{1});  // a failed operation waits for its retry
    } while (guard.in_flight() > 0);
  }

  AlignedBuffer content_{block_size};
  std::vector<AlignedBuffer> buffers_ = std::vector<AlignedBuffer>(8);
  std::vector<StoreWrite> writes_ = std::vector<StoreWrite>(8);
  std::vector<StoreRead> reads_ = std::vector<StoreRead>(8);
  std::vector<StoreEvent> events_;
  std::uint64_t next_ = 1000;
  ManualClock clock;

 public:
  StoreAllocations() {
    for (AlignedBuffer& buffer : buffers_) buffer = AlignedBuffer{block_size};
  }
};

TEST_F(StoreAllocations, are_none_where_a_memory_store_is_resilient) {
  MemoryStore store{capacity, Bytes{block_size}};
  ResilientStore guard{store, clock};
  serve(guard, 400);
  const std::uint64_t evicted = store.stat().evicted;
  const std::size_t before = allocations;
  serve(guard, 400);
  EXPECT_EQ(allocations - before, 0U);
  EXPECT_GT(store.stat().evicted, evicted + 1000);
  EXPECT_EQ(guard.health().failed[static_cast<std::size_t>(ErrorClass::transient)], 0U);
}

TEST_F(StoreAllocations, are_none_where_failures_have_ended) {
  MemoryStore store{capacity, Bytes{block_size}};
  store.fail_next_write();
  ResilientStore guard{store, clock};
  serve(guard, 20);
  ASSERT_GT(guard.health().retried, 0U);
  serve(guard, 400);
  const std::size_t before = allocations;
  serve(guard, 100);
  EXPECT_EQ(allocations - before, 0U);
}

TEST(AllocationCount, counts) {
  const std::size_t before = allocations;
  const std::vector<int> some(10);
  EXPECT_EQ(allocations, before + 1);
  const Uncounted here;
  const std::vector<int> others(10);
  EXPECT_EQ(allocations, before + 1);
}

}  // namespace
}  // namespace terrace::test
