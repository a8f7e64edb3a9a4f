// The blocks that a file store finds again after a restart, and those that it does not serve.

#include "storage/file/file_store.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class FileStoreTest : public OnSimulatedDisk {
 protected:
  [[nodiscard]] std::span<std::byte> data() { return io_.files().content("/store/blocks-0000"); }
  [[nodiscard]] std::span<std::byte> catalog() { return io_.files().content("/store/catalog"); }
  [[nodiscard]] std::span<std::byte> record(std::uint64_t slot) {
    return catalog().subspan(catalog_page_bytes + slot * record_bytes, record_bytes);
  }
};

TEST_F(FileStoreTest, a_closed_store_has_everything_when_it_is_opened_again) {
  auto prefix = prefix_of(1, 20);
  prefix.push_back(child_of(prefix[4], 50));
  prefix.push_back(root_block(60));
  {
    const auto h = open();
    h->write(prefix);
    EXPECT_FALSE(h->store().close().has_error());
    EXPECT_EQ(blocks_in(h->store()).size(), 22U) << "the index can still be looked at";
  }
  io_.files().lose_unsynced();
  const auto h = open();
  const auto there = blocks_in(h->store());
  EXPECT_TRUE(std::is_permutation(there.begin(), there.end(), prefix.begin(), prefix.end()));
  for (const StoredBlock& block : prefix) EXPECT_TRUE(h->reads_back(block.key));
  EXPECT_FALSE(outcome(h->write({child_of(prefix.back(), 70)}), Kind::written, key_of(70)));
  EXPECT_EQ(h->store().stat().blocks, 23U);
}

TEST_F(FileStoreTest, keys_that_agree_in_their_first_eight_bytes_are_found_again_as_two_blocks) {
  std::vector<StoredBlock> blocks{root_block(1)};
  blocks.push_back(child_of(blocks[0], 2));
  blocks[1].key = with_prefix64_of(blocks[0].key, 2);
  blocks.push_back(root_block(3));
  blocks[2].key = with_prefix64_of(blocks[0].key, 3);
  open()->write(blocks);
  const auto h = open();
  const auto there = blocks_in(h->store());
  EXPECT_TRUE(std::is_permutation(there.begin(), there.end(), blocks.begin(), blocks.end()));
  for (const StoredBlock& block : blocks) EXPECT_TRUE(h->reads_back(block.key));
  EXPECT_FALSE(h->has(with_prefix64_of(blocks[0].key, 4)));
}

/// The catalog is read in pieces of 1 MiB; the last piece is shorter.
TEST_F(FileStoreTest, a_catalog_of_several_pieces_is_read_without_an_error) {
  constexpr std::uint32_t blocks = (1U << 20U) / record_bytes + 40;
  const auto prefix = prefix_of(1, 3);
  open(blocks)->write(prefix);
  const auto h = open(blocks);
  EXPECT_EQ(h->store().stat().io_errors, 0U);
  EXPECT_EQ(h->store().stat().blocks, 3U);
}

TEST_F(FileStoreTest, a_real_store_on_threads_is_found_again_too) {
  const TemporaryDirectory directory;
  FaultyCalls calls;
  const auto prefix = prefix_of(1, 30);
  const auto config = config_for(directory.path() / "store", 30);
  for (int run = 0; run < 3; ++run) {
    ThreadsHarness h{config, calls};
    if (run == 0) h.write(prefix);
    EXPECT_EQ(blocks_in(h.store()), prefix);
    for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key));
  }
}

TEST_F(FileStoreTest, a_killed_store_has_the_blocks_whose_records_had_gone_out) {
  const auto h = open();
  const auto prefix = prefix_of(1, 5);
  h->write(prefix);
  while (h->store().unwritten_pages() > 0) {
    h->advance();
    h->drain();
  }
  h->start_write({root_block(9)});  // the process dies during this write

  SimulatedIo after{io_.files().left_by(SimulatedFiles::End::killed)};
  SimulatedHarness again{after, config_for("/store", 40)};
  EXPECT_EQ(blocks_in(again.store()), prefix);
  for (const StoredBlock& block : prefix) EXPECT_TRUE(again.reads_back(block.key));
}

