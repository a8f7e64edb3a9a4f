// How a striped file store starts: with all directories in their order, or with the accepted loss of one.

#include "storage/file/file_store.hpp"

#include "tests/storage/fixtures.hpp"
#include "tests/storage/stripes.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
using Kind = StoreEvent::Kind;
using StripesStart = Stripes;

/// The refusal, or nothing if the store started.
std::string refusal(const FileStoreConfig& config, IoEngine& io) {
  return refusal_of([&] { const FileStore store{config, io}; });
}

#define EXPECT_SAYS(sentence, part) EXPECT_NE((sentence).find(part), std::string::npos) << (sentence)

TEST_F(StripesStart, does_not_start_without_a_directory_unless_its_loss_is_accepted) {
  open();
  const auto blocks = roots(1, 60);
  h_->write(blocks);
  h_.reset();
  disk().break_directory("/store-1");
  EXPECT_SAYS(refusal(config_, io_), "/store-1, which has part 2 of it, cannot be used: mount its disk, or accept");
  disk().mend_directory("/store-1");
  EXPECT_EQ(refusal(config_, io_), "") << "a refused start changes nothing";

  disk().break_directory("/store-1");
  config_.accept_lost_directories = true;
  open();
  EXPECT_EQ(store().stat().blocks, 40U);
  EXPECT_EQ(store().stat().directories_lost, 1U);
  EXPECT_EQ(store().stat().capacity_blocks, 40U);
  EXPECT_EQ(store().lost_directories(), std::vector<fs::path>{"/store-1"});
  EXPECT_TRUE(store().is_direct());
  for (const StoredBlock& block : blocks_in(store())) EXPECT_TRUE(h_->reads_back(block.key));
  for (const StoredBlock& block : roots(1000, 70)) EXPECT_FALSE(outcome(h_->write({block}), Kind::written, block.key));
  store().flush(3);
  EXPECT_FALSE(outcome(h_->drain(), Kind::flushed, {}));

  // The directory comes back. The blocks stored there have been dropped, and its slots can be used again.
  disk().mend_directory("/store-1");
  reopen();
  EXPECT_EQ(store().stat().capacity_blocks, 60U);
  EXPECT_EQ(store().stat().blocks, 40U);
  h_->write(roots(2000, 20));
  EXPECT_EQ(keys_in("/store-1").size(), 20U);
}

TEST_F(StripesStart, an_empty_directory_takes_the_place_of_a_lost_one_only_where_that_is_accepted) {
  open();
  const auto blocks = roots(1, 60);
  h_->write(blocks);
  h_.reset();
  for (const fs::path& file : disk().files_in("/store-2")) ASSERT_FALSE(disk().remove_file(file).has_error());
  EXPECT_SAYS(refusal(config_, io_), "/store-2, which should have part 3 of it, is empty");
  EXPECT_TRUE(disk().files_in("/store-2").empty()) << "a refused start leaves nothing";

  config_.accept_lost_directories = true;
  open();
  EXPECT_EQ(store().stat().directories_lost, 0U);
  EXPECT_EQ(store().stat().blocks, 40U);
  EXPECT_EQ(store().stat().capacity_blocks, 60U);
  const auto more = roots(1000, 20);
  h_->write(more);
  EXPECT_EQ(keys_in("/store-2").size(), 20U);
  config_.accept_lost_directories = false;
  reopen();
  for (const StoredBlock& block : more) EXPECT_TRUE(h_->reads_back(block.key));
}

TEST_F(StripesStart, one_that_cannot_be_taken_in_a_lost_ones_place_is_left_as_it_is) {
  open();
  h_->write(roots(1, 60));
  h_.reset();
  for (const fs::path& file : disk().files_in("/store-2")) ASSERT_FALSE(disk().remove_file(file).has_error());
  config_.accept_lost_directories = true;
  SimulatedIo fresh{disk().left_by(SimulatedFiles::End::killed)};
  { const FileStore counting{config_, fresh}; }
  std::size_t left_out = 0;
  for (std::uint64_t n = 0; n < fresh.files().next_number(); ++n) {
    SimulatedIo io{disk().left_by(SimulatedFiles::End::killed)};
    io.files().inject(n, {.error = EIO});
    try {
      const FileStore store{config_, io};
      if (store.lost_directories() != std::vector<fs::path>{"/store-2"}) continue;
      ++left_out;
    } catch (const std::system_error&) {
    }
    EXPECT_TRUE(io.files().files_in("/store-2").empty()) << n;
  }
  EXPECT_GT(left_out, 3U);
}

