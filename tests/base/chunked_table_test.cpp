#include "base/chunked_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace terrace {
namespace {

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
