#include "tests/refusal.hpp"
#include "tests/runtime/offload/offload_fixture.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace terrace {
namespace {

using std::chrono::milliseconds;

TEST_F(Offload, brings_each_block_to_the_slot_that_the_caller_named) {
  make(sizes(8, KeyOrder::prefix));
  const auto keys = names({1, 2, 3});
  put(1, keys, 0, 10);
  EXPECT_EQ(results(1), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, {}}, {2, {}}}));
  EXPECT_TRUE(ended(1));
  const auto to = slots({15, 4, 9});
  ASSERT_TRUE(offload->load(order(2, keys, to)).has_value());
  settle();
  EXPECT_EQ(read(SlotId{15}), 10);
  EXPECT_EQ(read(SlotId{4}), 11);
  EXPECT_EQ(read(SlotId{9}), 12);
  EXPECT_TRUE(ended(2));
  EXPECT_EQ(offload->totals().stored, 3U);
  EXPECT_EQ(offload->totals().loaded_host, 3U);
  EXPECT_EQ(cache->moved().swap_in.blocks, 3U);
  cache->manager().check_invariants();
}

TEST_F(Offload, a_job_completes_in_part_with_a_result_for_each_block) {
  make(sizes(8, KeyOrder::flat));
  put(1, names({1, 3}), 0, 10);
  ASSERT_TRUE(offload->load(order(2, names({1, 2, 3}), slots({5, 6, 7}))).has_value());
  settle();
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, Errc::not_found}, {2, {}}}));
  EXPECT_EQ(events.back().kind, OffloadEvent::Kind::ended);
  EXPECT_EQ(events.back().moved, 2U);
  EXPECT_EQ(events.back().failed, 1U);
  EXPECT_EQ(events.back().error, Errc::not_found);
  EXPECT_EQ(offload->totals().load_misses, 1U);
}

TEST_F(Offload, a_load_is_a_wait_from_its_order_to_its_end_and_a_store_is_none) {
  make_writing_through(2, KeyOrder::flat);
  put(1, names({1, 2}), 0, 10);
  put(5, names({3}), 0, 30);  // the second block has left the host tier
  EXPECT_EQ(cache->waits_now().requests, 0U);
  ASSERT_TRUE(offload->load(order(2, names({1, 2}), slots({4, 5}))).has_value());
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({6}))).has_value());
  clock.advance(milliseconds{1500});
  EXPECT_EQ(cache->waits_now().requests, 2U);
  EXPECT_DOUBLE_EQ(cache->waits_now().oldest_seconds, 1.5);
  settle();
  ASSERT_TRUE(ended(2) && ended(3));
  EXPECT_EQ(cache->waits_now().requests, 0U);
  const WaitTotals waits = cache->wait_totals();
  EXPECT_EQ(waits.loads[Source::storage].requests, 1U);
  EXPECT_DOUBLE_EQ(waits.loads[Source::storage].seconds, 1.5);
  EXPECT_EQ(waits.loads[Source::host].requests, 1U);
  EXPECT_EQ(waits.room.requests + waits.looking.requests + waits.failed, 0U);
  const std::vector<SlowRequest> slowest = cache->slowest_requests();
  ASSERT_EQ(slowest.size(), 2U);
  EXPECT_EQ(std::ranges::count(slowest, RequestId{2}, &SlowRequest::id), 1);
  // A load that brings nothing is a wait, too.
  ASSERT_TRUE(offload->load(order(4, names({9}), slots({4}))).has_value());
  settle();
  EXPECT_EQ(cache->wait_totals().loads[Source::host].requests, 2U);
}

