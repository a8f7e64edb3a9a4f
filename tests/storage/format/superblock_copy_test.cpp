// The second copy of the superblock: what happens to a store that loses the first or the second one.

#include "storage/file/superblock_io.hpp"

#include "storage/offline/store_reader.hpp"
#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"
#include "tests/storage/resizing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

class SuperblockCopy : public testing::Test {
 protected:
  static constexpr std::uint32_t slots = 100;

  std::unique_ptr<SimulatedHarness> open() { return std::make_unique<SimulatedHarness>(io_, config_); }
  void fill() {
    const auto h = open();
    for (std::uint64_t n = 0; n < 80; ++n) h->write({root_block(n)});
  }
  std::span<std::byte> first() { return io_.files().content("/store/catalog").first(catalog_page_bytes); }
  std::span<std::byte> copy() { return io_.files().content("/store/lock").subspan(superblock_copy_at, sector_bytes); }
  void expect_all_there() {
    const auto h = open();
    EXPECT_EQ(h->store().stat().blocks, 80U);
    for (std::uint64_t n = 0; n < 80; ++n) EXPECT_TRUE(h->reads_back(key_of(n)));
    EXPECT_EQ(decode_superblock(first()).value(), decode_superblock(copy()).value()) << "both are right again";
  }
  std::string refusal() {
    const std::system_error error = thrown_by([this] { (void)open(); });
    EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::incompatible)));
    return error.what();
  }

  SimulatedIo io_;
  FileStoreConfig config_ = config_for("/store", slots);
};

TEST_F(SuperblockCopy, restores_a_superblock_that_is_zeroed_or_torn_or_overwritten) {
  fill();
  for (const auto& [from, byte] : {std::pair{std::size_t{0}, 0}, {200, 0}, {0, 0xA5}, {300, 0xA5}}) {
    std::ranges::fill(first().subspan(from), static_cast<std::byte>(byte));
    EXPECT_EQ(open()->store().stat().io_errors, 1U) << "and it is counted";
    std::ranges::fill(first().subspan(from), static_cast<std::byte>(byte));
    expect_all_there();
  }
}

TEST_F(SuperblockCopy, restores_a_superblock_that_cannot_be_read) {
  fill();
  bool met = false;
  for (std::uint64_t n = 0; n < 12; ++n) {
    SimulatedIo io{io_.files().left_by(SimulatedFiles::End::killed)};
    io.files().inject(n, {.error = EIO});
    try {
      SimulatedHarness h{io, config_};
      met = met || h.store().stat().io_errors == 1;
    } catch (const std::system_error&) {
      continue;  // the fault hit another operation of the start
    }
  }
  EXPECT_TRUE(met);
}

TEST_F(SuperblockCopy, is_made_again_where_it_is_damaged_or_was_never_made) {
  fill();
  std::ranges::fill(copy(), std::byte{0xA5});
  expect_all_there();
  // A store of a version that had no second superblock.
  const FileId lock = io_.files().open("/store/lock", Create::no, Direct::no)->id;
  ASSERT_TRUE(io_.files().resize(lock, Bytes{superblock_copy_at}).has_value());
  io_.files().close(lock);
  expect_all_there();
}

TEST_F(SuperblockCopy, says_how_many_slots_there_are_after_a_resize_too) {
  fill();
  {
    const auto h = open();
    resize(*h, 300);
    for (std::uint64_t n = 80; n < 300; ++n) h->write({root_block(n)});
    h->store().flush(1);
    h->drain();
    EXPECT_EQ(decode_superblock(first()).value(), decode_superblock(copy()).value());
    // The disk as if the owner were killed now.
    SimulatedIo io{io_.files().left_by(SimulatedFiles::End::power_failure)};
    std::ranges::fill(io.files().content("/store/catalog").first(catalog_page_bytes), std::byte{0});
    FileStoreConfig config = config_;
    config.capacity = capacity_for(300, config.block_bytes);
    SimulatedHarness after{io, config};
    for (std::uint64_t n = 0; n < 300; ++n) EXPECT_TRUE(after.reads_back(key_of(n))) << n;
  }
}

