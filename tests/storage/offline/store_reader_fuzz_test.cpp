// A reader of files with arbitrary damage: every call ends with an error or an answer, and no answer is wrong.

#include "storage/offline/store_reader.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

class Fuzz : public testing::Test {
 protected:
  void SetUp() override {
    ThreadsHarness h{config_for(good_, 40), calls_};
    h.write(prefix_of(1, 20));
    h.write(prefix_of(100, 10));
    h.write({child_of(prefix_of(1, 5).back(), 200)});
  }
  void copy_good() {
    fs::remove_all(bad_);
    fs::copy(good_, bad_);
  }
  std::uint64_t random(std::uint64_t below) { return random_() % below; }

  /// Asks the reader everything about the damaged copy.
  void look() {
    try {
      const StoreReader reader{bad_};
      AlignedBuffer scratch{reader.layout().block_bytes};
      const CatalogScan& catalog = reader.catalog();
      const auto& superseded = catalog.superseded();
      EXPECT_EQ(catalog.blocks().size() + catalog.orphans().size() + superseded.size() + catalog.damaged().size() +
                    catalog.free_slots(),
                reader.layout().slots);
      for (const auto* records : {&catalog.blocks(), &catalog.orphans(), &superseded}) {
        for (const CatalogRecord& record : *records) {
          const StoreReader::Verified verified = reader.verify(record, scratch.span());
          if (verified.verdict != StoreReader::Verdict::verified) continue;
          ++verified_;
          EXPECT_TRUE(holds(scratch.span(), record.block.key)) << "a wrong block was called right";
        }
      }
      ++read_;
    } catch (const std::system_error& error) {
      ++refused_;
      EXPECT_NE(std::string{error.what()}.find(bad_.string()), std::string::npos) << error.what();
    }
  }

  TemporaryDirectory directory_;
  fs::path good_ = directory_.path() / "good";
  fs::path bad_ = directory_.path() / "bad";
  FaultyCalls calls_;
  const std::uint64_t seed_ = seed_from_env_or(1);
  std::mt19937_64 random_{seed_};
  std::size_t verified_ = 0;
  std::size_t read_ = 0;
  std::size_t refused_ = 0;
};

TEST_F(Fuzz, of_flipped_and_overwritten_bytes_ends_in_an_answer_and_none_is_a_lie) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_));
  for (int round = 0; round < 300; ++round) {
    copy_good();
    const std::uint64_t changes = 1 + random(20);
    for (std::uint64_t n = 0; n < changes; ++n) {
      const fs::path file = bad_ / (random(4) == 0 ? "blocks-0000" : random(8) == 0 ? "lock" : "catalog");
      const std::uint64_t size = fs::file_size(file);
      // Superblock and records are a small part of the files, but the most important one.
      const std::uint64_t at = file.filename() == "catalog" && random(4) == 0 ? random(sector_bytes) : random(size);
      if (random(2) == 0) {
        flip(file, at, 1U << random(8));
      } else {
        std::vector<std::byte> noise(std::min<std::uint64_t>(1 + random(600), size - at));
        for (std::byte& byte : noise) byte = static_cast<std::byte>(random(256));
        write_at(file, at, noise);
      }
    }
    look();
  }
  EXPECT_GT(read_, 0U);
  EXPECT_GT(refused_, 0U);
  EXPECT_GT(verified_, 0U);
}

TEST_F(Fuzz, of_files_cut_short_ends_in_an_answer_and_none_is_a_lie) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_));
  for (int round = 0; round < 100; ++round) {
    copy_good();
    for (const char* const name : {"catalog", "blocks-0000", "lock"}) {
      if (random(2) == 0) fs::resize_file(bad_ / name, random(fs::file_size(bad_ / name) + 1));
    }
    look();
  }
  EXPECT_GT(read_, 0U);
  EXPECT_GT(refused_, 0U);
}

TEST_F(Fuzz, of_superblocks_that_check_themselves_ends_in_an_answer_and_none_is_a_lie) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_));
  const auto number = [&] { return random(3) == 0 ? random_() >> random(64) : random(3) == 0 ? random(100) * 4096 : random(50); };
  for (int round = 0; round < 300; ++round) {
    copy_good();
    Superblock superblock{format_version, block_size, 40, 0xFFFF'FFFE, 1, config_for(good_, 40).fingerprint};
    if (random(2) == 0) superblock.block_bytes = number();
    if (random(2) == 0) superblock.slots = number();
    if (random(2) == 0) superblock.slots_per_file = number();
    if (random(4) == 0) superblock.fingerprint[random(32)] ^= std::byte{1};
    if (random(4) == 0) {
      superblock.version = striped_format_version;
      superblock.directories = static_cast<std::uint32_t>(random(2) == 0 ? number() : random(5));
      superblock.stripe_slots = static_cast<std::uint32_t>(random(2) == 0 ? number() : random(3));
    }
    write_superblock(bad_, superblock);
    look();
  }
  EXPECT_GT(read_, 0U);
  EXPECT_GT(refused_, 0U);
}

TEST_F(Fuzz, of_records_agrees_with_what_a_store_that_starts_makes_of_them) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_));
  const std::vector<CatalogRecord> originals = StoreReader{good_}.catalog().blocks();
  for (int round = 0; round < 100; ++round) {
    copy_good();
    const std::uint64_t changes = 1 + random(30);
    for (std::uint64_t n = 0; n < changes; ++n) {
      // The record of another slot's block with small changes: a key twice, orphans, cycles, records in the wrong place.
      CatalogRecord record = originals[random(originals.size())];
      const auto slot = static_cast<std::uint32_t>(random(40));
      if (random(8) != 0) record.slot = slot;
      record.generation = random(2) == 0 ? record.generation : random(1000);
      if (random(3) == 0) record.block.depth = static_cast<std::uint32_t>(random(random(4) == 0 ? 1ULL << 32 : 25));
      if (random(3) == 0) record.block.parent = originals[random(originals.size())].block.key;
      if (random(8) == 0) record.length = 4096;
      if (random(8) == 0) record.fingerprint_prefix ^= 1;
      if (random(8) == 0) record.block.key = key_of(random(10));
      write_record(bad_, slot, record);
    }
    if (random(4) == 0) fs::resize_file(bad_ / "blocks-0000", random(41) * block_size);
    std::set<BlockKey> would;
    {
      const StoreReader reader{bad_};
      for (const CatalogRecord& record : reader.catalog().blocks()) would.insert(record.block.key);
    }
    std::set<BlockKey> does;
    ThreadsHarness h{config_for(bad_, 40), calls_};
    for (const StoredBlock& block : blocks_in(h.store())) does.insert(block.key);
    EXPECT_EQ(would, does) << "round " << round;
  }
}

}  // namespace
}  // namespace terrace::test
