// Faults of storage in docs/reliability.md that no other test covers. Each occurred in some cache, and is translated here to a
// store whose blocks are slots of a few files.

#include "storage/file/file_store.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
using Kind = StoreEvent::Kind;

class StorageFaults : public testing::Test {
 protected:
  static void expect_ledger(const StoreStat& stat) {
    EXPECT_EQ(stat.free + stat.blocks + stat.writing + stat.quarantined, stat.capacity_blocks);
    EXPECT_EQ(stat.orphans, 0U);
  }
  /// Applies the fault to the next `count` operations and calls.
  void inject_next(const IoFault& fault, std::uint64_t count = 1) {
    for (std::uint64_t n = 0; n < count; ++n) io_.files().inject(io_.files().next_number() + n, fault);
  }

  SimulatedIo io_;
};

std::vector<StoredBlock> roots(std::uint64_t first, std::uint64_t count) {
  std::vector<StoredBlock> blocks;
  for (std::uint64_t n = first; n < first + count; ++n) blocks.push_back(root_block(n));
  return blocks;
}

TEST_F(StorageFaults, a_disk_that_others_have_filled_costs_a_running_store_nothing) {
  SimulatedHarness h{io_, config_for("/store", 8)};
  io_.files().set_disk_bytes(Bytes{0});
  for (std::uint64_t n = 1; n <= 30; ++n) {
    EXPECT_FALSE(outcome(h.write({root_block(n)}), Kind::written, key_of(n))) << "its room was taken when it started";
    EXPECT_TRUE(h.reads_back(key_of(n)));
    expect_ledger(h.store().stat());
  }
  EXPECT_EQ(h.store().stat().blocks, 8U);
  EXPECT_EQ(h.store().stat().evicted, 22U);
}

