#include "storage/offline/store_compaction.hpp"

#include "storage/offline/store_reader.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

class CompactionTest : public testing::Test {
 protected:
  Compaction compact(PosixCalls& calls = PosixCalls::system()) {
    ThreadPoolIo io{{.threads = 1}, waker_, calls};
    return compact_store(where_, io);
  }
  std::system_error refusal(PosixCalls& calls = PosixCalls::system()) {
    try {
      (void)compact(calls);
    } catch (const std::system_error& error) {
      return error;
    }
    ADD_FAILURE() << "it went through";
    return std::system_error{0, std::generic_category()};
  }
  void remove(StoreHarness& h, std::uint64_t n) {
    const BlockKey key = key_of(n);
    h.store().remove({&key, 1}, 0);
    h.drain();
  }

  /// Until every slot is free or has a block.
  static void settle_space(StoreHarness& h) {
    std::vector<StoreEvent> events;
    for (StoreStat stat = h.store().stat(); stat.capacity_blocks < stat.wanted_blocks || stat.quarantined > 0;) {
      h.advance();
      h.store().poll(events);
      stat = h.store().stat();
    }
  }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  NullWaker waker_;
  FaultyCalls calls_;
};

TEST_F(CompactionTest, gives_back_what_no_block_needs_until_the_store_starts_again) {
  auto config = config_for(where_, 100);
  config.data_file_bytes_max = Bytes{16 * block_size};
  {
    ThreadsHarness h{config, calls_};
    h.write(path_of(1, 10));
    h.write(path_of(100, 30));
    remove(h, 5);  // and the five after it
  }
  const Bytes before = StoreReader{where_}.allocated();
  const Compaction done = compact();
  EXPECT_EQ(done.blocks, 34U);
  EXPECT_EQ(done.free_slots, 66U);
  EXPECT_EQ(done.cleared, 0U);
  const Bytes after = StoreReader{where_}.allocated();
  EXPECT_EQ(done.given_back, before - after);
  EXPECT_GE(count(done.given_back), 66 * block_size);
  EXPECT_EQ(count(compact().given_back), 0U) << "nothing is left to give";
  {
    const StoreReader reader{where_};
    AlignedBuffer scratch{block_size};
    for (const CatalogRecord& block : reader.catalog().blocks()) {
      EXPECT_EQ(reader.verify(block, scratch.span()).verdict, StoreReader::Verdict::verified);
    }
  }
  ThreadsHarness h{config, calls_};
  settle_space(h);
  EXPECT_GE(count(StoreReader{where_}.allocated()), 100 * block_size) << "what it may take is its own again";
  for (std::uint64_t n = 0; n < 30; ++n) EXPECT_TRUE(h.reads_back(key_of(100 + n)));
  for (std::uint64_t n = 1; n < 5; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
  h.write(path_of(200, 60));
  EXPECT_TRUE(h.reads_back(key_of(259)));
}

TEST_F(CompactionTest, clears_records_that_no_start_would_take) {
  { ThreadsHarness{config_for(where_, 16), calls_}.write(path_of(1, 6)); }
  CatalogRecord record = *StoreReader{where_}.find(key_of(3));
  record.block.key = key_of(77);
  record.block.parent = key_of(76);
  record.slot = 12;
  write_record(where_, 12, record);
  flip(where_ / "catalog", catalog_page_bytes + StoreReader{where_}.find(key_of(6))->slot * record_bytes, 1);
  const Compaction done = compact();
  EXPECT_EQ(done.cleared, 2U);
  EXPECT_EQ(done.blocks, 5U);
  const StoreReader reader{where_};
  EXPECT_EQ(reader.catalog().blocks().size(), 5U);
  EXPECT_EQ(reader.catalog().free_slots(), 11U);
}

TEST_F(CompactionTest, is_refused_where_somebody_has_the_store) {
  ThreadsHarness h{config_for(where_, 8), calls_};
  h.write(path_of(1, 3));
  const std::system_error error = refusal();
  EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::in_use)));
  EXPECT_NE(std::string{error.what()}.find("in use by process " + std::to_string(::getpid())), std::string::npos) << error.what();
  EXPECT_TRUE(h.reads_back(key_of(3)));
}

TEST_F(CompactionTest, is_refused_where_there_is_no_store_and_makes_none) {
  EXPECT_EQ(refusal().code(), std::errc::no_such_file_or_directory);
  EXPECT_FALSE(fs::exists(where_));
  { ThreadsHarness{config_for(where_, 8), calls_}; }
  write_superblock(where_, {99, block_size, 8, 8, 1, {}});
  EXPECT_EQ(refusal().code(), static_cast<std::error_code>(make_error_code(Errc::incompatible)));
}

TEST_F(CompactionTest, says_where_a_file_system_has_no_holes) {
  class NoHoles final : public PosixCalls {
   public:
    int punch_hole(int, off_t, off_t) override {
      errno = EOPNOTSUPP;
      return -1;
    }
  } no_holes;
  { ThreadsHarness{config_for(where_, 8), calls_}.write(path_of(1, 3)); }
  EXPECT_NE(std::string{refusal(no_holes).what()}.find("its file system has no holes"), std::string::npos);
  ThreadsHarness h{config_for(where_, 8), calls_};
  EXPECT_TRUE(h.reads_back(key_of(3)));
}

TEST(CompactionCrash, at_any_point_leaves_the_same_blocks) {
  // Each operation fails once; what was not synced is lost; and the store starts with all its blocks.
  for (std::uint64_t failing = 0;; ++failing) {
    SteppedIo io;
    const FileStoreConfig config = config_for("/store", 40);
    {
      SteppedHarness h{io, config};
      h.write(path_of(1, 10));
      h.write(path_of(100, 20));
    }
    const std::span<std::byte> catalog = io.files().content("/store/catalog");
    CatalogRecord orphan{child_of(root_block(500), 501), block_size, 1, fingerprint_prefix(config.fingerprint), 1, 35};
    encode(orphan, catalog.subspan(catalog_page_bytes + 35 * record_bytes, record_bytes));
    const std::uint64_t first = io.files().next_number();
    io.files().inject(first + failing, {.error = EIO});
    bool done = false;
    try {
      EXPECT_EQ(compact_store("/store", io).cleared, 1U);
      done = true;
    } catch (const std::system_error&) {
    }
    const bool reached = io.files().next_number() > first + failing;
    io.files().inject(first + failing, {});
    io.files().lose_unsynced();
    SteppedHarness h{io, config};
    for (std::uint64_t n = 1; n <= 10; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
    for (std::uint64_t n = 100; n < 120; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
    EXPECT_EQ(h.store().stat().blocks, 30U);
    if (!reached) {
      EXPECT_TRUE(done);
      EXPECT_GT(failing, 5U);
      break;
    }
  }
}

}  // namespace
}  // namespace terrace::test
