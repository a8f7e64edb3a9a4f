// The disk space of a store that is resized while it serves, and its floor of free space.

#include "storage/file/capacity_manager.hpp"

#include "base/random.hpp"
#include "tests/storage/fixtures.hpp"
#include "tests/storage/resizing.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class CapacityManagerTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedHarness> open(std::uint32_t blocks) {
    FileStoreConfig config = config_;
    config.capacity = capacity_for(blocks, config.block_bytes);
    return open(config);
  }
  std::unique_ptr<SimulatedHarness> open(const FileStoreConfig& c) { return std::make_unique<SimulatedHarness>(io_, c, seed_++); }
  /// Completes all queued operations, and everything that follows from them.
  void idle(SimulatedHarness& h) {
    std::vector<StoreEvent> events;
    for (int n = 0; n < 10'000; ++n) {
      while (io_.queued() > 0) h.advance();
      h.store().poll(events);
      if (io_.queued() == 0) return expect_ledger(h.store());
    }
    ADD_FAILURE() << "it never comes to rest";
  }
  [[nodiscard]] std::uint64_t used() { return count(io_.files().used_bytes()); }
  void leave_free(std::uint64_t bytes) { io_.files().set_disk_bytes(Bytes{used() + bytes}); }

  SimulatedIo io_;
  FileStoreConfig config_ = config_for("/store", 10);
  std::uint64_t seed_ = seed_from_env_or(1);
};

TEST_F(CapacityManagerTest, the_room_of_what_goes_is_given_back_and_taken_again) {
  const auto h = open(20);
  for (std::uint64_t n = 0; n < 20; ++n) h->write({root_block(n)});
  const std::uint64_t full = used();
  resize(*h, 5);
  idle(*h);
  EXPECT_EQ(used(), full - 15 * block_size);
  EXPECT_EQ(h->store().stat().room_kept, 0U);
  for (std::uint64_t n = 15; n < 20; ++n) EXPECT_TRUE(h->reads_back(key_of(n)));
  resize(*h, 12);
  idle(*h);
  EXPECT_EQ(used(), full - 8 * block_size);
  EXPECT_EQ(h->store().stat().free, 7U);
}

TEST_F(CapacityManagerTest, grows_across_files_and_catalog_pages) {
  config_.data_file_bytes_max = Bytes{7 * block_size};
  config_.growth_piece_bytes = Bytes{3 * block_size};
  const auto prefix = prefix_of(1, 100);
  {
    const auto h = open(5);
    h->write({prefix.begin(), prefix.begin() + 5});
    resize(*h, 100);
    idle(*h);
    EXPECT_EQ(used(), count(StoreLayout{block_size, 100, 7}.total_bytes()) - catalog_page_bytes + lock_file_bytes);
    h->write({prefix.begin() + 5, prefix.end()});
    for (const StoredBlock& block : prefix) EXPECT_TRUE(h->reads_back(block.key));
    EXPECT_EQ(h->store().location(prefix[99].key)->file, "/store/blocks-0014");
  }
  const auto h = open(100);
  EXPECT_EQ(h->store().stat().blocks, 100U);
  for (const StoredBlock& block : prefix) EXPECT_TRUE(h->reads_back(block.key));
}

TEST_F(CapacityManagerTest, a_full_disk_stops_the_growth_where_it_is) {
  const auto h = open(4);
  leave_free(7 * block_size + 100 + catalog_page_bytes);
  ASSERT_TRUE(h->store().resize(60).has_value());
  idle(*h);
  StoreStat stat = h->store().stat();
  EXPECT_EQ(stat.capacity_blocks, 11U);
  EXPECT_EQ(stat.wanted_blocks, 11U);
  EXPECT_EQ(stat.growth_stopped, 1U);
  EXPECT_EQ(stat.growth_error, errno_code(ENOSPC));
  EXPECT_EQ(stat.floor_stopped, 0U);
  for (std::uint64_t n = 0; n < 11; ++n) EXPECT_FALSE(outcome(h->write({root_block(n)}), Kind::written, key_of(n)));
  leave_free(100 * block_size);
  EXPECT_EQ(h->store().stat().capacity_blocks, 11U) << "it does not try again by itself";
  resize(*h, 60);
  stat = h->store().stat();
  EXPECT_EQ(stat.capacity_blocks, 60U);
  EXPECT_EQ(stat.blocks, 11U);
  EXPECT_FALSE(stat.growth_error) << "it has its size";
}

