#include "terrace/keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

std::vector<BlockKey> chain_of(std::size_t tokens, std::uint32_t unit, TokenId changed = 0) {
  std::vector<TokenId> ids(tokens);
  std::iota(ids.begin(), ids.end(), 1);
  ids[changed] += 1000;
  KeyChain chain{{}, unit};
  chain.append(ids);
  return {chain.keys().begin(), chain.keys().end()};
}

TEST(GroupKeys, of_a_block_are_those_of_its_last_unit) {
  const std::vector<BlockKey> chain = chain_of(200, 16);  // 12 units
  const GroupKeys group{16, 64};
  EXPECT_EQ(group.units_per_block(), 4U);
  ASSERT_EQ(group.blocks(chain.size()), 3U);
  EXPECT_EQ(group.key(chain, 0), chain[3]);
  EXPECT_EQ(group.key(chain, 1), chain[7]);
  EXPECT_EQ(group.key(chain, 2), chain[11]);
  EXPECT_EQ(group.units(3), 12U);
}

TEST(GroupKeys, of_an_unfinished_block_are_not_there) {
  const GroupKeys group{16, 64};
  EXPECT_EQ(group.blocks(0), 0U);
  EXPECT_EQ(group.blocks(3), 0U);
  EXPECT_EQ(group.blocks(7), 1U);
}

TEST(GroupKeys, are_the_chain_itself_where_a_block_is_a_unit) {
  const std::vector<BlockKey> chain = chain_of(64, 16);
  const GroupKeys group{16, 16};
  ASSERT_EQ(group.blocks(chain.size()), chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(group.key(chain, i), chain[i]);
}

TEST(GroupKeys, change_with_every_token_of_the_block_and_of_those_before) {
  const GroupKeys group{16, 64};
  const std::vector<BlockKey> changed_last = chain_of(128, 16, 127);
  for (TokenId token = 0; token < 127; ++token) {
    const std::vector<BlockKey> changed = chain_of(128, 16, token);
    EXPECT_NE(group.key(changed, 1), group.key(changed_last, 1)) << token;
    EXPECT_EQ(group.key(changed, 0) == group.key(changed_last, 0), token >= 64) << token;
  }
}

TEST(GroupKeys, refuse_blocks_that_are_not_whole_units_and_say_why) {
  for (const auto [unit, block] : std::array<std::array<std::uint32_t, 2>, 5>{{{16, 24}, {16, 8}, {64, 16}, {0, 16}, {16, 0}}}) {
    try {
      const GroupKeys group{unit, block};
      ADD_FAILURE() << unit << " into " << block << " was accepted as " << group.units_per_block();
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("hash units of " + std::to_string(unit) + " tokens"), std::string::npos) << text;
      EXPECT_NE(text.find("block of " + std::to_string(block) + " tokens"), std::string::npos) << text;
    }
  }
}

TEST(HashUnit, is_the_greatest_common_divisor_of_the_block_sizes) {
  EXPECT_EQ(hash_unit(std::array{64U}), 64U);
  EXPECT_EQ(hash_unit(std::array{64U, 16U, 256U}), 16U);
  EXPECT_EQ(hash_unit(std::array{48U, 32U}), 16U);
  EXPECT_EQ(hash_unit(std::array{16U, 15U}), 1U);
  EXPECT_THROW((void)hash_unit({}), std::invalid_argument);
  EXPECT_THROW((void)hash_unit(std::array{16U, 0U}), std::invalid_argument);
}

}  // namespace
}  // namespace terrace
