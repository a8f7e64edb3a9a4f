// Slots that are freed before a request needs them.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/fixture.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

class WatermarksTest : public CacheFixture {
 protected:
  static ManagerConfig with_marks(ManagerConfig config, Watermarks device, Watermarks host = {}) {
    config.device_watermarks = device;
    config.host_watermarks = host;
    return config;
  }
};

TEST_F(WatermarksTest, are_off_unless_asked_for) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  EXPECT_EQ(free_on_device(), 0U);
  EXPECT_EQ(totals().ahead_device + totals().ahead_host, 0U);
}

TEST_F(WatermarksTest, make_room_on_the_device_that_a_request_need_not_wait_for) {
  make(with_marks(sizes(10, 20), {0.2, 0.4}));
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(free_on_device(), 2U);  // not below the low watermark
  run(2, keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(free_on_device(), 4U);  // up to the high watermark
  EXPECT_EQ(totals().ahead_device, 3U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9})).total(), 9U);  // the evicted blocks are in the host
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13, 14})).has_value());
  EXPECT_TRUE(ready(3));
}

TEST_F(WatermarksTest, make_room_when_a_caller_asks_for_it) {
  make(sizes(6, 8));
  run(1, keys_of({1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(cache->make_room(Tier::device, Blocks{4}).has_value());
  settle();
  EXPECT_EQ(free_on_device(), 4U);
  EXPECT_EQ(totals().ahead_device, 4U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4, 5, 6})).total(), 6U);
  run(2, keys_of({7, 8, 9}));
  EXPECT_EQ(free_on_device(), 1U) << "once";
  EXPECT_EQ(cache->make_room(Tier::device, Blocks{7}).error(), Errc::never_fits);
  EXPECT_EQ(cache->make_room(Tier::storage, Blocks{1}).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->make_room(Tier::device, Blocks{1}, PoolId{3}).error(), Errc::invalid_argument);
}

TEST_F(WatermarksTest, make_room_where_no_tier_is_below) {
  make(sizes(6));
  run(1, keys_of({1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(cache->make_room(Tier::device, Blocks{4}).has_value());
  settle();
  EXPECT_EQ(free_on_device(), 4U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4, 5, 6})).total(), 2U);
}

TEST_F(WatermarksTest, make_room_in_the_host_and_of_what_nobody_holds) {
  make(sizes(4, 4));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(cache->make_room(Tier::host, Blocks{3}).has_value());
  settle();
  EXPECT_EQ(cache->usage(Tier::host).free, 3U);
  ASSERT_TRUE(acquire(3, keys_of({5, 6, 7})).has_value());
  ASSERT_TRUE(cache->make_room(Tier::device, Blocks{4}).has_value()) << "three of them are held";
  settle();
  EXPECT_EQ(free_on_device(), 1U);
}

TEST(Watermarks, use_the_lane_of_what_nobody_waits_for) {
  ManagerConfig config = sizes(4, 8);
  config.device_watermarks = {0.5, 0.5};
  CacheManager manager{config};
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request_for(1, keys);
  ASSERT_TRUE(manager.acquire(wanted).has_value());
  ASSERT_TRUE(manager.requests().commit(wanted.id, keys, Fence{}).has_value());
  manager.settle();
  ASSERT_TRUE(manager.requests().release(wanted.id, Fence{}).has_value());
  manager.settle();
  EXPECT_TRUE(manager.actions().transfers.empty());
  EXPECT_TRUE(manager.wants_reclaim());
  manager.settle_and_reclaim();
  EXPECT_FALSE(manager.wants_reclaim());
  ASSERT_EQ(manager.actions().transfers.size(), 1U);
  EXPECT_EQ(manager.actions().transfers[0].urgency, Urgency::make_room);
  EXPECT_TRUE(manager.actions().raises.empty());
  const TransferId ahead = manager.actions().transfers[0].id;
  manager.actions().clear();

  // A request that needs more than the free slots waits for a running swap-out. The copy then gets the urgency of the request.
  wanted.id = RequestId{2};
  const auto others = keys_of({7, 8, 9});
  wanted.keys = others;
  ASSERT_EQ(*manager.acquire(wanted), Acquired::pending);
  EXPECT_EQ(manager.actions().raises, std::vector{ahead});
  manager.actions().clear();
  ASSERT_TRUE(manager.requests().release(wanted.id, Fence{}).has_value());
  manager.settle();
  EXPECT_TRUE(manager.actions().raises.empty());  // it is raised only once
}