TEST_F(StripesStart, a_missing_directory_is_not_made_again) {
  open();
  h_->write(roots(1, 60));
  h_.reset();
  for (const fs::path& file : disk().files_in("/store-2")) ASSERT_FALSE(disk().remove_file(file).has_error());
  ASSERT_FALSE(disk().remove_directory("/store-2").has_error());
  EXPECT_SAYS(refusal(config_, io_), "cannot be used: mount its disk");
  config_.accept_lost_directories = true;
  open();
  EXPECT_FALSE(disk().exists("/store-2")) << "its disk may be mounted later";
  EXPECT_EQ(store().stat().directories_lost, 1U);
  EXPECT_EQ(store().stat().blocks, 40U);
}

TEST_F(StripesStart, directories_in_another_order_or_number_or_of_another_store_are_refused) {
  open();
  h_.reset();
  FileStoreConfig other = striped_config_for("/other", 60, 3, stripe_blocks);
  other.id = 1;
  { const FileStore theirs{other, io_}; }

  FileStoreConfig wrong = config_;
  wrong.accept_lost_directories = true;  // these are mistakes, not losses
  std::swap(wrong.more_directories[0], wrong.more_directories[1]);
  EXPECT_SAYS(refusal(wrong, io_), "/store-2 is given as part 2 of the file store in /store, but is its part 3");
  wrong.more_directories = {"/store-1"};
  EXPECT_SAYS(refusal(wrong, io_), "is striped over 3 directories, this one included, and this configuration has 2");
  wrong.more_directories = {};
  EXPECT_SAYS(refusal(wrong, io_), "is striped over 3 directories, this one included, and this configuration has 1");
  wrong.more_directories = {"/store-1", "/other-2"};
  EXPECT_SAYS(refusal(wrong, io_), "/other-2 should be part 3 of the file store in /store, but is part 3 of another one");
  wrong.more_directories = {"/store-1", "/other"};
  EXPECT_SAYS(refusal(wrong, io_), "/other should be part 3 of the file store in /store, but is the first directory of another");
  wrong.more_directories = {"/store-1", "/store-1"};
  EXPECT_SAYS(refusal(wrong, io_), "cannot be striped over /store-1 twice");
  wrong.more_directories = {"/store", "/store-1"};
  EXPECT_SAYS(refusal(wrong, io_), "cannot be striped over /store twice");
  wrong.more_directories.assign(64, "/x");
  EXPECT_SAYS(refusal(wrong, io_), "cannot be striped over 65 directories: up to 64 are possible");

  FileStoreConfig part = config_for("/store-1", 60);
  EXPECT_SAYS(refusal(part, io_), "/store-1 is part 2 of a file store that is striped over 3 directories: give its first");
  FileStoreConfig new_one = striped_config_for("/new", 60, 2, stripe_blocks);
  new_one.id = 2;
  new_one.more_directories = {"/store-1"};
  EXPECT_SAYS(refusal(new_one, io_), "/store-1 should be part 2 of the file store in /new, but is part 2 of another one");
  EXPECT_FALSE(disk().exists("/new"));
  open();
}

TEST_F(StripesStart, a_part_that_somebody_has_is_in_use) {
  open();
  SimulatedIo& shared = io_;
  FileStoreConfig other = striped_config_for("/other", 60, 2, stripe_blocks);
  other.id = 1;
  other.more_directories = {"/store-2"};
  EXPECT_SAYS(refusal(other, shared), "in use");
  EXPECT_TRUE(disk().exists("/store-2/lock"));
  EXPECT_TRUE(disk().exists("/store-2/blocks-0000"));
  EXPECT_FALSE(disk().exists("/other"));
}

}  // namespace
}  // namespace terrace::test
