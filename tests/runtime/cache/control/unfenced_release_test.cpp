// Leases that end without used_until(), while compute continues.

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/system.hpp"
#include "tests/runtime/fixture.hpp"

#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>

namespace terrace::test {
namespace {

class UnfencedRelease : public CacheFixture {
 protected:
  /// Lets everything move except compute.
  void settle_copies() {
    for (int i = 0; i < 50; ++i) {
      for (const auto part : device->step_options()) {
        if (part != SimulatedDevice::Part::compute) device->step(part);
      }
      poll();
    }
  }
  /// Acts like a request with an exception: work is launched, perhaps without a fence, and the lease is lost.
  void launch_and_drop(std::uint64_t id, bool marked) {
    (void)table(id);
    if (marked) {
      (void)device->launch([](BlockAccess&) {});
    } else {
      device->launch_unseen([](BlockAccess&) {});
    }
    release(id);
  }
  [[nodiscard]] std::uint64_t quarantined() const { return cache->manager().device_ledger().quarantined; }
};

TEST_F(UnfencedRelease, keeps_swap_ins_out_of_slots_until_compute_has_left_them) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({11, 12, 13, 14})).has_value());
  settle();
  ASSERT_EQ(resident(Tier::host), 4U);
  launch_and_drop(2, true);
  EXPECT_EQ(quarantined(), 4U);
  EXPECT_EQ(cache->stats().released_unfenced, 1U);
  EXPECT_EQ(cache->stats().quarantined_unfenced, 4U);
  EXPECT_EQ(acquire(3, keys_of({1, 2, 3, 4})).error(), Errc::no_room);
  settle_copies();
  EXPECT_EQ(acquire(3, keys_of({1, 2, 3, 4})).error(), Errc::no_room);
  EXPECT_LE(cache->next_deadline(), clock.now() + std::chrono::milliseconds{1}) << "compute wakes nobody";
  device->run();
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3, 4})).has_value());
  EXPECT_EQ(quarantined(), 0U);
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 4U);
}

TEST_F(UnfencedRelease, waits_for_the_next_point_where_the_device_did_not_see_the_launch) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  const Fence earlier = device->launch([](BlockAccess&) {});
  launch_and_drop(1, false);
  // A fence that was made earlier, and is named only now, says nothing about work that was launched after it.
  ASSERT_TRUE(acquire(2, keys_of({3})).has_value());
  cache->release(std::move(leases.at(2)), earlier);
  settle();
  EXPECT_GE(device->reached(), earlier);
  EXPECT_EQ(quarantined(), 2U);
  (void)device->launch([](BlockAccess&) {});
  poll();
  EXPECT_EQ(quarantined(), 2U) << "given out, and not reached";
  settle();
  EXPECT_EQ(quarantined(), 0U);
  EXPECT_EQ(free_on_device(), 4U);
}

TEST_F(UnfencedRelease, keeps_the_blocks_that_were_hit_where_they_are_and_serves_them) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3, 4})).has_value());
  launch_and_drop(2, true);
  EXPECT_EQ(quarantined(), 1U);
  EXPECT_EQ(acquire(3, keys_of({7})).error(), Errc::no_room);
  ASSERT_TRUE(acquire(2, keys_of({1, 2})).has_value()) << "the name is free, and the blocks are hits";
  EXPECT_EQ(stats(2).found[Source::device], 2U);
  settle();
  EXPECT_TRUE(acquire(3, keys_of({7})).has_value());
}

TEST_F(UnfencedRelease, is_at_once_where_compute_has_nothing_of_the_request) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  (void)device->launch([](BlockAccess&) {});
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  ASSERT_FALSE(ready(2));
  release(2);
  settle_copies();
  ASSERT_TRUE(acquire(3, keys_of({5, 6})).has_value());
  settle_copies();
  ASSERT_TRUE(ready(3));
  release(3);  // its block table was never read
  ASSERT_TRUE(acquire(4, keys_of({5, 6})).has_value());
  settle_copies();
  (void)table(4);
  leases.at(4).used_until(no_longer_used);
  release(4);
  EXPECT_EQ(quarantined(), 0U);
  EXPECT_EQ(cache->stats().released_unfenced, 0U);
  EXPECT_EQ(free_on_device(), 2U);
}

TEST_F(UnfencedRelease, ends_when_the_caller_says_that_compute_is_idle) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  launch_and_drop(1, false);
  device->run();
  settle();
  EXPECT_EQ(quarantined(), 2U);
  EXPECT_EQ(cache->reset({}).error(), Errc::in_use);
  EXPECT_FALSE(cache->has_pending_work()) << "an end does not wait for compute";
  cache->compute_is_idle();
  EXPECT_EQ(quarantined(), 0U);
  EXPECT_TRUE(cache->reset({}).has_value());
}

TEST_F(UnfencedRelease, is_bounded) {
  make(sizes(4));
  run(1, keys_of({1}));
  for (std::uint64_t id = 2; id < 2 + Requests::quarantined_max; ++id) {
    ASSERT_TRUE(acquire(id, keys_of({1})).has_value());
    launch_and_drop(id, false);
  }
  EXPECT_EQ(acquire(1, keys_of({1})).error(), Errc::no_room);
  (void)device->launch([](BlockAccess&) {});
  settle();
  EXPECT_TRUE(acquire(1, keys_of({1})).has_value());
}

