#include "tools/replay/engine/key_maker.hpp"
#include "terrace/keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace terrace::tools {
namespace {

const BlockKey root = root_key({{}, {}, std::nullopt, std::nullopt, 0});

std::vector<BlockKey> chained(const std::vector<std::uint64_t>& ids) {
  KeyChain chain{root, 512};
  for (const std::uint64_t id : ids) {
    std::array<std::byte, 8> name;
    for (std::size_t i = 0; i < 8; ++i) name[i] = static_cast<std::byte>(id >> (8 * i));
    EXPECT_TRUE(chain.append_opaque(name));
  }
  return {chain.keys().begin(), chain.keys().end()};
}

TEST(KeyMaker, makes_the_keys_of_a_chain_of_little_endian_names) {
  KeyMaker maker{root};
  const std::vector<std::uint64_t> ids{1, 0x0102'0304'0506'0708, 3};
  EXPECT_EQ(maker.keys(ids), chained(ids));
  EXPECT_EQ(maker.keys(ids), chained(ids)) << "from memory";
}

TEST(KeyMaker, does_not_mix_up_an_id_that_comes_behind_different_ones) {
  KeyMaker maker{root};
  for (const std::vector<std::uint64_t>& ids : {std::vector<std::uint64_t>{1, 9}, {2, 9}, {1, 9}, {9}}) {
    EXPECT_EQ(maker.keys(ids), chained(ids));
  }
}

TEST(KeyMaker, makes_own_keys_that_repeat_for_the_request_and_are_nobody_elses) {
  KeyMaker maker{root};
  const auto longer = [&](std::vector<std::uint64_t> ids, std::uint64_t request, std::size_t blocks) {
    std::vector<BlockKey> keys = maker.keys(ids);
    maker.append_own(keys, request, blocks);
    return keys;
  };
  const std::vector<BlockKey> keys = longer({1, 2}, 7, 4);
  ASSERT_EQ(keys.size(), 4U);
  EXPECT_EQ(std::vector(keys.begin(), keys.begin() + 2), chained({1, 2}));
  EXPECT_EQ(longer({1, 2}, 7, 4), keys);
  EXPECT_EQ(longer({1, 2}, 7, 3), std::vector(keys.begin(), keys.begin() + 3));
  EXPECT_NE(longer({1, 2}, 8, 4)[2], keys[2]);
  EXPECT_NE(longer({1, 2, 7}, 7, 3)[2], keys[2]);
  EXPECT_EQ(longer({1, 2, 3}, 7, 2).size(), 3U) << "never shorter";
}

}  // namespace
}  // namespace terrace::tools
