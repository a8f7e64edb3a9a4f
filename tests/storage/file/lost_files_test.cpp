// A store whose files are removed while it serves: it continues, and reports nothing as durable.

#include "storage/file/file_store.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/fixtures.hpp"
#include "tests/storage/stripes.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

using Kind = StoreEvent::Kind;

ErrorCode flush(StoreHarness& h) {
  h.store().flush(7);
  return outcome(h.drain(), Kind::flushed, {});
}

class LostFiles : public OnRealDisk {
 protected:
  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  fs::path aside_ = directory_.path() / "aside";
};

INSTANTIATE_TEST_SUITE_P(Engines, LostFiles, testing::ValuesIn(kinds_on_disk()),
                         [](const auto& tested) { return to_string(tested.param); });

TEST_P(LostFiles, make_every_flush_and_the_end_fail_and_are_named) {
  struct Loss {
    const char* what;
    std::function<void()> happens;
    std::string said;
  };
  const std::vector<Loss> losses{
      {"the directory is removed", [this] { fs::remove_all(where_); }, "cannot be found any more"},
      {"the directory is replaced by an empty one",
       [this] {
         fs::rename(where_, aside_);
         fs::create_directory(where_);
       },
       "cannot be found any more"},
      {"the directory is replaced by a copy",
       [this] {
         fs::rename(where_, aside_);
         fs::copy(aside_, where_);
       },
       "is another file now"},
      {"the lock is removed", [this] { fs::remove(where_ / "lock"); }, (where_ / "lock").string() + " cannot be found any more"},
      {"the catalog is removed", [this] { fs::remove(where_ / "catalog"); },
       (where_ / "catalog").string() + " cannot be found any more"},
      {"the catalog is emptied", [this] { fs::resize_file(where_ / "catalog", 0); }, (where_ / "catalog").string() + " has "},
      {"the catalog is cut", [this] { fs::resize_file(where_ / "catalog", catalog_page_bytes); },
       (where_ / "catalog").string() + " has been cut short"},
      {"the superblock is zeroed",
       [this] {
         const std::array<std::byte, catalog_page_bytes> zeros{};
         write_at(where_ / "catalog", 0, zeros);
       },
       (where_ / "catalog").string() + " has lost its superblock"},
      {"the data are removed", [this] { fs::remove(where_ / "blocks-0000"); },
       (where_ / "blocks-0000").string() + " cannot be found any more"},
      {"the data are cut", [this] { fs::resize_file(where_ / "blocks-0000", 2 * block_size); },
       (where_ / "blocks-0000").string() + " has been cut short"},
  };
  for (const Loss& loss : losses) {
    SCOPED_TRACE(loss.what);
    const auto h = open(config_for(where_, 8));
    h->write(prefix_of(1, 8));
    EXPECT_FALSE(flush(*h));
    EXPECT_EQ(h->store().durability_lost(), "");
    loss.happens();
    EXPECT_TRUE(flush(*h)) << "nothing has changed since the last flush, and yet it is not durable any more";
    EXPECT_NE(h->store().durability_lost().find(loss.said), std::string::npos) << h->store().durability_lost();
    EXPECT_TRUE(h->reads_back(key_of(1))) << "it serves what it can";
    EXPECT_TRUE(flush(*h));
    EXPECT_FALSE(h->store().close());
    fs::remove_all(where_);
    fs::remove_all(aside_);
  }
}

TEST_P(LostFiles, that_nobody_flushed_after_make_the_end_fail) {
  const auto h = open(config_for(where_, 8));
  h->write(prefix_of(1, 8));
  fs::remove_all(where_);
  EXPECT_FALSE(h->store().close());
}

TEST_P(LostFiles, are_none_where_the_process_goes_to_another_directory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  const auto h = open(config_for("store", 8));
  fs::current_path("/");
  h->write(prefix_of(1, 8));
  EXPECT_FALSE(flush(*h));
  EXPECT_TRUE(h->store().close());
  fs::current_path(before);
}

TEST_P(LostFiles, are_none_where_the_store_has_become_larger_and_smaller) {
  FileStoreConfig split = config_for(where_, 4);
  split.data_file_bytes_max = Bytes{4 * block_size};
  const auto h = open(split);
  for (const std::uint32_t blocks : {64U, 3U, 30U}) {
    ASSERT_TRUE(h->store().resize(Blocks{blocks}));
    EXPECT_FALSE(flush(*h)) << h->store().durability_lost();
    while (h->store().stat().capacity_blocks != blocks) {
      h->advance();
      h->drain();
    }
    h->write(prefix_of(blocks * 100, blocks));
    EXPECT_FALSE(flush(*h)) << h->store().durability_lost();
  }
  EXPECT_TRUE(h->store().close());
}

class LostStripes : public Stripes {};

TEST_F(LostStripes, cost_what_was_in_their_directory_and_no_more) {
  open();
  h_->write(roots(1, 60));
  EXPECT_FALSE(flush(*h_));
  const auto lost = keys_in("/store-1");
  ASSERT_TRUE(disk().remove_file("/store-1/blocks-0000"));
  EXPECT_TRUE(flush(*h_));
  (void)settle();
  EXPECT_EQ(store().lost_directories(), std::vector<fs::path>{"/store-1"});
  EXPECT_FALSE(flush(*h_)) << "it speaks of what is left";
  EXPECT_EQ(store().durability_lost(), "");
  for (const BlockKey& key : lost) EXPECT_FALSE(h_->has(key));
  EXPECT_EQ(store().stat().blocks, 60 - lost.size());
}

TEST_F(LostStripes, of_the_first_directory_make_every_flush_fail) {
  open();
  h_->write(roots(1, 60));
  ASSERT_TRUE(disk().remove_file("/store/catalog"));
  EXPECT_TRUE(flush(*h_));
  ASSERT_TRUE(disk().open("/store/catalog", Create::if_missing, Direct::no));
  EXPECT_TRUE(flush(*h_)) << "a file of that name is not the catalog";
  EXPECT_EQ(store().stat().directories_lost, 0U);
  EXPECT_NE(store().durability_lost().find("/store/catalog cannot be found any more"), std::string::npos);
}

}  // namespace
}  // namespace terrace::test
