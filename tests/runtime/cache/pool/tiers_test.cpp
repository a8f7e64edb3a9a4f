// Swap-out, swap-in, cancelled eviction, joined loads, and what each inclusion policy does with the two copies.

#include "base/random.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/policies.hpp"
#include "tests/runtime/fixture.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::test {
namespace {

class Tiers : public CacheFixture {
 protected:
  /// Fills the device with a prefix and evicts it to the host.
  void push_down(std::uint64_t id) {
    run(id, keys_of({1, 2}));
    run(id + 1, keys_of({8, 9}));
  }
  /// A request writes a block after its prompt. Before it commits this block, another request has cached the same content, of
  /// which only the host copy is left.
  void write_what_the_host_has() {
    ASSERT_TRUE(acquire(1, keys_of({1})).has_value());
    ASSERT_TRUE(cache->extend(leases.at(1), 1).has_value());
    run(2, keys_of({1, 2}));
    run(3, keys_of({7, 8, 9}));
    ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
    EXPECT_TRUE(commit(1, keys_of({1, 2}))->empty());
    EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  }
};

TEST_F(Tiers, without_a_host_tier_eviction_drops) {
  make(sizes(2));
  push_down(1);
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  EXPECT_EQ(cache->manager().stats().dropped_lost, 2U);
}

TEST_F(Tiers, drop_stops_at_a_copy_that_is_read) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1}));
  device->stuck(Direction::swap_out, true);
  run(2, keys_of({1, 2}));
  EXPECT_EQ(cache->drop(keys_of({1, 2})).value(), 0U) << "a swap-out to staging reads the second block";
  device->stuck(Direction::swap_out, false);
  settle();
  EXPECT_EQ(cache->drop(keys_of({1, 2})).value(), 2U);
}

TEST_F(Tiers, a_device_slot_is_free_only_when_the_device_has_confirmed_the_copy) {
  make(sizes(2, 4));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({8, 9})).has_value());
  poll();
  EXPECT_FALSE(ready(2));
  EXPECT_EQ(free_on_device(), 0U);
  EXPECT_EQ(resident(Tier::device), 2U);
  EXPECT_TRUE(ready_when_settled(2));
  expect_only_event(events, 2);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
}

TEST_F(Tiers, no_more_blocks_go_down_at_once_than_may) {
  ManagerConfig config = sizes(4, 8);
  config.evictions_in_flight_max = 1;
  make(config);
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7})).has_value());
  for (std::uint32_t gone = 0; gone < 3; ++gone) {
    poll();
    EXPECT_EQ(cache->manager().residency().slots_of(Tier::device).evicting_total(), 1U);
    EXPECT_EQ(resident(Tier::device), 4U - gone);
    EXPECT_FALSE(ready(2));
    device->run();
    poll();
    EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::host], gone + 1);
  }
  EXPECT_TRUE(ready(2));
}

TEST_F(Tiers, a_host_hit_is_loaded_before_the_request_is_ready) {
  make(sizes(4, 4));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  EXPECT_FALSE(ready(3));
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 2U);
  EXPECT_EQ(cache->moved().swap_in.blocks, 2U);
}

TEST_F(Tiers, keep_leaves_the_host_copy_and_drops_the_device_copy_for_nothing) {
  make(sizes(2, 6));
  push_down(1);
  run(3, keys_of({1, 2}));
  const std::uint64_t out = cache->moved().swap_out.blocks;
  EXPECT_EQ(resident(Tier::host), 4U);  // both prefixes
  run(4, keys_of({8, 9}));
  EXPECT_EQ(cache->moved().swap_out.blocks, out);  // {1, 2} was still in the host
  EXPECT_GE(cache->manager().stats().dropped_clean, 2U);
}

