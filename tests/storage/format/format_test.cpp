#include "storage/format/format.hpp"
#include "storage/format/store_name.hpp"

#include "storage/file/dirty_pages.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace terrace::test {
namespace {

CatalogRecord some_record() {
  return {.block = {key_of(1), key_of(2), 3, TenantId{4}},
          .length = 65536,
          .checksum = 5,
          .fingerprint_prefix = 6,
          .generation = 7,
          .slot = 8};
}

TEST(Format, records_come_back) {
  std::array<std::byte, record_bytes> bytes;
  encode(some_record(), bytes);
  EXPECT_EQ(decode_record(bytes), some_record());
}

TEST(Format, lays_records_out_as_documented) {
  std::array<std::byte, record_bytes> bytes;
  encode(some_record(), bytes);
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(bytes[at]); };
  EXPECT_EQ(std::memcmp(bytes.data(), key_of(1).bytes.data(), 32), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 32, key_of(2).bytes.data(), 32), 0);
  EXPECT_EQ(byte(64), 4U);
  EXPECT_EQ(byte(72), 3U);
  EXPECT_EQ(byte(76), 0U);
  EXPECT_EQ(byte(78), 1U) << "65536, little-endian";
  EXPECT_EQ(byte(80), 5U);
  EXPECT_EQ(byte(88), 6U);
  EXPECT_EQ(byte(96), 7U);
  EXPECT_EQ(byte(104), 1U);
  EXPECT_EQ(byte(112), 8U);
}

TEST(Format, a_record_with_any_bit_flipped_is_a_free_slot) {
  std::array<std::byte, record_bytes> bytes;
  encode(some_record(), bytes);
  for (std::size_t bit = 0; bit < 8 * record_bytes; ++bit) {
    bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
    EXPECT_FALSE(decode_record(bytes).has_value()) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
  }
  bytes.fill(std::byte{0});
  EXPECT_FALSE(decode_record(bytes).has_value());
  bytes.fill(std::byte{0xFF});
  EXPECT_FALSE(decode_record(bytes).has_value());
}

