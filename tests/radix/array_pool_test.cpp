#include "radix/tree/array_pool.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace terrace {
namespace {

TEST(ArrayPool, rounds_up_to_a_capacity_with_little_slack) {
  const ArrayPool pool{44};
  for (std::uint32_t n = 1; n < 100'000; n += 1 + n / 50) {
    const std::uint32_t capacity = pool.capacity_for(n);
    ASSERT_GE(capacity, n);
    ASSERT_LE(capacity, n + std::max<std::uint32_t>(n / 8, 5));
    ASSERT_EQ(pool.capacity_for(capacity), capacity);
  }
}

TEST(ArrayPool, hands_out_places_that_do_not_overlap_and_uses_them_again) {
  ArrayPool pool{44};
  std::vector<std::pair<std::byte*, std::uint32_t>> taken;
  for (std::uint32_t n = 1; n < 3000; n += 7) {
    const std::uint32_t capacity = pool.capacity_for(n);
    std::byte* const arrays = pool.take(capacity);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(arrays) % 8, 0U);
    std::memset(arrays, static_cast<int>(n & 0x7F), capacity * 44);
    taken.emplace_back(arrays, n);
  }
  for (const auto& [arrays, n] : taken) {
    for (std::uint32_t i = 0; i < pool.capacity_for(n) * 44; ++i) ASSERT_EQ(arrays[i], std::byte(n & 0x7F));
  }
  const std::size_t held = pool.bytes_held();
  for (const auto& [arrays, n] : taken) pool.put(arrays, pool.capacity_for(n));
  for (auto& [arrays, n] : taken) arrays = pool.take(pool.capacity_for(n));
  EXPECT_EQ(pool.bytes_held(), held);
  pool.check_invariants();
}

TEST(ArrayPool, makes_short_arrays_of_what_long_ones_have_left_and_long_ones_again) {
  ArrayPool pool{44};
  constexpr std::uint32_t many = 500;
  std::vector<std::byte*> whole;
  for (std::uint32_t i = 0; i < many; ++i) whole.push_back(pool.take(pool.capacity_for(2048)));
  const std::size_t held = pool.bytes_held();
  for (int round = 0; round < 3; ++round) {
    // Each array gives back half, which is enough for the same number of arrays of that length.
    std::vector<std::byte*> halves;
    for (std::byte* const arrays : whole) {
      ASSERT_TRUE(pool.can_shrink(pool.capacity_for(2048), pool.capacity_for(1024)));
      pool.shrink(arrays, pool.capacity_for(2048), pool.capacity_for(1024));
      halves.push_back(pool.take(pool.capacity_for(1024)));
    }
    EXPECT_EQ(pool.bytes_held(), held);
    for (std::byte* const arrays : halves) pool.put(arrays, pool.capacity_for(1024));
    for (std::byte* const arrays : whole) pool.put(arrays, pool.capacity_for(1024));
    pool.check_invariants();
    for (std::byte*& arrays : whole) arrays = pool.take(pool.capacity_for(2048));
    EXPECT_EQ(pool.bytes_held(), held);
  }
}

TEST(ArrayPool, gives_arrays_of_more_than_a_megabyte_back_to_the_system) {
  ArrayPool pool{44};
  const std::uint32_t capacity = pool.capacity_for(50'000);
  std::byte* const arrays = pool.take(capacity);
  std::memset(arrays, 1, std::size_t{capacity} * 44);
  EXPECT_GE(pool.bytes_held(), std::size_t{capacity} * 44);
  EXPECT_FALSE(pool.can_shrink(capacity, pool.capacity_for(1000)));
  pool.put(arrays, capacity);
  EXPECT_EQ(pool.bytes_held(), 0U);
}

// ---- long arrays --------------------------------------------------------------------------------------------------------------

TEST(SpanHeap, rounds_up_by_a_sixteenth_at_most) {
  for (std::uint32_t granules = 1; granules <= SpanHeap::granules_max; ++granules) {
    const std::uint32_t rounded = SpanHeap::rounded(granules);
    ASSERT_GE(rounded, granules);
    ASSERT_LE(rounded, granules + granules / 16);
    ASSERT_EQ(SpanHeap::rounded(rounded), rounded);
  }
}

/// Spans of all lengths are allocated, shrunk and freed. Each keeps its content, and in the end each slab is one piece again.
TEST(SpanHeap, keeps_spans_apart_and_merges_what_comes_back) {
  struct Span {
    std::byte* at;
    std::uint32_t granules;
    std::byte mark;
  };
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  SpanHeap heap;
  std::vector<Span> spans;
  const auto check = [](const Span& span) {
    for (std::size_t i = 0; i < span.granules * SpanHeap::granule_bytes; ++i) ASSERT_EQ(span.at[i], span.mark);
  };
  std::size_t held_most = 0;
  for (int step = 0; step < 4000; ++step) {
    const bool is_full = spans.size() > 60;
    if (spans.empty() || (!is_full && random.chance(0.55))) {
      const auto wanted = static_cast<std::uint32_t>(random.chance(0.5) ? random.between(1, 40) : random.between(1, 4096));
      Span span{heap.take(wanted), SpanHeap::rounded(wanted), std::byte(random.below(256))};
      std::memset(span.at, static_cast<int>(span.mark), span.granules * SpanHeap::granule_bytes);
      spans.push_back(span);
    } else {
      Span& span = spans[random.below(spans.size())];
      check(span);
      const auto kept = static_cast<std::uint32_t>(random.chance(0.3) ? random.below(span.granules) : 0);
      heap.put(span.at + kept * SpanHeap::granule_bytes, span.granules - kept);
      span.granules = kept;
      if (kept == 0) {
        span = spans.back();
        spans.pop_back();
      }
    }
    if (step % 50 == 0) heap.check_invariants();
    held_most = std::max(held_most, heap.bytes_held());
  }
  for (const Span& span : spans) {
    check(span);
    heap.put(span.at, span.granules);
  }
  heap.check_invariants();
  // A slab can hold the longest span again, however it was divided before.
  const std::size_t slabs = (held_most + (std::size_t{2} << 20) - 1) >> 21U;
  for (std::size_t i = 0; i < slabs; ++i) (void)heap.take(SpanHeap::granules_max);
  EXPECT_LE(heap.bytes_held(), slabs << 21U);
}

}  // namespace
}  // namespace terrace
