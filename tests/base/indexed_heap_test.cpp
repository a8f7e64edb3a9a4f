#include "base/indexed_heap.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

TEST(IndexedHeap, has_the_smallest_on_top) {
  IndexedHeap<int> heap;
  EXPECT_TRUE(heap.empty());
  heap.set(3, 30);
  heap.set(1, 10);
  heap.set(2, 20);
  EXPECT_EQ(heap.size(), 3U);
  EXPECT_EQ(heap.top().handle, 1U);
  EXPECT_EQ(heap.top().priority, 10);
  EXPECT_TRUE(heap.contains(3));
  EXPECT_FALSE(heap.contains(0));
  EXPECT_FALSE(heap.contains(1000));
  EXPECT_EQ(heap.priority(2), 20);
}

TEST(IndexedHeap, moves_what_is_re_keyed_either_way) {
  IndexedHeap<int> heap;
  for (std::uint32_t i = 0; i < 30; ++i) heap.set(i, static_cast<int>(i));
  heap.set(29, -1);
  heap.check_invariants();
  EXPECT_EQ(heap.top().handle, 29U);
  heap.set(29, 100);
  heap.check_invariants();
  EXPECT_EQ(heap.top().handle, 0U);
  heap.set(0, 0);  // the same value again
  heap.check_invariants();
  EXPECT_EQ(heap.size(), 30U);
}

TEST(IndexedHeap, erases_from_anywhere_and_says_whether_it_was_there) {
  IndexedHeap<int> heap;
  for (std::uint32_t i = 0; i < 30; ++i) heap.set(i, static_cast<int>(i));
  EXPECT_TRUE(heap.erase(17));
  EXPECT_FALSE(heap.erase(17));
  EXPECT_FALSE(heap.erase(1000));
  EXPECT_TRUE(heap.erase(29));
  EXPECT_TRUE(heap.erase(0));
  heap.check_invariants();
  EXPECT_EQ(heap.top().handle, 1U);
  EXPECT_EQ(heap.size(), 27U);
}

TEST(IndexedHeap, takes_priorities_that_only_move) {
  struct Owned {
    std::unique_ptr<int> value;
    bool operator<(const Owned& other) const { return *value < *other.value; }
  };
  IndexedHeap<Owned> heap;
  for (const int value : {5, 3, 8, 1}) heap.set(static_cast<std::uint32_t>(value), Owned{std::make_unique<int>(value)});
  heap.set(8, Owned{std::make_unique<int>(0)});
  EXPECT_EQ(heap.top().handle, 8U);
  heap.erase(8);
  EXPECT_EQ(heap.top().handle, 1U);
}

TEST(IndexedHeap, agrees_with_a_set_over_random_operations) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (const std::uint32_t handles : {1U, 2U, 5U, 6U, 21U, 22U, 400U}) {
    IndexedHeap<std::uint64_t> heap;
    std::map<std::uint32_t, std::uint64_t> by_handle;
    std::set<std::pair<std::uint64_t, std::uint32_t>> by_priority;
    const auto forget = [&](std::uint32_t handle) {
      const auto found = by_handle.find(handle);
      if (found == by_handle.end()) return false;
      by_priority.erase({found->second, handle});
      by_handle.erase(found);
      return true;
    };
    for (int step = 0; step < 4000; ++step) {
      const auto handle = static_cast<std::uint32_t>(random.below(handles));
      const std::uint64_t dice = random.below(10);
      if (dice < 6) {
        const std::uint64_t priority = random.below(50);  // many equal priorities
        heap.set(handle, priority);
        forget(handle);
        by_handle[handle] = priority;
        by_priority.emplace(priority, handle);
      } else if (dice < 9) {
        ASSERT_EQ(heap.erase(handle), forget(handle));
      } else if (!heap.empty()) {
        const std::uint32_t top = heap.top().handle;
        ASSERT_TRUE(heap.erase(top));
        ASSERT_TRUE(forget(top));
      }
      heap.check_invariants();
      ASSERT_EQ(heap.size(), by_handle.size());
      ASSERT_EQ(heap.contains(handle), by_handle.contains(handle));
      if (heap.contains(handle)) {
        ASSERT_EQ(heap.priority(handle), by_handle[handle]);
      }
      if (!by_priority.empty()) {
        ASSERT_EQ(heap.top().priority, by_priority.begin()->first);
      }
    }
    // The remaining entries come out in order.
    while (!heap.empty()) {
      ASSERT_EQ(heap.top().priority, by_priority.begin()->first);
      const std::uint32_t top = heap.top().handle;
      heap.erase(top);
      forget(top);
    }
    ASSERT_TRUE(by_handle.empty());
  }
}

TEST(IndexedHeapDeathTest, has_no_top_when_empty_and_no_priority_of_what_it_lacks) {
  IndexedHeap<int> heap;
  EXPECT_DEATH((void)heap.top(), "broken invariant");
  heap.set(1, 1);
  EXPECT_DEATH((void)heap.priority(2), "broken invariant");
}

}  // namespace
}  // namespace terrace
