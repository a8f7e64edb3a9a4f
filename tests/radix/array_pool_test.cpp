#include "radix/array_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace terrace {
namespace {

TEST(ArrayPool, rounds_up_to_a_class_with_little_slack) {
  for (std::uint32_t n = 1; n < 100'000; n += 1 + n / 50) {
    const std::uint32_t capacity = ArrayPool::capacity_for(n);
    ASSERT_GE(capacity, n);
    ASSERT_LE(capacity, n + n / 4);
    ASSERT_EQ(ArrayPool::capacity_for(capacity), capacity);
  }
}

TEST(ArrayPool, hands_out_places_that_do_not_overlap_and_uses_them_again) {
  ArrayPool pool{44};
  std::vector<std::pair<std::byte*, std::uint32_t>> taken;
  for (std::uint32_t n = 1; n < 3000; n += 7) {
    const std::uint32_t capacity = ArrayPool::capacity_for(n);
    std::byte* const arrays = pool.take(capacity);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(arrays) % 8, 0U);
    std::memset(arrays, static_cast<int>(n & 0x7F), capacity * 44);
    taken.emplace_back(arrays, n);
  }
  for (const auto& [arrays, n] : taken) {
    for (std::uint32_t i = 0; i < ArrayPool::capacity_for(n) * 44; ++i) ASSERT_EQ(arrays[i], std::byte(n & 0x7F));
  }
  const std::size_t held = pool.bytes_held();
  std::set<std::byte*> first;
  for (const auto& [arrays, n] : taken) {
    first.insert(arrays);
    pool.put(arrays, ArrayPool::capacity_for(n));
  }
  for (const auto& [arrays, n] : taken) EXPECT_TRUE(first.contains(pool.take(ArrayPool::capacity_for(n))));
  EXPECT_EQ(pool.bytes_held(), held);
}

}  // namespace
}  // namespace terrace
