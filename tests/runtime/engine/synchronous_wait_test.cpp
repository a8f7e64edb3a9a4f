// A cache whose caller waits for its requests, on a device with threads and on one without.

#include "terrace/system.hpp"

#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;

/// Two prompts of two blocks each are in the host, and two others are on the device.
class SynchronousWait : public testing::Test {
 protected:
  const std::vector<BlockKey> one = keys_of({1, 2});
  const std::vector<BlockKey> other = keys_of({3, 4});

  [[nodiscard]] static CacheSystemOptions options(const DeviceOptions& gpu = {}) {
    CacheSystemOptions options;
    options.ranks[0].device = gpu;
    options.pools = {{.block_bytes = KiB * 8, .device_blocks = 4, .host_blocks = 8}};
    return options;
  }
  static Lease acquire(Cache& cache, std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline = never) {
    AcquireRequest wanted = request_for(id, keys);
    wanted.deadline = deadline;
    return cache.acquire(wanted).value();
  }
  static void serve(Cache& cache, std::uint64_t id, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(cache, id, keys);
    ASSERT_TRUE(cache.wait(lease).has_value());
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    cache.release(std::move(lease), no_longer_used);
  }
  void fill(Cache& cache) const {
    serve(cache, 1, one);
    serve(cache, 2, other);
    serve(cache, 3, keys_of({5, 6}));
    serve(cache, 4, keys_of({7, 8}));
    cache.drain();
    ASSERT_EQ(cache.match(one).found[Source::host], 2U);
    ASSERT_EQ(cache.match(other).found[Source::host], 2U);
  }
};

TEST_F(SynchronousWait, ends_when_every_block_is_there_and_says_where_it_came_from) {
  CacheSystem stack{options()};
  Cache& cache = stack.cache();
  fill(cache);
  Lease lease = acquire(cache, 5, one);
  ASSERT_EQ(cache.state(lease), RequestState::waiting);
  ASSERT_TRUE(cache.wait(lease).has_value());
  EXPECT_EQ(cache.state(lease), RequestState::ready);
  const auto sources = cache.hit_sources(lease).value();
  EXPECT_EQ((std::vector<Source>{sources.begin(), sources.end()}), (std::vector<Source>{Source::host, Source::host}));
  EXPECT_TRUE(cache.poll().empty()) << "its caller has been told";
  EXPECT_TRUE(cache.wait(lease).has_value()) << "there is nothing to wait for any more";
  cache.release(std::move(lease), no_longer_used);
  EXPECT_EQ(cache.wait(lease).error(), Errc::unknown_request);  // NOLINT(bugprone-use-after-move): a lease that has ended
}

TEST_F(SynchronousWait, ends_over_a_device_that_copies_at_once) {
  CacheSystem stack{options(InstantGpu{})};
  Cache& cache = stack.cache();
  fill(cache);
  Lease lease = acquire(cache, 5, one);
  EXPECT_EQ(cache.state(lease), RequestState::waiting) << "the manager hears of a copy's end in a poll, as ever";
  ASSERT_TRUE(cache.wait(lease).has_value());
  EXPECT_EQ(cache.hit_sources(lease)->size(), 2U);
  cache.release(std::move(lease), no_longer_used);
}

TEST_F(SynchronousWait, says_which_blocks_did_not_arrive) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].fail_every = 1;
  CacheSystem stack{options(gpu)};
  Cache& cache = stack.cache();
  fill(cache);
  Lease lease = acquire(cache, 5, one);
  ASSERT_TRUE(cache.wait(lease).has_value()) << "the request goes on without them";
  EXPECT_TRUE(cache.hit_sources(lease).value().empty());
  EXPECT_EQ(cache.request_stats(lease)->miss, 2U);
  cache.release(std::move(lease), no_longer_used);
}

TEST_F(SynchronousWait, fails_as_its_request_does_and_keeps_what_others_are_told) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].stall_every = 1;
  gpu.link[Direction::swap_in].stall = milliseconds{300};
  CacheSystem stack{options(gpu)};
  Cache& cache = stack.cache();
  fill(cache);
  const SteadyClock clock;
  Lease first = acquire(cache, 5, one, clock.now() + milliseconds{10});
  Lease second = acquire(cache, 6, other, clock.now() + milliseconds{40});
  cache.pause_transfers();
  EXPECT_EQ(cache.wait(second).error(), Errc::paused);
  cache.resume_transfers();
  EXPECT_EQ(cache.wait(second).error(), Errc::deadline_exceeded);
  const auto events = cache.poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, RequestId{5});
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(cache.wait(first).error(), Errc::deadline_exceeded) << "although poll() has reported it";
  EXPECT_EQ(cache.wait(second).error(), Errc::deadline_exceeded);
  EXPECT_EQ(cache.await(first, 1, StreamRef{}).error(), Errc::deadline_exceeded);
  cache.release(std::move(first), no_longer_used);
  cache.release(std::move(second), no_longer_used);
}

TEST_F(SynchronousWait, says_that_the_cache_was_cleared) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].stall_every = 1;
  gpu.link[Direction::swap_in].stall = milliseconds{50};
  CacheSystem stack{options(gpu)};
  Cache& cache = stack.cache();
  fill(cache);
  const Lease lease = acquire(cache, 5, one);
  ASSERT_EQ(cache.state(lease), RequestState::waiting);
  cache.clear({});
  EXPECT_EQ(cache.await(lease, 1, StreamRef{}).error(), Errc::cleared);
  EXPECT_EQ(cache.wait(lease).error(), Errc::cleared);
  EXPECT_TRUE(cache.poll().empty()) << "its caller has been told";
  EXPECT_EQ(cache.wait(lease).error(), Errc::cleared);
}

}  // namespace
}  // namespace terrace::test