TEST(Format, superblocks_come_back_and_no_bit_may_flip) {
  const Superblock superblock{format_version, 65536, 1000, 500, 3, key_of(9).bytes};
  std::array<std::byte, catalog_page_bytes> page;
  encode(superblock, page);
  EXPECT_EQ(decode_superblock(page).value(), superblock);
  EXPECT_FALSE(all_zero(page));
  for (std::size_t bit = 0; bit < 8 * sector_bytes; ++bit) {
    page[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
    EXPECT_EQ(decode_superblock(page).error(), Errc::corrupt) << "bit " << bit;
    page[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
  }
}

TEST(Format, superblocks_of_striped_stores_say_how_and_others_say_nothing_of_it) {
  Superblock superblock{striped_format_version, 65536, 1000, 500, 3, key_of(9).bytes, 0, 4, 50, 0x1234'5678'9ABC'DEF0};
  std::array<std::byte, catalog_page_bytes> page;
  encode(superblock, page);
  EXPECT_EQ(decode_superblock(page).value(), superblock);
  superblock.version = format_version;
  encode(superblock, page);
  EXPECT_EQ(decode_superblock(page).value().directories, 1U) << "version 1 is as it always was";
  EXPECT_TRUE(all_zero(std::span{page}.subspan(88, 400)));
}

TEST(Format, a_part_says_whose_it_is_and_nothing_else_is_one) {
  const StorePart part{0x0123'4567'89AB'CDEF, 2, 4};
  const std::string text = to_text(part);
  EXPECT_EQ(text.size(), part_text_bytes);
  EXPECT_TRUE(text.starts_with("store 0123456789abcdef part 2 of 4\n")) << text;
  EXPECT_EQ(parse_part(text), part);
  for (const char* other :
       {"", "store", "store xyz part 1 of 2", "store 1 part 0 of 2", "store 1 part 3 of 2", "store 1 part 1 of 65",
        "store 1 part 1 of 2 and more", "store 1 part 99999999999 of 2", " store 1 part 1 of 2"}) {
    EXPECT_FALSE(parse_part(other).has_value()) << other;
  }
  EXPECT_FALSE(parse_part(std::string(part_text_bytes, '\0')).has_value());
}

TEST(Format, the_checksum_covers_key_fingerprint_and_payload) {
  const AlignedBuffer payload = content_of(key_of(1));
  const Fingerprint fingerprint = key_of(2).bytes;
  const std::uint64_t sum = payload_checksum(key_of(1), fingerprint, payload.span());
  EXPECT_NE(sum, payload_checksum(key_of(3), fingerprint, payload.span()));
  EXPECT_NE(sum, payload_checksum(key_of(1), key_of(3).bytes, payload.span()));
  EXPECT_NE(sum, payload_checksum(key_of(1), fingerprint, payload.span().first(4096)));
  payload.data()[5000] ^= std::byte{1};
  EXPECT_NE(sum, payload_checksum(key_of(1), fingerprint, payload.span()));
}

TEST(Format, the_checksum_is_the_same_on_every_machine) {
  std::vector<std::byte> payload(4096);
  for (std::size_t n = 0; n < payload.size(); ++n) payload[n] = static_cast<std::byte>(n % 251);
  // Computed with the portable code of XXH3 in one piece: 72 bytes of key, fingerprint and length, then the payload.
  EXPECT_EQ(payload_checksum(BlockKey{}, Fingerprint{}, payload), 12985513725535773091ULL);
}

TEST(Format, a_store_stays_within_its_capacity) {
  for (const std::uint64_t block : {4096ULL, 65536ULL, 1ULL << 21}) {
    for (const std::uint32_t slots : {1U, 31U, 32U, 33U, 1000U, 100'000U}) {
      const Bytes capacity = capacity_for(slots, Bytes{block});
      EXPECT_EQ(slots_within(capacity, block), slots);
      EXPECT_EQ(slots_within(capacity - Bytes{1}, block), slots - 1);
    }
    EXPECT_EQ(slots_within(Bytes{}, block), 0U);
    EXPECT_EQ(slots_within(Bytes{block}, block), 0U) << "the catalog counts too";
  }
}

TEST(Format, slots_lie_in_files_of_a_given_size) {
  const StoreLayout layout{4096, 10, 4};
  EXPECT_EQ(layout.data_files(), 3U);
  EXPECT_EQ(layout.data_file_bytes(0), Bytes{4 * 4096});
  EXPECT_EQ(layout.data_file_bytes(2), Bytes{2 * 4096});
  EXPECT_EQ(layout.file_of(SlotId{9}), 2U);
  EXPECT_EQ(layout.offset_of(SlotId{9}), 4096U);
}

TEST(Format, as_many_slots_as_there_can_be_have_their_pages_and_files) {
  const StoreLayout many{4096, 0xFFFF'FFFE, 0xFFFF'FFFE};
  EXPECT_EQ(many.catalog_pages(), 1U << 27);
  EXPECT_EQ(many.data_files(), 1U);
  EXPECT_EQ((StoreLayout{4096, 8, 0xFFFF'FFFE}.data_files()), 1U);
}

TEST(DirtyPages, go_out_in_order_and_never_twice_at_once) {
  DirtyPages pages{8, 2};
  pages.mark(3);
  pages.mark(5);
  pages.mark(3);
  pages.mark(1);
  EXPECT_EQ(pages.take(), 3U);
  EXPECT_EQ(pages.take(), 5U);
  EXPECT_EQ(pages.take(), std::nullopt) << "two are under way";
  pages.mark(5);
  pages.mark(5);
  pages.ended(3, DirtyPages::Outcome::written);
  EXPECT_EQ(pages.take(), 1U) << "not 5, whose older image is still under way";
  EXPECT_EQ(pages.take(), std::nullopt);
  pages.ended(5, DirtyPages::Outcome::written);
  EXPECT_EQ(pages.take(), 5U);
  pages.ended(5, DirtyPages::Outcome::written);
  pages.ended(1, DirtyPages::Outcome::written);
  EXPECT_EQ(pages.take(), std::nullopt);
  EXPECT_EQ(pages.under_way(), 0U);
}

TEST(DirtyPages, a_failed_page_waits_until_it_changes_or_is_retried) {
  DirtyPages pages{8, 2};
  pages.mark(3);
  EXPECT_EQ(pages.take(), 3U);
  pages.ended(3, DirtyPages::Outcome::failed);
  EXPECT_EQ(pages.failed(), 1U);
  EXPECT_EQ(pages.take(), std::nullopt);
  pages.mark(3);
  EXPECT_EQ(pages.take(), 3U);
  pages.ended(3, DirtyPages::Outcome::failed);
  pages.retry_failed();
  EXPECT_EQ(pages.failed(), 0U);
  EXPECT_EQ(pages.take(), 3U);
}

}  // namespace
}  // namespace terrace::test