TEST_F(WatermarksTest, evict_in_portions_so_that_no_poll_is_long) {
  constexpr std::uint32_t blocks = 1000;
  make(with_marks(sizes(blocks, blocks), {0.5, 0.5}));
  ASSERT_TRUE(acquire(1, keys_from(1, blocks)).has_value());
  ASSERT_TRUE(commit(1, keys_from(1, blocks)).has_value());
  release(1);
  std::uint64_t before = 0;
  for (int polls = 0; cache->next_deadline() <= clock.now(); ++polls) {
    ASSERT_LT(polls, 100);
    poll();
    EXPECT_LE(totals().ahead_device - before, 128U);
    before = totals().ahead_device;
  }
  EXPECT_EQ(totals().ahead_device, blocks / 2);
}

/// Forwards raises, and records them.
class RaiseWatch final : public TransferPort {
 public:
  explicit RaiseWatch(TransferPort& port) : port_{port} {}
  void submit(Transfer plan) override { port_.submit(std::move(plan)); }
  void raise(TransferId id, Urgency urgency) override {
    raised.emplace_back(id, urgency);
    port_.raise(id, urgency);
  }
  void postpone(TransferId id, TimePoint deadline) override { port_.postpone(id, deadline); }
  void cancel(TransferId id) override { port_.cancel(id); }
  void limit(Urgency urgency, BytesPerSecond per_second) override { limits.emplace_back(urgency, per_second); }
  std::size_t poll(std::vector<TransferEvent>& out) override { return port_.poll(out); }
  [[nodiscard]] TimePoint next_deadline() const override { return port_.next_deadline(); }
  [[nodiscard]] Fence reached() const override { return port_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return port_.after_all_work(); }

  std::vector<std::pair<TransferId, Urgency>> raised;
  std::vector<std::pair<Urgency, BytesPerSecond>> limits;

 private:
  TransferPort& port_;
};

TEST_F(WatermarksTest, what_was_begun_ahead_is_urgent_once_somebody_waits_for_it) {
  make(with_marks(sizes(4, 8), {0.5, 0.5}));
  RaiseWatch requested{*transfers};
  cache = std::make_unique<Cache>(cache->manager().config(), CacheParts{requested, {{arena.get()}}, clock});
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3})).has_value());
  release(1);
  poll();
  EXPECT_TRUE(requested.raised.empty());
  ASSERT_TRUE(acquire(2, keys_of({7, 8, 9})).has_value());
  ASSERT_EQ(requested.raised.size(), 1U);  // the other swap-outs for the watermark are not raised
  EXPECT_EQ(requested.raised[0].second, Urgency::request);
  EXPECT_TRUE(ready_when_settled(2));
  // The limit applies to transfers that no request waits for.
  CacheSettings settings = cache->settings();
  settings.lane_rates[static_cast<std::size_t>(Urgency::store)] = per_second(MiB);
  ASSERT_TRUE(cache->change(settings).has_value());
  EXPECT_EQ(requested.limits, (std::vector{std::pair{Urgency::store, per_second(MiB)}}));
  settings.lane_rates[static_cast<std::size_t>(Urgency::request)] = per_second(MiB);
  EXPECT_EQ(cache->change(settings).error(), Errc::invalid_argument);
  release(2);
  settle();
  cache.reset();
}

TEST_F(WatermarksTest, of_the_device_do_nothing_if_no_block_is_copied_down) {
  make(with_marks(sizes(4), {0.5, 0.5}));
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(free_on_device(), 1U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 3U);
}

TEST_F(WatermarksTest, of_the_device_store_where_there_is_no_host_tier) {
  make(with_marks(with_storage(sizes(4), WritePolicy::write_back), {0.5, 0.5}));
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(free_on_device(), 2U);
}

