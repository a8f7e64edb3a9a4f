// The promise of a flush: blocks whose writes were reported before it survive a power failure.

#include "storage/file/file_store.hpp"

#include "base/random.hpp"
#include "storage/file/dirty_pages.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class FileStoreFlush : public testing::Test {
 protected:
  void open() { h_ = std::make_unique<SimulatedHarness>(io_, config); }

  /// Flushes, and returns the result.
  ErrorCode flush() {
    h_->store().flush(7);
    const auto events = h_->drain();
    return outcome(events, Kind::flushed, {});
  }
  /// The disk after a power failure at this moment.
  [[nodiscard]] SimulatedIo after_power_failure() { return SimulatedIo{io_.files().left_by(SimulatedFiles::End::power_failure)}; }
  const FileStoreConfig config = config_for("/store", 40);
  SimulatedIo io_;
  std::unique_ptr<SimulatedHarness> h_;
};

TEST_F(FileStoreFlush, what_was_written_before_it_survives_a_power_failure) {
  open();
  const auto prefix = prefix_of(1, 20);
  h_->write(prefix);
  EXPECT_FALSE(flush());
  SimulatedIo after = after_power_failure();
  SimulatedHarness again{after, config};
  EXPECT_EQ(blocks_in(again.store()), prefix);
  for (const StoredBlock& block : prefix) EXPECT_TRUE(again.reads_back(block.key));
}

TEST_F(FileStoreFlush, of_a_store_in_one_directory_succeeds_whatever_id_a_striped_one_would_have) {
  FileStoreConfig with_id = config;
  with_id.id = 4713;
  for (const char* const start : {"new", "again"}) {
    SCOPED_TRACE(start);
    SimulatedHarness h{io_, with_id};
    h.write(prefix_of(1, 5));
    h.store().flush(7);
    EXPECT_FALSE(outcome(h.drain(), Kind::flushed, {}));
    EXPECT_EQ(h.store().durability_lost(), "");
    EXPECT_FALSE(h.store().close().has_error());
  }
}

TEST_F(FileStoreFlush, without_one_a_power_failure_takes_what_it_likes_and_nothing_wrong_is_served) {
  open();
  h_->write(prefix_of(1, 20));
  SimulatedIo after = after_power_failure();
  SimulatedHarness again{after, config};
  EXPECT_TRUE(blocks_in(again.store()).empty());
}

TEST_F(FileStoreFlush, a_smaller_size_is_durable_with_it_so_that_a_start_of_that_size_cuts_nothing) {
  for (const bool closes : {false, true}) {
    SCOPED_TRACE(closes ? "closed" : "flushed");
    io_ = SimulatedIo{};
    open();
    std::vector<StoredBlock> blocks;
    std::vector<BlockKey> first;
    for (std::uint64_t n = 1; n <= 30; ++n) blocks.push_back(root_block(n));
    h_->write(blocks);
    for (std::size_t n = 0; n < 20; ++n) first.push_back(blocks[n].key);
    h_->store().remove(first, 1);
    EXPECT_FALSE(flush());
    ASSERT_FALSE(h_->store().resize(15).has_error()) << "nothing has to go, and what is here lies behind slot 20";
    if (closes) {
      EXPECT_FALSE(h_->store().close().has_error());
    } else {
      EXPECT_FALSE(flush());
    }
    SimulatedIo after = after_power_failure();
    h_.reset();
    FileStoreConfig smaller = config;
    smaller.capacity = capacity_for(15, config.block_bytes);
    SimulatedHarness again{after, smaller};
    for (std::size_t n = 20; n < 30; ++n) EXPECT_TRUE(again.reads_back(blocks[n].key)) << n;
  }
}

