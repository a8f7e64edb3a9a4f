// Wrong use of leases, fences and streams, and right use that looks wrong.

#include "terrace/cache.hpp"
#include "terrace/emulated_stream.hpp"
#include "terrace/keys.hpp"
#include "terrace/system.hpp"
#include "tests/patience.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

constexpr std::uint32_t device_slots = 8;

CacheSystemOptions options_for(const DeviceOptions& device) {
  CacheSystemOptions options;
  options.ranks = {RankOptions{.device = device}};
  options.pools = {{.block_bytes = KiB, .device_blocks = device_slots, .host_blocks = 2 * device_slots}};
  options.loads = LoadPolicy::always;
  return options;
}

std::vector<BlockKey> keys_of(TokenId token, std::size_t count) {
  KeyChain chain{root_key({}), 16};
  chain.append(std::vector<TokenId>(16 * count, token));
  return {chain.keys().begin(), chain.keys().end()};
}

class CacheHandles : public testing::Test {
 protected:
  [[nodiscard]] Cache& cache() { return system_.cache(); }
  [[nodiscard]] Lease acquire(std::uint64_t id, std::span<const BlockKey> keys) {
    return cache().acquire({.id = RequestId{id}, .keys = keys}).value();
  }

  CacheSystem system_{options_for(InstantGpu{})};
};

TEST_F(CacheHandles, an_empty_lease_is_refused_by_every_call) {
  const auto keys = keys_of(1, 2);
  Lease moved = acquire(1, keys);
  Lease lease = std::move(moved);
  const auto refused = [](const auto& result) { return result ? std::string{} : result.error().message(); };
  const std::string sentence = "the lease is empty: it was moved from, or has ended";
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_EQ(refused(cache().block_table(moved)), sentence);
  EXPECT_EQ(refused(cache().unkeyed_blocks(moved)), sentence);
  EXPECT_EQ(refused(cache().hit_sources(moved)), sentence);
  EXPECT_EQ(refused(cache().request_stats(moved)), sentence);
  EXPECT_EQ(refused(cache().committed_units(moved)), sentence);
  EXPECT_EQ(refused(cache().extend(moved, 1)), sentence);
  EXPECT_EQ(refused(cache().commit(moved, keys, {})), sentence);
  EXPECT_EQ(refused(cache().advance(moved, 1, {})), sentence);
  EXPECT_EQ(refused(cache().await(moved, 1, {})), sentence);
  EXPECT_EQ(refused(cache().wait(moved)), sentence);
  EXPECT_EQ(cache().block_table(moved).error(), Errc::unknown_request);
  EXPECT_EQ(cache().state(moved), RequestState::unknown);
  EXPECT_EQ(cache().group_state(moved, {}), GroupState::unknown);
  EXPECT_EQ(cache().seconds_waited(moved), 0);
  moved.used_until(Fence{1});
  cache().release(std::move(moved), {});
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(cache().block_table(lease).has_value());
  lease.reset();
  EXPECT_EQ(refused(cache().block_table(lease)), sentence);
  EXPECT_DEATH((void)lease.id(), "misuse: Lease::id\\(\\) was called for an empty lease");
}

TEST(CacheHandlesDeathTest, a_lease_that_outlives_its_cache_is_named) {
  const auto outlive = [] {
    Lease lease;
    CacheSystem system{options_for(InstantGpu{})};
    lease = system.cache().acquire({.id = RequestId{1}, .keys = keys_of(1, device_slots)}).value();
  };
  EXPECT_DEATH(outlive(), "misuse: the Cache is destroyed, and leases of it are alive \\(1\\): end them first");
}

TEST(CacheHandlesDeathTest, a_call_of_a_closed_system_is_named) {
  CacheSystem system{options_for(InstantGpu{})};
  ASSERT_TRUE(system.close(never).closed);
  EXPECT_DEATH((void)system.cache(), "misuse: a CacheSystem was called after its close\\(\\)");
}

TEST_F(CacheHandles, a_lease_of_another_cache_is_refused) {
  CacheSystem other{options_for(InstantGpu{})};
  const Lease lease = acquire(1, keys_of(1, 2));
  EXPECT_EQ(other.cache().block_table(lease).error(), Errc::unknown_request);
  EXPECT_NE(other.cache().block_table(lease).error().message().find("another one made it"), std::string::npos);
}

TEST_F(CacheHandles, a_lease_that_ends_on_another_thread_goes_back_in_the_next_call) {
  for (const bool by_poll : {true, false}) {
    Lease lease = acquire(1, keys_of(1, device_slots));
    EXPECT_EQ(cache().acquire({.id = RequestId{2}, .keys = keys_of(2, 1)}).error(), Errc::no_room);
    std::thread{[ending = std::move(lease)]() mutable { ending.reset(); }}.join();
    if (by_poll) (void)cache().poll();
    EXPECT_TRUE(cache().acquire({.id = RequestId{2}, .keys = keys_of(2, device_slots)}).has_value()) << by_poll;
  }
  Lease lease = acquire(1, keys_of(1, device_slots));
  std::thread{[ending = std::move(lease)]() mutable { ending.reset(); }}.join();
  EXPECT_EQ(cache().work_left().leases, 0U);
  lease = acquire(1, keys_of(1, device_slots));
  std::thread{[ending = std::move(lease)]() mutable { ending.reset(); }}.join();  // the end of the cache takes it back, too
}