TEST_F(UnfencedRelease, goes_on_while_the_blocks_are_loaded_by_layer) {
  layers = 4;
  scheduler_config.pieces.bytes = Bytes{16};
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({11, 12, 13, 14}));
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request_for(3, keys, 1);
  wanted.by_layer = true;
  leases[3] = cache->acquire(wanted).value();
  events.clear();
  while (cache->state(leases.at(3)) == RequestState::waiting && events.empty()) {
    for (const auto part : device->step_options()) device->step(part);
    poll();
  }
  ASSERT_EQ(cache->state(leases.at(3)), RequestState::waiting);
  launch_and_drop(3, true);
  EXPECT_EQ(quarantined(), 1U);
  const std::size_t told = events.size();
  settle_copies();
  EXPECT_EQ(events.size(), told) << "nobody is told of it any more";
  EXPECT_EQ(cache->match(keys).found[Source::device], 3U) << "what it was loading is there for others";
  EXPECT_EQ(quarantined(), 1U);
  settle();
  EXPECT_EQ(quarantined(), 0U);
}

TEST_F(UnfencedRelease, a_known_last_use_covers_the_shared_slots_of_duplicates_too) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1})).has_value());
  ASSERT_TRUE(acquire(2, keys_of({1})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1})).has_value());
  const SlotId slot = commit(2, keys_of({1}))->front().shared;
  const Fence done = device->launch([](BlockAccess&) {});
  cache->release(std::move(leases.at(2)), done);
  EXPECT_EQ(cache->manager().residency().slots_of(Tier::device).fence(slot), done);
}

// ---- threads, and the loop

class UnfencedOnThreads : public testing::Test {
 protected:
  static constexpr std::uint32_t blocks = 8;
  static CacheSystemOptions options() {
    CacheSystemOptions made;
    made.pools = {{.block_bytes = KiB * 4, .device_blocks = blocks, .host_blocks = 4 * blocks}};
    return made;
  }
  static ComputeWork fills(std::vector<SlotId> slots, int value, std::shared_future<void> after = {}) {
    return [slots = std::move(slots), value, after](BlockAccess& access) {
      if (after.valid()) after.wait();
      std::vector<std::byte> scratch(count(KiB * 4));
      for (const SlotId slot : slots) {
        std::ranges::fill(access.write_target(slot, scratch), static_cast<std::byte>(value));
        access.written(slot, scratch);
      }
    };
  }
  /// Number of blocks that do not have the value.
  static std::size_t wrong(CacheSystem& stack, const std::vector<SlotId>& slots, int value) {
    std::promise<std::size_t> counted;
    (void)stack.device().launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(count(KiB * 4));
      counted.set_value(static_cast<std::size_t>(std::ranges::count_if(slots, [&](SlotId slot) {
        return std::ranges::any_of(access.read(slot, scratch), [&](std::byte b) { return b != static_cast<std::byte>(value); });
      })));
    });
    return counted.get_future().get();
  }
  std::promise<void> gate_;
};

TEST_F(UnfencedOnThreads, a_swap_in_does_not_meet_compute_whose_lease_was_lost_to_an_exception) {
  CacheSystem stack{options()};
  asio::thread_pool pool{2};
  AsyncCache runtime{pool.get_executor(), stack.cache()};
  const auto keys = keys_from(1, blocks);
  const auto others = keys_from(101, blocks);
  {
    Grant grant = runtime.acquire(request_for(1, keys), asio::use_future).get();
    const Fence done = stack.device().launch(fills(grant.table, 1));
    grant.lease.used_until(done);
    (void)runtime.commit(grant.lease, keys, done, asio::use_future).get();
  }
  const auto lost = [&] {
    const Grant grant = runtime.acquire(request_for(2, others), asio::use_future).get();
    (void)stack.device().launch(fills(grant.table, 2, gate_.get_future().share()));
    throw std::runtime_error{"between launch and commit"};
  };
  EXPECT_THROW(lost(), std::runtime_error);

  auto again = runtime.acquire(request_for(3, keys), asio::use_future);
  const auto is_there = [&] { return again.wait_for(std::chrono::seconds{0}) == std::future_status::ready; };
  while (!is_there() && runtime.perform(&Cache::stats, asio::use_future).get().refused_no_room == 0) std::this_thread::yield();
  EXPECT_FALSE(is_there()) << "its slots are those that compute is about to write";
  gate_.set_value();
  {
    Grant grant = again.get();
    EXPECT_EQ(grant.stats.found[Source::host], blocks);
    EXPECT_EQ(wrong(stack, grant.table, 1), 0U);
    grant.lease.used_until(no_longer_used);
  }
  EXPECT_EQ(runtime.perform(&Cache::stats, asio::use_future).get().released_unfenced, 1U);
  EXPECT_TRUE(runtime.stop(asio::use_future).get().none());
  pool.join();
}

TEST_F(UnfencedOnThreads, a_stop_does_not_wait_for_what_is_quarantined) {
  CacheSystem stack{options()};
  asio::thread_pool pool{2};
  const auto keys = keys_from(1, blocks);
  {
    AsyncCache runtime{pool.get_executor(), stack.cache()};
    {
      const Grant grant = runtime.acquire(request_for(1, keys), asio::use_future).get();
      (void)stack.device().launch(fills(grant.table, 1, gate_.get_future().share()));
    }
    EXPECT_TRUE(runtime.stop(asio::use_future).get().none());
    pool.join();
  }
  EXPECT_EQ(stack.cache().manager().device_ledger().quarantined, blocks);
  stack.cache().drain();
  gate_.set_value();
}

}  // namespace
}  // namespace terrace::test
