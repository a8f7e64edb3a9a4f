#include "transfer/device/transfer.hpp"
#include "tests/transfer/support.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace terrace {
namespace {

using test::run;

std::vector<SlotRun> appended(std::vector<SlotPair> pairs) {
  std::vector<SlotRun> runs;
  for (const SlotPair& pair : pairs) append(runs, {pair.source, pair.destination, 1});
  return runs;
}
SlotPair pair(std::uint32_t source, std::uint32_t destination) { return {SlotId{source}, SlotId{destination}}; }

TEST(AppendRun, joins_blocks_adjacent_on_both_sides) {
  EXPECT_EQ(appended({pair(4, 9), pair(5, 10), pair(6, 11)}), std::vector{run(4, 9, 3)});
}

TEST(AppendRun, does_not_join_what_is_adjacent_on_one_side_only) {
  EXPECT_EQ(appended({pair(4, 9), pair(5, 12)}), (std::vector{run(4, 9, 1), run(5, 12, 1)}));
  EXPECT_EQ(appended({pair(4, 9), pair(7, 10)}), (std::vector{run(4, 9, 1), run(7, 10, 1)}));
}

TEST(AppendRun, keeps_the_order_of_the_blocks) {
  // Descending slots are adjacent too, but joining them would reverse the order of the blocks.
  EXPECT_EQ(appended({pair(2, 2), pair(1, 1), pair(3, 3)}), (std::vector{run(2, 2, 1), run(1, 1, 1), run(3, 3, 1)}));
}

TEST(AppendRun, does_not_join_around_the_last_slot_number) {
  constexpr std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(appended({pair(last, 1), pair(0, 2)}).size(), 2U);
}

TEST(AppendRun, joins_runs_too) {
  std::vector<SlotRun> runs{run(4, 9, 3)};
  append(runs, run(7, 12, 2));
  EXPECT_EQ(runs, std::vector{run(4, 9, 5)});
}

TEST(BlockCount, counts_the_blocks_of_all_runs) {
  EXPECT_EQ(block_count({}), 0U);
  EXPECT_EQ(block_count(std::vector{run(0, 0, 3), run(9, 5, 1)}), 4U);
}

}  // namespace
}  // namespace terrace
