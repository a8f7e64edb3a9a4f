// A store's guard and its scrub allocate nothing once warm. In a program of its own, because it counts every allocation.
#include "storage/resilience/guarded_store.hpp"
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/scrub.hpp"
#include "tests/simulated/stepped_io.hpp"
#include "tests/allocation_count.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t capacity = 256;

/// Stores over each other: blocks are written that make others go, and read; the scrub reads beside it.
class StoreAllocations : public testing::Test {
 protected:
  void serve(GuardedStore& guard, int rounds) {
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
  void settle(GuardedStore& guard) {
    do {
      {
        const Uncounted the_disks;
        while (io.queued() > 0) io.step(0);
      }
      events_.clear();
      guard.poll(events_);
      if (guard.in_flight() > 0) clock.advance(milliseconds{1});  // what failed waits for its next try
    } while (guard.in_flight() > 0);
  }
  void expect_none_once_warm(BlockStore& store, Scrub& scrub) {
    GuardedStore guard{store, clock};
    scrub.start(guard, clock.now());
    serve(guard, 400);
    const std::uint64_t scrubbed = scrub.health().blocks;
    const std::uint64_t passes = scrub.health().passes;
    const std::uint64_t evicted = store.stat().evicted;
    const std::size_t before = allocations;
    serve(guard, 400);
    EXPECT_EQ(allocations - before, 0U);
    EXPECT_GT(scrub.health().blocks, scrubbed + 100);
    EXPECT_GT(scrub.health().passes, passes);
    EXPECT_GT(store.stat().evicted, evicted + 1000);
    EXPECT_EQ(guard.health().failed[static_cast<std::size_t>(ErrorClass::transient)], 0U);
    {
      const Uncounted the_end;
      while (store.in_flight() > 0) settle(guard);
    }
  }

  static ScrubOptions scrub_options() { return {Bytes{block_size} * 1000, {}}; }

  AlignedBuffer content_{block_size};
  std::vector<AlignedBuffer> buffers_ = std::vector<AlignedBuffer>(8);
  std::vector<StoreWrite> writes_ = std::vector<StoreWrite>(8);
  std::vector<StoreRead> reads_ = std::vector<StoreRead>(8);
  std::vector<StoreEvent> events_;
  std::uint64_t next_ = 1000;
  SteppedIo io;
  ManualClock clock;

 public:
  StoreAllocations() {
    for (AlignedBuffer& buffer : buffers_) buffer = AlignedBuffer{block_size};
  }
};

TEST_F(StoreAllocations, are_none_where_a_store_in_memory_is_guarded_and_scrubbed) {
  Scrub scrub{Bytes{block_size}, scrub_options()};
  MemoryStore store{capacity, Bytes{block_size}};
  expect_none_once_warm(store, scrub);
}

TEST_F(StoreAllocations, are_none_where_failures_have_ended) {
  Scrub scrub{Bytes{block_size}, scrub_options()};
  MemoryStore store{capacity, Bytes{block_size}};
  store.fail_next_write();
  GuardedStore guard{store, clock};
  scrub.start(guard, clock.now());
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