TEST_F(Offload, a_look_up_tells_where_a_block_is_and_changes_nothing) {
  make_writing_through(2, KeyOrder::flat);
  const auto keys = names({1, 2, 3});
  std::vector<OffloadHit> hits(3);
  ASSERT_TRUE(offload->store(order(1, keys, slots({0, 1, 2}))).has_value());
  ASSERT_TRUE(offload->look_up(keys, hits).has_value());
  EXPECT_EQ(hits, (std::vector{OffloadHit::pending, OffloadHit::pending, OffloadHit::miss}));
  settle();
  ASSERT_TRUE(offload->look_up(keys, hits).has_value());
  EXPECT_EQ(hits, (std::vector{OffloadHit::host, OffloadHit::host, OffloadHit::miss}));
  // The last block of an order goes first. Looking at it is no use.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(offload->look_up(keys[1]), OffloadHit::host);
  put(2, names({4}), 0, 40);
  ASSERT_TRUE(offload->look_up(keys, hits).has_value());
  EXPECT_EQ(hits, (std::vector{OffloadHit::host, OffloadHit::storage, OffloadHit::miss}));
  EXPECT_EQ(offload->leading(keys), 2U);
  std::vector<std::uint64_t> bits(1);
  ASSERT_TRUE(offload->bitmap(keys, bits).has_value());
  EXPECT_EQ(bits.front(), 0b011U);
  EXPECT_EQ(offload->bitmap(keys, {}).error(), Errc::invalid_argument);
  EXPECT_EQ(offload->look_up(keys, {}).error(), Errc::invalid_argument);
  EXPECT_EQ(offload->leading(keys, PoolId{3}), 0U);
}

TEST_F(Offload, what_a_damaged_block_has_hidden_is_a_miss_by_damage) {
  struct Asked final : CacheWatch {
    void on_polled(TimePoint) override {}
    [[nodiscard]] bool wants_offload_asked() const override { return true; }
  } asked;
  watch = &asked;
  make_writing_through(16, KeyOrder::prefix);
  cache->measure_misses();
  const auto keys = names({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  put(1, keys, 0, 10);
  cache->clear({.keep_storage = true});
  ASSERT_EQ(offload->leading(keys), 12U);
  store->raw(keys[1])[7] ^= std::byte{1};
  OffloadOrder to_host = order(2, keys, {});
  ASSERT_TRUE(offload->load(to_host).has_value());
  settle();
  ASSERT_EQ(offload->leading(keys), 1U);
  put(3, keys, 1, 20);
  const MissTotals misses = cache->miss_totals();
  const std::uint64_t all = std::accumulate(misses.units.begin(), misses.units.end(), std::uint64_t{0});
  EXPECT_GT(all, misses[MissReason::unknown]);
  EXPECT_EQ(misses[MissReason::damaged], all - misses[MissReason::unknown]) << "those of the first store are not known";
}

TEST_F(Offload, a_store_never_evicts_blocks_of_its_own_order) {
  make(sizes(3, KeyOrder::flat));
  put(1, names({1, 2}), 0, 10);
  ASSERT_TRUE(offload->store(order(2, names({3, 4, 5, 6, 1}), slots({0, 1, 2, 3, 4}))).has_value());
  settle();
  // Block 3 takes the free slot, 4 that of block 2. Then every copy belongs to this order: block 1, too, which is there.
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, {}}, {2, Errc::full}, {3, Errc::full}, {4, {}}}));
  EXPECT_EQ(offload->look_up(names({1})[0]), OffloadHit::host);
  EXPECT_EQ(offload->look_up(names({2})[0]), OffloadHit::miss);
  EXPECT_EQ(offload->totals().already_there, 1U);
  EXPECT_EQ(offload->totals().store_full, 2U);
}

TEST_F(Offload, in_prefix_order_a_block_is_stored_only_behind_its_parent) {
  make(sizes(8, KeyOrder::prefix));
  const auto keys = names({1, 2, 3, 4});
  put(1, std::vector(keys.begin(), keys.begin() + 1), 0, 10);
  OffloadOrder wanted = order(2, keys, slots({6, 7}));
  wanted.first = 2;
  ASSERT_TRUE(offload->store(wanted).has_value());
  settle();
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{2, Errc::parent_missing}, {3, Errc::parent_missing}}));
  EXPECT_EQ(offload->leading(keys), 1U);
  wanted = order(3, keys, slots({5, 6, 7}));
  wanted.first = 1;
  ASSERT_TRUE(offload->store(wanted).has_value());
  settle();
  EXPECT_EQ(offload->leading(keys), 4U);
}

