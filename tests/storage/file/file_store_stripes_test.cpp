// A file store that is striped over several directories: where its blocks are, and what it costs to lose a directory while it
// serves.

#include "storage/file/file_store.hpp"

#include "base/random.hpp"
#include "tests/storage/stripes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;
namespace fs = std::filesystem;

TEST_F(Stripes, a_prefix_goes_to_the_directories_in_turn_and_lies_side_by_side_in_each) {
  open();
  const auto prefix = prefix_of(1, 12);
  h_->write(prefix);
  const std::vector<fs::path> directories{"/store", "/store-1", "/store-2"};
  for (std::size_t n = 0; n < prefix.size(); ++n) {
    const auto at = store().location(prefix[n].key);
    ASSERT_TRUE(at.has_value());
    EXPECT_EQ(at->file, directories[n / stripe_blocks % 3] / "blocks-0000");
    EXPECT_EQ(at->offset, (n / stripe_blocks / 3 * stripe_blocks + n % stripe_blocks) * block_size);
    EXPECT_TRUE(h_->reads_back(prefix[n].key));
  }
  EXPECT_EQ(store().stat().directories, 3U);
  EXPECT_EQ(store().stat().directories_lost, 0U);
}

TEST_F(Stripes, takes_equal_shares_and_no_more_than_the_capacity_together) {
  open();
  std::uint64_t total = 0;
  for (const char* directory : {"/store", "/store-1", "/store-2"}) {
    EXPECT_EQ(disk().content(fs::path{directory} / "blocks-0000").size(), 20 * block_size);
    for (const fs::path& file : disk().files_in(directory)) total += disk().content(file).size();
  }
  EXPECT_LE(total, count(config_.capacity));
}

TEST_F(Stripes, everything_is_there_after_a_restart_and_after_a_power_failure_since_a_flush) {
  open();
  auto blocks = prefix_of(1, 30);
  blocks.push_back(root_block(77));
  h_->write(blocks);
  store().flush(1);
  EXPECT_FALSE(outcome(h_->drain(), Kind::flushed, {}));
  SimulatedIo after{disk().left_by(SimulatedFiles::End::power_failure)};
  SimulatedHarness again{after, config_};
  for (const StoredBlock& block : blocks) EXPECT_TRUE(again.reads_back(block.key));
  reopen();
  for (const StoredBlock& block : blocks) EXPECT_TRUE(h_->reads_back(block.key));
}

TEST_F(Stripes, a_start_that_ends_anywhere_leaves_what_the_next_one_can_start_from) {
  std::vector<SimulatedFiles> moments;
  disk().on_change([&] {
    moments.push_back(disk().left_by(SimulatedFiles::End::killed));
    moments.push_back(disk().left_by(SimulatedFiles::End::power_failure));
  });
  open();
  disk().on_change({});
  EXPECT_GT(moments.size(), 20U);
  for (SimulatedFiles& moment : moments) {
    SimulatedIo io{std::move(moment)};
    FileStoreConfig config = config_;
    config.id = 99;  // as if it were newly drawn
    SimulatedHarness h{io, config};
    const auto prefix = prefix_of(1, 12);
    h.write(prefix);
    for (const StoredBlock& block : prefix) ASSERT_TRUE(h.reads_back(block.key));
  }
}

TEST_F(Stripes, a_start_that_fails_anywhere_leaves_nothing_behind) {
  open();
  h_.reset();
  const std::uint64_t operations = disk().next_number();
  std::size_t failed = 0;
  for (std::uint64_t n = 0; n < operations; ++n) {
    SimulatedIo io;
    io.files().inject(n, {.error = EIO});
    try {
      const FileStore store{config_, io};
    } catch (const std::system_error&) {
      ++failed;
      for (const char* directory : {"/store", "/store-1", "/store-2"}) EXPECT_FALSE(io.files().exists(directory)) << n;
    }
  }
  EXPECT_GT(failed, 20U);
}