TEST_F(CapacityManagerTest, an_error_on_the_way_stops_the_growth_and_the_store_serves_on) {
  config_.data_file_bytes_max = Bytes{4 * block_size};
  for (std::uint64_t fault = 0; fault < 12; ++fault) {
    SCOPED_TRACE(fault);
    SimulatedIo io;
    FileStoreConfig config = config_;
    config.capacity = capacity_for(4, config.block_bytes);
    SimulatedHarness h{io, config};
    const auto prefix = prefix_of(1, 4);
    h.write(prefix);
    const std::uint64_t first = io.files().next_number();
    io.files().inject(first + fault, {.error = EIO});
    ASSERT_TRUE(h.store().resize(40).has_value());
    settle(h);
    ASSERT_GT(io.files().next_number(), first + fault);
    EXPECT_EQ(h.store().stat().growth_stopped, h.store().stat().capacity_blocks < 40 ? 1U : 0U);
    EXPECT_GT(h.store().stat().io_errors, 0U);
    for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key));
    resize(h, 40);
    EXPECT_EQ(h.store().stat().capacity_blocks, 40U);
    ASSERT_TRUE(h.store().close().has_value());
  }
}

TEST_F(CapacityManagerTest, a_hole_that_cannot_be_made_costs_its_room_only) {
  const auto h = open(4);
  for (std::uint64_t n = 0; n < 4; ++n) h->write({root_block(n)});
  idle(*h);
  const std::uint64_t full = used();
  // First the entry in the superblock, then the hole.
  for (std::uint64_t n = 0; n < 3; ++n) io_.files().inject(io_.files().next_number() + n, {.error = EOPNOTSUPP});
  resize(*h, 2);
  idle(*h);
  EXPECT_EQ(used(), full);
  EXPECT_EQ(h->store().stat().room_kept, 2U);
  EXPECT_EQ(h->store().stat().capacity_blocks, 2U);
  EXPECT_TRUE(h->reads_back(key_of(3)));
}

// Restarts.

TEST_F(CapacityManagerTest, a_shrunk_store_that_starts_with_that_capacity_has_all_its_blocks) {
  {
    const auto h = open(40);
    for (std::uint64_t n = 0; n < 40; ++n) h->write({root_block(n)});
    for (std::uint64_t n = 0; n < 40; n += 4) {
      const BlockKey key = key_of(n);
      h->store().touch({&key, 1});
    }
    resize(*h, 10);
  }
  const std::uint64_t shrunk = used();
  {
    const auto h = open(10);
    EXPECT_EQ(used(), shrunk);
    settle(*h);
    EXPECT_EQ(h->store().stat().capacity_blocks, 10U);
    for (std::uint64_t n = 0; n < 40; n += 4) EXPECT_TRUE(h->reads_back(key_of(n))) << n;
  }
  {
    const auto h = open(20);
    idle(*h);
    EXPECT_EQ(h->store().stat().capacity_blocks, 20U);
    EXPECT_EQ(h->store().stat().free, 10U);
    EXPECT_EQ(used(), shrunk + 10 * block_size);
    EXPECT_TRUE(h->reads_back(key_of(0)));
  }
  {
    const auto h = open(3);
    EXPECT_TRUE(h->drain().empty()) << "who went had not been heard of";
    EXPECT_EQ(h->store().stat().blocks, 3U);
    settle(*h);
    idle(*h);
    EXPECT_EQ(used(), shrunk - 7 * block_size);
  }
  {
    const auto h = open(40);
    idle(*h);
    EXPECT_EQ(h->store().stat().blocks, 3U);
    EXPECT_EQ(h->store().stat().free, 37U);
    EXPECT_EQ(used(), shrunk + 30 * block_size);
  }
  const auto h = open(20);
  EXPECT_LT(used(), shrunk + 30 * block_size) << "and cut, as of any store";
}

TEST_F(CapacityManagerTest, a_grown_store_that_starts_with_its_first_capacity_is_cut) {
  {
    const auto h = open(4);
    resize(*h, 30);
    for (std::uint64_t n = 0; n < 30; ++n) h->write({root_block(n)});
  }
  const auto h = open(4);
  EXPECT_EQ(h->store().stat().blocks, 4U);
  EXPECT_EQ(used(), count(config_.capacity) - 6 * block_size - catalog_page_bytes + lock_file_bytes);
}

// The floor.