TEST_F(Tiers, what_is_committed_over_a_host_copy_takes_the_callers_slot_and_keeps_the_copy) {
  make(sizes(4, 6));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  const auto keys = keys_of({1, 2});
  acquire_with(3, keys, [](AcquireRequest& wanted) { wanted.hit_units_max = 0; });  // it computes them itself
  settle();
  const auto own = table(3);
  EXPECT_EQ(commit(3, keys)->size(), 0U);
  EXPECT_EQ(table(3), own);
  EXPECT_EQ(cache->match(keys).found[Source::device], 2U);
  EXPECT_EQ(cache->moved().swap_in.blocks, 0U);
  release(3);
  // The host copies still exist, so dropping the device copies costs nothing.
  const std::uint64_t moved = cache->moved().swap_out.blocks;
  EXPECT_EQ(cache->drop(keys_of({5, 6, 7, 8})).value(), 2U);
  run(4, keys_of({11, 12, 13, 14}));
  EXPECT_EQ(cache->match(keys).found[Source::host], 2U);
  EXPECT_EQ(cache->moved().swap_out.blocks, moved);
}

TEST_F(Tiers, what_is_committed_over_a_host_copy_gives_that_back_where_copies_are_exclusive) {
  make(sizes(4, 6, InclusionPolicy::exclusive));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  const auto keys = keys_of({1, 2});
  acquire_with(3, keys, [](AcquireRequest& wanted) { wanted.hit_units_max = 0; });
  settle();
  const std::uint64_t in_host = resident(Tier::host);
  EXPECT_EQ(commit(3, keys)->size(), 0U);
  EXPECT_EQ(cache->match(keys).found[Source::device], 2U);
  EXPECT_EQ(resident(Tier::host), in_host - 2);
}

TEST_F(Tiers, exclusive_frees_the_host_slot_of_a_hit) {
  make(sizes(2, 6, InclusionPolicy::exclusive));
  push_down(1);
  EXPECT_EQ(resident(Tier::host), 2U);
  run(3, keys_of({1, 2}));
  EXPECT_EQ(resident(Tier::host), 2U);  // {8, 9} now; {1, 2} is only on the device
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  EXPECT_EQ(cache->match(keys_of({8, 9})).found[Source::host], 2U);
}

TEST_F(Tiers, inclusive_copies_down_at_once_and_evicts_for_nothing) {
  make(sizes(2, 6, InclusionPolicy::inclusive));
  run(1, keys_of({1, 2}));
  EXPECT_EQ(resident(Tier::host), 2U);
  EXPECT_EQ(cache->moved().swap_out.blocks, 2U);
  ASSERT_TRUE(acquire(2, keys_of({8, 9})).has_value());
  EXPECT_TRUE(ready(2));  // nothing to wait for
}

TEST_F(Tiers, a_block_hit_while_it_leaves_stays_on_the_device) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(acquire(3, keys_of({8, 9})).has_value());  // evicts {1, 2}
  poll();
  ASSERT_FALSE(ready(3));
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  EXPECT_TRUE(ready(4));
  EXPECT_EQ(stats(4).found[Source::device], 2U);
  EXPECT_EQ(cache->manager().stats().evictions_cancelled, 2U);
  EXPECT_TRUE(ready_when_settled(3));  // planned again: {5, 6} was evicted instead
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  EXPECT_EQ(cache->match(keys_of({5, 6})).found[Source::host], 2U);
}

TEST_F(Tiers, an_eviction_is_not_cancelled_if_that_would_break_a_promise) {
  make(sizes(2, 8));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({8, 9})).has_value());
  EXPECT_EQ(acquire(3, keys_of({1, 2})).error(), Errc::no_room);
  EXPECT_TRUE(ready_when_settled(2));
}

TEST_F(Tiers, a_commit_of_cached_blocks_leaves_the_slots_that_a_waiting_request_was_promised) {
  make(sizes(12, 16));
  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
  ASSERT_TRUE(acquire(1, keys, 1).has_value());
  run(2, keys);
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13, 14})).has_value());  // three slots are free, and one of the cached blocks has to go
  ASSERT_FALSE(ready(3));
  EXPECT_EQ(commit(1, keys)->size(), 3U);
  EXPECT_EQ(cache->committed_units(leases.at(1))->value(), 3U);
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_EQ(commit(1, keys)->size(), 0U) << "the block is not cached on the device any more";
  EXPECT_EQ(cache->committed_units(leases.at(1))->value(), 4U);
}