TEST_F(Stripes, a_directory_whose_device_fails_costs_its_blocks_and_what_builds_on_them) {
  open();
  const auto alone = roots(100, 24);
  const auto prefix = prefix_of(1, 8);
  h_->write(prefix);
  h_->write(alone);
  const auto lost_blocks = keys_in("/store-1");
  EXPECT_GT(lost_blocks.size(), 8U);
  disk().break_directory("/store-1");

  std::vector<StoreEvent> events = read_until_lost(alone);
  const auto later = settle();
  events.insert(events.end(), later.begin(), later.end());
  const auto gone = keys_of(events, Kind::evicted);
  // The third and fourth block of the prefix were there, and the last four depend on them.
  std::set<BlockKey> expected = lost_blocks;
  for (std::size_t n = 2; n < prefix.size(); ++n) expected.insert(prefix[n].key);
  EXPECT_EQ(std::set<BlockKey>(gone.begin(), gone.end()), expected);
  EXPECT_EQ(gone.size(), expected.size()) << "each is told once";

  for (const StoredBlock& block : alone) EXPECT_EQ(h_->reads_back(block.key), !expected.contains(block.key));
  EXPECT_TRUE(h_->reads_back(prefix[0].key));
  EXPECT_TRUE(h_->reads_back(prefix[1].key));
  const StoreStat stat = store().stat();
  EXPECT_EQ(stat.directories_lost, 1U);
  EXPECT_EQ(stat.capacity_blocks, 40U);
  EXPECT_EQ(stat.wanted_blocks, 40U);
  EXPECT_EQ(store().lost_directories(), std::vector<fs::path>{"/store-1"});
}

TEST_F(Stripes, goes_on_storing_in_the_directories_that_are_left) {
  open();
  const auto first = roots(1, 60);
  h_->write(first);
  disk().break_directory("/store-2");
  read_until_lost(first);
  settle();
  const auto more = roots(1000, 80);
  for (const StoredBlock& block : more) {
    EXPECT_FALSE(outcome(h_->write({block}), Kind::written, block.key));
    EXPECT_NE(directory_of(block.key), "/store-2");
  }
  EXPECT_EQ(store().stat().blocks, 40U);
  store().flush(5);
  EXPECT_FALSE(outcome(h_->drain(), Kind::flushed, {}));
}

TEST_F(Stripes, a_bad_piece_of_a_medium_is_no_loss_of_the_directory) {
  open();
  const auto blocks = roots(1, 60);
  h_->write(blocks);
  // Both blocks of two stripes in /store-1 cannot be read, in every attempt.
  std::vector<StoredBlock> bad;
  for (const StoredBlock& block : blocks) {
    if (directory_of(block.key) == "/store-1" && bad.size() < 4) bad.push_back(block);
  }
  for (int round = 0; round < 2; ++round) {
    for (const StoredBlock& block : bad) {
      disk().inject(disk().next_number(), {.error = EIO});
      h_->start_read(block.key);
      h_->drain();
      EXPECT_TRUE(h_->reads_back(blocks[0].key));
    }
  }
  EXPECT_EQ(store().stat().directories_lost, 0U);
  EXPECT_EQ(store().stat().blocks, 56U) << "those four are given up as ever";
}

TEST_F(Stripes, what_fails_everywhere_loses_no_directory) {
  open();
  const auto blocks = roots(1, 60);
  h_->write(blocks);
  for (const char* directory : {"/store", "/store-1", "/store-2"}) disk().break_directory(directory);
  for (const StoredBlock& block : blocks) EXPECT_EQ(h_->read(block.key), Errc::io_failed);
  EXPECT_EQ(store().stat().directories_lost, 0U);
  for (const char* directory : {"/store", "/store-1", "/store-2"}) disk().mend_directory(directory);
  for (const StoredBlock& block : blocks) EXPECT_TRUE(h_->reads_back(block.key)) << "one failed read gives nothing up";
}