TEST_F(FileStoreTest, what_was_evicted_or_removed_stays_away_after_a_restart) {
  {
    const auto h = open(3);
    h->write({root_block(1)});
    h->write({root_block(2)});
    h->write({root_block(3)});
    h->write({root_block(4)});  // in place of 1
    const BlockKey key = key_of(2);
    h->store().remove({&key, 1}, 0);
    h->drain();
  }
  const auto h = open(3);
  EXPECT_FALSE(h->has(key_of(1)));
  EXPECT_FALSE(h->has(key_of(2)));
  EXPECT_TRUE(h->reads_back(key_of(3)));
  EXPECT_TRUE(h->reads_back(key_of(4)));
}

TEST_F(FileStoreTest, what_was_evicted_for_a_block_that_never_came_stays_away_too) {
  {
    const auto h = open(1);
    h->write({root_block(1)});
    h->fail_write_of(key_of(2));
    EXPECT_EQ(outcome(h->write({root_block(2)}), Kind::written, key_of(2)), Errc::io_failed);
    EXPECT_FALSE(h->has(key_of(1)));
  }
  const auto h = open(1);
  EXPECT_EQ(h->store().stat().blocks, 0U);
}

TEST_F(FileStoreTest, the_oldest_is_still_the_first_to_go_after_a_restart) {
  {
    const auto h = open(3);
    for (std::uint64_t n = 1; n <= 3; ++n) h->write({root_block(n)});
  }
  const auto h = open(3);
  EXPECT_EQ(keys_of(h->write({root_block(4)}), Kind::evicted), std::vector{key_of(1)});
  EXPECT_EQ(keys_of(h->write({root_block(5)}), Kind::evicted), std::vector{key_of(2)});
}

TEST_F(FileStoreTest, a_child_is_found_again_also_in_a_slot_before_its_parents) {
  {
    const auto h = open(2);
    h->write({root_block(1)});
    h->write({root_block(2)});
    const BlockKey key = key_of(1);
    h->store().remove({&key, 1}, 0);
    h->write({child_of(root_block(2), 3)});
    EXPECT_LT(h->store().location(key_of(3))->offset, h->store().location(key_of(2))->offset);
  }
  const auto h = open(2);
  EXPECT_TRUE(h->reads_back(key_of(2)));
  EXPECT_TRUE(h->reads_back(key_of(3)));
}

TEST_F(FileStoreTest, a_prefix_lies_in_one_piece) {
  const auto h = open();
  h->write({root_block(100)});
  const auto prefix = prefix_of(1, 6);
  h->write(prefix);
  for (std::size_t n = 1; n < prefix.size(); ++n) {
    EXPECT_EQ(h->store().location(prefix[n].key)->offset, h->store().location(prefix[n - 1].key)->offset + block_size);
  }
  EXPECT_FALSE(h->store().location(key_of(999)).has_value());
}

TEST_F(FileStoreTest, spreads_over_several_files) {
  auto config = config_for("/store", 10);
  config.data_file_bytes_max = Bytes{3 * block_size + 100};
  const auto prefix = prefix_of(1, 10);
  {
    const auto h = open(config);
    h->write(prefix);
    EXPECT_EQ(h->store().location(prefix[9].key)->file, "/store/blocks-0003");
  }
  EXPECT_EQ(data().size(), 3 * block_size);
  config.data_file_bytes_max = Bytes{5 * block_size};  // an existing store keeps its own value
  const auto h = open(config);
  for (const StoredBlock& block : prefix) EXPECT_TRUE(h->reads_back(block.key));
}

TEST_F(FileStoreTest, swapped_slots_are_served_as_neither) {
  const auto h = open();
  h->write({root_block(1), root_block(2)});
  const auto one = data().subspan(h->store().location(key_of(1))->offset, block_size);
  const auto two = data().subspan(h->store().location(key_of(2))->offset, block_size);
  std::swap_ranges(one.begin(), one.end(), two.begin());
  EXPECT_EQ(h->read(key_of(1)), Errc::corrupt);
  EXPECT_EQ(h->read(key_of(2)), Errc::corrupt);
  EXPECT_EQ(h->store().stat().blocks, 0U);
}

