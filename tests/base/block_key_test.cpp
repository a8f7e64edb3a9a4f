#include "terrace/types.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <unordered_set>

namespace terrace {
namespace {

BlockKey counting_key() {
  BlockKey key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<std::byte>(i * 8);
  return key;
}

TEST(BlockKey, prints_as_64_lower_case_digits_first_byte_first) {
  EXPECT_EQ(to_hex(counting_key()), "0008101820283038404850586068707880889098a0a8b0b8c0c8d0d8e0e8f0f8");
  EXPECT_EQ(to_hex(BlockKey{}), std::string(64, '0'));
}

TEST(BlockKey, comes_back_from_its_digits_in_either_case) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (int i = 0; i < 200; ++i) {
    BlockKey key;
    for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random.below(256));
    std::string text = to_hex(key);
    ASSERT_EQ(text.size(), 64U);
    ASSERT_EQ(parse_block_key(text).value(), key);
    for (char& digit : text) digit = static_cast<char>(std::toupper(static_cast<unsigned char>(digit)));
    ASSERT_EQ(parse_block_key(text).value(), key);
  }
}

TEST(BlockKey, is_not_read_from_anything_but_64_digits) {
  const std::string right = to_hex(counting_key());
  for (const std::string& wrong :
       {std::string{}, right.substr(1), right + "0", right.substr(2), right + "00", std::string{" "}.append(right, 1),
        std::string{"0x"}.append(right, 2), right.substr(0, 63) + "g"}) {
    const Result<BlockKey> read = parse_block_key(wrong);
    ASSERT_FALSE(read.has_value()) << '"' << wrong << '"';
    EXPECT_EQ(read.error(), Errc::invalid_argument);
  }
}

TEST(BlockKey, compares_by_its_bytes) {
  BlockKey smaller = counting_key();
  BlockKey larger = counting_key();
  larger.bytes[31] = std::byte{0xFF};
  EXPECT_LT(smaller, larger);
  EXPECT_NE(smaller, larger);
  // The first byte decides, and bytes compare as unsigned.
  smaller.bytes[0] = std::byte{0x7F};
  larger.bytes[0] = std::byte{0x80};
  larger.bytes[31] = std::byte{0};
  EXPECT_LT(smaller, larger);
}

TEST(BlockKey, serves_as_a_key_of_a_hash_table) {
  std::unordered_set<BlockKey> keys;
  for (unsigned i = 0; i < 64; ++i) {
    BlockKey key = counting_key();
    key.bytes[i % 32] ^= static_cast<std::byte>(i < 32 ? 1 : 2);
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 64U);  // keys that differ only after the hashed bytes are different too
  EXPECT_FALSE(keys.contains(counting_key()));
}

}  // namespace
}  // namespace terrace