TEST_F(CacheHandles, leases_end_on_other_threads_while_the_cache_serves) {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Lease> ended;
  bool over = false;
  const auto end_leases = [&] {
    for (;;) {
      Lease lease;
      std::unique_lock lock{mutex};
      changed.wait(lock, [&] { return over || !ended.empty(); });
      if (ended.empty()) return;
      lease = std::move(ended.front());
      ended.pop_front();
      lock.unlock();
      lease.used_until(no_longer_used);
    }
  };
  std::thread first{end_leases};
  std::thread second{end_leases};
  std::uint32_t served = 0;
  for (std::uint64_t id = 1; served < 2'000; ++id) {
    const auto keys = keys_of(static_cast<TokenId>(id % 7), 1 + id % 3);
    Result<Lease> lease = cache().acquire({.id = RequestId{id}, .keys = keys});
    (void)cache().poll();
    if (!lease) {
      ASSERT_EQ(lease.error(), Errc::no_room);
      continue;
    }
    ++served;
    if (cache().state(*lease) == RequestState::ready) {
      ASSERT_TRUE(cache().commit(*lease, keys, {}).has_value());
    }
    const std::lock_guard lock{mutex};
    ended.push_back(std::move(*lease));
    changed.notify_one();
  }
  {
    const std::lock_guard lock{mutex};
    over = true;
  }
  changed.notify_all();
  first.join();
  second.join();
  EXPECT_EQ(cache().work_left().leases, 0U);
  // Some slots may still be copied to the host.
  EXPECT_TRUE(test::comes_true([&] {
    (void)cache().poll();
    return cache().acquire({.id = RequestId{1'000'000}, .keys = keys_of(99, device_slots)}).has_value();
  }));
}

class DeviceHandles : public testing::TestWithParam<DeviceOptions> {
 protected:
  CacheSystem system_{options_for(GetParam())};
  Cache& cache_ = system_.cache();
};

TEST_P(DeviceHandles, a_fence_that_was_never_given_out_is_refused) {
  const auto keys = keys_of(1, 2);
  Lease lease = cache_.acquire({.id = RequestId{1}, .keys = keys}).value();
  ASSERT_TRUE(cache_.block_table(lease).has_value());
  const auto committed = cache_.commit(lease, keys, Fence{99});
  EXPECT_EQ(committed.error(), Errc::invalid_argument);
  EXPECT_NE(committed.error().message().find("the fence was never given out"), std::string::npos) << committed.error().message();
  EXPECT_EQ(cache_.advance(lease, 1, Fence{99}).error(), Errc::invalid_argument);
  const Fence done = cache_.signal({}).value();
  EXPECT_TRUE(cache_.commit(lease, keys, done).has_value());
  cache_.release(std::move(lease), Fence{99});  // the same as without a fence: the slots wait for all work
  while (cache_.acquire({.id = RequestId{2}, .keys = keys_of(2, device_slots)}).error() == Errc::no_room) {
    (void)cache_.signal({});
    (void)cache_.poll();
  }
}

TEST_P(DeviceHandles, no_stream_stands_for_the_calling_thread) {
  const auto keys = keys_of(1, device_slots);
  for (std::uint64_t id = 1; id <= 3; ++id) {  // the third request loads what the second has displaced
    const auto wanted = id == 2 ? keys_of(2, device_slots) : keys;
    Lease lease = cache_.acquire({.id = RequestId{id}, .keys = wanted}).value();
    Result<void> ordered = cache_.await(lease, Cache::all_layers, {});
    while (!ordered && ordered.error() == Errc::not_ready) {
      (void)cache_.poll();
      ordered = cache_.await(lease, Cache::all_layers, {});
    }
    ASSERT_TRUE(ordered.has_value()) << ordered.error().message();
    ASSERT_TRUE(cache_.block_table(lease).has_value());
    ASSERT_TRUE(cache_.wait(lease).has_value());
    if (id == 3) {
      EXPECT_EQ(cache_.hit_sources(lease)->size(), device_slots);
    }
    const Fence done = cache_.signal({}).value();
    ASSERT_TRUE(cache_.commit(lease, wanted, done).has_value());
    cache_.release(std::move(lease), done);
  }
  EXPECT_EQ(cache_.signal({}, 1).error().message(), "there is no such rank: ranks count from 0, in the order of "
                                                    "CacheSystemOptions::ranks");
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceHandles, testing::Values(DeviceOptions{InstantGpu{}}, DeviceOptions{EmulatedGpu{}}));

TEST(WritePolicyDefault, is_write_through_wherever_there_is_storage) {
  CacheSystemOptions options = options_for(InstantGpu{});
  EXPECT_EQ(CacheSystem{options}.cache().settings().write_policy, WritePolicy::none);
  options.storage = MemoryStorage{MiB};
  CacheSystem system{options};
  EXPECT_EQ(system.cache().settings().write_policy, WritePolicy::write_through);
  const auto keys = keys_of(1, 2);
  Lease lease = system.cache().acquire({.id = RequestId{1}, .keys = keys}).value();
  ASSERT_TRUE(system.cache().commit(lease, keys, {}).has_value());
  lease.reset();
  system.cache().drain();
  EXPECT_EQ(system.cache().moved().storage_writes.blocks, 2U);
  options.write_policy = WritePolicy::none;
  EXPECT_EQ(CacheSystem{options}.cache().settings().write_policy, WritePolicy::none);
}

}  // namespace
}  // namespace terrace