TEST_F(WatermarksTest, leave_alone_what_is_held_or_pinned) {
  make(with_marks(sizes(4, 8), {0.5, 0.75}));
  run(1, keys_of({1}));
  const PinId pin = cache->pin(keys_of({1})).value();
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  ASSERT_TRUE(commit(2, keys_of({5, 6})).has_value());
  settle();
  EXPECT_EQ(free_on_device(), 1U);
  release(2);
  EXPECT_EQ(free_on_device(), 1U) << "poll() evicts, no other call";
  EXPECT_LE(cache->next_deadline(), clock.now());
  settle();
  EXPECT_EQ(free_on_device(), 3U);
  EXPECT_GT(cache->next_deadline(), clock.now());
  EXPECT_EQ(cache->match(keys_of({1})).found[Source::device], 1U);
  ASSERT_TRUE(cache->unpin(pin).has_value());
}

TEST_F(WatermarksTest, make_room_in_the_host_and_write_back_what_lives_nowhere_else) {
  make(with_marks(with_storage(sizes(2, 4), WritePolicy::write_back), {}, {0.25, 0.5}));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));
  settle();
  EXPECT_GE(cache->manager().usage(Tier::host).free, 1U);
  EXPECT_GE(totals().ahead_host, 1U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 2U);
  EXPECT_EQ(cache->match(keys_of({5, 6})).total(), 2U);
}

TEST_F(WatermarksTest, follow_the_size_of_the_pool) {
  make(with_marks(sizes(8, 8), {0.5, 0.5}));
  run(1, keys_of({1, 2, 3, 4}));
  EXPECT_EQ(free_on_device(), 4U);
  ASSERT_TRUE(cache->resize(Tier::device, 4).has_value());
  settle();
  EXPECT_EQ(free_on_device(), 2U);
}

std::string why_no_manager(const ManagerConfig& config) {
  return refusal_of<std::invalid_argument>([&] { const CacheManager manager{config}; });
}

TEST_F(WatermarksTest, keep_what_bursts_of_requests_need_if_a_reserve_is_allowed) {
  ManagerConfig config = sizes(100, 1000);
  config.device_reserve_max = 0.3;
  make(config);
  // Bursts of three requests, of four new blocks each. The cache does not poll in between.
  std::uint32_t name = 0;
  std::uint64_t id = 0;
  const auto burst = [&] {
    std::array<std::vector<BlockKey>, 3> prompts;
    std::uint64_t waiting = 0;
    for (auto& keys : prompts) {
      keys = keys_of({name + 1, name + 2, name + 3, name + 4});
      name += 4;
      EXPECT_TRUE(acquire(++id, keys).has_value());
      waiting += ready(id) ? 0U : 1U;
    }
    settle();
    for (std::uint64_t n = 0; n < 3; ++n) {
      EXPECT_TRUE(commit(id - 2 + n, prompts[n]).has_value());
      release(id - 2 + n);
    }
    settle();
    return waiting;
  };
  std::uint64_t waited = 0;
  for (int n = 0; n < 100; ++n) waited += burst();
  EXPECT_GT(waited, 0U) << "the first ones teach what is needed";
  EXPECT_LT(waited, 10U);
  for (int n = 0; n < 20; ++n) EXPECT_EQ(burst(), 0U);
  EXPECT_GE(free_on_device(), 12U);
  EXPECT_LE(free_on_device(), 20U) << "no more than they need, although 30 are allowed";
}

TEST(WatermarksConfig, that_make_no_sense_are_refused_and_it_says_why) {
  ManagerConfig config = sizes(4, 4);
  for (const Watermarks wrong : {Watermarks{0.5, 0.25}, Watermarks{-0.1, 0.5}, Watermarks{0.5, 1},
                                 Watermarks{std::numeric_limits<double>::quiet_NaN(), 0.5}}) {
    config.device_watermarks = wrong;
    EXPECT_NE(why_no_manager(config).find("watermarks of the device: low"), std::string::npos);
  }
  config.device_watermarks = {};
  for (const double wrong : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    config.device_reserve_max = wrong;
    EXPECT_NE(why_no_manager(config).find("device_reserve_max is"), std::string::npos);
  }
  config.device_reserve_max = 0;
  config.host_watermarks = {0.1, 0.2};
  EXPECT_EQ(why_no_manager(config), "");
}

}  // namespace
}  // namespace terrace::test
