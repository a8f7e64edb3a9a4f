// Blocks that are brought up for requests which have not come yet.

#include "tests/runtime/shared_fixture.hpp"

#include <chrono>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class PrefetchTest : public SharedFixture {
 protected:
  static ManagerConfig tiers(std::uint32_t device, std::uint32_t host,
                             InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive) {
    ManagerConfig config = with_storage(sizes(device, host, inclusion), WritePolicy::write_through);
    config.loads = LoadPolicy::always;
    config.pools[0].staging_blocks = 16;
    return config;
  }
  /// Computes the blocks, which are in storage afterwards, and in no other tier.
  void store_only(std::uint64_t id, const std::vector<BlockKey>& keys) {
    serve(id, keys);
    ASSERT_TRUE(cache->drop(keys).has_value());
    ASSERT_EQ(cache->match(keys).found[Source::storage], keys.size());
  }
  Result<PrefetchId> prefetch(const std::vector<BlockKey>& keys, Source farthest = Source::shared, TimePoint deadline = never) {
    PrefetchOrder order;
    order.keys = keys;
    order.farthest_source = farthest;
    order.deadline = deadline;
    return cache->prefetch(order);
  }
  [[nodiscard]] std::uint32_t in_host(const std::vector<BlockKey>& keys) const { return cache->match(keys).found[Source::host]; }
  [[nodiscard]] PrefetchTotals prefetches() const { return cache->prefetch_totals(); }
};

TEST_F(PrefetchTest, brings_blocks_of_storage_to_the_host_and_no_further) {
  for (const InclusionPolicy inclusion : {InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive,
                                          InclusionPolicy::exclusive, InclusionPolicy::inclusive}) {
    SCOPED_TRACE(to_string(inclusion));
    make(tiers(16, 32, inclusion));
    const auto keys = keys_from(1, 6);
    store_only(1, keys);
    const std::uint64_t free = free_on_device();
    const PrefetchId id = prefetch(keys).value();
    EXPECT_TRUE(cache->prefetching(id));
    settle();
    EXPECT_FALSE(cache->prefetching(id));
    EXPECT_EQ(in_host(keys), 6U);
    EXPECT_EQ(free_on_device(), free);
    EXPECT_EQ(prefetches().from_storage, 6U);
    ASSERT_TRUE(acquire(2, keys).has_value());
    settle();
    EXPECT_EQ(stats(2).found[Source::host], 6U);
    use(2, keys);
    settle();
    EXPECT_EQ(compared, 6U);
    EXPECT_EQ(cache->moved().storage_reads.blocks, 6U) << "each block was read once";
    compared = 0;
    leases.clear();
    cache.reset();
    transfers.reset();
  }
}