TEST_F(FileStoreTest, data_that_changed_while_the_store_was_closed_are_not_served) {
  const auto prefix = prefix_of(1, 4);
  {
    const auto h = open();
    h->write(prefix);
  }
  data()[1 * block_size + 17] ^= std::byte{1};
  const auto h = open();
  EXPECT_TRUE(h->has(prefix[1].key));
  EXPECT_EQ(h->read(prefix[1].key), Errc::corrupt);
  EXPECT_EQ(blocks_in(h->store()), std::vector{prefix[0]});
}

TEST_F(FileStoreTest, a_block_of_another_key_in_the_slot_of_a_stale_record_is_not_served) {
  std::vector<std::byte> stale;
  {
    const auto h = open(2);
    h->write({root_block(1)});
    h->drain();
    h->store().close().value();
    stale.assign(record(0).begin(), record(0).end());
  }
  {
    const auto h = open(2);
    const BlockKey key = key_of(1);
    h->store().remove({&key, 1}, 0);
    h->write({root_block(2)});
    EXPECT_EQ(h->store().location(key_of(2))->offset, 0U);
  }
  // A crash before the new record was written would leave this.
  std::copy(stale.begin(), stale.end(), record(0).begin());
  const auto h = open(2);
  EXPECT_EQ(h->read(key_of(1)), Errc::corrupt);
  EXPECT_FALSE(h->has(key_of(1)));
}

TEST_F(FileStoreTest, a_record_that_does_not_check_itself_is_a_free_slot_and_its_orphans_are_dropped) {
  const auto prefix = prefix_of(1, 5);
  {
    const auto h = open(40);
    h->write(prefix);
    h->write({root_block(50)});
  }
  record(2)[3] ^= std::byte{1};
  {
    const auto h = open(40);
    const auto there = blocks_in(h->store());
    const std::vector expected{prefix[0], prefix[1], root_block(50)};
    EXPECT_TRUE(std::is_permutation(there.begin(), there.end(), expected.begin(), expected.end()));
    EXPECT_EQ(h->store().stat().orphans, 0U);
    EXPECT_EQ(h->store().stat().free, 37U);
  }
  EXPECT_TRUE(all_zero(record(3))) << "the orphan's record was cleared";
}

TEST_F(FileStoreTest, a_record_in_the_place_of_another_is_a_free_slot) {
  {
    const auto h = open(40);
    h->write({root_block(1), root_block(2)});
  }
  std::swap_ranges(record(0).begin(), record(0).end(), record(1).begin());
  EXPECT_TRUE(blocks_in(open(40)->store()).empty());
}

TEST_F(FileStoreTest, of_two_records_of_a_key_the_newer_one_is_believed) {
  const StoredBlock block = root_block(1);
  {
    const auto h = open(40);
    h->write({root_block(2), block});  // in slots 0 and 1
  }
  // This is the state when the block was in slot 5 before, and the crash came before the record of slot 5 was cleared.
  CatalogRecord older = decode_record(record(1)).value();
  older.slot = 5;
  older.checksum ^= 1;
  older.generation -= 1;
  encode(older, record(5));
  {
    const auto h = open(40);
    EXPECT_EQ(h->store().stat().blocks, 2U);
    EXPECT_TRUE(h->reads_back(block.key));
  }
  EXPECT_TRUE(all_zero(record(5)));
}

TEST_F(FileStoreTest, the_end_of_the_data_cut_off_is_a_smaller_store_not_a_broken_one) {
  const auto prefix = prefix_of(1, 6);
  {
    const auto h = open();
    h->write(prefix);
  }
  const FileId file = io_.files().open("/store/blocks-0000", Create::no, Direct::no)->id;
  ASSERT_FALSE(io_.files().resize(file, Bytes{3 * block_size + 5}).has_error());
  io_.files().close(file);
  const auto h = open();
  EXPECT_EQ(blocks_in(h->store()), (std::vector{prefix[0], prefix[1], prefix[2]}));
  EXPECT_TRUE(h->reads_back(prefix[2].key));
  EXPECT_FALSE(outcome(h->write({prefix[3]}), Kind::written, prefix[3].key)) << "the room is there again";
}

}  // namespace
}  // namespace terrace::test
