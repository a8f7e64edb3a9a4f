#include "storage/offline/store_verification.hpp"

#include "tests/storage/damage.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
using Verdict = StoreReader::Verdict;

bool to_the_end(std::uint64_t, Bytes) { return true; }

class VerificationTest : public testing::Test {
 protected:
  void fill_store(std::size_t blocks) {
    ThreadsHarness h{config_, calls_};
    if (blocks > 0) h.write(prefix_of(1, blocks));
  }
  void damage(std::uint64_t n) {
    const StoreReader reader{config_.directory};
    flip(config_.directory / "blocks-0000", reader.location(reader.find(key_of(n))->slot).offset + 99, 2);
  }

  TemporaryDirectory directory_;
  FileStoreConfig config_ = config_for(directory_.path() / "store", 64);
  FaultyCalls calls_;
};

TEST_F(VerificationTest, reads_all_there_is) {
  fill_store(50);
  const StoreReader reader{config_.directory};
  for (const unsigned threads : {1U, 3U, 64U}) {
    std::uint64_t done = 0;
    const Verification found = verify_all(reader, {.threads = threads}, [&](std::uint64_t now, Bytes) {
      EXPECT_GE(now, done);
      done = now;
      return true;
    });
    EXPECT_EQ(found.blocks, 50U);
    EXPECT_EQ(found.verified, 50U);
    EXPECT_EQ(found.changed, 0U);
    EXPECT_TRUE(found.wrong.empty());
    EXPECT_EQ(count(found.read), 50 * block_size);
    EXPECT_FALSE(found.stopped);
    EXPECT_GT(found.seconds, 0);
  }
}

TEST_F(VerificationTest, of_an_empty_store_is_soon_done) {
  fill_store(0);
  const Verification found = verify_all(StoreReader{config_.directory}, {}, to_the_end);
  EXPECT_EQ(found.blocks, 0U);
  EXPECT_FALSE(found.stopped);
}

TEST_F(VerificationTest, lists_all_that_is_wrong) {
  fill_store(50);
  for (const std::uint64_t n : {7, 20, 50}) damage(n);
  const StoreReader reader{config_.directory};
  const Verification found = verify_all(reader, {.threads = 3}, to_the_end);
  EXPECT_EQ(found.verified, 47U);
  ASSERT_EQ(found.wrong.size(), 3U);
  std::vector<BlockKey> keys;
  for (const Verification::Wrong& wrong : found.wrong) {
    keys.push_back(wrong.block.block.key);
    EXPECT_EQ(wrong.why.verdict, Verdict::corrupt);
  }
  EXPECT_EQ(keys, (std::vector{key_of(7), key_of(20), key_of(50)}));
}

TEST_F(VerificationTest, tells_a_file_that_cannot_be_read) {
  fill_store(5);
  const StoreReader reader{config_.directory};
  fs::resize_file(config_.directory / "blocks-0000", 2 * block_size);
  const Verification found = verify_all(reader, {}, to_the_end);
  EXPECT_EQ(found.verified, 2U);
  ASSERT_EQ(found.wrong.size(), 3U);
  EXPECT_EQ(found.wrong[0].why.verdict, Verdict::unreadable);
}

TEST_F(VerificationTest, stops_when_it_is_told_to) {
  fill_store(50);
  const StoreReader reader{config_.directory};
  // At one block per second, it would take a minute without the order to stop.
  int calls = 0;
  const Verification found = verify_all(reader, {.threads = 2, .bandwidth = BytesPerSecond{block_size}},
                                        [&](std::uint64_t, Bytes) { return ++calls < 3; });
  EXPECT_TRUE(found.stopped);
  EXPECT_LT(found.verified, 50U);
  EXPECT_TRUE(found.wrong.empty());
}

TEST_F(VerificationTest, goes_no_faster_than_it_may) {
  fill_store(50);
  const StoreReader reader{config_.directory};
  const Verification found = verify_all(reader, {.threads = 4, .bandwidth = BytesPerSecond{block_size * 500}}, to_the_end);
  EXPECT_EQ(found.verified, 50U);
  EXPECT_GE(found.seconds, 49.0 / 500);
}

TEST_F(VerificationTest, beside_an_owner_waits_for_its_patience_before_it_accuses) {
  ThreadsHarness owner{config_, calls_};
  owner.write(prefix_of(1, 5));
  while (owner.store().unwritten_pages() > 0) owner.drain();
  const StoreReader reader{config_.directory};
  owner.damage(key_of(3));
  const Verification found = verify_all(reader, {.patience = std::chrono::milliseconds{250}}, to_the_end);
  EXPECT_EQ(found.verified, 4U);
  ASSERT_EQ(found.wrong.size(), 1U);
  EXPECT_EQ(found.wrong[0].block.block.key, key_of(3));
  EXPECT_GE(found.seconds, 0.25);
}

TEST_F(VerificationTest, beside_an_owner_finds_out_that_a_doubtful_block_is_gone) {
  ThreadsHarness owner{config_, calls_};
  owner.write(prefix_of(1, 5));
  while (owner.store().unwritten_pages() > 0) owner.drain();
  const StoreReader reader{config_.directory};
  owner.damage(key_of(5));
  int calls = 0;
  const Verification found = verify_all(reader, {.patience = std::chrono::minutes{10}}, [&](std::uint64_t done, Bytes) {
    // At the very end: only now the owner writes the page that says so.
    if (done == 4 && ++calls == 3) {
      const BlockKey key = key_of(5);
      owner.store().remove({&key, 1}, 1);
      owner.drain();
      while (owner.store().unwritten_pages() > 0) owner.drain();
    }
    return true;
  });
  EXPECT_EQ(found.verified, 4U);
  EXPECT_EQ(found.changed, 1U);
  EXPECT_TRUE(found.wrong.empty());
}

}  // namespace
}  // namespace terrace::test
