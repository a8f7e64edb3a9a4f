// A store that is resized while it serves: every kind of store, and the disk space of real files.

#include "tests/storage/fixtures.hpp"
#include "tests/storage/resizing.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cerrno>
#include <memory>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;
namespace fs = std::filesystem;

class ResizedStore : public EveryStore {};

INSTANTIATE_TEST_SUITE_P(Stores, ResizedStore, testing::ValuesIn(store_kinds()),
                         [](const auto& param) { return to_string(param.param); });

TEST_P(ResizedStore, a_larger_store_keeps_what_it_has_and_takes_more) {
  StoreHarness& h = make(4);
  for (std::uint64_t n = 0; n < 4; ++n) h.write({root_block(n)});
  EXPECT_TRUE(resize(h, 100).empty()) << "nobody goes";
  for (std::uint64_t n = 4; n < 100; ++n) h.write({root_block(n)});
  EXPECT_EQ(h.store().stat().blocks, 100U);
  EXPECT_EQ(h.store().stat().capacity_blocks, 100U);
  for (std::uint64_t n = 0; n < 100; ++n) EXPECT_TRUE(h.reads_back(key_of(n))) << n;
  EXPECT_EQ(keys_of(h.write({root_block(200)}), Kind::evicted), std::vector{key_of(0)});
}

TEST_P(ResizedStore, a_smaller_store_keeps_the_blocks_used_last) {
  StoreHarness& h = make(10);
  const auto prefix = prefix_of(100, 4);
  h.write(prefix);
  for (std::uint64_t n = 0; n < 5; ++n) h.write({root_block(n)});
  const auto key = prefix[1].key;
  h.store().touch({&key, 1});  // its children are still the oldest blocks
  const auto gone = keys_of(resize(h, 4), Kind::evicted);
  EXPECT_EQ(gone, (std::vector{prefix[3].key, prefix[2].key, key_of(0), key_of(1), key_of(2)}));
  const StoreStat stat = h.store().stat();
  EXPECT_EQ(stat.capacity_blocks, 4U);
  EXPECT_EQ(stat.blocks, 4U);
  EXPECT_EQ(stat.evicted, 5U);
  for (const BlockKey& kept : {prefix[0].key, prefix[1].key, key_of(3), key_of(4)}) EXPECT_TRUE(h.reads_back(kept));
  EXPECT_EQ(keys_of(h.write({root_block(50)}), Kind::evicted).size(), 1U) << "it stays that small";
  EXPECT_EQ(h.store().stat().blocks, 4U);
}

TEST_P(ResizedStore, free_slots_go_first) {
  StoreHarness& h = make(10);
  h.write(prefix_of(1, 3));
  EXPECT_TRUE(resize(h, 3).empty());
  EXPECT_TRUE(resize(h, 10).empty());
  EXPECT_EQ(h.store().stat().free, 7U);
}

TEST_P(ResizedStore, what_is_read_and_written_goes_when_that_has_ended) {
  StoreHarness& h = make(6);
  const auto prefix = prefix_of(1, 3);
  h.write(prefix);
  const std::uint64_t token = h.start_read(prefix[2].key);
  h.start_write({child_of(prefix[2], 20), root_block(30)});
  ASSERT_TRUE(h.store().resize(1).has_value());
  expect_ledger(h.store());
  const auto events = settle(h);
  EXPECT_FALSE(outcome(events, Kind::read, prefix[2].key));
  EXPECT_TRUE(holds(h.content(token), prefix[2].key));
  EXPECT_FALSE(outcome(events, Kind::written, key_of(20)));
  EXPECT_FALSE(outcome(events, Kind::written, key_of(30)));
  EXPECT_EQ(keys_of(events, Kind::evicted).size(), 4U);
  EXPECT_EQ(h.store().stat().blocks, 1U);
}

