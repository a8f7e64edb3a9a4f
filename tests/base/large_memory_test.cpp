#include "base/large_memory.hpp"

#include "base/chunked_table.hpp"

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

TEST(ChunkedTable, keeps_its_rows_over_many_chunks) {
  ChunkedTable<std::uint64_t> table;
  constexpr std::uint64_t rows = 1'000'000;
  for (std::uint64_t i = 0; i < rows; ++i) table.push_back(i);
  ASSERT_EQ(table.size(), rows);
  for (std::uint64_t i = 0; i < rows; ++i) ASSERT_EQ(table[i], i);
  EXPECT_EQ(table.back(), rows - 1);
}

TEST(ChunkedTable, moves_no_row_once_its_first_chunk_is_full) {
  ChunkedTable<std::uint64_t> table;
  table.extend_to(huge_page_bytes / sizeof(std::uint64_t));
  const std::uint64_t* const first = &table[0];
  table.extend_to(table.size() * 5);
  EXPECT_EQ(&table[0], first);
}

TEST(ChunkedTable, wastes_less_than_one_chunk) {
  ChunkedTable<std::uint64_t> table;
  table.extend_to(10);
  EXPECT_LE(table.bytes_held(), 16 * sizeof(std::uint64_t));
  table.extend_to(1'100'000);
  EXPECT_LE(table.bytes_held(), 1'100'000 * sizeof(std::uint64_t) + huge_page_bytes);
}

TEST(ChunkedTable, takes_rows_again_after_some_have_gone) {
  ChunkedTable<int> table;
  for (int i = 0; i < 100; ++i) table.push_back(i);
  for (int i = 0; i < 90; ++i) table.pop_back();
  EXPECT_EQ(table.back(), 9);
  table.push_back(77);
  EXPECT_EQ(table.size(), 11U);
  EXPECT_EQ(table[10], 77);
}

}  // namespace
}  // namespace terrace
