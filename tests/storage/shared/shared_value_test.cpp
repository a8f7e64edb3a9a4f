#include "storage/shared/shared_value.hpp"

#include "storage/io/little_endian.hpp"
#include "tests/storage/shared/values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace terrace::test {
namespace {

using Mismatch = SharedValueReader::Mismatch;

constexpr std::size_t one_part = 4096;
constexpr std::size_t two_parts = std::size_t{64} << 10;

StoredBlock a_block() {
  StoredBlock block = child_of(child_of(root_block(1), 2), 3);
  block.group = GroupId{5};
  return block;
}

std::vector<std::byte> content(std::size_t bytes, const BlockKey& key) {
  std::vector<std::byte> made(std::max(bytes, sizeof key.bytes));
  fill(made, key);
  made.resize(bytes);
  return made;
}

/// One block of one size, with or without a secret, and its values.
class SharedValue : public testing::TestWithParam<std::tuple<bool, std::size_t>> {
 protected:
  [[nodiscard]] static bool sealed() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::size_t bytes() { return std::get<1>(GetParam()); }
  [[nodiscard]] std::vector<Value> values(const StoredBlock& of, const Fingerprint& with, std::uint8_t id = 1) {
    return values_of(writer_, of, with, content(bytes(), of.key), write_id_of(id));
  }
  [[nodiscard]] std::vector<Value> values() { return values(block_, fingerprint_); }
  [[nodiscard]] Mismatch read(const std::vector<Value>& values, std::size_t piece_bytes = 4096) {
    return read_values(reader_, block_, fingerprint_, values, into_, piece_bytes);
  }

  std::shared_ptr<const SharedSecret> secret_ = sealed() ? secret_of() : nullptr;
  StoredBlock block_ = a_block();
  Fingerprint fingerprint_ = fingerprint_of(1);
  SharedValueWriter writer_{secret_};
  SharedValueReader reader_{secret_};
  std::vector<std::byte> into_ = std::vector<std::byte>(bytes());
};

INSTANTIATE_TEST_SUITE_P(Sizes, SharedValue,
                         testing::Combine(testing::Bool(), testing::Values(1, 100, one_part, two_parts, two_parts + 24)),
                         [](const auto& param) {
                           return std::string{std::get<0>(param.param) ? "sealed_" : "plain_"} +
                                  std::to_string(std::get<1>(param.param));
                         });

TEST_P(SharedValue, comes_back_whatever_the_pieces) {
  const auto sent = values();
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{64}, bytes()}) {
    std::ranges::fill(into_, std::byte{});
    EXPECT_EQ(read(sent, piece), std::nullopt);
    EXPECT_EQ(into_, content(bytes(), block_.key));
  }
}

TEST_P(SharedValue, does_not_depend_on_the_tenant) {
  const auto sent = values();
  block_.tenant = TenantId{99};
  EXPECT_EQ(read(sent), std::nullopt);
}

TEST_P(SharedValue, of_another_block_is_a_mismatch_of_the_key) {
  StoredBlock other = block_;
  other.key = with_prefix64_of(block_.key, 4);
  EXPECT_EQ(read(values(other, fingerprint_)), SharedMismatch::key);
  other = block_;
  other.parent = key_of(77);
  EXPECT_EQ(read(values(other, fingerprint_)), SharedMismatch::key);
  other = block_;
  ++other.depth;
  EXPECT_EQ(read(values(other, fingerprint_)), SharedMismatch::key);
  other = block_;
  other.group = GroupId{6};
  EXPECT_EQ(read(values(other, fingerprint_)), SharedMismatch::key);
}

TEST_P(SharedValue, of_another_fingerprint_is_found_in_all_of_its_32_bytes) {
  Fingerprint other = fingerprint_;
  other[15] ^= std::byte{1};
  EXPECT_EQ(read(values(block_, other)), SharedMismatch::fingerprint);
  other = fingerprint_;
  other[31] ^= std::byte{1};  // the header has only the first half
  EXPECT_EQ(read(values(block_, other)), sealed() ? SharedMismatch::seal : SharedMismatch::checksum);
}

TEST_P(SharedValue, of_another_size_is_a_mismatch_of_the_length) {
  std::vector<std::byte> larger = content(bytes() + 8, block_.key);
  EXPECT_EQ(read(values_of(writer_, block_, fingerprint_, larger, write_id_of(1))), SharedMismatch::length);
  for (std::uint32_t part = 0; part < values().size(); ++part) {
    auto changed = values();
    changed[part].pop_back();
    EXPECT_EQ(read(changed), SharedMismatch::length);
    changed = values();
    changed[part].push_back({});
    EXPECT_EQ(read(changed), SharedMismatch::length);
    changed = values();
    changed[part].resize(shared_header_bytes - 1);
    EXPECT_EQ(read(changed), SharedMismatch::format);
    changed[part].clear();
    EXPECT_EQ(read(changed), SharedMismatch::length) << "part " << part << " is missing";
  }
}

