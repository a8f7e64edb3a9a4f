// The start of a store whose files have holes or must grow, also if the disk has no space for that.

#include "storage/offline/store_reader.hpp"
#include "tests/storage/fixtures.hpp"
#include "tests/storage/holes.hpp"
#include "tests/storage/resizing.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

class SparseStart : public testing::Test {
 protected:
  static constexpr std::uint32_t slots = 40;
  static constexpr std::uint64_t blocks = 10;

  /// The store has 40 slots; those without a block have no disk space.
  void SetUp() override {
    config_.capacity = capacity_for(slots, config_.block_bytes);
    {
      const auto h = open();
      for (std::uint64_t n = 0; n < blocks; ++n) h->write({root_block(n)});
    }
    const std::uint64_t before = used();
    EXPECT_TRUE(punch_free_slots("/store", io_));
    EXPECT_EQ(before - used(), (slots - blocks) * block_size);
  }
  std::unique_ptr<SimulatedHarness> open() { return std::make_unique<SimulatedHarness>(io_, config_); }
  void idle(SimulatedHarness& h) {
    std::vector<StoreEvent> events;
    do {
      while (io_.queued() > 0) h.advance();
      h.store().poll(events);
      expect_ledger(h.store());
    } while (io_.queued() > 0);
  }
  [[nodiscard]] std::uint64_t used() { return count(io_.files().used_bytes()); }
  [[nodiscard]] std::uint64_t free_now() { return count(io_.files().free_space("/store").value()); }
  void leave_free(std::uint64_t bytes) { io_.files().set_disk_bytes(Bytes{used() + bytes}); }
  static void expect_blocks(SimulatedHarness& h) {
    for (std::uint64_t n = 0; n < blocks; ++n) EXPECT_TRUE(h.reads_back(key_of(n))) << n;
  }
  std::string refusal() {
    const std::system_error error = thrown_by([this] { (void)open(); });
    EXPECT_EQ(error.code(), std::errc::no_space_on_device);
    return error.what();
  }

  SimulatedIo io_;
  FileStoreConfig config_ = config_for("/store", slots);
};

TEST_F(SparseStart, takes_all_of_its_room_again_where_that_is_there) {
  const auto h = open();
  idle(*h);
  const StoreStat stat = h->store().stat();
  EXPECT_EQ(stat.capacity_blocks, slots);
  EXPECT_EQ(stat.free, slots - blocks);
  EXPECT_EQ(stat.growth_stopped, 0U);
  EXPECT_EQ(used(), count(config_.capacity) - catalog_page_bytes + lock_file_bytes);
  expect_blocks(*h);
}

TEST_F(SparseStart, where_the_room_is_gone_serves_its_blocks_and_has_the_slots_that_fit) {
  leave_free(5 * block_size);
  {
    const auto h = open();
    idle(*h);
    const StoreStat stat = h->store().stat();
    EXPECT_EQ(stat.capacity_blocks, blocks + 5);
    EXPECT_EQ(stat.growth_stopped, 1U);
    EXPECT_EQ(stat.growth_error, errno_code(ENOSPC));
    expect_blocks(*h);
    for (std::uint64_t n = 100; n < 120; ++n) {
      EXPECT_FALSE(outcome(h->write({root_block(n)}), StoreEvent::Kind::written, key_of(n))) << "within what it has";
    }
  }
  // At the next start there is space, and the slots can be used as before.
  leave_free(100 * block_size);
  const auto h = open();
  idle(*h);
  EXPECT_EQ(h->store().stat().capacity_blocks, slots);
}

TEST_F(SparseStart, leaves_the_floor_free) {
  config_.floor = Bytes{20 * block_size};
  leave_free(25 * block_size);
  const auto h = open();
  idle(*h);
  EXPECT_EQ(h->store().stat().capacity_blocks, blocks + 5);
  EXPECT_EQ(h->store().stat().floor_stopped, 1U);
  EXPECT_GE(free_now(), count(config_.floor));
  expect_blocks(*h);
}

TEST_F(SparseStart, below_the_floor_takes_nothing_and_serves_its_blocks) {
  config_.floor = Bytes{20 * block_size};
  leave_free(3 * block_size);
  const std::uint64_t before = used();
  const auto h = open();
  idle(*h);
  EXPECT_EQ(used(), before);
  EXPECT_EQ(h->store().stat().capacity_blocks, blocks);
  expect_blocks(*h);
}

TEST_F(SparseStart, that_is_refused_takes_nothing_and_says_the_largest_capacity_that_fits) {
  leave_free(7 * block_size);
  config_.capacity = capacity_for(60, config_.block_bytes);
  const std::uint64_t before = used();
  const std::string sentence = refusal();
  EXPECT_EQ(used(), before);
  const Bytes fits = capacity_for(47, config_.block_bytes);
  EXPECT_NE(sentence.find("the largest capacity that fits is " + to_string(fits)), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("has 56KiB free where 160KiB more are needed, "), std::string::npos) << sentence;
  config_.capacity = fits;
  const auto h = open();
  idle(*h);
  expect_blocks(*h);
}

