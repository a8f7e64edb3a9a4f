// TierStore::remove() and clear(): nothing that they have erased is there again, whenever the process is killed.
// TERRACE_KILLS sets the number of kills for each I/O engine; the default is 12.

#include "storage/io/uring_io.hpp"
#include "terrace/tier_store.hpp"
#include "tests/runtime/store/child.hpp"
#include "tests/runtime/store/gated_stores.hpp"
#include "tests/runtime/store/keys_and_rows.hpp"
#include "tests/seed.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

constexpr Bytes erased_block{8192};

TEST(TierStoreErase, ends_as_cancelled_what_a_clear_overtakes_and_nothing_of_it_is_there) {
  const TemporaryDirectory directory;
  TierStoreOptions options;
  options.directories = {directory.path() / "disk"};
  options.capacity = MiB * 4;
  options.block_bytes = erased_block;
  options.io = IoChoice::threads;
  options.bandwidth = BytesPerSecond{20 * count(MiB)};
  options.puts_under_way_max = 32;  // the others wait
  const PrivateRegion memory{64, erased_block, MemoryCheck::no};
  {
    TierStore store{options};
    const HostRegionId region = store.register_region(memory.rows()).value();
    const std::vector<BlockKey> keys = keys_of(store, 0, 64);
    const std::vector<std::uint32_t> rows = rows_from(0, 64);
    ASSERT_TRUE(store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows}));
    ASSERT_TRUE(store.clear());
    std::vector<BatchResult> results;
    store.poll(results);
    ASSERT_EQ(results.size(), 1U) << "all that was overtaken has ended";
    for (const ErrorCode& error : results[0].errors) EXPECT_EQ(error, Errc::cancelled);
    EXPECT_EQ(store.stat().blocks, 0U);
    // The next block of the same name is another one.
    ASSERT_TRUE(
        store.submit_put({.id = BatchId{2}, .keys = std::span{keys}.first(1), .region = region, .rows = rows_from(0, 1)}));
    ASSERT_TRUE(store.drain(std::chrono::steady_clock::now() + 60s));
    EXPECT_TRUE(store.contains(keys[0]));
  }
  const TierStore store{options};
  EXPECT_EQ(store.stat().blocks, 1U);
}

TEST(TierStoreErase, says_what_is_not_sure_when_the_disk_stands_still_or_fails) {
  const auto gated = std::make_shared<GatedStore>(32, erased_block);
  TierStoreOptions options;
  options.block_bytes = erased_block;
  options.store = gated;
  options.erase_max = 20ms;
  TierStore store{options};
  const PrivateRegion memory{2, erased_block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  const std::vector<BlockKey> keys = keys_of(store, 0, 2);
  const std::vector<std::uint32_t> rows = rows_from(0, 2);
  ASSERT_TRUE(store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows}));
  ASSERT_TRUE(store.drain(std::chrono::steady_clock::now() + 60s));

  gated->memory().hold_flushes(true);
  EXPECT_EQ(store.remove(std::span{keys}.first(1)).error(), Errc::deadline_exceeded);
  EXPECT_FALSE(store.contains(keys[0])) << "it is not served, though the disk has not confirmed it";
  EXPECT_TRUE(store.contains(keys[1]));
  EXPECT_EQ(store.clear().error(), Errc::deadline_exceeded);
  EXPECT_FALSE(store.contains(keys[1]));
  gated->memory().fail_flushes(Errc::io_failed);
  gated->memory().hold_flushes(false);
  EXPECT_EQ(store.clear().error(), Errc::io_failed);
  gated->memory().fail_flushes({});
  EXPECT_TRUE(store.clear());
  EXPECT_TRUE(store.remove({})) << "there is nothing to wait for";
  EXPECT_TRUE(store.close(std::chrono::steady_clock::now() + 60s).closed);
  EXPECT_EQ(store.clear().error(), Errc::stopped);
  options.erase_max = 0ms;
  EXPECT_THROW(TierStore{options}, std::invalid_argument);
}

std::uint32_t kills() {
  const char* text = std::getenv("TERRACE_KILLS");
  return text == nullptr ? 12 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

class TierStoreKill : public ::testing::TestWithParam<const char*> {};

TEST_P(TierStoreKill, brings_nothing_back_that_was_erased) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const TemporaryDirectory directory;
  TierStoreOptions options;
  options.directories = {directory.path() / "disk"};
  options.capacity = MiB * 2;
  options.block_bytes = erased_block;
  options.key_namespace = "erase";
  std::mt19937_64 random{seed};
  constexpr std::uint32_t newest = 96;  // of the blocks; the store has room for them, so they are not evicted
  std::uint32_t next = 0;
  std::uint64_t gone = 0;
  std::uint64_t kept = 0;
  for (std::uint32_t round = 0; round < kills() && !HasFailure(); ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    std::vector<bool> is_kept;
    std::vector<bool> is_gone;
    const std::uint32_t first = next;
    const auto hear = [&](const std::string& line) {
      std::istringstream words{line};
      std::string what;
      std::uint32_t from = 0;
      std::uint32_t to = 0;
      words >> what >> from >> to;
      ASSERT_TRUE(what == "kept" || what == "gone") << line;
      from = std::max(from, first);
      is_kept.resize(std::max<std::size_t>(is_kept.size(), to - first));
      is_gone.resize(is_kept.size());
      for (std::uint32_t n = from; n < to; ++n) (what == "kept" ? is_kept : is_gone)[n - first] = true;
      next = std::max(next, to);
    };
    {
      Child child{{"erase", options.directories[0].string(), std::to_string(first), GetParam()}};
      for (std::uint64_t lines = 1 + random() % 40; lines > 0; --lines) {
        hear(child.line());
        if (HasFailure()) return;
      }
      child.kill();
      for (std::string line = child.line(); !line.empty(); line = child.line()) hear(line);
    }
    TierStore store{options};
    for (std::uint32_t n = 0; n < is_kept.size(); ++n) {
      const bool there = store.contains(keys_of(store, first + n, 1).front());
      if (is_gone[n]) {
        EXPECT_FALSE(there) << first + n;
      }
      gone += is_gone[n];
      if (!is_kept[n] || is_gone[n] || is_kept.size() - n > newest) continue;
      // The child may have been killed between a removal and its line.
      kept += there;
    }
    next += 1000;  // blocks of which nothing was heard have other names
    EXPECT_TRUE(store.clear());
  }
  EXPECT_GT(gone, 48 * kills());
  RecordProperty("gone", std::to_string(gone));
  RecordProperty("kept", std::to_string(kept));
}

std::vector<const char*> engines() {
  if (UringIo::unavailable()) return {"threads"};
  return {"threads", "uring"};
}

INSTANTIATE_TEST_SUITE_P(Engines, TierStoreKill, ::testing::ValuesIn(engines()),
                         [](const auto& parameter) { return std::string{parameter.param}; });

}  // namespace
}  // namespace terrace::test