TEST_F(FileStoreFlush, a_smaller_size_that_could_not_be_written_down_is_tried_again) {
  open();
  std::vector<StoredBlock> blocks;
  for (std::uint64_t n = 1; n <= 30; ++n) blocks.push_back(root_block(n));
  h_->write(blocks);
  h_->store().remove(std::vector{blocks[0].key}, 1);
  EXPECT_FALSE(flush());
  const std::uint64_t errors = h_->store().stat().io_errors;
  io_.files().inject(io_.files().next_number() + 1, {.error = EIO});  // after the first hole
  ASSERT_FALSE(h_->store().resize(29).has_error());
  while (io_.in_flight() > 0) {
    h_->advance();
    h_->drain();
  }
  EXPECT_EQ(h_->store().stat().io_errors, errors + 1);
  EXPECT_FALSE(flush());
  SimulatedIo after = after_power_failure();
  FileStoreConfig smaller = config;
  smaller.capacity = capacity_for(29, config.block_bytes);
  SimulatedHarness again{after, smaller};
  EXPECT_TRUE(again.reads_back(blocks[29].key)) << "slot 29 is behind those that a cut would leave";
}

TEST_F(FileStoreFlush, what_was_removed_before_it_does_not_come_back) {
  open();
  const auto prefix = prefix_of(1, 6);
  h_->write(prefix);
  EXPECT_FALSE(flush());
  h_->store().remove({&prefix[3].key, 1}, 1);
  h_->drain();
  EXPECT_FALSE(flush());
  SimulatedIo after = after_power_failure();
  SimulatedHarness again{after, config};
  EXPECT_EQ(blocks_in(again.store()), (std::vector<StoredBlock>{prefix.begin(), prefix.begin() + 3}));
}

TEST_F(FileStoreFlush, those_asked_for_while_one_is_under_way_share_the_next) {
  open();
  h_->write({root_block(1)});
  h_->store().flush(1);
  const std::uint64_t before = io_.files().next_number();
  for (std::uint64_t token = 2; token < 50; ++token) h_->store().flush(token);
  EXPECT_EQ(io_.files().next_number(), before);
  EXPECT_EQ(keys_of(h_->drain(), Kind::flushed).size(), 49U);
  EXPECT_LE(io_.files().next_number(), before + 10) << "one more round, and not 48";
}

TEST_F(FileStoreFlush, where_nothing_has_changed_only_looks_whether_all_is_there) {
  open();
  h_->write({root_block(1)});
  EXPECT_FALSE(flush());
  const std::uint64_t before = io_.files().next_number();
  EXPECT_FALSE(flush());
  EXPECT_EQ(io_.files().next_number(), before + 4) << "lock, catalog, data and superblock";
}

TEST_F(FileStoreFlush, a_page_that_cannot_be_written_fails_it_and_the_next_one_tries_again) {
  open();
  h_->start_write({root_block(1)});
  while (h_->store().stat().writing > 0) {
    h_->advance();
    std::vector<StoreEvent> events;
    io_.files().inject(io_.files().next_number(), {.error = EIO});  // the page that poll submits
    h_->store().poll(events);
  }
  EXPECT_EQ(h_->store().unwritten_pages(), 1U);
  EXPECT_EQ(flush(), Errc::io_failed);
  EXPECT_FALSE(flush());
  SimulatedIo after = after_power_failure();
  SimulatedHarness again{after, config};
  EXPECT_TRUE(again.reads_back(key_of(1)));
}

TEST_F(FileStoreFlush, a_sync_that_fails_leaves_it_in_doubt_for_good) {
  open();
  h_->write({root_block(1)});
  while (h_->store().unwritten_pages() > 0) {
    h_->advance();
    h_->drain();
  }
  io_.files().inject(io_.files().next_number(), {.error = EIO});
  EXPECT_EQ(flush().value(), EIO);
  EXPECT_EQ(flush().value(), EIO) << "the second sync knows nothing of what the first one lost";
  EXPECT_TRUE(h_->reads_back(key_of(1))) << "reads are verified, and go on";
  EXPECT_EQ(h_->store().close().error().value(), EIO);
}

TEST_F(FileStoreFlush, one_under_way_when_the_store_is_closed_is_told_of) {
  open();
  h_->write(prefix_of(1, 5));
  h_->store().flush(1);
  h_->store().flush(2);
  EXPECT_FALSE(h_->store().close().has_error());
  std::vector<StoreEvent> events;
  h_->store().poll(events);
  EXPECT_EQ(keys_of(events, Kind::flushed).size(), 2U);
}