TEST_F(StorageFaults, a_full_disk_in_the_middle_of_serving_fails_writes_and_nothing_else) {
  // The file system cannot reserve space: each write may fail, and the next one may succeed.
  SimulatedHarness h{io_, config_for("/store", 8)};
  h.write(roots(1, 4));
  for (const int error : {ENOSPC, EDQUOT}) {
    inject_next({.error = error});
    EXPECT_EQ(outcome(h.write({root_block(50)}), Kind::written, key_of(50)), Errc::full);
    EXPECT_EQ(h.store().stat().quarantined, 0U);
    for (std::uint64_t n = 1; n <= 4; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
    expect_ledger(h.store().stat());
  }
  EXPECT_FALSE(outcome(h.write({root_block(50)}), Kind::written, key_of(50)));
}

TEST(StorageFaultsOnDisk, a_directory_that_takes_no_more_names_matters_to_a_start_alone) {
  // "No space" although there are free bytes and inodes: a running store creates no names.
  const TemporaryDirectory directory;
  FaultyCalls calls;
  calls.open_error = ENOSPC;
  const auto start = [&] { const ThreadsHarness h{config_for(directory.path() / "store", 8), calls}; };
  EXPECT_EQ(thrown_by(start).code(), std::errc::no_space_on_device);
  EXPECT_TRUE(fs::is_empty(directory.path()));

  calls.open_error = 0;
  ThreadsHarness h{config_for(directory.path() / "store", 8), calls};
  calls.open_error = ENOSPC;
  for (std::uint64_t n = 1; n <= 20; ++n) {
    h.write({root_block(n)});
    EXPECT_TRUE(h.reads_back(key_of(n)));
  }
}

TEST_F(StorageFaults, an_error_on_any_block_of_a_batch_is_that_blocks_alone) {
  constexpr std::uint64_t batch = 6;
  for (const IoFault& fault : {IoFault{.error = EIO}, IoFault{.bytes_max = 0}, IoFault{.bytes_max = 512}}) {
    for (std::uint64_t bad = 0; bad < batch; ++bad) {
      SimulatedIo io;
      SimulatedHarness h{io, config_for("/store", 20), bad};
      io.files().inject(io.files().next_number() + bad, fault);
      const auto written = h.write(roots(1, batch));
      for (std::uint64_t n = 0; n < batch; ++n) {
        EXPECT_EQ(outcome(written, Kind::written, key_of(1 + n)), n == bad ? ErrorCode{Errc::io_failed} : ErrorCode{});
        EXPECT_EQ(h.reads_back(key_of(1 + n)), n != bad);
      }
      const StoreStat stat = h.store().stat();
      EXPECT_EQ(stat.quarantined, 1U) << "its slot is not trusted again";
      expect_ledger(stat);

      h.write({root_block(1 + bad)});
      io.files().inject(io.files().next_number() + bad, fault);
      std::vector<StoreRead> reads;
      std::vector<AlignedBuffer> buffers;
      for (std::uint64_t n = 0; n < batch; ++n) {
        buffers.emplace_back(block_size);
        reads.push_back({n, key_of(1 + n), buffers.back().span()});
      }
      h.store().read(reads);
      const auto events = h.drain();
      for (std::uint64_t n = 0; n < batch; ++n) {
        EXPECT_EQ(outcome(events, Kind::read, key_of(1 + n)), n == bad ? ErrorCode{Errc::io_failed} : ErrorCode{});
        EXPECT_TRUE(n == bad || holds(buffers[n].span(), key_of(1 + n)));
      }
      EXPECT_TRUE(h.reads_back(key_of(1 + bad))) << "once is forgiven";
    }
  }
}

TEST_F(StorageFaults, a_block_that_goes_between_lookup_and_read_is_a_miss) {
  SimulatedHarness h{io_, config_for("/store", 2)};
  h.write({root_block(1)});
  ASSERT_TRUE(h.has(key_of(1)));
  h.write(roots(10, 2));  // evicts others
  EXPECT_EQ(h.read(key_of(1)), Errc::not_found);
  ASSERT_TRUE(h.has(key_of(10)));
  const BlockKey key = key_of(10);
  h.store().remove({&key, 1}, 1);
  EXPECT_EQ(h.read(key), Errc::not_found);
  expect_ledger(h.store().stat());
}

TEST(StorageFaultsOnDisk, a_data_file_that_is_cut_off_while_serving_is_a_miss_and_then_forgotten) {
  const TemporaryDirectory directory;
  FaultyCalls calls;
  ThreadsHarness h{config_for(directory.path() / "store", 8), calls};
  h.write({root_block(1)});
  fs::resize_file(directory.path() / "store" / "blocks-0000", 100);
  EXPECT_EQ(h.read(key_of(1)), Errc::io_failed);
  EXPECT_EQ(h.read(key_of(1)), Errc::io_failed);
  EXPECT_FALSE(h.has(key_of(1))) << "twice is the block's own fault";
  h.write({root_block(2)});
  EXPECT_TRUE(h.reads_back(key_of(2)));
}

TEST_F(StorageFaults, a_restart_with_a_nearly_full_store_on_a_full_disk_counts_before_it_writes) {
  const FileStoreConfig config = config_for("/store", 40);
  {
    SimulatedHarness h{io_, config};
    h.write(roots(1, 39));
  }
  std::uint64_t used = 0;
  for (const auto& file : io_.files().files_in("/store")) used += io_.files().content(file).size();
  EXPECT_LE(used, count(config.capacity));
  io_.files().set_disk_bytes(Bytes{used});

  SimulatedHarness h{io_, config};
  EXPECT_EQ(h.store().stat().blocks, 39U);
  EXPECT_EQ(h.store().stat().free, 1U);
  const auto events = h.write(roots(100, 3));
  EXPECT_EQ(keys_of(events, Kind::evicted).size(), 2U) << "one slot was free";
  EXPECT_EQ(h.store().stat().blocks, 40U);
  expect_ledger(h.store().stat());
  std::uint64_t now = 0;
  for (const auto& file : io_.files().files_in("/store")) now += io_.files().content(file).size();
  EXPECT_EQ(now, used);
}

TEST_F(StorageFaults, an_oldest_block_that_cannot_go_stands_in_nobodys_way) {
  SimulatedHarness h{io_, config_for("/store", 4)};
  for (std::uint64_t n = 1; n <= 4; ++n) h.write({root_block(n)});
  // The read of the oldest block hangs, which also makes this block the most recently used. Then all others are used.
  inject_next({.stall = true});
  const std::uint64_t token = h.start_read(key_of(1));
  io_.step(0);
  for (std::uint64_t n = 2; n <= 4; ++n) {
    const BlockKey key = key_of(n);
    h.store().touch({&key, 1});
  }
  std::vector<StoreEvent> events;
  for (std::uint64_t n = 10; n < 20; ++n) {
    h.start_write({root_block(n)});
    while (io_.queued() > 0) io_.step(0);
    h.store().poll(events);
  }
  for (const StoreEvent& event : events) {
    EXPECT_FALSE(event.kind == Kind::written && event.error) << event.error.message();
    EXPECT_FALSE(event.kind == Kind::evicted && event.key == key_of(1));
  }
  EXPECT_EQ(keys_of(events, Kind::evicted).size(), 10U);
  expect_ledger(h.store().stat());
  io_.release_stalled();
  EXPECT_FALSE(outcome(h.drain(), Kind::read, key_of(1)));
  EXPECT_TRUE(holds(h.content(token), key_of(1)));
}

TEST_F(StorageFaults, an_eviction_whose_record_cannot_be_cleared_makes_room_all_the_same) {
  const FileStoreConfig config = config_for("/store", 2);
  {
    SimulatedHarness h{io_, config};
    h.write(roots(1, 2));
    for (std::uint64_t n = 10; n < 14; ++n) {
      while (io_.in_flight() > 0) {
        h.advance();
        h.drain();
      }
      // First the page of the catalog, then the data.
      io_.files().inject(io_.files().next_number(), {.error = EIO});
      EXPECT_FALSE(outcome(h.write({root_block(n)}), Kind::written, key_of(n)));
      EXPECT_TRUE(h.reads_back(key_of(n)));
    }
    EXPECT_EQ(h.store().stat().io_errors, 4U);
  }
  SimulatedHarness h{io_, config};
  for (std::uint64_t n = 12; n < 14; ++n) EXPECT_TRUE(h.reads_back(key_of(n))) << "close() has written the records";
  EXPECT_FALSE(h.has(key_of(1)));
}

TEST_F(StorageFaults, a_read_that_moves_nothing_is_no_success_whatever_the_buffer_holds) {
  SimulatedHarness h{io_, config_for("/store", 4)};
  h.write({root_block(1)});
  AlignedBuffer buffer = content_of(key_of(1));  // left by an earlier load, and right by chance
  inject_next({.bytes_max = 0});
  const StoreRead read{7, key_of(1), buffer.span()};
  h.store().read({&read, 1});
  EXPECT_EQ(outcome(h.drain(), Kind::read, key_of(1)), Errc::io_failed);
}

TEST_F(StorageFaults, lookups_are_answered_and_writes_bounded_while_the_disk_stands_still) {
  FileStoreConfig config = config_for("/store", 40);
  config.writes_max = 5;
  SimulatedHarness h{io_, config};
  h.write({root_block(1)});
  inject_next({.stall = true}, 20);
  h.start_read(key_of(1));
  h.start_write(roots(10, 10));
  while (io_.queued() > 0) io_.step(0);
  std::vector<StoreEvent> events;
  for (std::uint64_t round = 0; round < 100; ++round) {
    ASSERT_TRUE(h.store().contains(key_of(1)));
    ASSERT_FALSE(h.store().contains(key_of(10))) << "its write has not ended";
    ASSERT_FALSE(h.store().contains(key_of(99)));
    events.clear();
    h.store().poll(events);
    EXPECT_EQ(keys_of(events, Kind::written).size(), round == 0 ? 5U : 0U) << "beyond the bound, refused at once";
  }
  EXPECT_EQ(h.store().in_flight(), 6U);
  expect_ledger(h.store().stat());
  io_.release_stalled();
  events = h.drain();
  EXPECT_FALSE(outcome(events, Kind::read, key_of(1)));
  for (std::uint64_t n = 10; n < 15; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
  EXPECT_EQ(h.store().in_flight(), 0U);
}

TEST_F(StorageFaults, a_listed_block_whose_slot_is_empty_is_a_miss_once_and_then_unlisted) {
  const FileStoreConfig config = config_for("/store", 8);
  const auto prefix = prefix_of(1, 3);
  {
    SimulatedHarness h{io_, config};
    h.write(prefix);
  }
  const auto data = io_.files().content("/store/blocks-0000");
  std::fill_n(data.begin() + block_size, block_size, std::byte{0});  // the second slot, which has the second block
  SimulatedHarness h{io_, config};
  ASSERT_TRUE(h.has(prefix[1].key));
  h.start_read(prefix[1].key);
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::read, prefix[1].key), Errc::corrupt);
  EXPECT_EQ(keys_of(events, Kind::evicted).size(), 2U) << "with its child";
  EXPECT_FALSE(h.has(prefix[1].key));
  EXPECT_TRUE(h.reads_back(prefix[0].key));
  h.write(prefix);
  for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key));
}