TEST_F(Offload, in_prefix_order_keys_that_are_not_chained_never_name_a_wrong_block) {
  make(sizes(8, KeyOrder::prefix));
  put(1, names({1, 2, 3}), 0, 10);
  // The last keys are equal, so a tree of chained keys would take all to be equal.
  const auto keys = names({1, 9, 3});
  EXPECT_EQ(offload->leading(keys), 1U);
  ASSERT_TRUE(offload->load(order(2, keys, slots({4, 5, 6}))).has_value());
  settle();
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, Errc::not_found}, {2, Errc::not_found}}));
  EXPECT_EQ(offload->store(order(3, keys, slots({4, 5, 6}))).error(), Errc::invalid_argument);
}

TEST_F(Offload, two_jobs_for_one_block_share_one_copy) {
  make(sizes(8, KeyOrder::flat, true));
  const auto keys = names({1});
  ASSERT_TRUE(offload->store(order(1, keys, slots({0}))).has_value());
  ASSERT_TRUE(offload->store(order(2, keys, slots({1}))).has_value());
  ASSERT_TRUE(offload->load(order(3, keys, slots({2}))).has_value());
  settle();
  for (const std::uint64_t id : {1, 2, 3}) EXPECT_EQ(results(id), (std::map<std::uint32_t, ErrorCode>{{0, {}}})) << id;
  EXPECT_EQ(offload->totals().stored, 1U);
  EXPECT_EQ(offload->totals().already_there, 1U);
  EXPECT_EQ(offload->totals().joined, 2U);
}

TEST_F(Offload, refuses_bad_orders_with_one_clear_error_and_changes_nothing) {
  OffloadLimits limits;
  limits.jobs = 2;
  limits.blocks_in_flight = 4;
  make(sizes(8, KeyOrder::prefix), limits);
  const auto keys = names({1, 2});
  const auto load = [&](const OffloadOrder& wanted) { return offload->load(wanted).error(); };
  EXPECT_EQ(load(order(1, keys, slots({0}))), Errc::invalid_argument);
  EXPECT_EQ(load(order(1, keys, slots({0, slots_of_engine}))), Errc::invalid_argument);
  EXPECT_EQ(load(order(1, keys, slots({0, 0}))), Errc::invalid_argument);
  OffloadOrder wanted = order(1, keys, slots({0, 1}));
  wanted.pool = PoolId{1};
  EXPECT_EQ(load(wanted), Errc::invalid_argument);
  wanted = order(1, keys, slots({0, 1}));
  wanted.first = 3;
  EXPECT_EQ(load(wanted), Errc::invalid_argument);
  std::vector<std::byte> small(block_bytes - 1);
  const std::vector<std::span<std::byte>> memory{small, small};
  wanted = order(1, keys, {});
  wanted.memory = memory;
  EXPECT_EQ(load(wanted), Errc::invalid_argument);
  EXPECT_EQ(offload->cancel(OffloadJobId{1}).error(), Errc::not_found);

  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(offload->store(order(1, keys, slots({0, 1}))).has_value());
  EXPECT_EQ(offload->store(order(1, keys, slots({2, 3}))).error(), Errc::duplicate_request);
  EXPECT_EQ(load(order(2, keys, slots({1, 2}))), Errc::in_use);
  EXPECT_EQ(load(order(2, names({1, 2, 3}), slots({4, 5, 6}))), Errc::refused);
  ASSERT_TRUE(offload->load(order(2, keys, slots({4, 5}))).has_value());
  EXPECT_EQ(offload->store(order(3, {}, {})).error(), Errc::refused);
  EXPECT_EQ(offload->blocks_in_flight(), 4U);
  EXPECT_EQ(offload->totals().refused, 10U);
  device->stuck(Direction::swap_out, false);
  settle();
  EXPECT_TRUE(ended(1) && ended(2));
  offload->stop_accepting();
  EXPECT_EQ(load(order(3, keys, slots({0, 1}))), Errc::stopped);
}