TEST_F(Tiers, requests_for_a_block_on_its_way_up_share_one_copy) {
  make(sizes(6, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  settle();
  release(3);
  run(4, keys_of({3, 4, 5, 6, 7, 8}));
  const std::uint64_t in = cache->moved().swap_in.blocks;
  ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
  while (!(device->commands(Direction::swap_in) > 0)) {
    device->run();
    poll();
    if (ready(5)) break;
  }
  ASSERT_TRUE(acquire(6, keys_of({1, 2, 9})).has_value());
  EXPECT_TRUE(ready_when_settled(5));
  EXPECT_TRUE(ready(6));
  EXPECT_EQ(stats(6).found[Source::host] + stats(6).found[Source::device], 2U);
  EXPECT_EQ(cache->moved().swap_in.blocks, in + 2);
  EXPECT_EQ(table(5)[0], table(6)[0]);
}

TEST_F(Tiers, victims_are_dropped_where_the_host_has_no_room_for_them) {
  make(sizes(4, 1));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  EXPECT_GT(cache->manager().stats().dropped_lost, 0U);
  EXPECT_LE(resident(Tier::host), 1U);
  cache->manager().check_invariants();
}

TEST_F(Tiers, extend_drops_a_copy_that_a_lower_tier_has_before_one_that_it_has_not) {
  make(sizes(4, 8));
  run(1, keys_of({1}));
  run(2, keys_of({5, 6, 7, 8}));  // swaps {1} out
  run(3, keys_of({1}));           // and loads it: it is clean, and the most recently used
  ASSERT_TRUE(acquire(4, keys_of({3})).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  const std::uint64_t lost = cache->manager().stats().dropped_lost;
  ASSERT_TRUE(cache->extend(leases.at(4), 1).has_value());
  EXPECT_EQ(cache->match(keys_of({1})).found[Source::host], 1U);
  EXPECT_EQ(cache->manager().stats().dropped_lost, lost);
  ASSERT_TRUE(cache->extend(leases.at(4), 1).has_value());
  EXPECT_EQ(cache->manager().stats().dropped_lost, lost + 1);
}

TEST_F(Tiers, a_failed_swap_out_loses_the_block_and_serves_the_request) {
  make(sizes(2, 4));
  run(1, keys_of({1, 2}));
  device->fail_next(Direction::swap_out);
  run(2, keys_of({8, 9}));
  EXPECT_EQ(cache->match(keys_of({8, 9})).found[Source::device], 2U);
  EXPECT_GT(cache->manager().stats().dropped_lost, 0U);
}

TEST_F(Tiers, a_failed_swap_in_is_planned_again) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  device->fail_next(Direction::swap_in);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(cache->manager().stats().replans, 1U);
  EXPECT_EQ(stats(3).found[Source::host], 2U);  // the host copies were still valid
}

TEST_F(Tiers, a_block_whose_load_fails_for_good_is_a_miss) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  for (int i = 0; i < 3; ++i) device->fail_next(Direction::swap_in);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 0U);
  EXPECT_EQ(stats(3).miss, 2U);
}

TEST_F(Tiers, a_frozen_stream_fails_the_request_at_its_deadline_and_quarantines_its_slots) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));
  const auto keys = keys_of({1, 2});
  AcquireRequest wanted = request(4, keys);
  wanted.deadline = clock.now() + std::chrono::milliseconds{10};
  device->stuck(Direction::swap_in, true);
  leases[4] = cache->acquire(wanted).value();
  settle();
  ASSERT_FALSE(ready(4));
  clock.advance(std::chrono::milliseconds{11});
  settle();
  ASSERT_EQ(events.back().id, RequestId{4});
  EXPECT_EQ(events.back().error, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 2U);
  release(4);
  settle();
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 2U);  // the device may still write there
  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
}