TEST_F(PrefetchTest, needs_no_slot_of_a_device_that_is_full) {
  make(tiers(8, 32));
  const auto keys = keys_from(1, 4);
  store_only(1, keys);
  ASSERT_TRUE(acquire(2, keys_from(100, 8)).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  ASSERT_TRUE(prefetch(keys).has_value());
  settle();
  EXPECT_EQ(in_host(keys), 4U);
}

TEST_F(PrefetchTest, makes_a_request_that_comes_meanwhile_wait_and_its_blocks_are_read_once) {
  make(tiers(16, 32));
  const auto keys = keys_from(1, 6);
  store_only(1, keys);
  cache->pause_transfers();
  const PrefetchId id = prefetch(keys).value();
  ASSERT_TRUE(acquire(2, keys, 1).has_value());
  EXPECT_EQ(state(2), RequestState::waiting);
  EXPECT_EQ(held_on_device(), 0U);
  EXPECT_EQ(cache->usage(Tier::device).promised, 0U);
  ASSERT_TRUE(acquire(3, keys_from(50, 2)).has_value());
  EXPECT_TRUE(ready(3)) << "it wants other blocks";
  EXPECT_EQ(prefetches().joined, 1U);
  cache->resume_transfers();
  settle();
  EXPECT_FALSE(cache->prefetching(id));
  ASSERT_TRUE(ready(2));
  EXPECT_EQ(stats(2).found[Source::host], 6U);
  EXPECT_EQ(cache->moved().storage_reads.blocks, 6U);
  use(2, keys);
}

TEST_F(PrefetchTest, lets_a_request_go_that_does_not_want_blocks_from_there) {
  make(tiers(16, 32));
  const auto keys = keys_from(1, 6);
  store_only(1, keys);
  cache->pause_transfers();
  ASSERT_TRUE(prefetch(keys).has_value());
  AcquireRequest wanted = request(2, keys);
  wanted.farthest_source = Source::host;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_TRUE(ready(2));
  // The device gets the blocks now. The prefetch does not bring them a second time.
  (void)compute(2, keys, 0);
  ASSERT_TRUE(commit(2, keys).has_value());
  cache->resume_transfers();
  settle();
  EXPECT_EQ(prefetches().failed, 0U);
  use(2, keys);
}

TEST_F(PrefetchTest, leaves_no_second_copy_of_what_the_device_gets_meanwhile) {
  make_shared(with_shared(sizes(16, 32, InclusionPolicy::exclusive)));
  const auto keys = keys_from(1, 3);
  put(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(prefetch(keys).has_value());
  cache->end_step();
  store_of_others.answer_probes();
  poll();
  ASSERT_EQ(store_of_others.reads.size(), 3U);
  AcquireRequest wanted = request(1, keys);
  wanted.farthest_source = Source::storage;
  leases[1] = cache->acquire(wanted).value();
  const Fence written = compute(1, keys, 0);
  ASSERT_TRUE(cache->commit(leases.at(1), keys, written).has_value());
  let_others_answer();
  EXPECT_EQ(resident(Tier::device), 3U);
  EXPECT_EQ(resident(Tier::host), 0U);
  EXPECT_EQ(prefetches().failed, 0U);
  end(1, written);
}

TEST_F(PrefetchTest, asks_the_shared_store_and_brings_its_blocks) {
  make_shared(with_shared(sizes(16, 32)));
  const auto keys = keys_from(1, 6);
  serve(1, keys_from(1, 2));
  put(keys);
  const std::size_t before = store_of_others.probed;
  store_of_others.answers = false;
  const PrefetchId id = prefetch(keys).value();
  cache->end_step();
  ASSERT_EQ(store_of_others.probes.size(), 1U);
  EXPECT_EQ(store_of_others.probes[0].keys, (std::vector<BlockKey>{keys.begin() + 2, keys.end()}));
  let_others_answer();
  EXPECT_FALSE(cache->prefetching(id));
  EXPECT_EQ(in_host(keys), 4U);
  EXPECT_EQ(prefetches().from_shared, 4U);
  ASSERT_TRUE(acquire(2, keys).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::device], 2U);
  EXPECT_EQ(stats(2).found[Source::host], 4U);
  EXPECT_FALSE(stats(2).looked);
  EXPECT_EQ(store_of_others.probed, before + 1);
  use(2, keys);
}

TEST_F(PrefetchTest, is_forbidden_the_shared_store) {
  make_shared(with_shared(sizes(16, 32)));
  const auto keys = keys_from(1, 4);
  put(keys);
  EXPECT_FALSE(cache->prefetching(prefetch(keys, Source::storage).value())) << "there is nothing to bring";
  settle();
  EXPECT_EQ(store_of_others.probed, 0U);
}

TEST_F(PrefetchTest, that_asks_is_joined_by_a_request_which_does_not_ask_again) {
  make_shared(with_shared(sizes(16, 32)));
  const auto keys = keys_from(1, 6);
  put(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(prefetch(keys).has_value());
  ASSERT_TRUE(acquire(1, keys).has_value());
  EXPECT_EQ(state(1), RequestState::waiting);
  cache->end_step();
  store_of_others.answers = true;
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::host], 6U);
  EXPECT_EQ(store_of_others.probed, 1U);
  EXPECT_EQ(prefetches().joined, 1U);
  use(1, keys);
}

TEST_F(PrefetchTest, that_fails_costs_its_request_one_try) {
  make_shared(with_shared(sizes(16, 32)));
  const auto keys = keys_from(1, 6);
  put(keys);
  store_of_others.read_errors[keys[3]] = Errc::corrupt;
  store_of_others.answers = false;
  ASSERT_TRUE(prefetch(keys).has_value());
  ASSERT_TRUE(acquire(1, keys).has_value());
  cache->end_step();
  store_of_others.answers = true;
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::host], 3U);
  EXPECT_EQ(stats(1).miss, 3U) << "blocks after the damaged one are of no use";
  EXPECT_EQ(store_of_others.probed, 1U);
  EXPECT_EQ(totals().read_corrupt, 1U);
  EXPECT_GE(prefetches().failed, 1U);
  use(1, keys);
}

