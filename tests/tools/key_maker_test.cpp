#include "radix/block_keys.hpp"
#include "tools/replay/key_maker.hpp"

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

}  // namespace
}  // namespace terrace::tools