TEST_F(Offload, an_order_without_blocks_ends_at_once) {
  make(sizes(8, KeyOrder::flat));
  ASSERT_TRUE(offload->load(order(1, {}, {})).has_value());
  ASSERT_TRUE(offload->store(order(2, {}, {})).has_value());
  poll();
  EXPECT_TRUE(ended(1) && ended(2));
}

TEST_F(Offload, a_result_after_a_deadline_comes_only_when_nothing_can_move_any_more) {
  make(sizes(8, KeyOrder::flat));
  const auto keys = names({1});
  put(1, keys, 0, 10);
  device->stuck(Direction::swap_in, true);
  OffloadOrder wanted = order(2, keys, slots({3}));
  wanted.deadline = clock.now() + milliseconds{10};
  ASSERT_TRUE(offload->load(wanted).has_value());
  poll();
  clock.advance(milliseconds{20});
  settle();
  EXPECT_FALSE(ended(2));
  EXPECT_TRUE(results(2).empty());
  EXPECT_EQ(offload->unconfirmed(), 1U);
  EXPECT_EQ(offload->load(order(3, keys, slots({3}))).error(), Errc::in_use);
  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{0, Errc::deadline_exceeded}}));
  EXPECT_TRUE(ended(2));
  EXPECT_EQ(offload->unconfirmed(), 0U);
  EXPECT_EQ(offload->totals().late, 1U);
  ASSERT_TRUE(offload->load(order(3, keys, slots({3}))).has_value());
  settle();
  EXPECT_EQ(read(SlotId{3}), 10);
}

TEST_F(Offload, a_late_read_of_storage_does_not_hold_up_the_job) {
  make_writing_through(1, KeyOrder::flat);
  put(1, names({1}), 0, 10);
  put(2, names({2}), 0, 20);  // evicts the first from the host
  ASSERT_EQ(offload->look_up(names({1})[0]), OffloadHit::storage);
  // (The read has been ordered, and ends with the next poll.)
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({3}))).has_value());
  ASSERT_TRUE(offload->cancel(OffloadJobId{3}).has_value());
  EXPECT_EQ(offload->blocks_in_flight(), 0U);
  settle();
  EXPECT_EQ(results(3), (std::map<std::uint32_t, ErrorCode>{{0, Errc::cancelled}}));
  // The blocks that were read stay in the host tier.
  EXPECT_EQ(offload->look_up(names({1})[0]), OffloadHit::host);
  cache->manager().check_invariants();
}

TEST_F(Offload, a_pin_keeps_host_copies_until_its_job_has_ended) {
  make(sizes(2, KeyOrder::flat));
  const auto keys = names({1, 2});
  put(1, keys, 0, 10);
  EXPECT_EQ(offload->pin(OffloadJobId{7}, keys).value(), 2U);
  EXPECT_EQ(offload->pin(OffloadJobId{7}, keys).error(), Errc::duplicate_request);
  EXPECT_EQ(offload->pin(OffloadJobId{8}, names({9})).error(), Errc::not_found);
  put(2, names({3}), 0, 30);
  EXPECT_EQ(results(2).at(0), Errc::full);
  ASSERT_TRUE(offload->load(order(7, keys, slots({4, 5}))).has_value());
  settle();
  EXPECT_EQ(offload->unpin(OffloadJobId{7}).error(), Errc::not_found);
  put(3, names({3}), 0, 30);
  EXPECT_EQ(results(3).at(0), ErrorCode{});
  EXPECT_EQ(offload->pin(OffloadJobId{9}, names({3})).value(), 1U);
  ASSERT_TRUE(offload->unpin(OffloadJobId{9}).has_value());
}

