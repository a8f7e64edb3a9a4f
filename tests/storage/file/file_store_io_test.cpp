// How a file store reacts to I/O that fails, stalls, or has to wait.

#include "storage/file/file_store.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class FileStoreIo : public OnSimulatedDisk {};

TEST_F(FileStoreIo, a_read_that_fails_once_is_forgiven_and_twice_is_not) {
  const auto h = open();
  const auto prefix = prefix_of(1, 3);
  h->write(prefix);
  const auto fail_next = [&] { io_.files().inject(io_.files().next_number(), {.error = EIO}); };
  fail_next();
  EXPECT_EQ(h->read(prefix[1].key), Errc::io_failed);
  EXPECT_TRUE(h->reads_back(prefix[1].key));
  fail_next();
  EXPECT_EQ(h->read(prefix[1].key), Errc::io_failed);
  io_.files().inject(io_.files().next_number(), {.bytes_max = block_size - 512});
  EXPECT_EQ(h->read(prefix[1].key), Errc::io_failed) << "a short read is a failed one";
  EXPECT_EQ(blocks_in(h->store()), std::vector{prefix[0]});
  EXPECT_EQ(h->store().stat().io_errors, 3U);
  EXPECT_EQ(h->store().stat().corrupt, 0U);
}

TEST_F(FileStoreIo, a_short_write_is_a_failed_one) {
  const auto h = open(4);
  io_.files().inject(io_.files().next_number(), {.bytes_max = 4096});
  EXPECT_EQ(outcome(h->write({root_block(1)}), Kind::written, key_of(1)), Errc::io_failed);
  EXPECT_EQ(h->store().stat().quarantined, 1U);
}

TEST_F(FileStoreIo, no_space_is_full_and_costs_no_slot) {
  const auto h = open(4);
  for (const int error : {ENOSPC, EDQUOT}) {
    io_.files().inject(io_.files().next_number(), {.error = error});
    EXPECT_EQ(outcome(h->write({root_block(1)}), Kind::written, key_of(1)), Errc::full);
  }
  EXPECT_EQ(h->store().stat().free, 4U);
  EXPECT_EQ(h->store().stat().io_errors, 0U);
  EXPECT_FALSE(outcome(h->write({root_block(1)}), Kind::written, key_of(1)));
}

TEST_F(FileStoreIo, a_bit_that_flips_on_its_way_to_the_disk_is_found_on_the_way_back) {
  const auto h = open(4);
  io_.files().inject(io_.files().next_number(), {.flip = true});
  EXPECT_FALSE(outcome(h->write({root_block(1)}), Kind::written, key_of(1)));
  EXPECT_EQ(h->read(key_of(1)), Errc::corrupt);
}

TEST_F(FileStoreIo, one_stalled_write_holds_up_nobody_but_its_descendants) {
  const auto h = open();
  const auto prefix = prefix_of(1, 3);
  io_.files().inject(io_.files().next_number(), {.stall = true});
  h->start_write({prefix[0]});
  h->start_write({prefix[1], root_block(50)});
  std::vector<StoreEvent> events;
  while (io_.queued() > 0) {
    io_.step(0);
    h->store().poll(events);
  }
  EXPECT_EQ(keys_of(events, Kind::written), std::vector{key_of(50)});
  EXPECT_EQ(h->store().stat().writing, 2U);
  EXPECT_EQ(h->store().in_flight(), 2U);
  h->store().check_invariants();
  io_.release_stalled();
  EXPECT_EQ(keys_of(h->drain(), Kind::written), (std::vector{prefix[0].key, prefix[1].key}));
}

TEST_F(FileStoreIo, closing_waits_for_what_is_under_way) {
  const auto prefix = prefix_of(1, 3);
  {
    const auto h = open();
    io_.files().inject(io_.files().next_number() + 1, {.stall = true});
    h->start_write(prefix);
    EXPECT_FALSE(h->store().close().has_error());
    EXPECT_EQ(io_.in_flight(), 0U);
    std::vector<StoreEvent> events;
    EXPECT_EQ(h->store().poll(events), 3U) << "the events can still be had";
    EXPECT_FALSE(h->store().close().has_error()) << "and again does nothing";
  }
  EXPECT_EQ(blocks_in(open()->store()), prefix);
}

TEST_F(FileStoreIo, a_record_that_could_not_be_written_is_written_by_close) {
  const auto prefix = prefix_of(1, 3);
  {
    const auto h = open();
    h->write({prefix[0]});
    // The next write of a page fails. Blocks are written before it.
    h->start_write({prefix[1]});
    io_.files().inject(io_.files().next_number(), {.error = EIO});
    h->drain();
    while (h->store().unwritten_pages() > 0) {
      h->advance();
      h->drain();
    }
    EXPECT_EQ(h->store().stat().io_errors, 1U);
    EXPECT_TRUE(h->reads_back(prefix[1].key)) << "served all the same";
    EXPECT_FALSE(h->store().close().has_error());
  }
  EXPECT_EQ(blocks_in(open()->store()).size(), 2U);
}

TEST_F(FileStoreIo, no_catalog_page_is_written_twice_at_once) {
  // All records of this store are in one page. While page writes are held back, at most one can have been submitted.
  const auto h = open(30);
  for (std::uint64_t n = 0; n < 20; ++n) {
    h->start_write({root_block(n)});
    io_.step(io_.queued() - 1);  // the write of the block; a write of the page would have been submitted before it
    std::vector<StoreEvent> events;
    h->store().poll(events);
    ASSERT_LE(io_.queued(), 1U);
  }
  EXPECT_EQ(h->store().stat().blocks, 20U);
}

TEST_F(FileStoreIo, more_writes_than_the_bound_are_refused) {
  auto config = config_for("/store", 10);
  config.writes_max = 2;
  const auto h = open(config);
  const auto events = h->write({root_block(1), root_block(2), root_block(3)});
  EXPECT_EQ(outcome(events, Kind::written, key_of(3)), Errc::refused);
  EXPECT_EQ(h->store().stat().blocks, 2U);
  EXPECT_FALSE(outcome(h->write({root_block(3)}), Kind::written, key_of(3)));
}

}  // namespace
}  // namespace terrace::test