TEST_F(SparseStart, that_meets_the_end_of_the_room_half_way_gives_back_exactly_what_it_took) {
  // Others take the space after the start has checked it: at each step of the start, with a part of what it needs.
  config_.capacity = capacity_for(100, config_.block_bytes);
  config_.data_file_bytes_max = Bytes{16 * block_size};
  std::uint64_t refused = 0;
  bool started = false;
  for (std::uint64_t step = 0; !started; ++step) {
    SCOPED_TRACE(step);
    SimulatedIo io{io_.files().left_by(SimulatedFiles::End::killed)};
    const Bytes before = io.files().used_bytes();
    const std::size_t files = io.files().files_in("/store").size();
    io.files().inject(io.files().next_number() + step, {.bytes_max = 3 * 4096});
    const std::uint64_t end = io.files().next_number() + step;
    try {
      SimulatedHarness h{io, config_};
      started = io.files().next_number() <= end;
      expect_blocks(h);
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::no_space_on_device) continue;  // a read or write of a few bytes
      ++refused;
      EXPECT_NE(std::string{error.what()}.find("the file system has "), std::string::npos) << error.what();
      EXPECT_EQ(io.files().used_bytes(), before);
      EXPECT_EQ(io.files().files_in("/store").size(), files);
    }
    ASSERT_LT(step, 200U);
  }
  EXPECT_GE(refused, 2U) << "the data and the catalog";
}

TEST_F(SparseStart, of_a_store_that_is_to_become_smaller_cuts_it_and_fills_the_rest) {
  config_.capacity = capacity_for(25, config_.block_bytes);
  leave_free(100 * block_size);
  const auto h = open();
  idle(*h);
  EXPECT_EQ(h->store().stat().capacity_blocks, 25U);
  EXPECT_EQ(h->store().stat().free, 15U);
  EXPECT_EQ(used(), count(config_.capacity) - catalog_page_bytes + lock_file_bytes);
  expect_blocks(*h);
}

TEST_F(SparseStart, of_a_killed_store_that_became_smaller_is_no_other) {
  config_.capacity = capacity_for(slots, config_.block_bytes);
  std::optional<SimulatedIo> left;
  {
    const auto h = open();
    idle(*h);
    resize(*h, blocks);
    idle(*h);
    left.emplace(io_.files().left_by(SimulatedFiles::End::killed));
  }
  left->files().set_disk_bytes(left->files().used_bytes() + Bytes{2 * block_size});
  SimulatedHarness h{*left, config_};
  while (left->queued() > 0) {
    h.advance();
    h.drain();
  }
  EXPECT_EQ(h.store().stat().capacity_blocks, blocks + 2);
  expect_blocks(h);
}

// Real files.

class SparseStartOnDisk : public testing::Test {
 protected:
  /// Stores two prefixes, the first one without its end, makes the store sparse, and starts it again.
  void expect_all_again(const FileStoreConfig& config) {
    const std::uint32_t slots =
        slots_within(config.capacity, block_size, static_cast<std::uint32_t>(config.more_directories.size() + 1));
    {
      ThreadsHarness h{config, calls_};
      h.write(prefix_of(1, 10));
      h.write(prefix_of(100, 20));
      const BlockKey key = key_of(5);
      h.store().remove({&key, 1}, 0);  // and the five blocks after it
      h.drain();
    }
    const Bytes before = StoreReader{config.directory}.allocated();
    {
      NullWaker nobody;
      ThreadedIo io{{.threads = 1}, nobody};
      ASSERT_TRUE(punch_free_slots(config.directory, io));
    }
    const StoreReader sparse{config.directory};
    EXPECT_LE(count(sparse.allocated()), count(before) - (slots - 24) * block_size);
    EXPECT_EQ(sparse.catalog().blocks().size(), 24U);
    AlignedBuffer scratch{block_size};
    for (const CatalogRecord& block : sparse.catalog().blocks()) {
      EXPECT_EQ(sparse.verify(block, scratch.span()).verdict, StoreReader::Verdict::verified);
    }

    ThreadsHarness h{config, calls_};
    settle_space(h);
    EXPECT_EQ(h.store().stat().capacity_blocks, slots);
    EXPECT_GE(count(StoreReader{config.directory}.allocated()), slots * block_size);
    for (std::uint64_t n = 1; n < 5; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
    for (std::uint64_t n = 100; n < 120; ++n) EXPECT_TRUE(h.reads_back(key_of(n)));
    h.write(prefix_of(200, slots - 24));
    EXPECT_TRUE(h.reads_back(key_of(200 + slots - 25)));
  }

  /// Waits until every slot is free or has a block.
  static void settle_space(StoreHarness& h) {
    std::vector<StoreEvent> events;
    for (StoreStat stat = h.store().stat(); stat.capacity_blocks < stat.wanted_blocks || stat.quarantined > 0;) {
      h.advance();
      h.store().poll(events);
      stat = h.store().stat();
    }
  }

  TemporaryDirectory directory_;
  FaultyCalls calls_;
};

TEST_F(SparseStartOnDisk, takes_the_room_of_every_file_again) {
  FileStoreConfig config = config_for(directory_.path() / "store", 100);
  config.data_file_bytes_max = Bytes{16 * block_size};
  expect_all_again(config);
}

TEST_F(SparseStartOnDisk, takes_the_room_in_every_directory_again) {
  expect_all_again(striped_config_for(directory_.path() / "store", 48, 3, 4));
}

}  // namespace
}  // namespace terrace::test