TEST_F(Offload, pins_are_bounded) {
  OffloadLimits limits;
  limits.pinned_blocks = 1;
  make(sizes(4, KeyOrder::flat), limits);
  put(1, names({1, 2}), 0, 10);
  EXPECT_EQ(offload->pin(OffloadJobId{1}, names({1, 2})).error(), Errc::no_room);
  EXPECT_EQ(offload->pin(OffloadJobId{1}, names({1})).value(), 1U);
}

TEST_F(Offload, moves_blocks_from_and_to_memory_a_bounded_number_of_bytes_in_a_poll) {
  block_bytes = 1 << 20;
  make(sizes(10, KeyOrder::flat));
  const auto keys = names({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  std::vector<std::vector<std::byte>> from;
  std::vector<std::span<std::byte>> memory;
  for (int i = 0; i < 10; ++i) from.emplace_back(block_bytes, std::byte(i + 1));
  for (auto& each : from) memory.emplace_back(each);
  OffloadOrder wanted = order(1, keys, {});
  wanted.memory = memory;
  ASSERT_TRUE(offload->store(wanted).has_value());
  poll();
  EXPECT_EQ(results(1).size(), 8U);
  poll();
  EXPECT_EQ(results(1).size(), 10U);
  EXPECT_TRUE(ended(1));
  for (auto& each : from) std::ranges::fill(each, std::byte{});
  wanted.id = OffloadJobId{2};
  ASSERT_TRUE(offload->load(wanted).has_value());
  settle();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(std::ranges::count(from[static_cast<std::size_t>(i)], std::byte(i + 1)), block_bytes);
}

TEST_F(Offload, reports_leading_layers_of_a_load_by_layer) {
  lanes.pieces.bytes = Bytes{2 * block_bytes / 4};  // one layer of two blocks
  lanes.pieces.in_flight = 1;
  make(sizes(8, KeyOrder::prefix));
  const auto keys = names({1, 2});
  put(1, keys, 0, 10);
  events.clear();
  OffloadOrder wanted = order(2, keys, slots({3, 4}));
  wanted.by_layer = true;
  ASSERT_TRUE(offload->load(wanted).has_value());
  for (int i = 0; i < 60; ++i) {
    if (!device->step_options().empty()) device->step(SimulatedDevice::Part::swap_in);
    poll();
  }
  std::vector<std::uint32_t> layers;
  for (const OffloadEvent& event : events) {
    if (event.kind == OffloadEvent::Kind::layers) layers.push_back(event.layers);
  }
  EXPECT_EQ(layers, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_TRUE(ended(2));
}

TEST_F(Offload, urgent_loads_get_landing_slots_first) {
  ManagerConfig config = sizes(0, KeyOrder::flat, true);
  config.pools.front().host_blocks = 2;
  config.pools.front().staging_blocks = 1;
  config.write_policy = WritePolicy::write_through;
  make(config);
  put(1, names({1}), 0, 10);
  put(2, names({2}), 0, 20);
  put(3, names({3, 4}), 0, 30);
  ASSERT_EQ(offload->look_up(names({1})[0]), OffloadHit::storage);
  // Both host slots are pinned, and one staging slot is left for two reads.
  ASSERT_TRUE(offload->pin(OffloadJobId{9}, names({3, 4})).has_value());
  device->stuck(Direction::swap_in, true);
  OffloadOrder first = order(4, names({1, 2}), slots({4, 5}));
  first.urgency = Urgency::store;
  ASSERT_TRUE(offload->load(first).has_value());
  OffloadOrder second = order(5, names({2}), slots({6}));
  ASSERT_TRUE(offload->load(second).has_value());
  settle();
  device->stuck(Direction::swap_in, false);
  settle();
  std::vector<std::uint64_t> arrived;
  for (const OffloadEvent& event : events) {
    if (event.kind == OffloadEvent::Kind::block && event.job.value() >= 4) arrived.push_back(event.job.value());
  }
  EXPECT_EQ(arrived, (std::vector<std::uint64_t>{4, 5, 4}));
}

TEST_F(Offload, the_descriptor_is_readable_when_a_call_has_left_an_event) {
  wakes = true;
  make(sizes(8, KeyOrder::flat));
  put(1, names({1}), 0, 10);
  poll();
  const auto readable = [&] {
    pollfd fd{offload->wake_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  EXPECT_FALSE(readable());
  ASSERT_TRUE(offload->store(order(2, names({1}), slots({0}))).has_value());
  EXPECT_TRUE(readable());
  poll();
  EXPECT_TRUE(ended(2));
  EXPECT_FALSE(readable());
}

TEST_F(Offload, while_the_cache_is_being_cleared_it_takes_no_orders) {
  make(sizes(8, KeyOrder::flat));
  put(1, names({1}), 0, 10);
  ClearOptions how;
  how.wait = true;
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(offload->load(order(2, names({1}), slots({3}))).has_value());
  cache->clear(how);
  EXPECT_EQ(offload->look_up(names({1})[0]), OffloadHit::miss);
  EXPECT_EQ(offload->load(order(3, names({1}), slots({4}))).error(), Errc::paused);
  EXPECT_EQ(offload->pin(OffloadJobId{3}, names({1})).error(), Errc::paused);
  device->stuck(Direction::swap_in, false);
  settle();
  // The load had begun before, and its bytes are right.
  EXPECT_EQ(results(2).at(0), ErrorCode{});
  EXPECT_EQ(read(SlotId{3}), 10);
  ASSERT_TRUE(cache->resume().has_value());
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({4}))).has_value());
  poll();
  EXPECT_EQ(results(3).at(0), Errc::not_found);
}

TEST_F(Offload, a_clear_keeps_what_is_stored_only_if_told) {
  for (const KeyOrder key_order : {KeyOrder::prefix, KeyOrder::flat}) {
    make(sizes(8, key_order, true));
    const auto keys = names({1, 2, 3});
    put(1, keys, 0, 10);
    (void)cache->start_write_back({}).value();
    settle();
    cache->clear({.keep_storage = true});
    EXPECT_EQ(offload->look_up(keys[0]), OffloadHit::storage);
    cache->clear({});
    EXPECT_EQ(offload->look_up(keys[0]), OffloadHit::miss);
    settle();
    EXPECT_FALSE(cache->erasing());
    EXPECT_EQ(store->stat().blocks, 0U);
    put(2, keys, 0, 50);
    ASSERT_TRUE(offload->load(order(3, keys, slots({4, 5, 6}))).has_value());
    settle();
    EXPECT_EQ(read(SlotId{4}), 50);
  }
}

TEST_F(Offload, write_back_jobs_and_a_restart_work_as_in_a_cache) {
  for (const KeyOrder key_order : {KeyOrder::prefix, KeyOrder::flat}) {
    make(sizes(8, key_order, true));
    const auto keys = names({1, 2, 3});
    put(1, keys, 0, 10);
    EXPECT_EQ(store->stat().blocks, 0U);
    const WriteBackId job = cache->start_write_back({}).value();
    settle();
    EXPECT_EQ(cache->write_back(job)->of(WriteBackOutcome::stored), 3U);
    EXPECT_EQ(store->stat().blocks, 3U);
    offload.reset();
    cache.reset();
    ManagerConfig again = sizes(8, key_order, true);
    again.pools.front().engine_blocks = slots_of_engine;
    again.pools.front().staging_blocks = 2;
    cache = std::make_unique<Cache>(again, parts());
    offload = std::make_unique<OffloadCache>(*cache);
    EXPECT_EQ(offload->look_up(keys[0]), OffloadHit::storage);
    EXPECT_EQ(offload->leading(keys), 3U);
    ASSERT_TRUE(offload->load(order(2, keys, slots({8, 9, 10}))).has_value());
    settle();
    EXPECT_EQ(read(SlotId{10}), 12);
    EXPECT_EQ(offload->totals().loaded_storage, 3U);
    events.clear();
    offload.reset();
    cache.reset();
  }
}

TEST_F(Offload, drain_ends_all_jobs) {
  make(sizes(8, KeyOrder::flat));
  std::vector<std::byte> block(block_bytes, std::byte{3});
  const std::vector<std::span<std::byte>> memory{block};
  const auto keys = names({1});
  OffloadOrder wanted = order(1, keys, {});
  wanted.memory = memory;
  ASSERT_TRUE(offload->store(wanted).has_value());
  EXPECT_TRUE(offload->has_pending_work());
  cache->pause_transfers();
  offload->drain();
  EXPECT_FALSE(offload->has_pending_work());
  poll();
  EXPECT_TRUE(ended(1));
}

TEST(OffloadConfig, says_what_is_wrong) {
  const auto refused = [](const ManagerConfig& config) {
    return test::refusal_of<std::invalid_argument>([&] { validate(config); });
  };
  ManagerConfig config;
  PoolSizes& pool = config.pools.front();
  pool.engine_blocks = 4;
  EXPECT_EQ(refused(config), "");
  pool.device_blocks = 1;
  EXPECT_NE(refused(config).find("belong to the engine"), std::string::npos);
  pool.engine_blocks = 0;
  config.key_order = KeyOrder::flat;
  EXPECT_NE(refused(config).find("flat keys"), std::string::npos);
}

TEST_F(Offload, who_traces_sees_each_job_from_its_order_to_its_last_event) {
  struct Spans final : CacheWatch {
    void on_polled(TimePoint) override {}
    [[nodiscard]] bool wants_spans() const override { return wants; }
    void on_span(const TraceSpan& span) override { all.push_back(span); }
    [[nodiscard]] std::vector<TraceSpan> of(TraceSpan::Kind kind) const {
      std::vector<TraceSpan> found;
      std::ranges::copy_if(all, std::back_inserter(found), [kind](const TraceSpan& span) { return span.kind == kind; });
      return found;
    }
    bool wants = true;
    std::vector<TraceSpan> all;
  } spans;
  watch = &spans;
  make(sizes(8, KeyOrder::prefix));
  write(SlotId{0}, 1);
  write(SlotId{1}, 2);
  OffloadOrder stored = order(1, names({1, 2, 3}), slots({0, 1}));
  stored.keys = stored.keys.first(2);
  ASSERT_TRUE(offload->store(stored).has_value());
  clock.advance(std::chrono::milliseconds{3});
  settle();
  EXPECT_EQ(spans.of(TraceSpan::Kind::store).size(), 1U);
  const std::vector<TraceSpan> jobs = spans.of(TraceSpan::Kind::store_job);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].id, 1U);
  EXPECT_EQ(jobs[0].blocks, 2U);
  EXPECT_FALSE(jobs[0].failed);
  EXPECT_EQ(jobs[0].end - jobs[0].begin, std::chrono::milliseconds{3});

  OffloadOrder missing = order(2, names({1, 2, 3}), slots({5}));
  missing.first = 2;
  ASSERT_TRUE(offload->load(missing).has_value());
  settle();
  ASSERT_EQ(spans.of(TraceSpan::Kind::load_job).size(), 1U);
  EXPECT_TRUE(spans.of(TraceSpan::Kind::load_job)[0].failed);
  EXPECT_EQ(spans.of(TraceSpan::Kind::load_job)[0].blocks, 1U);

  spans.wants = false;
  poll();
  spans.all.clear();
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({6}))).has_value());
  settle();
  EXPECT_TRUE(spans.all.empty());
}

TEST_F(Offload, one_call_in_sixteen_is_measured) {
  make(sizes(8, KeyOrder::flat));
  for (std::uint64_t id = 1; id <= 160; ++id) {
    ASSERT_TRUE(offload->load(order(id, names({1}), slots({0}))).has_value());
    poll();
  }
  const CallTimes times = cache->call_times();
  EXPECT_EQ(times.load.number + times.store.number + times.poll.number, 20U);
}

}  // namespace
}  // namespace terrace