TEST(StorageFaultsOnDisk, a_failed_write_leaves_no_marker_and_no_descriptor) {
  const TemporaryDirectory directory;
  FaultyCalls calls;
  ThreadsHarness h{config_for(directory.path() / "store", 20), calls};
  const auto descriptors = [] { return std::distance(fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{}); };
  const auto before = descriptors();
  for (std::uint64_t n = 1; n <= 10; ++n) {
    h.fail_write_of(key_of(n));
    EXPECT_EQ(outcome(h.write({root_block(n)}), Kind::written, key_of(n)), Errc::io_failed);
    EXPECT_EQ(h.store().in_flight(), 0U);
    EXPECT_EQ(h.store().stat().writing, 0U);
    EXPECT_FALSE(h.has(key_of(n)));
    EXPECT_FALSE(outcome(h.write({root_block(n)}), Kind::written, key_of(n))) << "its key may come again at once";
    EXPECT_TRUE(h.reads_back(key_of(n)));
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(StorageFaultsOnDisk, a_data_file_that_is_missing_or_anothers_is_served_as_nothing) {
  const TemporaryDirectory directory;
  FaultyCalls calls;
  const FileStoreConfig ours = config_for(directory.path() / "ours", 8);
  const FileStoreConfig other = config_for(directory.path() / "other", 8);
  const auto written = [&](const FileStoreConfig& config, std::uint64_t first) {
    ThreadsHarness{config, calls}.write(roots(first, 8));
  };
  written(ours, 1);
  written(other, 100);
  // A copy of another store's data with the same size. Only the blocks' own checksums can show it.
  fs::copy_file(other.directory / "blocks-0000", ours.directory / "blocks-0000", fs::copy_options::overwrite_existing);
  {
    ThreadsHarness h{ours, calls};
    for (std::uint64_t n = 1; n <= 8; ++n) EXPECT_EQ(h.read(key_of(n)), Errc::corrupt);
    EXPECT_EQ(h.store().stat().blocks, 0U);
    h.write(roots(1, 8));
  }
  fs::remove(ours.directory / "blocks-0000");
  {
    ThreadsHarness h{ours, calls};
    EXPECT_EQ(h.store().stat().blocks, 0U) << "what has no data is not listed";
    h.write(roots(1, 8));
    for (std::uint64_t n = 1; n <= 8; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
  }
  fs::resize_file(ours.directory / "blocks-0000", 0);
  const ThreadsHarness h{ours, calls};
}

}  // namespace
}  // namespace terrace::test
