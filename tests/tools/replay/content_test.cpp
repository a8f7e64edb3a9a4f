#include "tools/replay/engine/verifier.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace terrace::tools {
namespace {

BlockKey key_of(std::uint8_t seed) {
  BlockKey key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<std::byte>(seed * 31 + i * 7);
  return key;
}

std::vector<std::byte> content(const BlockKey& key, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  fill_content(block, key);
  return block;
}

class ContentOfSize : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ContentOfSize, testing::Values(1, 7, 8, 63, 255, 256, 257, 1000, 4096, 65'536 + 24));

TEST_P(ContentOfSize, agrees_with_itself_and_ends_where_the_block_ends) {
  std::vector<std::byte> block(GetParam() + 16, std::byte{0xAA});
  fill_content(std::span{block}.first(GetParam()), key_of(1));
  EXPECT_EQ(first_difference(std::span{block}.first(GetParam()), key_of(1)), std::nullopt);
  for (std::size_t i = GetParam(); i < block.size(); ++i) EXPECT_EQ(block[i], std::byte{0xAA});
}

TEST_P(ContentOfSize, finds_the_first_byte_that_differs) {
  const std::vector<std::byte> good = content(key_of(2), GetParam());
  for (const std::size_t at : {std::size_t{0}, GetParam() / 2, GetParam() - 1}) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    bad.back() ^= std::byte{2};
    EXPECT_EQ(first_difference(bad, key_of(2)), at);
  }
}

TEST_P(ContentOfSize, comes_to_the_same_in_parts) {
  std::vector<std::byte> block(GetParam());
  const std::size_t middle = GetParam() / 2 / 8 * 8;
  fill_content(std::span{block}.subspan(middle), key_of(5), middle);
  fill_content(std::span{block}.first(middle), key_of(5), 0);
  EXPECT_EQ(block, content(key_of(5), GetParam()));
}

TEST(Content, differs_from_key_to_key_in_nearly_every_word) {
  const std::vector<std::byte> one = content(key_of(1), 4096);
  const std::vector<std::byte> other = content(key_of(2), 4096);
  int same = 0;
  for (std::size_t at = 0; at < 4096; at += 8) same += std::memcmp(&one[at], &other[at], 8) == 0;
  EXPECT_LE(same, 1);
}

TEST(Content, differs_from_place_to_place) {
  const std::vector<std::byte> block = content(key_of(3), 65'536);
  std::set<std::uint64_t> words;
  for (std::size_t at = 0; at < block.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, &block[at], 8);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 65'536 / 8);
}

TEST(Content, of_zeros_or_poison_is_no_content) {
  EXPECT_EQ(first_difference(std::vector(4096, std::byte{0}), key_of(4)), 0);
  EXPECT_EQ(first_difference(std::vector(4096, std::byte{0xDB}), key_of(4)), 0);
}

}  // namespace
}  // namespace terrace::tools