TEST_F(PrefetchTest, that_gets_no_answer_costs_a_request_no_more_than_the_deadline) {
  ManagerConfig config = with_shared(sizes(16, 32));
  config.unit_prefill_seconds = 0.01;
  make_shared(config);
  const auto keys = keys_from(1, 6);
  put(keys);
  store_of_others.answers = false;
  store_of_others.keeps_cancelled = true;
  const PrefetchId id = prefetch(keys, Source::shared, clock.now() + 15ms).value();
  cache->end_step();
  store_of_others.answer_probes();
  poll();
  ASSERT_EQ(store_of_others.reads.size(), 6U);
  ASSERT_TRUE(acquire(1, keys).has_value());
  EXPECT_EQ(state(1), RequestState::waiting);
  clock.advance(15ms);
  poll();
  EXPECT_FALSE(cache->prefetching(id));
  EXPECT_TRUE(ready(1));
  EXPECT_EQ(stats(1).miss, 6U);
  EXPECT_EQ(prefetches().failed, 6U);
  let_others_answer();
}

TEST_F(PrefetchTest, brings_at_most_a_quarter_of_the_host_tier_at_a_time) {
  make(tiers(32, 16));
  const auto keys = keys_from(1, 10);
  const auto others = keys_from(101, 3);
  store_only(1, keys);
  store_only(2, others);
  cache->pause_transfers();
  const PrefetchId first = prefetch(keys).value();
  const PrefetchId second = prefetch(others).value();
  EXPECT_TRUE(cache->prefetching(first));
  EXPECT_FALSE(cache->prefetching(second)) << "nothing is left for it";
  EXPECT_EQ(prefetches().cut, 2U);
  cache->resume_transfers();
  settle();
  EXPECT_EQ(in_host(keys), 4U);
  EXPECT_EQ(in_host(others), 0U);
  ASSERT_TRUE(prefetch(others).has_value());
  settle();
  EXPECT_EQ(in_host(others), 3U);
}

TEST_F(PrefetchTest, can_be_cancelled_and_its_request_loads_by_itself) {
  make(tiers(16, 32));
  const auto keys = keys_from(1, 6);
  store_only(1, keys);
  cache->pause_transfers();
  const PrefetchId id = prefetch(keys).value();
  ASSERT_TRUE(acquire(2, keys).has_value());
  ASSERT_TRUE(cache->cancel_prefetch(id).has_value());
  EXPECT_FALSE(cache->prefetching(id));
  EXPECT_EQ(cache->cancel_prefetch(id).error(), Errc::not_found);
  EXPECT_EQ(prefetches().cancelled, 1U);
  EXPECT_EQ(prefetches().failed, 0U);
  EXPECT_EQ(state(2), RequestState::waiting) << "for reads of its own";
  EXPECT_EQ(cache->manager().device_ledger().filling, 6U);
  cache->resume_transfers();
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::storage], 6U);
  use(2, keys);
}

TEST_F(PrefetchTest, that_asks_can_be_cancelled) {
  make_shared(with_shared(sizes(16, 32)));
  const auto keys = keys_from(1, 3);
  put(keys);
  store_of_others.answers = false;
  const PrefetchId id = prefetch(keys).value();
  cache->end_step();
  ASSERT_TRUE(cache->cancel_prefetch(id).has_value());
  EXPECT_FALSE(cache->prefetching(id));
  let_others_answer();
  EXPECT_EQ(in_host(keys), 0U);
}

TEST_F(PrefetchTest, that_asks_and_is_cancelled_lets_its_request_read_at_once) {
  make_shared(with_shared(tiers(16, 32)));
  store_only(1, keys_from(1, 4));
  store_of_others.answers = false;
  const PrefetchId id = prefetch(keys_from(1, 6)).value();
  ASSERT_TRUE(acquire(2, keys_from(1, 4)).has_value());
  EXPECT_EQ(prefetches().joined, 1U);
  ASSERT_TRUE(cache->cancel_prefetch(id).has_value());
  EXPECT_EQ(cache->work_left().reads, 4U) << "it does not wait for the next poll";
  store_of_others.answers = true;
  EXPECT_TRUE(ready_when_settled(2));
}

