// A striped store in real directories: its files, and what tools see that read them from outside.

#include "storage/offline/store_reader.hpp"
#include "storage/offline/store_verification.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

class StripesOnDisk : public testing::Test {
 protected:
  void store(const std::vector<StoredBlock>& blocks) { ThreadsHarness{config_, calls_}.write(blocks); }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  FileStoreConfig config_ = striped_config_for(where_, 48, 3, 4);
  FaultyCalls calls_;
};

TEST_F(StripesOnDisk, files_are_private_and_links_lead_to_the_others) {
  store(prefix_of(1, 48));
  const auto mode = [](const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777U;
  };
  for (const fs::path& directory : {where_, config_.more_directories[0], config_.more_directories[1]}) {
    EXPECT_EQ(mode(directory), 0700U);
    for (const char* name : {"lock", "stripe", "blocks-0000"}) EXPECT_EQ(mode(directory / name), 0600U) << directory / name;
    EXPECT_EQ(fs::file_size(directory / "blocks-0000"), 16 * block_size);
  }
  EXPECT_EQ(fs::read_symlink(where_ / "stripe-1"), config_.more_directories[0]);
  EXPECT_EQ(fs::read_symlink(where_ / "stripe-2"), config_.more_directories[1]);
}

TEST_F(StripesOnDisk, a_reader_finds_and_verifies_all_of_it_through_the_links) {
  const auto prefix = prefix_of(1, 48);
  store(prefix);
  const StoreReader reader{where_};
  EXPECT_EQ(reader.catalog().blocks().size(), 48U);
  EXPECT_EQ(reader.more_directories(), config_.more_directories);
  EXPECT_GE(count(reader.allocated()), 48 * block_size);
  const Verification found = verify_all(reader, {}, [](std::uint64_t, Bytes) { return true; });
  EXPECT_EQ(found.verified, 48U);
  EXPECT_TRUE(found.wrong.empty());
}

TEST_F(StripesOnDisk, a_disk_that_was_mounted_elsewhere_is_followed) {
  store(prefix_of(1, 48));
  fs::rename(config_.more_directories[1], directory_.path() / "moved");
  config_.more_directories[1] = directory_.path() / "moved";
  store({});
  EXPECT_EQ(fs::read_symlink(where_ / "stripe-2"), directory_.path() / "moved");
  EXPECT_EQ(verify_all(StoreReader{where_}, {}, [](std::uint64_t, Bytes) { return true; }).verified, 48U);
}

TEST_F(StripesOnDisk, a_reader_without_one_of_them_says_which_and_reads_the_rest) {
  store(prefix_of(1, 48));
  const fs::path hidden = directory_.path() / "hidden";
  fs::rename(config_.more_directories[0], hidden);
  const StoreReader reader{where_};
  EXPECT_EQ(reader.missing_directories(), std::vector<fs::path>{config_.more_directories[0]});
  EXPECT_TRUE(reader.catalog().damaged().empty());
  EXPECT_TRUE(reader.catalog().orphans().empty());
  EXPECT_EQ(reader.catalog().blocks().size(), 48U);
  EXPECT_EQ(reader.missing_blocks(), 16U);
  const Verification found = verify_all(reader, {}, [](std::uint64_t, Bytes) { return true; });
  EXPECT_EQ(found.verified, 32U);
  EXPECT_EQ(found.missing, 16U);
  EXPECT_TRUE(found.wrong.empty());
  EXPECT_FALSE(found.stopped);
}

TEST_F(StripesOnDisk, a_reader_takes_an_empty_directory_and_another_stores_part_for_none) {
  store(prefix_of(1, 48));
  fs::rename(config_.more_directories[0], directory_.path() / "hidden");
  fs::create_directory(config_.more_directories[0]);
  EXPECT_EQ(StoreReader{where_}.missing_blocks(), 16U);
  fs::remove(config_.more_directories[0]);
  fs::copy(config_.more_directories[1], config_.more_directories[0]);
  EXPECT_EQ(StoreReader{where_}.missing_blocks(), 16U) << "the second part is not the first";
}

TEST_F(StripesOnDisk, a_part_by_itself_is_no_store_to_a_reader) {
  store(prefix_of(1, 4));
  EXPECT_NE(refusal_of([&] { StoreReader{config_.more_directories[0]}; }).find("is part of a file store that is striped"),
            std::string::npos);
}

TEST_F(StripesOnDisk, a_data_file_that_is_cut_off_while_serving_costs_the_directory) {
  ThreadsHarness h{config_, calls_};
  std::vector<StoredBlock> roots;
  for (std::uint64_t n = 1; n <= 48; ++n) roots.push_back(root_block(n));
  h.write(roots);
  fs::resize_file(config_.more_directories[1] / "blocks-0000", 0);
  for (int round = 0; round < 3 && h.store().stat().directories_lost == 0; ++round) {
    for (const StoredBlock& block : roots) (void)h.read(block.key);
  }
  h.drain();
  EXPECT_EQ(h.store().stat().directories_lost, 1U);
  EXPECT_EQ(h.store().stat().blocks, 32U);
  EXPECT_EQ(h.store().stat().capacity_blocks, 32U);
}

}  // namespace
}  // namespace terrace::test