TEST_F(Stripes, what_is_lost_and_not_given_up_yet_is_a_miss_and_takes_nothing) {
  config_ = striped_config_for("/store", 6000, 3, stripe_blocks);
  open();
  const auto blocks = roots(1, 4000);
  h_->write(blocks);
  std::vector<StoredBlock> there;
  for (const StoredBlock& block : blocks) {
    if (directory_of(block.key) == "/store-1") there.push_back(block);
  }
  disk().break_directory("/store-1");
  for (std::size_t n = 0; store().stat().directories_lost == 0; ++n) {
    ASSERT_LT(n, 20U);
    h_->start_read(there[n].key);
    h_->start_read(blocks[0].key);
    while (io_.in_flight() > 0 && store().stat().directories_lost == 0) {
      h_->advance();
      store().poll(ignored_);
    }
  }
  ASSERT_GT(store().stat().blocks, 3000U) << "most is still to be given up";
  const std::uint64_t errors = store().stat().io_errors;
  const std::uint64_t operations = disk().next_number();
  h_->start_read(there.back().key);
  EXPECT_EQ(disk().next_number(), operations) << "without asking the device";
  // Free slots begin at 4000. The lost slots there have not been processed yet.
  const auto more = roots(10'000, 6);
  h_->start_write(more);
  const auto events = settle();
  EXPECT_EQ(outcome(events, Kind::read, there.back().key), Errc::not_found);
  std::size_t refused = 0;
  for (const StoredBlock& block : more) refused += outcome(events, Kind::written, block.key) == Errc::refused ? 1 : 0;
  EXPECT_EQ(refused, stripe_blocks);
  EXPECT_EQ(store().stat().io_errors, errors);
}

TEST_F(Stripes, closing_gives_up_all_that_is_lost) {
  config_ = striped_config_for("/store", 6000, 3, stripe_blocks);
  open();
  const auto blocks = roots(1, 4000);
  h_->write(blocks);
  // The blocks that one poll processes are gone already.
  std::vector<BlockKey> first;
  for (std::size_t n = 0; n < 3900; ++n) first.push_back(blocks[n].key);
  store().remove(first, 1);
  settle();
  const std::size_t lost = keys_in("/store-1").size();
  ASSERT_GT(lost, 20U);
  disk().break_directory("/store-1");
  EXPECT_FALSE(store().close().has_error());
  EXPECT_EQ(store().stat().blocks, 100 - lost);
  disk().mend_directory("/store-1");
  reopen();
  EXPECT_EQ(keys_in("/store-1").size(), 0U);
  EXPECT_EQ(store().stat().blocks, 100 - lost);
}

TEST_F(Stripes, a_sync_that_fails_in_one_costs_that_directory_and_this_flush) {
  open();
  const auto blocks = roots(1, 30);
  h_->write(blocks);
  disk().break_directory("/store-1");
  store().flush(1);
  EXPECT_EQ(outcome(h_->drain(), Kind::flushed, {}), errno_code(EIO));
  settle();
  EXPECT_EQ(store().stat().directories_lost, 1U);
  store().flush(2);
  EXPECT_FALSE(outcome(h_->drain(), Kind::flushed, {})) << "what is left is durable";
  const auto left = blocks_in(store());
  EXPECT_EQ(left.size(), 20U);

  SimulatedIo after{disk().left_by(SimulatedFiles::End::power_failure)};
  SimulatedHarness again{after, config_};
  for (const StoredBlock& block : left) EXPECT_TRUE(again.reads_back(block.key));
  EXPECT_EQ(again.store().stat().blocks, 20U) << "the disk is back, and what was given up stays given up";
  EXPECT_EQ(again.store().stat().directories_lost, 0U);
}

TEST_F(Stripes, a_sync_that_fails_in_all_leaves_the_store_in_doubt) {
  open();
  h_->write(roots(1, 30));
  for (const char* directory : {"/store", "/store-1", "/store-2"}) disk().break_directory(directory);
  store().flush(1);
  EXPECT_TRUE(outcome(h_->drain(), Kind::flushed, {}));
  for (const char* directory : {"/store", "/store-1", "/store-2"}) disk().mend_directory(directory);
  store().flush(2);
  EXPECT_TRUE(outcome(h_->drain(), Kind::flushed, {}));
  EXPECT_EQ(store().stat().directories_lost, 2U) << "the last is in doubt, and not lost";
}

TEST_F(Stripes, a_directory_that_fails_while_the_store_closes_is_given_up_then) {
  open();
  h_->write(roots(1, 30));
  disk().break_directory("/store-2");
  EXPECT_FALSE(store().close().has_error());
  EXPECT_EQ(blocks_in(store()).size(), 20U);
  disk().mend_directory("/store-2");
  reopen();
  EXPECT_EQ(store().stat().blocks, 20U);
}

TEST_F(Stripes, grows_and_shrinks_over_all_of_them_through_several_files) {
  config_ = striped_config_for("/store", 12, 3, stripe_blocks);
  config_.data_file_bytes_max = config_.block_bytes * 4;
  open();
  h_->write(prefix_of(1, 12));
  ASSERT_FALSE(store().resize(64).has_error());
  settle();
  EXPECT_EQ(store().stat().capacity_blocks, 64U);
  h_->write(roots(100, 52));
  EXPECT_EQ(store().stat().blocks, 64U);
  EXPECT_EQ(keys_in("/store").size(), 22U);
  EXPECT_EQ(keys_in("/store-1").size(), 22U);
  EXPECT_EQ(keys_in("/store-2").size(), 20U);
  EXPECT_TRUE(disk().exists("/store-2/blocks-0004"));
  config_.capacity = capacity_for(64, config_.block_bytes, 3);
  reopen();
  EXPECT_EQ(store().stat().blocks, 64U);
  for (const StoredBlock& block : blocks_in(store())) EXPECT_TRUE(h_->reads_back(block.key));

  ASSERT_FALSE(store().resize(20).has_error());
  settle();
  EXPECT_EQ(store().stat().blocks, 20U);
  for (const StoredBlock& block : blocks_in(store())) EXPECT_TRUE(h_->reads_back(block.key));
  config_.capacity = capacity_for(12, config_.block_bytes, 3);
  reopen();
  EXPECT_LE(store().stat().blocks, 20U);
  for (const StoredBlock& block : blocks_in(store())) EXPECT_TRUE(h_->reads_back(block.key));
}

TEST_F(Stripes, a_smaller_start_removes_the_files_of_every_directory) {
  config_ = striped_config_for("/store", 60, 3, stripe_blocks);
  config_.data_file_bytes_max = config_.block_bytes * 4;
  open();
  h_->write(prefix_of(1, 60));
  config_.capacity = capacity_for(9, config_.block_bytes, 3);
  reopen();
  EXPECT_EQ(blocks_in(store()).size(), 9U) << "the beginning of a prefix";
  for (const char* directory : {"/store", "/store-1", "/store-2"}) {
    EXPECT_TRUE(disk().exists(fs::path{directory} / "blocks-0000"));
    EXPECT_FALSE(disk().exists(fs::path{directory} / "blocks-0001")) << directory;
  }
  for (const StoredBlock& block : prefix_of(1, 9)) EXPECT_TRUE(h_->reads_back(block.key));
}

TEST_F(Stripes, watches_the_free_space_of_those_that_have_files) {
  // All blocks are in one stripe, so the other directories have no file.
  config_ = striped_config_for("/store", 80, 3, 80);
  config_.floor = config_.block_bytes * 10;
  disk().set_preallocates(false);
  disk().set_disk_bytes(config_.capacity + config_.block_bytes * 200);
  open();
  EXPECT_EQ(disk().files_in("/store-1").size(), 2U) << "lock and part";
  settle();
  const auto write_one_by_one = [&](const std::vector<StoredBlock>& blocks) {
    for (const StoredBlock& block : blocks) {
      h_->write({block});
      settle();
    }
  };
  write_one_by_one(roots(1, 40));
  EXPECT_EQ(store().stat().blocks, 40U);
  // Now something else fills the disk.
  disk().set_disk_bytes(disk().used_bytes() + config_.block_bytes * 8);
  write_one_by_one(roots(100, 200));
  EXPECT_LT(store().stat().blocks, 80U);
}

TEST_F(Stripes, does_not_grow_past_its_slots_while_a_directory_is_lost) {
  open();
  const auto blocks = roots(1, 60);
  h_->write(blocks);
  disk().break_directory("/store-1");
  read_until_lost(blocks);
  settle();
  ASSERT_FALSE(store().resize(30).has_error());
  settle();
  EXPECT_EQ(store().stat().capacity_blocks, 30U);
  ASSERT_FALSE(store().resize(100).has_error());
  settle();
  EXPECT_EQ(store().stat().capacity_blocks, 40U) << "what was closed is opened again";
  EXPECT_EQ(store().stat().wanted_blocks, 40U);
  EXPECT_EQ(store().stat().growth_error, errno_code(EIO));
}

/// Random operations in random order, and directories that fail at random times: everything that is served is right, and events
/// and content agree.
TEST_F(Stripes, property_whatever_happens_books_and_blocks_agree) {
  const std::uint64_t first = seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "TERRACE_SEED=" << seed);
    Random random{seed};
    SimulatedIo io;
    const auto directories = static_cast<std::uint32_t>(2 + random.below(3));
    FileStoreConfig config = striped_config_for("/store", 24, directories, static_cast<std::uint32_t>(1 + random.below(4)));
    if (random.below(2) == 0) config.data_file_bytes_max = config.block_bytes * 8;
    if (random.below(3) == 0) config.floor = Bytes{1};
    io.files().set_preallocates(random.below(3) != 0);
    auto h = std::make_unique<SimulatedHarness>(io, config, seed);
    std::set<BlockKey> there;
    const auto note = [&](const std::vector<StoreEvent>& events) {
      for (const StoreEvent& event : events) {
        if (event.kind == Kind::written && !event.error) there.insert(event.key);
        if (event.kind == Kind::evicted || event.kind == Kind::removed) there.erase(event.key);
      }
    };
    std::vector<StoredBlock> known{root_block(1)};
    for (std::uint64_t step = 0; step < 120; ++step) {
      switch (random.below(8)) {
        case 0: known.push_back(root_block(1000 + step)); [[fallthrough]];
        case 1: known.push_back(child_of(known[random.below(known.size())], 2000 + step)); [[fallthrough]];
        case 2:
        case 3: h->start_write({known[known.size() - 1 - random.below(std::min<std::uint64_t>(known.size(), 6))]}); break;
        case 4:
        case 5: h->start_read(known[random.below(known.size())].key); break;
        case 6: h->store().flush(step); break;
        case 7:
          if (random.below(6) == 0) {
            io.files().break_directory("/store-1");
          } else if (random.below(3) == 0) {
            (void)h->store().resize(Blocks{static_cast<std::uint32_t>(4 + random.below(40))});
          }
          break;
      }
      for (std::uint64_t n = random.below(4); n > 0 && h->store().in_flight() > 0; --n) h->advance();
      std::vector<StoreEvent> events;
      h->store().poll(events);
      note(events);
      h->store().check_invariants();
    }
    for (int n = 0; n < 20; ++n) note(h->drain());
    std::set<BlockKey> stored;
    for (const StoredBlock& block : blocks_in(h->store())) stored.insert(block.key);
    EXPECT_EQ(stored, there);
    for (const BlockKey& key : stored) (void)h->read(key);  // a read returns the right bytes or an error
  }
}

}  // namespace
}  // namespace terrace::test
