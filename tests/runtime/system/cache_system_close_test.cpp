// CacheSystem::close(): it returns in time, and what is left ends behind it.

#include "storage/format/format.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint in(Duration time) { return std::chrono::steady_clock::now() + time; }

class CacheSystemClose : public testing::Test {
 protected:
  CacheSystemClose() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) directory = name;
  }
  ~CacheSystemClose() override { std::filesystem::remove_all(directory); }

  /// `bandwidth`: of the disk; 0: no limit.
  [[nodiscard]] CacheSystemOptions options(BytesPerSecond bandwidth = {}) const {
    CacheSystemOptions options;
    options.pools[0].block_bytes = KiB * 4;
    options.pools[0].device_blocks = 16;
    options.write_policy = WritePolicy::write_through;
    FileStorage file;
    file.directories = {directory / "store"};
    file.capacity = capacity_for(16, options.pools[0].block_bytes);
    file.io = IoChoice::threads;
    file.bandwidth = bandwidth;
    options.storage = file;
    return options;
  }
  /// Makes a system of which freed() tells when all its memory has been freed.
  void make(CacheSystemOptions options) {
    auto promise = std::make_shared<std::promise<void>>();
    freed_ = promise->get_future();
    const std::shared_ptr<void> token{nullptr, [promise](void*) { promise->set_value(); }};
    options.memory_limits = [token] { return read_memory_limits(); };
    system.emplace(options);
  }
  [[nodiscard]] bool freed(Duration wait = {}) const { return freed_.wait_for(wait) == std::future_status::ready; }

  static Lease acquire(Cache& cache, const std::vector<BlockKey>& keys) {
    AcquireRequest wanted;
    wanted.id = RequestId{1};
    wanted.keys = keys;
    wanted.units = HashUnits{static_cast<std::uint32_t>(keys.size())};
    return cache.acquire(wanted).value();
  }
  static void serve(Cache& cache, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(cache, keys);
    ASSERT_TRUE(cache.wait(lease).has_value());
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    cache.release(std::move(lease), no_longer_used);
  }

  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4, 5, 6, 7, 8});
  std::filesystem::path directory;
  std::optional<CacheSystem> system;

 private:
  std::future<void> freed_;
};

TEST_F(CacheSystemClose, returns_in_time_and_what_is_left_ends_behind_it) {
  make(options(per_second(KiB * 32)));  // an eighth of a second for each block
  serve(system->cache(), keys);
  const CloseReport report = system->close(in(milliseconds{20}));
  EXPECT_FALSE(report.closed);
  EXPECT_EQ(report.left.leases, 0U);
  EXPECT_TRUE(report.left.under_way);
  EXPECT_GT(report.left.transfers + report.left.writes, 0U);
  EXPECT_FALSE(freed());
  system.reset();
  EXPECT_FALSE(freed()) << "its destructor does nothing after that";
  EXPECT_TRUE(freed(seconds{60}));
  make(options());
  EXPECT_EQ(system->cache().match(keys).found[Source::storage], 8U) << "nothing was lost";
}

TEST_F(CacheSystemClose, frees_everything_if_there_is_time) {
  make(options());
  serve(system->cache(), keys);
  const CloseReport report = system->close(in(seconds{60}));
  EXPECT_TRUE(report.closed);
  EXPECT_TRUE(report.left.none());
  EXPECT_TRUE(freed());
}

TEST_F(CacheSystemClose, ends_jobs_and_pauses) {
  CacheSystemOptions held = options();
  held.write_policy = WritePolicy::none;
  make(held);
  serve(system->cache(), keys);
  system->cache().pause_transfers();
  ASSERT_TRUE(system->cache().start_write_back({}).has_value());
  EXPECT_TRUE(system->close(in(seconds{60})).closed);
}

TEST_F(CacheSystemClose, does_nothing_while_there_are_leases) {
  make(options());
  Cache& cache = system->cache();
  Lease lease = acquire(cache, keys);
  const CloseReport report = system->close(in(seconds{60}));
  EXPECT_FALSE(report.closed);
  EXPECT_EQ(report.left.leases, 1U);
  ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
  cache.release(std::move(lease), no_longer_used);
  EXPECT_TRUE(system->close(in(seconds{60})).closed);
}

}  // namespace
}  // namespace terrace::test