/// Random writes, removals and flushes, with I/O in any order. The power fails at the moment when a flush is reported.
TEST_F(FileStoreFlush, promises_no_more_than_it_keeps_whatever_the_order) {
  constexpr std::uint32_t capacity = 100;  // four catalog pages
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedIo io;
    SimulatedHarness h{io, config_for("/store", capacity), seed};
    Random random{seed};
    std::set<std::uint64_t> told;                               // first bytes of the keys that were written and not dropped
    std::map<std::uint64_t, std::set<std::uint64_t>> promised;  // by the token of a flush: the blocks that it promises
    std::uint64_t next_prefix = 1000;
    std::uint64_t next_flush = 1;
    std::map<std::uint64_t, BlockKey> keys;
    int checked = 0;
    const auto on_flushed = [&](std::uint64_t token) {
      SimulatedIo after{io.files().left_by(SimulatedFiles::End::power_failure)};
      SimulatedHarness again{after, config_for("/store", capacity)};
      for (const std::uint64_t key : promised[token]) {
        EXPECT_TRUE(again.reads_back(keys[key])) << "promised by flush " << token;
      }
      for (const StoredBlock& block : blocks_in(again.store())) {
        const ErrorCode error = again.read(block.key);
        EXPECT_TRUE(!error || error == Errc::corrupt || error == Errc::not_found);
      }
      ++checked;
    };
    const auto note = [&] {
      std::vector<StoreEvent> events;
      h.store().poll(events);
      for (const StoreEvent& event : events) {
        if (event.kind == Kind::written && !event.error) {
          told.insert(event.key.prefix64());
          keys[event.key.prefix64()] = event.key;
        }
        if (event.kind == Kind::removed || event.kind == Kind::evicted) {
          told.erase(event.key.prefix64());
          for (auto& [token, blocks] : promised) blocks.erase(event.key.prefix64());
        }
      }
      for (const StoreEvent& event : events) {
        if (event.kind != Kind::flushed) continue;
        EXPECT_FALSE(event.error);
        on_flushed(event.token);
        promised.erase(event.token);
      }
    };
    for (int step = 0; step < 400; ++step) {
      switch (random.below(12)) {
        case 0: {
          h.start_write(prefix_of(next_prefix, 1 + static_cast<std::uint32_t>(random.below(8))));
          next_prefix += 10;
          break;
        }
        case 1:
          if (random.below(4) == 0 && !told.empty()) {
            const BlockKey key = keys[*told.begin()];
            h.store().remove({&key, 1}, 5);
          }
          break;
        case 2:
          promised[next_flush] = told;
          h.store().flush(next_flush++);
          break;
        default:
          if (io.queued() > 0) h.advance();
          break;
      }
      if (random.below(3) == 0) note();
    }
    EXPECT_GT(checked, 0);
  }
}

TEST(DirtyPagesOwed, are_those_not_written_as_they_were_when_it_began) {
  DirtyPages pages{10, 2};
  using Outcome = DirtyPages::Outcome;
  pages.mark(1);
  pages.mark(2);
  pages.mark(3);
  EXPECT_EQ(pages.take(), 1U);
  EXPECT_EQ(pages.take(), 2U);
  pages.mark(1);  // its image is out of date
  pages.begin_owing();
  EXPECT_EQ(pages.owed(), 3U);
  pages.mark(2);  // newer than the write that is owed
  pages.mark(4);
  pages.ended(1, Outcome::written);
  EXPECT_EQ(pages.owed(), 3U) << "an older image went out";
  pages.ended(2, Outcome::written);
  EXPECT_EQ(pages.owed(), 2U);
  EXPECT_EQ(pages.take(), 3U);
  pages.mark(3);
  pages.ended(3, Outcome::failed);
  EXPECT_EQ(pages.owed(), 2U) << "its next write will do";
  EXPECT_EQ(pages.take(), 4U);
  EXPECT_EQ(pages.take(), 1U);
  pages.ended(1, Outcome::written);
  EXPECT_EQ(pages.owed(), 1U);
  EXPECT_EQ(pages.take(), 2U);
  pages.ended(4, Outcome::failed);
  EXPECT_FALSE(pages.owed_failed()) << "nobody waits for it";
  EXPECT_EQ(pages.take(), 3U);
  pages.ended(3, Outcome::failed);
  EXPECT_EQ(pages.owed(), 0U);
  EXPECT_TRUE(pages.owed_failed());
}

}  // namespace
}  // namespace terrace::test
