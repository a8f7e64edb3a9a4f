// A store read from outside: stopped, in use by its owner, incomplete, or no store at all.

#include "storage/offline/store_reader.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <thread>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
using Verdict = StoreReader::Verdict;

class ReaderTest : public testing::Test {
 protected:
  [[nodiscard]] FileStoreConfig config(std::uint32_t blocks = 8) const { return config_for(where_, blocks); }
  void fill_store(const std::vector<StoredBlock>& blocks, std::uint32_t capacity = 8) {
    ThreadsHarness{config(capacity), calls_}.write(blocks);
  }
  Verdict verdict_of(const StoreReader& reader, const CatalogRecord& block) {
    AlignedBuffer scratch{block_size};
    return reader.verify(block, scratch.span()).verdict;
  }
  /// Expects that the directory cannot be read, and returns the reason.
  std::string refusal(const fs::path& directory) {
    return thrown_by([&] { const StoreReader reader{directory}; }).what();
  }
  void expect_refused(const std::string& part) {
    const std::string why = refusal(where_);
    EXPECT_NE(why.find(part), std::string::npos) << why;
    EXPECT_NE(why.find(where_.string()), std::string::npos) << why;
  }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  FaultyCalls calls_;
};

TEST_F(ReaderTest, tells_what_a_stopped_store_holds) {
  auto blocks = prefix_of(1, 4);
  blocks.push_back(child_of(blocks[1], 50));
  blocks.back().group = GroupId{3};
  fill_store(blocks);
  const StoreReader reader{where_};
  EXPECT_EQ(reader.superblock().version, format_version);
  EXPECT_EQ(reader.superblock().block_bytes, block_size);
  EXPECT_EQ(reader.superblock().fingerprint, config().fingerprint);
  EXPECT_EQ(reader.layout().slots, 8U);
  EXPECT_FALSE(reader.in_use());
  EXPECT_EQ(reader.catalog().blocks().size(), 5U);
  EXPECT_EQ(reader.catalog().free_slots(), 3U);
  EXPECT_TRUE(reader.catalog().orphans().empty());
  EXPECT_TRUE(reader.catalog().damaged().empty());
  EXPECT_GE(count(reader.allocated()), 8 * block_size);
  std::uint32_t depth = 0;
  for (const CatalogRecord& record : reader.catalog().blocks()) {
    EXPECT_GE(record.block.depth, depth) << "parents come first";
    depth = record.block.depth;
  }
  for (const StoredBlock& block : blocks) {
    const CatalogRecord* const found = reader.find(block.key);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->block, block);
    EXPECT_EQ(verdict_of(reader, *found), Verdict::verified);
    const StoreReader::Location at = reader.location(found->slot);
    std::ifstream file{at.file, std::ios::binary};
    file.seekg(static_cast<std::streamoff>(at.offset));
    std::vector<char> bytes(block_size);
    file.read(bytes.data(), block_size);
    EXPECT_TRUE(holds(std::as_bytes(std::span{bytes}), block.key));
  }
  EXPECT_EQ(reader.find(key_of(999)), nullptr);
}