TEST_P(SharedValue, whose_payload_ends_early_is_a_mismatch_of_the_length) {
  const auto sent = values();
  reader_.begin(block_, fingerprint_, bytes());
  ASSERT_EQ(reader_.begin_part(0, sent[0].size(), std::span{sent[0]}.first(shared_header_bytes)), std::nullopt);
  Value piece(sent[0].begin() + shared_header_bytes, sent[0].end() - 1);
  reader_.add(piece);
  EXPECT_EQ(reader_.end_part(), SharedMismatch::length);
  EXPECT_EQ(reader_.finish(), SharedMismatch::length);
  EXPECT_EQ(read(sent), std::nullopt) << "the next block is another matter";
}

TEST_P(SharedValue, of_something_else_or_of_a_later_version_is_a_mismatch_of_the_format) {
  for (const std::size_t at : {0U, 3U, 4U}) {
    auto changed = values();
    changed[0][at] ^= std::byte{2};
    EXPECT_EQ(read(changed), SharedMismatch::format);
  }
  auto changed = values();
  changed[0][5] |= std::byte{0x80};
  EXPECT_EQ(read(changed), SharedMismatch::format) << "a flag that nobody knows";
}

TEST_P(SharedValue, of_a_user_with_another_secret_or_without_one_is_a_mismatch_of_the_seal) {
  SharedValueReader without;
  SharedValueReader with{secret_of("another secret, of another deployment")};
  if (sealed()) {
    EXPECT_EQ(read_values(without, block_, fingerprint_, values(), into_), SharedMismatch::seal);
  }
  EXPECT_EQ(read_values(with, block_, fingerprint_, values(), into_), SharedMismatch::seal);
}

TEST_P(SharedValue, does_not_mix_parts) {
  auto sent = values();
  if (sent.size() < 2) return;
  auto other = values(block_, fingerprint_, 2);
  EXPECT_EQ(read({sent[0], other[1]}), SharedMismatch::length) << "of two writes of the same bytes";
  EXPECT_EQ(read({other[0], sent[1]}), SharedMismatch::length);
  EXPECT_EQ(read({sent[1], sent[0]}), SharedMismatch::length);
  EXPECT_EQ(read({sent[0], sent[0]}), SharedMismatch::length);
  EXPECT_EQ(read(other), std::nullopt);
}

TEST_P(SharedValue, parts_may_come_in_any_order) {
  const auto sent = values();
  reader_.begin(block_, fingerprint_, bytes());
  for (std::uint32_t part = static_cast<std::uint32_t>(sent.size()); part-- > 0;) {
    ASSERT_EQ(reader_.finish(), SharedMismatch::length);
    ASSERT_EQ(reader_.begin_part(part, sent[part].size(), std::span{sent[part]}.first(shared_header_bytes)), std::nullopt);
    const auto place = std::span{into_}.subspan(reader_.parts().offset(part), reader_.parts().bytes[part]);
    std::memcpy(place.data(), sent[part].data() + shared_header_bytes, place.size());
    reader_.add(place);
    ASSERT_EQ(reader_.end_part(), std::nullopt);
  }
  EXPECT_EQ(reader_.finish(), std::nullopt);
  EXPECT_EQ(into_, content(bytes(), block_.key));
}