TEST_F(Tiers, an_aborted_request_gives_everything_back) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2}), 1).has_value());
  ASSERT_FALSE(ready(3));
  release(3);
  settle();
  EXPECT_FALSE(cache->has_pending_work());
  cache->manager().check_invariants();
  EXPECT_EQ(cache->manager().device_ledger().held, 0U);
}

TEST_F(Tiers, a_commit_stops_before_a_block_that_is_being_loaded_and_says_so) {
  make(sizes(6, 8));
  const auto keys = keys_of({1, 2});
  const auto others = keys_of({11, 12, 13, 14, 15, 16});
  run(1, keys);
  run(2, others);
  ASSERT_TRUE(cache->drop(others).has_value());
  AcquireRequest computes = request(3, keys);
  computes.farthest_source = Source::device;
  leases[3] = *cache->acquire(computes);
  ASSERT_TRUE(ready(3));
  ASSERT_TRUE(acquire(4, keys).has_value());
  ASSERT_FALSE(ready(4));
  ASSERT_TRUE(commit(3, keys).has_value());
  EXPECT_EQ(cache->committed_units(leases.at(3)).value(), HashUnits{0});
  EXPECT_EQ(cache->committed_units(leases.at(4)).error(), Errc::not_ready);
  settle();
  ASSERT_TRUE(commit(3, keys).has_value());
  EXPECT_EQ(cache->committed_units(leases.at(3)).value(), HashUnits{2});
}

TEST_F(Tiers, transfers_wait_for_the_compute_that_writes_their_source) {
  make(sizes(2, 4, InclusionPolicy::inclusive));
  const auto keys = keys_of({1});
  ASSERT_TRUE(acquire(1, keys).has_value());
  const SlotId slot = table(1)[0];
  const Fence fence = device->launch([slot](BlockAccess& access) {
    std::vector<std::byte> scratch(block_bytes);
    const auto block = access.write_target(slot, scratch);
    std::memset(block.data(), 0x5A, block.size());
    access.written(slot, scratch);
  });
  ASSERT_TRUE(cache->commit(leases.at(1), keys, fence).has_value());
  poll();
  for (const SimulatedDevice::Part part : device->step_options()) EXPECT_EQ(part, SimulatedDevice::Part::compute);
  settle();
  const Copy host = cache->manager().residency().copy({cache->manager().residency().tree().find(keys).node, 0}, Tier::host);
  EXPECT_EQ(arena->block(host.slot())[0], std::byte{0x5A});
}

// ---- runs of blocks that leave the device together, and the runs of host copies that make room for them

/// An LRU policy that counts how often it is asked for a victim.
class CountedPolicy final : public EvictionPolicy {
 public:
  CountedPolicy(std::uint32_t capacity, std::uint64_t& asked) : policy_{lru_policy(capacity)}, asked_{asked} {}