TEST_F(ReaderTest, reads_beside_an_owner_and_names_it) {
  ThreadsHarness owner{config(), calls_};
  owner.write(prefix_of(1, 3));
  while (owner.store().unwritten_pages() > 0) owner.drain();
  const StoreReader reader{where_};
  EXPECT_TRUE(reader.in_use());
  EXPECT_EQ(reader.owner()->pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(reader.catalog().blocks().size(), 3U);
  EXPECT_FALSE(owner.store().close().has_error());
  EXPECT_FALSE(reader.in_use());
}

TEST_F(ReaderTest, does_not_keep_an_owner_out) {
  fill_store(prefix_of(1, 3));
  const StoreReader reader{where_};
  EXPECT_FALSE(reader.in_use());
  ThreadsHarness owner{config(), calls_};
  EXPECT_TRUE(owner.reads_back(key_of(1)));
  EXPECT_TRUE(reader.in_use());
}

TEST_F(ReaderTest, changes_nothing) {
  fill_store(prefix_of(1, 3));
  for (const auto& entry : fs::directory_iterator{where_}) fs::permissions(entry.path(), fs::perms::owner_read);
  const Snapshot before = snapshot(where_);
  {
    const StoreReader reader{where_};
    for (const CatalogRecord& block : reader.catalog().blocks()) EXPECT_EQ(verdict_of(reader, block), Verdict::verified);
    EXPECT_FALSE(reader.in_use());
  }
  EXPECT_EQ(snapshot(where_), before);
}

TEST_F(ReaderTest, works_without_direct_reads_and_with_short_ones) {
  fill_store(prefix_of(1, 3));
  FaultyCalls no_open;
  no_open.no_direct_open = true;
  FaultyCalls no_io;
  no_io.no_direct_io = true;
  FaultyCalls pieces;
  pieces.no_direct_open = true;
  pieces.piece = 1000;
  for (FaultyCalls* const calls : {&no_open, &no_io, &pieces}) {
    const StoreReader reader{where_, *calls};
    EXPECT_EQ(reader.catalog().blocks().size(), 3U);
    for (const CatalogRecord& block : reader.catalog().blocks()) EXPECT_EQ(verdict_of(reader, block), Verdict::verified);
  }
  EXPECT_GT(pieces.interrupts, 0);
}

// ---- what is no store --------------------------------------------------------------------------------------------------

TEST_F(ReaderTest, refuses_what_is_no_store) {
  expect_refused("cannot look into the store");
  std::ofstream{where_} << "a file";
  expect_refused("it is no directory");
  fs::remove(where_);
  fs::create_directory(where_);
  expect_refused("is no file store: it has no catalog");
  auto inner = config();
  inner.name = "abc";
  { ThreadsHarness{inner, calls_}; }
  expect_refused("it has no catalog; but abc in it is one");
  std::ofstream{where_ / "catalog"} << std::string(5000, 'x');
  expect_refused("no catalog of a file store, or its superblock is damaged");
  std::ofstream{where_ / "catalog"} << "short";
  expect_refused("no catalog of a file store, or its superblock is damaged");
  std::ofstream{where_ / "catalog"} << "";
  expect_refused("has no superblock");
  std::ofstream{where_ / "catalog"} << std::string(8192, '\0');
  expect_refused("has no superblock");
}

TEST_F(ReaderTest, refuses_what_stands_in_a_files_place) {
  fs::create_directories(where_ / "catalog");
  expect_refused("catalog: Is a directory");
  fs::remove(where_ / "catalog");
  ASSERT_EQ(::mkfifo((where_ / "catalog").c_str(), 0600), 0);
  expect_refused("cannot read");
  fs::remove(where_ / "catalog");
  std::ofstream{directory_.path() / "elsewhere"} << "x";
  fs::create_symlink(directory_.path() / "elsewhere", where_ / "catalog");
  expect_refused("cannot read");
}

TEST_F(ReaderTest, refuses_another_version_and_numbers_that_make_no_sense) {
  fill_store(prefix_of(1, 3));
  const auto with = [&](const Superblock& superblock) { write_superblock(where_, superblock); };
  const Superblock good{format_version, block_size, 8, 8, 1, config().fingerprint};
  Superblock other = good;
  other.version = 99;
  with(other);
  expect_refused("has format version 99, and this program reads versions up to 2");
  for (const auto& [block_bytes, slots, per_file] : {std::tuple{0ULL, 8ULL, 8ULL},
                                                     {4097ULL, 8ULL, 8ULL},
                                                     {1ULL << 32, 8ULL, 8ULL},
                                                     {block_size, 0ULL, 8ULL},
                                                     {block_size, 1ULL << 32, 8ULL},
                                                     {block_size, 8ULL, 0ULL},
                                                     {block_size, 8ULL, 1ULL << 40}}) {
    other = good;
    other.block_bytes = block_bytes;
    other.slots = slots;
    other.slots_per_file = per_file;
    with(other);
    expect_refused("has a superblock with impossible values");
  }
  other = good;
  other.slots = 0xFFFF'FFFE;
  with(other);
  expect_refused("catalog is cut short: it has 8192 bytes of 549755817984");
  with(good);
  EXPECT_EQ(StoreReader{where_}.catalog().blocks().size(), 3U);
}

TEST_F(ReaderTest, refuses_a_catalog_that_is_cut_short) {
  fill_store(prefix_of(1, 40), 64);
  for (const std::uintmax_t bytes : {3 * 4096 - 1, 2 * 4096, 4096}) {
    fs::resize_file(where_ / "catalog", bytes);
    expect_refused("is cut short: it has " + std::to_string(bytes) + " bytes of 12288");
  }
}

// ---- what is not whole ---------------------------------------------------------------------------------------------------

TEST_F(ReaderTest, tells_records_apart_that_a_start_would_not_take) {
  fill_store(prefix_of(1, 6), 16);
  const StoreReader before{where_};
  const auto record_of = [&](std::uint64_t n) { return *before.find(key_of(n)); };
  flip(where_ / "catalog", catalog_page_bytes + record_of(6).slot * record_bytes + 40, 1);  // unreadable
  CatalogRecord record = record_of(5);                                                      // in the place of another slot
  record.slot = 0;
  write_record(where_, 12, record);
  record = record_of(5);
  record.fingerprint_prefix ^= 1;
  record.slot = 13;
  write_record(where_, 13, record);
  record = record_of(3);  // an older record of the same key
  record.generation = 0;
  record.slot = 14;
  write_record(where_, 14, record);
  record = record_of(3);  // whose parent was never stored
  record.block.key = key_of(77);
  record.block.parent = key_of(76);
  record.slot = 15;
  write_record(where_, 15, record);

  const StoreReader reader{where_};
  EXPECT_EQ(reader.catalog().blocks().size(), 5U);
  ASSERT_EQ(reader.catalog().damaged().size(), 3U);
  EXPECT_EQ(reader.catalog().damaged()[0].flaw, CatalogScan::Flaw::unreadable);
  EXPECT_EQ(reader.catalog().damaged()[1].flaw, CatalogScan::Flaw::misplaced);
  EXPECT_EQ(reader.catalog().damaged()[2].flaw, CatalogScan::Flaw::misplaced);
  EXPECT_EQ(reader.catalog().damaged()[2].key, key_of(5));
  ASSERT_EQ(reader.catalog().superseded().size(), 1U);
  EXPECT_EQ(reader.catalog().superseded()[0].slot, 14U);
  ASSERT_EQ(reader.catalog().orphans().size(), 1U);
  EXPECT_EQ(reader.catalog().orphans()[0].block.key, key_of(77));
  EXPECT_EQ(reader.catalog().free_slots(), 16U - 10U);
  EXPECT_EQ(reader.find(key_of(3))->generation, record_of(3).generation);
}

TEST_F(ReaderTest, knows_blocks_whose_data_are_cut_off) {
  fill_store(prefix_of(1, 6));
  fs::resize_file(where_ / "blocks-0000", 4 * block_size + 1);
  const StoreReader reader{where_};
  EXPECT_EQ(reader.catalog().blocks().size(), 4U);
  ASSERT_EQ(reader.catalog().damaged().size(), 2U);
  EXPECT_EQ(reader.catalog().damaged()[0].flaw, CatalogScan::Flaw::no_data);
  fs::remove(where_ / "blocks-0000");
  EXPECT_TRUE(StoreReader{where_}.catalog().blocks().empty());
  EXPECT_EQ(StoreReader{where_}.catalog().damaged().size(), 6U);
}

TEST_F(ReaderTest, finds_a_flipped_bit_in_the_data) {
  fill_store(prefix_of(1, 3));
  const StoreReader reader{where_};
  const CatalogRecord block = *reader.find(key_of(2));
  flip(where_ / "blocks-0000", reader.location(block.slot).offset + 4321, 8);
  EXPECT_EQ(verdict_of(reader, block), Verdict::corrupt);
  EXPECT_EQ(verdict_of(reader, *reader.find(key_of(1))), Verdict::verified);
  EXPECT_EQ(reader.verify(block, std::chrono::milliseconds{0}).verdict, Verdict::corrupt);
}

TEST_F(ReaderTest, says_why_data_are_not_readable) {
  class FailingReads final : public PosixCalls {
   public:
    ssize_t pread(int fd, void* into, std::size_t bytes, off_t offset) override {
      if (!fail || bytes != block_size) return PosixCalls::pread(fd, into, bytes, offset);
      errno = EIO;
      return -1;
    }
    bool fail = false;
  };
  fill_store(prefix_of(1, 3));
  FailingReads calls;
  const StoreReader reader{where_, calls};
  calls.fail = true;
  AlignedBuffer scratch{block_size};
  const StoreReader::Verified verified = reader.verify(*reader.find(key_of(1)), scratch.span());
  EXPECT_EQ(verified.verdict, Verdict::unreadable);
  EXPECT_EQ(verified.error, EIO);
}

TEST_F(ReaderTest, doubts_a_block_beside_an_owner_before_it_calls_it_corrupt) {
  ThreadsHarness owner{config(), calls_};
  owner.write(prefix_of(1, 3));
  while (owner.store().unwritten_pages() > 0) owner.drain();
  const StoreReader reader{where_};
  const CatalogRecord block = *reader.find(key_of(2));
  owner.damage(key_of(2));
  EXPECT_EQ(verdict_of(reader, block), Verdict::doubtful);
  EXPECT_EQ(reader.verify(block, std::chrono::milliseconds{1}).verdict, Verdict::corrupt);
  EXPECT_FALSE(owner.store().close().has_error());
  EXPECT_EQ(verdict_of(reader, block), Verdict::corrupt) << "nobody can have changed it any more";
}

TEST_F(ReaderTest, sees_that_a_slot_has_another_block_now) {
  ThreadsHarness owner{config(3), calls_};
  owner.write(prefix_of(1, 3));
  while (owner.store().unwritten_pages() > 0) owner.drain();
  const StoreReader reader{where_};
  owner.write({root_block(10)});  // in the place of the prefix's last block
  while (owner.store().unwritten_pages() > 0) owner.drain();
  EXPECT_EQ(verdict_of(reader, *reader.find(key_of(3))), Verdict::changed);
  EXPECT_EQ(verdict_of(reader, *reader.find(key_of(2))), Verdict::verified);
}

TEST_F(ReaderTest, finds_nothing_wrong_beside_an_owner_that_writes_without_pause) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> written{0};
  std::thread owner{[&] {
    ThreadsHarness store{config(16), calls_};
    for (std::uint64_t n = 1; !stop; n += 4) {
      store.write(prefix_of(n, 4));
      written = n;
    }
  }};
  while (written < 40) std::this_thread::yield();
  std::size_t changed = 0;
  for (int round = 0; round < 60; ++round) {
    const StoreReader reader{where_};
    EXPECT_TRUE(reader.in_use());
    EXPECT_TRUE(reader.catalog().damaged().empty());
    const std::uint64_t before = written;
    while (round % 2 == 0 && written < before + 40) std::this_thread::yield();  // so that some blocks have been evicted
    for (const CatalogRecord& block : reader.catalog().blocks()) {
      const Verdict verdict = reader.verify(block, std::chrono::minutes{2}).verdict;
      changed += verdict == Verdict::changed;
      EXPECT_TRUE(verdict == Verdict::verified || verdict == Verdict::changed) << static_cast<int>(verdict);
    }
  }
  EXPECT_GT(changed, 0U);
  stop = true;
  owner.join();
}

}  // namespace
}  // namespace terrace::test