TEST_P(SharedValue, with_any_flipped_bit_is_a_mismatch) {
  const auto good = values();
  for (std::size_t part = 0; part < good.size(); ++part) {
    const std::size_t all = 8 * good[part].size();
    // All bits of the header, and some of the payload.
    for (std::size_t bit = 0; bit < all; bit += bit < 8 * shared_header_bytes ? 1 : 1 + all / 100) {
      auto changed = good;
      changed[part][bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      ASSERT_NE(read(changed), std::nullopt) << "bit " << bit << " of part " << part;
    }
  }
}

TEST_P(SharedValue, payload_is_what_a_reader_of_the_engine_sees) {
  const auto sent = values();
  const auto plain = content(bytes(), block_.key);
  const bool same = std::equal(sent[0].begin() + shared_header_bytes, sent[0].end(), plain.begin());
  EXPECT_EQ(same, !sealed());
  if (sealed() && bytes() > 16) {
    const auto again = values(block_, fingerprint_, 2);
    EXPECT_NE(Value(sent[0].begin() + shared_header_bytes, sent[0].end()),
              Value(again[0].begin() + shared_header_bytes, again[0].end()))
        << "each write is encrypted anew";
  }
}

// ---- the layout --------------------------------------------------------------------------------------------------------

TEST(SharedValueLayout, is_as_the_header_says) {
  const StoredBlock block = a_block();
  SharedValueWriter writer;
  const auto bytes = content(two_parts, block.key);
  const auto values = values_of(writer, block, fingerprint_of(1), bytes, write_id_of(9));
  ASSERT_EQ(values.size(), 2U);
  const Value& second = values[1];
  EXPECT_EQ(std::memcmp(second.data(), "TRSV\1\0\1\2", 8), 0);
  EXPECT_EQ(load_le32(&second[8]), 5U);
  EXPECT_EQ(load_le32(&second[12]), 2U);
  EXPECT_EQ(load_le32(&second[16]), two_parts);
  EXPECT_EQ(std::memcmp(&second[20], write_id_of(9).data(), 12), 0);
  EXPECT_EQ(std::memcmp(&second[32], fingerprint_of(1).data(), 16), 0);
  EXPECT_EQ(std::memcmp(&second[48], block.key.bytes.data(), 32), 0);
  EXPECT_EQ(std::memcmp(&second[80], block.parent.bytes.data(), 32), 0);
  EXPECT_EQ(load_le64(&second[112]), payload_checksum(block.key, fingerprint_of(1), std::span{second}.subspan(128)));
  EXPECT_EQ(load_le64(&second[120]), plain_checksum(std::span{second}.first(120)));
}

TEST(SharedValueLayout, wastes_little_of_an_allocator_with_four_sizes_for_each_power_of_two) {
  const auto allocated = [](std::uint64_t bytes) {
    const std::uint64_t step = std::bit_ceil(bytes) / 8;
    return (bytes + step - 1) / step * step;
  };
  for (std::uint64_t bytes = std::uint64_t{16} << 10; bytes <= std::uint64_t{8} << 20; bytes += 1000) {
    for (const std::uint64_t block : {bytes, std::bit_ceil(bytes)}) {
      const SharedParts parts = shared_parts(block);
      ASSERT_EQ(parts.count, 2U);
      ASSERT_EQ(parts.bytes[0] + parts.bytes[1], block);
      ASSERT_EQ(parts.offset(1), parts.bytes[0]);
      constexpr std::uint64_t string_head = 16;
      std::uint64_t taken = 0;
      for (std::uint32_t part = 0; part < 2; ++part) taken += allocated(parts.value_bytes(part) + string_head);
      ASSERT_LE(static_cast<double>(taken), 1.08 * static_cast<double>(block)) << block;
    }
  }
  EXPECT_EQ(shared_parts((std::uint64_t{16} << 10) - 1).count, 1U);
}

TEST(SharedValueLayout, seals_each_part_with_a_nonce_of_its_own) {
  SharedValueWriter writer{secret_of()};
  const std::vector<std::byte> zeros(two_parts);
  const auto values = values_of(writer, a_block(), fingerprint_of(1), zeros, write_id_of(1));
  EXPECT_NE(Value(values[0].begin() + 128, values[0].begin() + 144), Value(values[1].begin() + 128, values[1].begin() + 144));
}

TEST(SharedValueLayout, takes_no_nonce_twice) {
  SharedWriteIds ids;
  SharedWriteIds of_another_user;
  std::set<SharedWriteId> nonces{of_another_user.next()};
  for (std::size_t write = 1; write <= 1000; ++write) {
    SharedWriteId id = ids.next();
    nonces.insert(id);
    id.back() ^= std::byte{1};  // the second part
    nonces.insert(id);
    ASSERT_EQ(nonces.size(), 1 + 2 * write);
  }
}

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16)));
  }
  return bytes;
}

template <class Array>
Array array_from_hex(std::string_view hex) {
  const auto bytes = from_hex(hex);
  Array array;
  std::copy_n(bytes.begin(), array.size(), array.begin());
  return array;
}