  [[nodiscard]] bool keeps_pinned() const override { return policy_->keeps_pinned(); }
  void on_evictable(const Leaf& leaf) override { policy_->on_evictable(leaf); }
  void on_unevictable(NodeId node) override { policy_->on_unevictable(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    ++asked_;
    return policy_->victim();
  }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override {
    return policy_->alike_from(node, depth);
  }
  [[nodiscard]] std::size_t candidates() const override { return policy_->candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return policy_->bytes_held(); }
  void check_invariants() const override { policy_->check_invariants(); }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  std::uint64_t& asked_;
};

class SwapOutRuns : public CacheFixture {};

TEST_F(SwapOutRuns, the_host_chooses_victims_for_a_run_and_not_for_each_of_its_blocks) {
  std::uint64_t asked = 0;
  ManagerConfig config = sizes(100, 150);
  config.policy = [&](std::uint32_t capacity) { return std::make_unique<CountedPolicy>(capacity, asked); };
  make(config);
  for (std::uint64_t id = 1; id <= 3; ++id) run(id, keys_from(1000 * static_cast<std::uint32_t>(id), 100));
  EXPECT_EQ(totals().evicted_host, 50U);
  asked = 0;
  run(4, keys_from(4000, 100));
  EXPECT_EQ(totals().evicted_host, 150U);
  EXPECT_LT(asked, 50U);
  // The begin of the second prompt is left: a prefix goes from its end.
  EXPECT_EQ(cache->match(keys_from(1000, 100)).total(), 0U);
  EXPECT_EQ(cache->match(keys_from(2000, 100)).found[Source::host], 50U);
  EXPECT_EQ(cache->match(keys_from(3000, 100)).found[Source::host], 100U);
}

TEST_F(SwapOutRuns, blocks_that_leave_together_go_where_they_would_go_one_by_one) {
  // Conversations that share their first blocks and grow, in a host that is always full.
  const auto serve = [&](std::uint32_t evictions_in_flight_max, std::vector<std::uint64_t>& found) {
    ManagerConfig config = sizes(40, 60);
    // By LRU, what has just come to the host goes last. By rank it may go first, so that the number of copies under way matters.
    config.policy = lru_policy;
    config.evictions_in_flight_max = evictions_in_flight_max;
    cache.reset();
    transfers.reset();
    device.reset();
    make(config);
    Random random{7};
    std::vector<std::vector<std::uint32_t>> conversations(12);
    for (std::uint32_t i = 0; i < 300; ++i) {
      std::vector<std::uint32_t>& names = conversations[random.below(conversations.size())];
      if (names.size() > 20) names.clear();
      if (names.empty()) names.assign(random.between(0, 3), 7);
      names.resize(names.size() + random.between(1, 8), 10 + i);
      const std::vector<BlockKey> keys = keys_of(names);
      const MatchResult match = cache->match(keys);
      found.push_back(match.found[Source::device]);
      found.push_back(match.found[Source::host]);
      EXPECT_TRUE(acquire(i, keys).has_value());
      while (!ready(i)) settle();
      EXPECT_TRUE(commit(i, keys).has_value());
      release(i);
      settle();
    }
    return totals();
  };
  std::vector<std::uint64_t> found_one_by_one;
  const ManagerStats one_by_one = serve(1, found_one_by_one);
  std::vector<std::uint64_t> found_together;
  const ManagerStats together = serve(0, found_together);
  EXPECT_EQ(found_together, found_one_by_one);
  EXPECT_EQ(together.evicted_device, one_by_one.evicted_device);
  EXPECT_EQ(together.evicted_host, one_by_one.evicted_host);
  EXPECT_EQ(together.dropped_clean, one_by_one.dropped_clean);
  EXPECT_EQ(together.dropped_lost, one_by_one.dropped_lost);
  EXPECT_GT(together.evicted_host, 300U);
}

TEST_F(SwapOutRuns, host_copies_that_are_being_stored_become_staging_when_they_go_in_a_run) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_back);
  config.pools[0].staging_blocks = 8;
  make(config);
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  // The last block of the first prefix is stored, and before it those that it follows. Their host copies go meanwhile.
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13, 14})).has_value());
  EXPECT_EQ(totals().evicted_host, 4U);
  EXPECT_EQ(totals().dropped_lost, 0U);
  EXPECT_EQ(cache->manager().host_ledger().held, 4U);
  settle();
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::storage], 4U);
  EXPECT_EQ(cache->match(keys_of({5, 6, 7, 8})).found[Source::host], 4U);
}

TEST_F(SwapOutRuns, a_run_of_host_copies_that_nothing_else_has_is_stored_before_it_goes) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_back);
  config.pools[0].staging_blocks = 1;
  make(config);
  for (std::uint32_t id = 1; id <= 6; ++id) run(id, keys_of({10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3}));
  const ManagerStats& stats = totals();
  EXPECT_EQ(stats.dropped_lost, stats.store_no_room);
  EXPECT_GT(stats.dropped_clean, 0U);
}

}  // namespace
}  // namespace terrace::test