TEST_F(PrefetchTest, is_left_by_a_request_that_ends_or_runs_out_of_time) {
  make(tiers(16, 32));
  const auto keys = keys_from(1, 6);
  store_only(1, keys);
  cache->pause_transfers();
  ASSERT_TRUE(prefetch(keys).has_value());
  ASSERT_TRUE(acquire(2, keys).has_value());
  release(2);
  AcquireRequest wanted = request(3, keys);
  wanted.deadline = clock.now() + 5ms;
  leases[3] = cache->acquire(wanted).value();
  clock.advance(5ms);
  poll();
  EXPECT_EQ(failure(3), Errc::deadline_exceeded);
  cache->resume_transfers();
  settle();
  EXPECT_EQ(in_host(keys), 6U);
}

TEST_F(PrefetchTest, ends_with_a_clear_and_brings_nothing_of_before) {
  make_shared(with_shared(tiers(16, 32)));
  const auto stored = keys_from(1, 6);
  const auto shared_keys = keys_from(100, 3);
  store_only(1, stored);
  put(shared_keys);
  cache->pause_transfers();
  const PrefetchId reads = prefetch(stored).value();
  const PrefetchId asks = prefetch(shared_keys).value();
  ASSERT_TRUE(acquire(2, stored).has_value());
  cache->clear({});
  EXPECT_FALSE(cache->prefetching(reads));
  EXPECT_FALSE(cache->prefetching(asks));
  cache->resume_transfers();
  settle();
  EXPECT_EQ(failure(2), Errc::cleared);
  EXPECT_EQ(resident(Tier::host), 0U);
  EXPECT_EQ(cache->match(stored).total() + cache->match(shared_keys).total(), 0U);
}

TEST_F(PrefetchTest, breaks_no_promise_of_slots) {
  make_shared(with_shared(sizes(8, 32)));
  const auto keys = keys_from(1, 6);
  serve(1, keys_from(1, 4));
  put(keys);
  const auto acquire_here = [&](std::uint64_t id, const std::vector<BlockKey>& wanted_keys) {
    AcquireRequest wanted = request(id, wanted_keys);
    wanted.farthest_source = Source::storage;
    leases[id] = cache->acquire(wanted).value();
  };
  acquire_here(3, keys_from(200, 4));
  settle();
  acquire_here(4, keys_from(300, 4));
  EXPECT_EQ(state(4), RequestState::waiting) << "for the slots of blocks that are being swapped out";
  const PrefetchId id = prefetch(keys).value();
  cache->end_step();
  store_of_others.answer_probes();
  poll();
  EXPECT_FALSE(cache->prefetching(id)) << "it would pin these blocks";
  EXPECT_EQ(prefetches().cancelled, 1U);
  EXPECT_TRUE(ready_when_settled(4));
}

TEST_F(PrefetchTest, is_refused_without_a_host_tier_keys_or_sources) {
  make(tiers(16, 0));
  EXPECT_EQ(prefetch(keys_from(1, 2)).error().message(), "blocks are prefetched to the host tier, and there is none");
  cache.reset();
  transfers.reset();
  make(tiers(16, 32));
  EXPECT_EQ(prefetch({}).error().message(), "there are no keys: the prompt has no full block");
  EXPECT_EQ(prefetch(keys_from(1, 2), Source::host).error(), Errc::invalid_argument);
  cache->clear({.wait = true});
  EXPECT_EQ(prefetch(keys_from(1, 2)).error(), Errc::paused);
  EXPECT_EQ(prefetches().refused, 3U);
  EXPECT_EQ(prefetches().orders, 0U);
  ASSERT_TRUE(cache->resume().has_value());
  EXPECT_FALSE(cache->prefetching(prefetch(keys_from(1, 2)).value())) << "there is nothing to bring";
}

TEST_F(PrefetchTest, is_refused_beside_many_others) {
  make_shared(with_shared(sizes(16, 32)));
  store_of_others.answers = false;
  for (std::uint32_t i = 0; i < Prefetches::running_max; ++i) ASSERT_TRUE(prefetch(keys_from(1000 * i, 2)).has_value());
  EXPECT_EQ(prefetch(keys_from(1, 1)).error(), Errc::refused);
  store_of_others.answers = true;
}

TEST_F(PrefetchTest, ends_when_the_cache_is_drained) {
  make_shared(with_shared(sizes(16, 32)));
  put(keys_from(1, 3));
  store_of_others.answers = false;
  const PrefetchId id = prefetch(keys_from(1, 3)).value();
  cache->end_step();
  cache->prepare_drain();
  EXPECT_FALSE(cache->prefetching(id));
  cache->drain();
}

}  // namespace
}  // namespace terrace::test
