#include "base/large_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace terrace {
namespace {

TEST(LargeMemory, is_zeroed_and_aligned_to_a_huge_page) {
  for (const HugePages huge : {HugePages::no, HugePages::yes}) {
    constexpr std::size_t bytes = huge_page_bytes + 12'345;
    auto* const memory = static_cast<unsigned char*>(map_memory(bytes, huge));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % huge_page_bytes, 0U);
    EXPECT_EQ(std::accumulate(memory, memory + bytes, 0), 0);
    memory[bytes - 1] = 1;
    unmap_memory(memory, bytes);
  }
}

TEST(LargeMemory, serves_a_vector_that_outgrows_a_page) {
  std::vector<std::uint64_t, LargeAllocator<std::uint64_t>> numbers;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) ASSERT_EQ(numbers[i], i);
}

}  // namespace
}  // namespace terrace
