#include "radix/tree/array_pool.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace terrace {
namespace {

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
