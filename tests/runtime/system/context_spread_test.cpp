// How tokens are distributed over ranks, compared with distributing them one by one.

#include "runtime/system/context_spread.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {

void PrintTo(const ContextSpread::Sizes& s, std::ostream* out) {
  *out << s.block_tokens << " tokens, " << s.decode_ranks << " x " << s.prefill_ranks << " ranks, by " << s.interleave;
}

namespace {

class ContextSpreadOf : public testing::TestWithParam<ContextSpread::Sizes> {
 protected:
  static constexpr std::uint64_t tokens = 300;

  /// Places the tokens of a sequence one by one: each rank fills its slot from the start, and a block is full when all slots are.
  [[nodiscard]] static std::vector<ContextSpread::Place> dealt_out() {
    const ContextSpread::Sizes& sizes = GetParam();
    const std::uint32_t ranks = sizes.decode_ranks * sizes.prefill_ranks;
    std::vector<std::uint64_t> kept(ranks, 0);
    std::vector<ContextSpread::Place> places;
    std::uint32_t rank = 0;
    std::uint32_t in_a_row = 0;
    for (std::uint64_t token = 0; token < tokens; ++token) {
      if (in_a_row == sizes.interleave) {
        rank = (rank + 1) % ranks;
        in_a_row = 0;
      }
      ++in_a_row;
      const std::uint64_t at = kept[rank]++;
      places.push_back({rank, at / sizes.block_tokens, static_cast<std::uint32_t>(at % sizes.block_tokens)});
    }
    return places;
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, ContextSpreadOf,
                         testing::Values(ContextSpread::Sizes{16, 1, 1, 1}, ContextSpread::Sizes{4, 2, 1, 2},
                                         ContextSpread::Sizes{4, 2, 1, 1}, ContextSpread::Sizes{8, 2, 3, 4},
                                         ContextSpread::Sizes{6, 1, 4, 3}, ContextSpread::Sizes{5, 3, 2, 5},
                                         ContextSpread::Sizes{1, 7, 1, 1}));

TEST_P(ContextSpreadOf, places_every_token_where_dealing_them_out_does) {
  const ContextSpread spread{GetParam()};
  const auto places = dealt_out();
  for (std::uint64_t token = 0; token < tokens; ++token) {
    ASSERT_EQ(spread.place_of(token), places[token]) << "token " << token;
    ASSERT_EQ(spread.token_at(places[token]), token);
  }
}

TEST_P(ContextSpreadOf, counts_what_each_rank_keeps_and_each_table_needs) {
  const ContextSpread spread{GetParam()};
  const auto places = dealt_out();
  std::vector<std::uint64_t> kept(spread.ranks(), 0);
  std::uint64_t blocks = 0;
  for (std::uint64_t token = 0; token < tokens; ++token) {
    for (std::uint32_t rank = 0; rank < spread.ranks(); ++rank) ASSERT_EQ(spread.tokens_on(rank, token), kept[rank]);
    ASSERT_EQ(spread.blocks_for(token), blocks);
    ++kept[places[token].rank];
    blocks = std::max(blocks, places[token].block + 1);
  }
}

TEST_P(ContextSpreadOf, hits_are_whole_blocks_on_every_rank_and_leave_a_token) {
  const ContextSpread spread{GetParam()};
  for (std::uint64_t length = 1; length < tokens; ++length) {
    const std::uint64_t most = spread.hit_units_max(length);
    ASSERT_LT(spread.hit_tokens(most), length);
    ASSERT_GE(spread.hit_tokens(most + 1), length);
    for (std::uint32_t rank = 0; rank < spread.ranks(); ++rank) {
      ASSERT_EQ(spread.tokens_on(rank, spread.hit_tokens(most)), most * GetParam().block_tokens);
    }
  }
}

TEST_P(ContextSpreadOf, one_table_gives_every_token_a_cell_of_its_own_on_one_rank) {
  const ContextSpread spread{GetParam()};
  std::vector<SlotId> table;
  for (std::uint32_t i = 0; i < spread.blocks_for(tokens); ++i) table.push_back(SlotId{1000 - 3 * i});
  std::set<std::pair<std::uint32_t, std::uint64_t>> cells;
  for (std::uint64_t token = 0; token < tokens; ++token) {
    std::uint32_t keepers = 0;
    for (std::uint32_t rank = 0; rank < spread.ranks(); ++rank) {
      const auto cell = spread.cell(table, rank, token);
      if (!cell) continue;
      ++keepers;
      EXPECT_TRUE(cells.emplace(rank, *cell).second);
      EXPECT_EQ(*cell / GetParam().block_tokens, table[token / spread.tokens_per_block()].value());
    }
    ASSERT_EQ(keepers, 1U);
  }
}

TEST(ContextSpreadRanks, are_numbered_decode_ranks_first) {
  const ContextSpread spread{{.block_tokens = 4, .decode_ranks = 2, .prefill_ranks = 3}};
  EXPECT_EQ(spread.ranks(), 6U);
  EXPECT_EQ(spread.rank(0, 1), 1U);
  EXPECT_EQ(spread.rank(2, 1), 5U);
  EXPECT_EQ(spread.tokens_per_block(), 24U);
}

TEST(ContextSpreadSizes, that_do_not_go_together_are_refused_and_it_says_why) {
  const auto refusal_of = [](const ContextSpread::Sizes& sizes) {
    try {
      (void)ContextSpread{sizes};
    } catch (const std::invalid_argument& e) {
      return std::string{e.what()};
    }
    return std::string{};
  };
  EXPECT_NE(refusal_of({.block_tokens = 16, .interleave = 3}).find("interleave is 3"), std::string::npos);
  EXPECT_NE(refusal_of({.block_tokens = 16, .interleave = 0}).find("interleave is 0"), std::string::npos);
  EXPECT_NE(refusal_of({.block_tokens = 0}).find("block_tokens is 0"), std::string::npos);
  EXPECT_NE(refusal_of({.block_tokens = 16, .decode_ranks = 0}).find("one decode"), std::string::npos);
  EXPECT_NE(refusal_of({.block_tokens = 1U << 31, .decode_ranks = 4}).find("32 bits"), std::string::npos);
}

}  // namespace
}  // namespace terrace
