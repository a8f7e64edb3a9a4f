// Superblocks and records with correct checksums and contents that no store ever wrote. They must not decide the size of
// anything, and every call must end with an answer.

#include "storage/file/file_store.hpp"
#include "storage/offline/store_reader.hpp"
#include "storage/offline/store_verification.hpp"
#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"
#include "tests/storage/resizing.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <limits>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t number_max = std::numeric_limits<std::uint64_t>::max();

class CraftedStore : public testing::Test {
 protected:
  void SetUp() override {
    SimulatedHarness h{io_, config_};
    h.write(prefix_of(1, 6));
  }
  void craft(const std::function<void(Superblock&)>& change) {
    const std::span<std::byte> page = io_.files().content("/store/catalog").first(catalog_page_bytes);
    Superblock superblock = decode_superblock(page).value();
    change(superblock);
    encode(superblock, page);
  }
  void craft_record(std::uint32_t slot, const std::function<void(CatalogRecord&)>& change) {
    const auto at = io_.files().content("/store/catalog").subspan(catalog_page_bytes + slot * record_bytes, record_bytes);
    CatalogRecord record = decode_record(at).value();
    change(record);
    encode(record, at);
  }

  SimulatedIo io_;
  FileStoreConfig config_ = config_for("/store", 40);
};

TEST_F(CraftedStore, of_as_many_slots_as_there_can_be_takes_what_was_configured) {
  for (const std::uint64_t open_slots : {0ULL, 1ULL, 40ULL}) {
    craft([&](Superblock& s) {
      s.slots = 0xFFFF'FFFE;
      s.open_slots = open_slots;
    });
    SimulatedHarness h{io_, config_};
    settle(h);
    EXPECT_EQ(h.store().stat().capacity_blocks, 40U);
    EXPECT_LE(io_.files().used_bytes(), config_.capacity);
    for (const StoredBlock& block : prefix_of(1, 6)) EXPECT_TRUE(h.reads_back(block.key));
  }
}

TEST_F(CraftedStore, that_says_it_became_smaller_keeps_some_times_its_slots_and_no_more) {
  craft([&](Superblock& s) {
    s.slots = 32 * 40;
    s.open_slots = 40;
  });
  SimulatedHarness h{io_, config_};
  EXPECT_EQ(StoreStat{h.store().stat()}.wanted_blocks, 40U);
  EXPECT_LE(count(io_.files().used_bytes()), count(config_.capacity) + 32 * 40 * record_bytes);
}

TEST_F(CraftedStore, with_more_open_slots_than_slots_makes_no_sense) {
  for (const std::uint64_t open_slots : {41ULL, 1ULL << 32, (1ULL << 32) + 1}) {
    craft([&](Superblock& s) { s.open_slots = open_slots; });
    const std::string why = refusal_of([this] { const SimulatedHarness h{io_, config_}; });
    EXPECT_NE(why.find("a superblock with impossible values"), std::string::npos) << why;
  }
}

TEST_F(CraftedStore, with_records_of_the_last_generation_serves_and_writes_on) {
  craft([](Superblock& s) { s.generation = number_max; });
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    craft_record(slot, [&](CatalogRecord& record) { record.generation = number_max - slot; });
  }
  for (int start = 0; start < 2; ++start) {
    SimulatedHarness h{io_, config_};
    expect_ledger(h.store());
    for (std::uint64_t n = 100; n < 150; ++n) {
      h.write({root_block(n)});
      EXPECT_TRUE(h.reads_back(key_of(n)));
      expect_ledger(h.store());
    }
  }
}

// Readers have no configuration to compare with.

class CraftedFiles : public testing::Test {
 protected:
  void SetUp() override { ThreadsHarness{config_for(where_, 8), calls_}.write(prefix_of(1, 4)); }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  FaultyCalls calls_;
};

TEST_F(CraftedFiles, with_blocks_of_four_gibibytes_are_verified_in_pieces) {
  constexpr std::uint64_t huge = 4'294'963'200;
  CatalogRecord record = StoreReader{where_}.catalog().blocks().front();
  write_superblock(where_, {format_version, huge, 8, 8, 1, config_for(where_, 8).fingerprint});
  record.length = static_cast<std::uint32_t>(huge);
  record.slot = 0;
  write_record(where_, 0, record);
  fs::resize_file(where_ / "blocks-0000", huge);
  const StoreReader reader{where_};
  EXPECT_LE(reader.make_scratch().size(), std::size_t{4} << 20);
  ASSERT_EQ(reader.catalog().blocks().size(), 1U);
  fs::resize_file(where_ / "blocks-0000", 16U << 20);  // (the full size would take seconds)
  const Verification found = verify_all(reader, {.threads = 2}, [](std::uint64_t, Bytes) { return true; });
  ASSERT_EQ(found.wrong.size(), 1U);
  EXPECT_EQ(found.wrong.front().why.verdict, StoreReader::Verdict::unreadable);
}

TEST_F(CraftedFiles, are_verified_by_pieces_as_by_the_whole) {
  const StoreReader reader{where_};
  const AlignedBuffer piece{4096};
  for (const CatalogRecord& record : reader.catalog().blocks()) {
    EXPECT_EQ(reader.verify(record, piece.span()).verdict, StoreReader::Verdict::verified);
    EXPECT_EQ(reader.verify(record, reader.make_scratch().span()).verdict, StoreReader::Verdict::verified);
  }
  flip(where_ / "blocks-0000", reader.location(reader.catalog().blocks().front().slot).offset + 5000, 1);
  EXPECT_EQ(reader.verify(reader.catalog().blocks().front(), piece.span()).verdict, StoreReader::Verdict::corrupt);
}

TEST_F(CraftedFiles, with_a_catalog_of_512_gibibytes_of_nothing_are_read_at_once) {
  write_superblock(where_, {format_version, block_size, 0xFFFF'FFFE, 0xFFFF'FFFE, 1, config_for(where_, 8).fingerprint});
  fs::resize_file(where_ / "catalog", (std::uint64_t{1} << 39) + catalog_page_bytes);
  int pieces = 0;
  const StoreReader reader{where_, calls_, [&] { return ++pieces > 0; }};
  EXPECT_LE(pieces, 2);
  EXPECT_EQ(reader.catalog().blocks().size(), 4U);
  EXPECT_EQ(reader.catalog().free_slots(), 0xFFFF'FFFE - 4ULL);
}

TEST_F(CraftedFiles, end_when_their_reader_is_told_to) {
  const auto read = [this] { const StoreReader reader{where_, calls_, [] { return false; }}; };
  EXPECT_EQ(thrown_by(read).code(), std::errc::operation_canceled);
}

TEST_F(CraftedFiles, with_more_open_slots_than_slots_make_no_sense) {
  write_superblock(where_, {format_version, block_size, 8, 8, 1, config_for(where_, 8).fingerprint, std::uint64_t{1} << 32});
  const std::string why = refusal_of([this] { const StoreReader reader{where_}; });
  EXPECT_NE(why.find("a superblock with impossible values"), std::string::npos) << why;
}

}  // namespace
}  // namespace terrace::test
