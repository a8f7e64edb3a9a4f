// The hits after a restart of a process that made a checkpoint or was killed after a flush.

#include "terrace/system.hpp"

#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::seconds;

class WarmRestart : public testing::Test {
 protected:
  static constexpr std::uint32_t prompts = 40;

  WarmRestart() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
  }
  ~WarmRestart() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] CacheSystemOptions options() const {
    CacheSystemOptions options;
    options.pools[0].block_bytes = KiB * 8;
    options.pools[0].device_blocks = 256;
    options.pools[0].host_blocks = 64;
    options.pools[0].staging_blocks = 8;
    options.storage = FileStorage{.directories = {directory_ / "store"}, .capacity = MiB * 8, .io = IoChoice::threads};
    options.write_policy = WritePolicy::none;
    return options;
  }
  /// Three blocks that several prompts share, and two of its own.
  static std::vector<BlockKey> prompt(std::uint32_t n) { return keys_of({n % 4, n % 4 + 10, n % 4 + 20, 100 + n, 200 + n}); }

  static void serve(Cache& cache) {
    for (std::uint32_t n = 0; n < prompts; ++n) {
      const auto keys = prompt(n);
      AcquireRequest request;
      request.id = RequestId{n + 1};
      request.keys = keys;
      request.units = HashUnits{static_cast<std::uint32_t>(keys.size())};
      Result<Lease> lease = cache.acquire(request);
      ASSERT_TRUE(lease.has_value());
      while (cache.state(*lease) != RequestState::ready) cache.poll();
      ASSERT_TRUE(cache.commit(*lease, keys, Fence{}).has_value());
      cache.release(std::move(*lease), Fence{});
    }
  }
  static std::uint32_t hits(Cache& cache) {
    std::uint32_t hits = 0;
    for (std::uint32_t n = 0; n < prompts; ++n) hits += cache.match(prompt(n)).total();
    return hits;
  }

  std::filesystem::path directory_;
};

TEST_F(WarmRestart, hits_all_that_a_checkpoint_called_durable) {
  std::uint64_t durable = 0;
  {
    CacheSystem stack{options()};
    serve(stack.cache());
    const Result<CheckpointReport> report = stack.cache().checkpoint(seconds{60});
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->job.state, WriteBackState::done);
    EXPECT_FALSE(report->job.flush_error);
    EXPECT_EQ(report->job.of(WriteBackOutcome::stored), 4U * 3 + 2 * prompts);
    EXPECT_EQ(report->left.lost_blocks, 0U);
    EXPECT_EQ(report->job.durable, report->left.durable);
    durable = report->left.durable_blocks;
  }
  CacheSystem stack{options()};
  EXPECT_EQ(stack.store()->stat().blocks, durable);
  EXPECT_EQ(hits(stack.cache()), 5 * prompts);
  EXPECT_EQ(stack.cache().durability().durable_blocks, 0U) << "who wrote them may have been killed, for all this process knows";
  EXPECT_EQ(stack.cache().checkpoint(seconds{60})->left.durable_blocks, durable);
}

TEST_F(WarmRestart, without_one_has_only_what_the_policy_stored) {
  {
    CacheSystem stack{options()};
    serve(stack.cache());
    EXPECT_GT(stack.cache().durability().lost_blocks, 0U);
  }
  CacheSystem stack{options()};
  EXPECT_EQ(hits(stack.cache()), 0U);
}

TEST_F(WarmRestart, is_promised_by_no_checkpoint_whose_files_have_been_taken_away) {
  CacheSystem stack{options()};
  serve(stack.cache());
  EXPECT_EQ(stack.cache().checkpoint(seconds{60})->left.lost_blocks, 0U);
  EXPECT_EQ(stack.storage_health()->state, StoreState::well);
  std::filesystem::remove_all(directory_ / "store");
  const Result<CheckpointReport> report = stack.cache().checkpoint(seconds{60});
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->job.flush_error);
  EXPECT_EQ(report->job.durable, Bytes{});
  EXPECT_EQ(report->left.durable_blocks, 0U) << "what the first one promised is gone, too";
  EXPECT_EQ(stack.storage_health()->state, StoreState::degraded);
  EXPECT_NE(stack.storage_health()->reason.find("cannot be found any more"), std::string::npos) << stack.storage_health()->reason;
  EXPECT_EQ(hits(stack.cache()), 5 * prompts);
}

TEST_F(WarmRestart, makes_what_it_writes_durable_by_itself) {
  CacheSystemOptions with_policy = options();
  with_policy.write_policy = WritePolicy::write_through;
  with_policy.flush_interval = std::chrono::milliseconds{50};
  CacheSystem stack{with_policy};
  serve(stack.cache());
  while (stack.cache().durability().lost_blocks > 0) stack.cache().poll();
  EXPECT_EQ(stack.cache().durability().durable_blocks, 4U * 3 + 2 * prompts);
}

}  // namespace
}  // namespace terrace::test