/// Test case 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega).
TEST(SealingCipherTest, is_aes_256_gcm_with_associated_data_piece_by_piece) {
  const auto key = array_from_hex<SharedSecret::Key>("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const auto nonce = array_from_hex<SealingCipher::Nonce>("cafebabefacedbaddecaf888");
  auto associated = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const auto plain = from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
                              "b16aedf5aa0de657ba637b39");
  const auto sealed = from_hex("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
                               "c5f61e6393ba7a0abcc9f662");
  const auto tag = array_from_hex<SealingCipher::Tag>("76fc6ece0f4e1768cddf8853bb2d551b");
  SealingCipher cipher;
  auto bytes = plain;
  cipher.begin(SealingCipher::To::seal, key, nonce, associated);
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    const auto piece = std::span{bytes}.subspan(at, std::min<std::size_t>(7, bytes.size() - at));
    cipher.add(piece, piece.data());
  }
  EXPECT_EQ(bytes, sealed);
  EXPECT_EQ(cipher.end_sealing(), tag);
  cipher.begin(SealingCipher::To::open, key, nonce, associated);
  cipher.add(bytes, bytes.data());
  EXPECT_TRUE(cipher.end_opening(tag));
  EXPECT_EQ(bytes, plain);
  associated[0] ^= std::byte{1};
  cipher.begin(SealingCipher::To::open, key, nonce, associated);
  EXPECT_FALSE(cipher.end_opening(tag));
  bytes = sealed;
  cipher.begin(SealingCipher::To::open, key, nonce, associated);
  cipher.add(bytes, bytes.data());
  EXPECT_FALSE(cipher.end_opening(tag)) << "other associated data";
}

/// The expected key is that of another implementation of HKDF-SHA256. Another key would make all stored values unreadable.
TEST(SharedSecret, makes_the_same_key_for_ever) {
  BlockKey block;
  for (std::size_t i = 0; i < block.bytes.size(); ++i) block.bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(secret_of()->key_of(block, fingerprint_of(1)),
            array_from_hex<SharedSecret::Key>("a7b01bd971123ec8bf11cbb449a39b3f5921fda9d5fc4c274633f3339a03d604"));
}

TEST(SharedSecret, needs_32_bytes) {
  EXPECT_THROW((void)secret_of("31 bytes are not enough: 012345"), std::invalid_argument);
  EXPECT_NO_THROW((void)secret_of("32 bytes are just enough: 012345"));
}

TEST(SharedSecret, gives_each_block_its_own_key) {
  const auto secret = secret_of();
  std::set<SharedSecret::Key> keys{secret->key_of(key_of(1), fingerprint_of(1)), secret->key_of(key_of(2), fingerprint_of(1)),
                                   secret->key_of(key_of(1), fingerprint_of(2)),
                                   secret_of("another secret, of another deployment")->key_of(key_of(1), fingerprint_of(1))};
  EXPECT_EQ(keys.size(), 4U);
  EXPECT_EQ(secret_of()->key_of(key_of(1), fingerprint_of(1)), secret->key_of(key_of(1), fingerprint_of(1)));
}

TEST(SharedMismatchText, names_each_kind) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < shared_mismatch_count; ++i) names.insert(to_string(static_cast<SharedMismatch>(i)));
  EXPECT_EQ(names.size(), shared_mismatch_count);
  EXPECT_FALSE(names.contains("unknown"));
}

// ---- names -------------------------------------------------------------------------------------------------------------

TEST(SharedValueNames, have_prefix_version_fingerprint_group_key_and_part) {
  SharedValueNames names{"kv-cache"};
  Fingerprint fingerprint{};
  fingerprint[0] = std::byte{0xab};
  fingerprint[16] = std::byte{0xcd};  // beyond what the name has
  names.use(fingerprint);
  BlockKey key{};
  key.bytes[31] = std::byte{0x1f};
  EXPECT_EQ(names.name(key, GroupId{10}, 1), "kv-cache:1:ab" + std::string(30, '0') + ":{a:" + std::string(62, '0') + "1f}:1");
  names.use(Fingerprint{});
  EXPECT_EQ(names.name(key, GroupId{10}, 1), "kv-cache:1:" + std::string(32, '0') + ":{a:" + std::string(62, '0') + "1f}:1");
}

TEST(SharedValueNames, refuse_prefixes_that_would_move_the_tag) {
  for (const char* const good : {"terrace", "a", "Team-A/kv_1.x:y"}) EXPECT_TRUE(SharedValueNames::is_prefix(good)) << good;
  for (const char* const bad : {"", "a b", "a{b", "a}b", "a*", "a\n"}) EXPECT_FALSE(SharedValueNames::is_prefix(bad)) << bad;
  EXPECT_TRUE(SharedValueNames::is_prefix(std::string(64, 'x')));
  EXPECT_FALSE(SharedValueNames::is_prefix(std::string(65, 'x')));
}

}  // namespace
}  // namespace terrace::test