TEST_F(CapacityManagerTest, a_start_that_would_go_below_the_floor_is_refused) {
  io_.files().set_disk_bytes(Bytes{100 * block_size});
  config_.floor = Bytes{60 * block_size};
  FileStoreConfig config = config_;
  config.capacity = capacity_for(50, config.block_bytes);
  const std::system_error error = thrown_by([&] { (void)open(config); });
  EXPECT_EQ(error.code(), std::errc::no_space_on_device);
  const std::string sentence = error.what();
  const Bytes fits = capacity_for(38, config.block_bytes);
  EXPECT_NE(sentence.find("480KiB must stay free"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("the file system has 799KiB free"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("the largest capacity that fits is " + to_string(fits)), std::string::npos) << sentence;
  EXPECT_EQ(used(), 0U);
  config.capacity = fits;
  const auto h = open(config);
  EXPECT_EQ(h->store().stat().capacity_blocks, 38U);
  EXPECT_GE(100 * block_size - used(), count(config_.floor));
}

TEST_F(CapacityManagerTest, a_store_that_takes_nothing_starts_below_the_floor) {
  { const auto h = open(10); }
  leave_free(block_size);
  config_.floor = Bytes{5 * block_size};
  const auto h = open(10);
  EXPECT_EQ(h->store().stat().capacity_blocks, 10U) << "its room is its own already";
}

TEST_F(CapacityManagerTest, growth_stops_at_the_floor) {
  config_.floor = Bytes{10 * block_size};
  config_.growth_piece_bytes = Bytes{4 * block_size};
  const auto h = open(10);
  leave_free(19 * block_size);
  ASSERT_TRUE(h->store().resize(100).has_value());
  idle(*h);
  const StoreStat stat = h->store().stat();
  EXPECT_EQ(stat.capacity_blocks, 17U) << "and some of it is the catalog's";
  EXPECT_EQ(stat.floor_stopped, 1U);
  EXPECT_EQ(stat.growth_error, errno_code(ENOSPC));
  EXPECT_EQ(stat.wanted_blocks, 17U);
}

TEST_F(CapacityManagerTest, where_room_cannot_be_taken_ahead_the_floor_stops_first_writes) {
  io_.files().set_preallocates(false);
  io_.files().set_disk_bytes(Bytes{400 * block_size});
  config_.floor = Bytes{100 * block_size};
  config_.growth_piece_bytes = Bytes{8 * block_size};
  config_.writes_max = 8;
  const auto h = open(250);
  idle(*h);
  EXPECT_LE(h->store().stat().capacity_blocks, 16U) << "as many as may be needed soon";
  for (std::uint64_t n = 0; n < 100; ++n) {
    h->write({root_block(n)});
    idle(*h);
  }
  EXPECT_EQ(h->store().stat().blocks, 100U);
  // Something else fills the disk.
  leave_free(120 * block_size);
  for (std::uint64_t n = 100; n < 400; ++n) {
    EXPECT_FALSE(outcome(h->write({root_block(n)}), Kind::written, key_of(n)));
    idle(*h);
  }
  StoreStat stat = h->store().stat();
  EXPECT_GE(count(io_.files().free_space("/store").value()), count(config_.floor));
  EXPECT_GE(stat.blocks, 100U + 120U - 100U - 16U);
  EXPECT_GT(stat.floor_stopped, 0U);
  EXPECT_GT(stat.evicted, 100U) << "writes re-use the slots that have room";
  leave_free(50 * block_size);  // below the floor
  const std::uint64_t before = used();
  for (std::uint64_t n = 400; n < 500; ++n) {
    h->write({root_block(n)});
    idle(*h);
  }
  EXPECT_EQ(used(), before);
  // There is space again.
  leave_free(1000 * block_size);
  for (std::uint64_t n = 500; n < 1000; ++n) {
    h->write({root_block(n)});
    idle(*h);
  }
  stat = h->store().stat();
  EXPECT_EQ(stat.blocks, 250U);
  for (std::uint64_t n = 750; n < 1000; ++n) EXPECT_TRUE(h->reads_back(key_of(n)));
}

TEST_F(CapacityManagerTest, others_who_eat_the_disk_stop_a_burst_of_first_writes) {
  io_.files().set_preallocates(false);
  io_.files().set_disk_bytes(Bytes{4000 * block_size});
  config_.floor = Bytes{100 * block_size};
  const auto h = open(1000);  // with many slots open in advance
  idle(*h);
  EXPECT_EQ(h->store().stat().capacity_blocks, 1000U);
  leave_free(101 * block_size);
  for (std::uint64_t n = 0; n < 300; ++n) {
    h->write({root_block(n)});
    idle(*h);
  }
  EXPECT_GE(count(io_.files().free_space("/store").value()) + 32 * block_size, count(config_.floor))
      << "it looks every 32 first writes";
  EXPECT_LE(h->store().stat().blocks, 33U);
}

// All of it together; sometimes the process is killed.

/// The disk that a killed process leaves, or a machine that lost power.
std::unique_ptr<SimulatedIo> disk_after(SimulatedIo& io, Random& random) {
  // Each operation under way has happened or not.
  while (io.queued() > 0 && random.chance(0.7)) io.step(random.below(io.queued()));
  using End = SimulatedFiles::End;
  return std::make_unique<SimulatedIo>(io.files().left_by(random.chance(0.5) ? End::killed : End::power_failure));
}

struct Totals {
  std::uint64_t grown = 0;
  std::uint64_t shrunk = 0;
  std::uint64_t stopped = 0;
  std::uint64_t floors = 0;
  std::uint64_t kept = 0;  ///< blocks that were kept over restarts
  std::uint64_t killed = 0;
};

void run_world(std::uint64_t seed, Totals& totals) {
  SCOPED_TRACE(testing::Message() << "TERRACE_SEED=" << seed);
  Random random{seed};
  std::vector<std::unique_ptr<SimulatedIo>> disks;
  std::vector<std::unique_ptr<SimulatedHarness>> killed;  // their stores are destroyed last
  disks.push_back(std::make_unique<SimulatedIo>());
  FileStoreConfig config = config_for("/store", 12);
  config.data_file_bytes_max = Bytes{block_size * random.between(10, 60)};
  config.growth_piece_bytes = Bytes{block_size * random.between(1, 12)};
  config.writes_max = static_cast<std::uint32_t>(random.between(2, 64));
  if (random.chance(0.5)) config.floor = Bytes{block_size * random.between(1, 20)};
  disks.back()->files().set_preallocates(random.chance(0.6));
  auto h = std::make_unique<SimulatedHarness>(*disks.back(), config, seed);
  for (int step = 0; step < 250; ++step) {
    SimulatedIo& io = *disks.back();
    BlockStore& store = h->store();
    const std::uint64_t dice = random.below(100);
    if (dice < 35) {
      const std::uint64_t n = random.below(200);
      const auto parents = blocks_in(store);
      const bool root = parents.empty() || random.chance(0.4);
      h->start_write({root ? root_block(n) : child_of(parents[random.below(parents.size())], 1000 + random.below(100'000))});
    } else if (dice < 50) {
      const auto there = blocks_in(store);
      if (!there.empty()) h->start_read(there[random.below(there.size())].key);
    } else if (dice < 85) {
      if (io.queued() > 0) io.step(random.below(io.queued()));
    } else if (dice < 91) {
      const auto blocks = static_cast<std::uint32_t>(random.between(1, 50));
      (blocks > store.stat().capacity_blocks ? totals.grown : totals.shrunk) += 1;
      ASSERT_TRUE(store.resize(Blocks{blocks}).has_value());
    } else if (dice < 94) {
      const Bytes room{block_size * random.below(60)};
      io.files().set_disk_bytes(random.chance(0.3) ? Bytes{~0ULL} : io.files().used_bytes() + room);
    } else if (dice < 95) {
      const auto there = blocks_in(store);
      if (!there.empty()) store.remove({&there[random.below(there.size())].key, 1}, 1);
    } else if (dice < 97) {
      totals.stopped += store.stat().growth_stopped;
      totals.floors += store.stat().floor_stopped;
      const bool kill = random.chance(0.5);
      if (kill) {
        ++totals.killed;
        disks.push_back(disk_after(io, random));
        killed.push_back(std::move(h));
      } else {
        h.reset();
      }
      disks.back()->files().set_disk_bytes(Bytes{~0ULL});
      config.capacity = capacity_for(static_cast<std::uint32_t>(random.between(1, 50)), config.block_bytes);
      h = std::make_unique<SimulatedHarness>(*disks.back(), config, seed + static_cast<std::uint64_t>(step));
      totals.kept += h->store().stat().blocks;
    }
    std::vector<StoreEvent> events;
    h->store().poll(events);
    for (const StoreEvent& event : events) {
      if (event.kind != Kind::read || event.error) continue;
      ASSERT_TRUE(holds(h->content(event.token), event.key)) << "a wrong block was served";
    }
    expect_ledger(h->store());
  }
  disks.back()->files().set_disk_bytes(Bytes{~0ULL});
  while (disks.back()->queued() > 0) h->advance();
  h->drain();
  for (const StoredBlock& block : blocks_in(h->store())) {
    const ErrorCode error = h->read(block.key);
    ASSERT_TRUE(!error || error == Errc::not_found || (totals.killed > 0 && error == Errc::corrupt)) << error.message();
  }
}

TEST(CapacityManagerWorld, survives_resizes_full_disks_and_restarts) {
  Totals totals;
  const std::uint64_t first = seed_from_env_or(1);
  const std::uint64_t seeds = std::getenv("TERRACE_SEED") != nullptr ? 1 : 300;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    run_world(seed, totals);
    if (testing::Test::HasFatalFailure()) return;
  }
  if (seeds == 1) return;
  EXPECT_GT(totals.grown, 100U);
  EXPECT_GT(totals.shrunk, 100U);
  EXPECT_GT(totals.stopped, 20U);
  EXPECT_GT(totals.floors, 5U);
  EXPECT_GT(totals.kept, 100U);
  EXPECT_GT(totals.killed, 20U);
}

}  // namespace
}  // namespace terrace::test