TEST_P(ResizedStore, another_resize_takes_the_first_ones_place) {
  StoreHarness& h = make(8);
  for (std::uint64_t n = 0; n < 8; ++n) h.write({root_block(n)});
  ASSERT_TRUE(h.store().resize(3).has_value());
  ASSERT_TRUE(h.store().resize(40).has_value());
  ASSERT_TRUE(h.store().resize(12).has_value());
  settle(h);
  EXPECT_EQ(h.store().stat().capacity_blocks, 12U);
  EXPECT_GE(h.store().stat().blocks, 3U);
  for (const StoredBlock& block : blocks_in(h.store())) EXPECT_TRUE(h.reads_back(block.key));
  for (std::uint64_t n = 100; n < 112; ++n) EXPECT_FALSE(outcome(h.write({root_block(n)}), Kind::written, key_of(n)));
  EXPECT_EQ(h.store().stat().blocks, 12U);
}

TEST_P(ResizedStore, no_size_at_all_is_refused) {
  StoreHarness& h = make(2);
  EXPECT_EQ(h.store().resize(0).error(), Errc::invalid_argument);
  EXPECT_EQ(h.store().resize(0xFFFF'FFFF).error(), Errc::never_fits);
  EXPECT_EQ(h.store().stat().wanted_blocks, 2U);
}

// Real files.

std::uint64_t taken(const fs::path& directory) {
  std::uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator{directory}) {
    struct stat found {};
    EXPECT_EQ(::stat(entry.path().c_str(), &found), 0);
    total += static_cast<std::uint64_t>(found.st_blocks) * 512;
  }
  return total;
}

class ResizedFiles : public OnRealDisk {
 protected:
  TemporaryDirectory directory_;
  FileStoreConfig config_ = config_for(directory_.path() / "store", 8);
};

INSTANTIATE_TEST_SUITE_P(Engines, ResizedFiles, testing::ValuesIn(kinds_on_disk()),
                         [](const auto& param) { return to_string(param.param); });

TEST_P(ResizedFiles, room_of_the_disk_comes_and_goes_with_the_size) {
  config_.data_file_bytes_max = Bytes{50 * block_size};
  config_.growth_piece_bytes = Bytes{20 * block_size};
  {
    const auto h = open(config_);
    resize(*h, 200);
    for (std::uint64_t n = 0; n < 200; ++n) h->write({root_block(n)});
    const std::uint64_t large = taken(config_.directory);
    EXPECT_GE(large, 200 * block_size);
    resize(*h, 20);
    EXPECT_EQ(h->store().stat().room_kept, 0U);
    EXPECT_LE(taken(config_.directory), large - 180 * block_size);
    for (std::uint64_t n = 180; n < 200; ++n) EXPECT_TRUE(h->reads_back(key_of(n)));
    struct stat found {};
    ASSERT_EQ(::stat((config_.directory / "blocks-0003").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777U, 0600U);
  }
  config_.capacity = capacity_for(20, config_.block_bytes);
  const auto h = open(config_);
  settle(*h);
  EXPECT_EQ(h->store().stat().blocks, 20U);
  for (std::uint64_t n = 180; n < 200; ++n) EXPECT_TRUE(h->reads_back(key_of(n)));
}

TEST_P(ResizedFiles, keep_their_room_where_the_file_system_has_no_holes) {
  calls_.no_holes = true;
  const auto h = open(config_);
  h->write(prefix_of(1, 3));
  resize(*h, 3);
  EXPECT_EQ(h->store().stat().room_kept, 5U);
  EXPECT_EQ(h->store().stat().io_errors, 0U);
  EXPECT_TRUE(h->reads_back(key_of(3)));
}

TEST_P(ResizedFiles, an_error_of_the_file_system_is_told) {
  const auto h = open(config_);
  calls_.fallocate_error = EDQUOT;
  ASSERT_TRUE(h->store().resize(30).has_value());
  settle(*h);
  EXPECT_EQ(h->store().stat().capacity_blocks, 8U);
  EXPECT_EQ(h->store().stat().growth_error, errno_code(EDQUOT));
  calls_.fallocate_error = EOPNOTSUPP;  // disk space is allocated when it is needed
  resize(*h, 30);
  for (std::uint64_t n = 0; n < 30; ++n) h->write({root_block(n)});
  EXPECT_EQ(h->store().stat().blocks, 30U);
}

}  // namespace
}  // namespace terrace::test