TEST_F(SuperblockCopy, without_one_zeros_in_front_of_records_are_damage_and_nothing_is_discarded) {
  fill();
  std::ranges::fill(first(), std::byte{0});
  std::ranges::fill(copy(), std::byte{0});
  const std::vector<std::byte> before{io_.files().content("/store/catalog").begin(), io_.files().content("/store/catalog").end()};
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("the superblock of /store/catalog has been overwritten with zeros"), std::string::npos) << sentence;
  const std::span<const std::byte> after = io_.files().content("/store/catalog");
  EXPECT_TRUE(std::ranges::equal(before, after));
}

TEST_F(SuperblockCopy, without_one_zeros_in_front_of_nothing_are_a_store_whose_making_was_interrupted) {
  { const auto h = open(); }
  std::ranges::fill(first(), std::byte{0});
  std::ranges::fill(copy(), std::byte{0});
  const auto h = open();
  h->write({root_block(1)});
  EXPECT_TRUE(h->reads_back(key_of(1)));
}

TEST_F(SuperblockCopy, that_is_damaged_too_has_the_store_refused) {
  fill();
  std::ranges::fill(first(), std::byte{0});
  copy()[100] ^= std::byte{1};
  EXPECT_NE(refusal().find("its superblock is damaged"), std::string::npos);
}

TEST_F(SuperblockCopy, of_another_geometry_has_the_store_refused) {
  fill();
  std::ranges::fill(first(), std::byte{0});
  config_.fingerprint = key_of(4712).bytes;
  EXPECT_NE(refusal().find("was made for the model and geometry"), std::string::npos);
}

TEST(SuperblockCopyOnDisk, serves_readers_too) {
  const TemporaryDirectory directory;
  const fs::path where = directory.path() / "store";
  FaultyCalls calls;
  { ThreadsHarness{config_for(where, 16), calls}.write(prefix_of(1, 6)); }
  const std::vector<std::byte> zeros(catalog_page_bytes);
  write_at(where / "catalog", 0, zeros);
  EXPECT_EQ(StoreReader{where}.catalog().blocks().size(), 6U);
  ThreadsHarness h{config_for(where, 16), calls};
  for (const StoredBlock& block : prefix_of(1, 6)) EXPECT_TRUE(h.reads_back(block.key));
}

TEST(SuperblockWrites, touch_the_second_place_when_the_first_is_durable) {
  // One of the two places has the old or the new superblock, whatever part of the write a power failure leaves, torn sectors
  // included.
  const Superblock before{format_version, block_size, 10, 10, 1};
  Superblock now = before;
  now.generation = 2;
  for (unsigned done = 0; done <= 4; ++done) {
    SimulatedIo io;
    (void)io.files().make_directory("/store");
    const FileId catalog = io.files().open("/store/catalog", Create::if_missing, Direct::no)->id;
    const FileId lock = io.files().open("/store/lock", Create::if_missing, Direct::no)->id;
    (void)io.files().resize(lock, Bytes{lock_file_bytes});
    ASSERT_FALSE(write_superblock(io, before, catalog, lock));
    for (const char* const names : {"/", "/store"}) ASSERT_TRUE(io.files().sync_directory(names).has_value());
    SuperblockWrite write;
    write.begin(now, catalog, lock);
    for (unsigned n = 0; n < done; ++n) ASSERT_FALSE(write.ended(run_alone(io, write.operation())));
    // Data that were written and not synced may be anything.
    SimulatedIo left{io.files().after_power_failure([](bool) { return false; })};
    const auto tear = [&](const char* file, std::uint64_t at) {
      const auto is = io.files().content(file).subspan(at, sector_bytes);
      const auto durable = left.files().content(file).subspan(at, sector_bytes);
      if (!std::ranges::equal(is, durable)) std::ranges::fill(durable.subspan(100), std::byte{0xA5});
    };
    tear("/store/catalog", 0);
    tear("/store/lock", superblock_copy_at);
    const FileId catalog_left = left.files().open("/store/catalog", Create::no, Direct::no)->id;
    const FileId lock_left = left.files().open("/store/lock", Create::no, Direct::no)->id;
    const FoundSuperblock found = read_superblock(left, catalog_left, lock_left);
    ASSERT_TRUE(found.superblock.has_value()) << "after " << done << " operations";
    EXPECT_TRUE(*found.superblock == before || *found.superblock == now);
    EXPECT_EQ(*found.superblock == now, done >= 2) << "after " << done << " operations";
  }
}

}  // namespace
}  // namespace terrace::test
