// The measurements of a cache, and its conclusions: how fast links and compute are, what is worth loading, and how long requests
// wait.

#include "base/random.hpp"
#include "runtime/cache/measure/load_costs.hpp"
#include "runtime/cache/measure/throughput.hpp"
#include "runtime/cache/measure/transfer_clock.hpp"
#include "runtime/cache/measure/wait_times.hpp"
#include "runtime/cache/pool/watermark_reclaimer.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr TimePoint start{1h};
constexpr double mib = 1024.0 * 1024;

TEST(Throughput, knows_nothing_at_first_and_is_trusted_with_little) {
  const Throughput link;
  EXPECT_EQ(link.seconds_per_byte(start), 0);
  EXPECT_EQ(link.trusted(start), MiB);
}

TEST(Throughput, counts_the_time_during_which_anything_was_under_way) {
  Throughput link;
  link.began(2, start);
  link.ended(1, MiB, start + 100ms);
  link.began(1, start + 150ms);
  link.ended(2, MiB * 3, start + 200ms);
  EXPECT_EQ(link.under_way(), 0U);
  EXPECT_NEAR(link.busy_seconds(), 0.2, 1e-9);
  EXPECT_NEAR(link.seconds_per_byte(start + 200ms) * mib, 0.05, 0.001);
  // Idle for a while, and then as fast as before: the pause does not count.
  link.began(1, start + 300ms);
  link.ended(1, MiB * 4, start + 500ms);
  EXPECT_NEAR(link.busy_seconds(), 0.4, 1e-9);
  EXPECT_NEAR(link.seconds_per_byte(start + 500ms) * mib, 0.05, 0.001);
}

TEST(Throughput, forgets) {
  Throughput link;
  TimePoint now = start;
  const auto run = [&](int seconds, Bytes each) {
    link.began(1, now);
    for (int i = 0; i < seconds; ++i) {
      link.began(1, now);
      now += 1s;
      link.ended(1, each, now);
    }
    link.ended(1, {}, now);
  };
  run(60, MiB * 100);
  EXPECT_NEAR(link.seconds_per_byte(now) * mib, 0.01, 0.0005);
  run(60, MiB * 10);
  EXPECT_NEAR(link.seconds_per_byte(now) * mib, 0.1, 0.03);
}

TEST(Throughput, of_what_nobody_tries_is_thought_better_with_time) {
  Throughput link;
  link.began(1, start);
  link.ended(1, MiB * 16, start + 16s);
  const TimePoint end = start + 16s;
  EXPECT_NEAR(link.seconds_per_byte(end) * mib, 1, 0.01);
  EXPECT_NEAR(link.seconds_per_byte(end + 10s) * mib, 0.5, 0.01);
  EXPECT_NEAR(link.seconds_per_byte(end + 60s) * mib, 1 / 64.0, 0.001);
  // During the next operation it keeps its estimate, until that operation has ended.
  link.began(1, end + 60s);
  EXPECT_NEAR(link.seconds_per_byte(end + 60s) * mib, 1 / 64.0, 0.001);
  link.ended(1, MiB, end + 61s);
  EXPECT_GT(link.seconds_per_byte(end + 61s) * mib, 0.5);
}

TEST(Throughput, on_which_nothing_ends_counts_as_ever_slower) {
  Throughput link;
  link.began(1, start);
  EXPECT_EQ(link.seconds_per_byte(start), 0);
  EXPECT_NEAR(link.seconds_per_byte(start + 1s) * mib, 1, 1e-6);
  link.ended(1, MiB, start + 1s);
  link.began(1, start + 1s);
  EXPECT_NEAR(link.seconds_per_byte(start + 5s) * mib, 5, 1e-6);
}

TEST(Throughput, counts_the_time_that_failures_took) {
  Throughput link;
  link.began(2, start);
  link.ended(1, MiB, start + 1s);
  link.ended(1, {}, start + 2s);
  EXPECT_GT(link.seconds_per_byte(start + 2s) * mib, 1.9);
}

TEST(Throughput, goes_by_the_times_it_is_told) {
  Throughput link{Throughput::Times::told};
  link.began(2, start);
  link.ended(1, MiB, start + 10s, 100ms);  // nearly all of this time was spent waiting for compute
  link.ended(1, MiB, start + 20s, 100ms);
  EXPECT_NEAR(link.seconds_per_byte(start + 20s) * mib, 0.1, 1e-6);
  EXPECT_NEAR(link.busy_seconds(), 20, 1e-9);
  link.began(1, start + 20s);
  EXPECT_NEAR(link.seconds_per_byte(start + 30s) * mib, 0.1, 1e-6);
}

TEST(Throughput, is_trusted_with_more_as_it_delivers) {
  Throughput link;
  link.began(1, start);
  link.ended(1, MiB, start + 1ms);
  EXPECT_EQ(link.trusted(start + 1ms), MiB * 9);
  link.began(1, start + 1ms);
  link.ended(1, MiB * 40, start + 2ms);
  EXPECT_GT(link.trusted(start + 2ms), TiB);
  // This measurement is forgotten, too.
  EXPECT_LT(link.trusted(start + 120s), MiB * 2);
}

Transfer transfer(std::uint64_t id, Direction direction, Urgency urgency, std::uint32_t blocks) {
  Transfer made;
  made.id = TransferId{static_cast<TransferId::rep>(id)};
  made.direction = direction;
  made.urgency = urgency;
  made.runs.push_back({SlotId{}, SlotId{}, blocks});
  return made;
}

TransferQueue queue(const TransferClock& clock, Direction direction, Urgency urgency, TimePoint now) {
  const std::vector<TransferQueue> all = clock.queues(now);
  EXPECT_EQ(all.size(), direction_count * urgency_count);
  return *std::ranges::find_if(all,
                               [&](const TransferQueue& each) { return each.direction == direction && each.urgency == urgency; });
}

TEST(TransferClock, counts_what_has_not_ended_by_direction_and_urgency) {
  TransferClock clock;
  clock.begin(transfer(1, Direction::swap_in, Urgency::request, 3), start);
  clock.begin(transfer(2, Direction::swap_out, Urgency::store, 4), start + milliseconds{5});
  clock.begin(transfer(3, Direction::swap_out, Urgency::store, 5), start + milliseconds{10});
  const TimePoint now = start + milliseconds{20};
  EXPECT_EQ(queue(clock, Direction::swap_in, Urgency::request, now).blocks, 3U);
  const TransferQueue stores = queue(clock, Direction::swap_out, Urgency::store, now);
  EXPECT_EQ(stores.transfers, 2U);
  EXPECT_EQ(stores.blocks, 9U);
  EXPECT_NEAR(stores.oldest_seconds, 0.015, 1e-9);
  clock.raise(TransferId{2}, Urgency::request);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::request, now).blocks, 4U);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::store, now).blocks, 5U);
  clock.end(TransferId{3}, now);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::store, now).oldest_seconds, 0);
}

TEST(TransferClock, measures_from_the_order_to_the_end) {
  TransferClock clock;
  clock.begin(transfer(1, Direction::swap_in, Urgency::request, 1), start);
  clock.begin(transfer(2, Direction::swap_out, Urgency::request, 1), start);
  clock.end(TransferId{1}, start + milliseconds{2});
  clock.end(TransferId{2}, start + milliseconds{7});
  clock.end(TransferId{2}, start + milliseconds{9});
  EXPECT_EQ(clock.times().swap_in.number, 1U);
  EXPECT_NEAR(clock.times().swap_in.seconds, 0.002, 1e-9);
  EXPECT_EQ(clock.times().swap_out.number, 1U);
  EXPECT_NEAR(clock.times().swap_out.seconds, 0.007, 1e-9);
}

TEST(TransferClock, measures_reads_and_writes_of_storage) {
  using Access = TransferClock::Access;
  TransferClock clock;
  const std::uint32_t first = clock.begin(Access::read, start);
  const std::uint32_t second = clock.begin(Access::read, start + milliseconds{1});
  const std::uint32_t write = clock.begin(Access::write, start + milliseconds{2});
  EXPECT_EQ(clock.end(second, start + milliseconds{4}), start + milliseconds{1});
  EXPECT_EQ(clock.end(write, start + milliseconds{12}), start + milliseconds{2});
  EXPECT_EQ(clock.times().storage_read.number, 1U);
  EXPECT_NEAR(clock.times().storage_read.seconds, 0.003, 1e-9);
  EXPECT_EQ(clock.times().storage_write.number, 1U);
  EXPECT_NEAR(clock.times().storage_write.seconds, 0.010, 1e-9);
  EXPECT_EQ(clock.end(first, start + milliseconds{20}), start);
  EXPECT_EQ(clock.times().storage_read.number, 2U);
}

class PrefillSpeedOf : public ::testing::Test {
 protected:
  /// Computes this number of pieces. Each belongs to its own request and is committed when its compute is launched.
  void compute(int pieces, std::uint32_t units, Duration each) {
    for (int i = 0; i < pieces; ++i) {
      speed.on_ready(RequestId{++requests}, units, now);
      speed.on_commit(RequestId{requests}, 0, Fence{++launched});
      now += each;
      speed.on_reached(Fence{launched}, now);
    }
  }

  PrefillSpeed speed;
  std::uint64_t requests = 0;
  std::uint64_t launched = 0;
  TimePoint now = TimePoint{} + 1h;
};

TEST_F(PrefillSpeedOf, little_evidence_is_not_known) {
  compute(7, 10, 100ms);
  EXPECT_EQ(speed.unit_seconds(), 0);
  compute(1, 10, 100ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, an_engine_that_commits_what_is_computed_is_the_same) {
  for (std::uint64_t i = 1; i <= 8; ++i) {
    speed.on_ready(RequestId{i}, 10, now);
    now += 100ms;
    speed.on_commit(RequestId{i}, 0, Fence{});
    speed.on_reached(Fence{}, now);
    now += 5s;  // idle
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, a_request_that_becomes_ready_during_the_compute_of_another_does_not_shorten_it) {
  speed.on_ready(RequestId{1}, 10, now);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    now += 95ms;
    speed.on_ready(RequestId{i + 1}, 10, now);
    now += 5ms;
    speed.on_commit(RequestId{i}, 0, Fence{});
    speed.on_reached(Fence{}, now);
    speed.on_released(RequestId{i});
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, a_request_that_ends_uncomputed_is_waited_for_no_longer) {
  speed.on_ready(RequestId{100}, 10, now);
  now += 5s;
  speed.on_released(RequestId{100});
  EXPECT_FALSE(speed.computes(RequestId{100}));
  compute(8, 10, 100ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, only_a_request_that_was_announced_counts) {
  for (int i = 0; i < 8; ++i) {
    speed.on_ready(RequestId{1}, 0, now);  // nothing to compute: all hits, or computed elsewhere
    EXPECT_FALSE(speed.computes(RequestId{1}));
    speed.on_commit(RequestId{1}, 0, Fence{++launched});
    now += 100ms;
    speed.on_reached(Fence{launched}, now);
  }
  EXPECT_EQ(speed.unit_seconds(), 0);
}

TEST_F(PrefillSpeedOf, pieces_launched_ahead_do_not_count_their_wait) {
  speed.on_ready(RequestId{1}, 90, now);
  speed.on_commit(RequestId{1}, 80, Fence{++launched});
  for (std::uint32_t left = 80; left > 0; left -= 10) {
    speed.on_commit(RequestId{1}, left - 10, Fence{++launched});
    now += 100ms;
    speed.on_reached(Fence{launched - 1}, now);
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.010);
}

TEST_F(PrefillSpeedOf, no_more_pieces_are_kept_than_the_bound_and_none_is_lost) {
  for (std::uint64_t i = 1; i <= 8; ++i) {
    speed.on_ready(RequestId{i}, 5000, now);
    for (std::uint32_t left = 5000; left > 0; --left) speed.on_commit(RequestId{i}, left - 1, Fence{++launched});
    now += 5s;
    speed.on_reached(Fence{launched}, now);
  }
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.001);
}

TEST_F(PrefillSpeedOf, the_shape_that_is_computed_fastest_counts) {
  compute(20, 1, 25ms);
  compute(8, 64, 80ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.080 / 64);
  compute(20, 1, 25ms);
  EXPECT_DOUBLE_EQ(speed.unit_seconds(), 0.080 / 64);
}

TEST_F(PrefillSpeedOf, an_engine_that_has_changed_is_soon_known_again) {
  compute(8, 64, 640ms);
  compute(30, 64, 64ms);
  EXPECT_NEAR(speed.unit_seconds(), 0.001, 0.0005);
  compute(30, 64, 640ms);
  EXPECT_NEAR(speed.unit_seconds(), 0.010, 0.0005);
}

constexpr double prefill = 0.010;  // per unit

UnitCost on_device() { return {}; }
UnitCost in_host(double link) { return {.link_seconds = link}; }
UnitCost in_storage(double read, double link) { return {.read_seconds = read, .link_seconds = link, .reads = 1}; }

std::vector<UnitCost> hit(std::size_t device, std::size_t host, std::size_t storage, double link, double read) {
  std::vector<UnitCost> units(device, on_device());
  units.insert(units.end(), host, in_host(link));
  units.insert(units.end(), storage, in_storage(read, link));
  return units;
}

TEST(UnitsWorthLoading, takes_what_costs_nothing) {
  EXPECT_EQ(units_worth_loading(hit(10, 0, 0, 1, 1), {.read_seconds = 100, .link_seconds = 100}, prefill), 10U);
  EXPECT_EQ(units_worth_loading({}, {}, prefill), 0U);
}

TEST(UnitsWorthLoading, takes_each_tier_only_where_it_beats_computing) {
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.001, 0.002), {}, prefill), 12U);
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.001, 0.020), {}, prefill), 7U);
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.020, 0.001), {}, prefill), 3U);
  // For blocks from storage, both the read and the copy count.
  EXPECT_EQ(units_worth_loading(hit(3, 4, 5, 0.006, 0.006), {}, prefill), 7U);
}

TEST(UnitsWorthLoading, counts_what_others_wait_for) {
  // Loading ten blocks from the host saves 90 ms. That is worth a wait of 80 ms but not of 100 ms. Loading fewer blocks never
  // pays here.
  EXPECT_EQ(units_worth_loading(hit(0, 10, 0, 0.001, 0), {.link_seconds = 0.080}, prefill), 10U);
  EXPECT_EQ(units_worth_loading(hit(0, 10, 0, 0.001, 0), {.link_seconds = 0.100}, prefill), 0U);
  // A queue in front of storage does not matter for blocks from the host.
  EXPECT_EQ(units_worth_loading(hit(0, 10, 10, 0.001, 0.001), {.read_seconds = 10}, prefill), 10U);
}

TEST(UnitsWorthLoading, counts_the_queue_for_what_it_joins) {
  std::vector<UnitCost> units(10);
  for (UnitCost& unit : units) unit.joins_read = unit.joins_link = true;
  EXPECT_EQ(units_worth_loading(units, {.read_seconds = 0.050, .link_seconds = 0.040}, prefill), 10U);
  EXPECT_EQ(units_worth_loading(units, {.read_seconds = 0.050, .link_seconds = 0.060}, prefill), 0U);
}

TEST(UnitsWorthLoading, asks_no_more_of_storage_than_it_is_trusted_with) {
  EXPECT_EQ(units_worth_loading(hit(2, 2, 10, 0.001, 0), {.reads_max = 4}, prefill), 8U);
}

TEST(UnitsWorthLoading, takes_a_dear_beginning_for_a_cheap_end) {
  // In a window group, cheap blocks may come after expensive ones. The sum decides.
  std::vector<UnitCost> units{in_host(0.030), on_device(), on_device(), on_device()};
  EXPECT_EQ(units_worth_loading(units, {}, prefill), 4U);
  units.resize(2);
  EXPECT_EQ(units_worth_loading(units, {}, prefill), 0U);
}

/// Slots that are kept free as the reserve says, and are refilled when the caller wants.
class Slots {
 public:
  /// Returns whether the request finds enough.
  bool take(std::uint64_t slots) {
    reserve.on_request(slots, free_, promised_, kept_);
    const bool enough = free_ >= slots;
    promised_ += enough ? 0 : slots - free_;
    free_ -= enough ? slots : free_;
    return enough;
  }
  void refill() {
    kept_ = free_ = reserve.slots();
    promised_ = 0;
  }

  BurstReserve reserve;

 private:
  std::uint64_t kept_ = 0;
  std::uint64_t free_ = 0;
  std::uint64_t promised_ = 0;
};

TEST(BurstReserve, keeps_nothing_before_the_first_request) { EXPECT_EQ(BurstReserve{}.slots(), 0U); }

TEST(BurstReserve, is_enough_for_199_requests_of_200_and_not_for_all) {
  Slots slots;
  Random random{1};
  std::uint64_t too_few = 0;
  constexpr std::uint64_t requests = 100'000;
  for (std::uint64_t n = 0; n < requests; ++n) {
    too_few += slots.take(random.between(1, 1000)) ? 0U : 1U;
    slots.refill();
  }
  EXPECT_GT(too_few, requests / 400);
  EXPECT_LT(too_few, requests / 100);
  EXPECT_GT(slots.reserve.slots(), 900U);
}

TEST(BurstReserve, adds_up_requests_that_come_before_it_is_filled_again) {
  Slots slots;
  for (int burst = 0; burst < 1000; ++burst) {
    for (int n = 0; n < 10; ++n) (void)slots.take(20);
    slots.refill();
  }
  EXPECT_GE(slots.reserve.slots(), 190U);
  EXPECT_LE(slots.reserve.slots(), 240U);
}

TEST(BurstReserve, becomes_smaller_when_requests_need_less) {
  Slots slots;
  for (int n = 0; n < 100; ++n) {
    (void)slots.take(1000);
    slots.refill();
  }
  EXPECT_GE(slots.reserve.slots(), 900U);
  for (int n = 0; n < 100'000; ++n) {
    (void)slots.take(10);
    slots.refill();
  }
  EXPECT_LE(slots.reserve.slots(), 40U);
}

// ---- how long requests wait, and for what

std::uint64_t waits_for_loads(const WaitTotals& totals) {
  std::uint64_t requests = 0;
  for (const Source source : all_sources) requests += totals.loads[source].requests;
  return requests;
}

class WaitTimesTest : public CacheFixture {
 protected:
  void pass(int milliseconds) { clock.advance(std::chrono::milliseconds{milliseconds}); }
};

TEST_F(WaitTimesTest, are_nothing_where_a_request_is_ready_at_once) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  pass(5);
  EXPECT_EQ(cache->seconds_waited(leases.at(1)), 0);
  const WaitTotals totals = cache->wait_totals();
  EXPECT_EQ(totals.at_once, 1U);
  EXPECT_EQ(totals.room.requests + waits_for_loads(totals), 0U);
}

TEST_F(WaitTimesTest, go_by_what_was_waited_for_however_often_they_are_read) {
  make(with_storage(sizes(4, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7, 8})).has_value());
  pass(2);
  EXPECT_DOUBLE_EQ(cache->seconds_waited(leases.at(2)), 0.002);
  ASSERT_TRUE(ready_when_settled(2));
  pass(50);
  EXPECT_DOUBLE_EQ(cache->seconds_waited(leases.at(2)), 0.002);
  ASSERT_TRUE(commit(2, keys_of({5, 6, 7, 8})).has_value());
  release(2);
  settle();

  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  pass(3);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 2U);
  release(3);

  run(4, keys_of({11, 12, 13, 14}));
  run(5, keys_of({21, 22, 23, 24}));
  const WaitTotals before = cache->wait_totals();
  ASSERT_EQ(cache->match(keys_of({5, 6})).found[Source::storage], 2U);
  for (const std::uint64_t id : {6U, 7U}) {
    ASSERT_TRUE(acquire(id, keys_of({5, 6})).has_value());
    pass(7);
  }
  ASSERT_TRUE(ready_when_settled(6));
  ASSERT_TRUE(ready(7));
  const WaitTotals totals = cache->wait_totals() - before;
  EXPECT_EQ(totals.loads[Source::storage].requests, 2U);
  EXPECT_NEAR(totals.loads[Source::storage].seconds, 0.014 + 0.007, 1e-9);
  EXPECT_EQ(totals.loads[Source::storage].microseconds.counts[13], 1U);  // 7 ms: from 4,096 to 8,191 us
  EXPECT_EQ(totals.loads[Source::storage].microseconds.counts[14], 1U);
  EXPECT_EQ(totals.room.requests + totals.loads[Source::host].requests + totals.at_once, 0U);
  EXPECT_EQ((cache->wait_totals() - before).loads[Source::storage].requests, 2U);
}

TEST_F(WaitTimesTest, tell_room_and_host_apart) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  pass(2);
  settle();
  release(2);
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3, 4})).has_value());
  pass(3);
  ASSERT_TRUE(ready_when_settled(3));
  const WaitTotals totals = cache->wait_totals();
  EXPECT_EQ(totals.at_once, 1U);
  EXPECT_EQ(totals.room.requests, 1U);
  EXPECT_DOUBLE_EQ(totals.room.seconds, 0.002);
  EXPECT_EQ(totals.loads[Source::host].requests, 1U);
  EXPECT_DOUBLE_EQ(totals.loads[Source::host].seconds, 0.003);
}

TEST_F(WaitTimesTest, of_a_request_are_told_by_what_it_waited_for) {
  make(with_storage(sizes(4, 6), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3, 4});
  run(1, keys);
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({9, 10, 11, 12}));
  ASSERT_EQ(cache->match(keys).found[Source::host], 2U);
  ASSERT_EQ(cache->match(keys).found[Source::storage], 2U);
  ASSERT_TRUE(acquire(4, keys).has_value());
  const auto waits = [&] { return stats(4).waits; };
  EXPECT_EQ(waits().room, Duration{}) << "it has not ended";
  pass(4);
  for (int i = 0; i < 99 && waits().room == Duration{}; ++i) run_and_poll(1);  // the other blocks go to the host
  pass(2);
  for (int i = 0; i < 99 && cache->moved().swap_in.blocks < 2; ++i) run_and_poll(1);
  ASSERT_EQ(cache->moved().swap_in.blocks, 2U) << "those of the host";
  pass(5);
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(waits().room, std::chrono::milliseconds{4});
  EXPECT_EQ(waits().loads[Source::host], std::chrono::milliseconds{2});
  EXPECT_EQ(waits().loads[Source::storage], std::chrono::milliseconds{7});
  EXPECT_EQ(waits().loads.sum(), std::chrono::milliseconds{9});
  EXPECT_EQ(waits().looking, Duration{});
  EXPECT_DOUBLE_EQ(cache->seconds_waited(leases.at(4)), 0.011);
}

TEST_F(WaitTimesTest, of_requests_that_fail_or_give_up_are_no_ones_time) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  const WaitTotals before = cache->wait_totals();
  const auto keys = keys_of({5, 6});
  AcquireRequest wanted = request(2, keys);
  wanted.deadline = clock.now() + std::chrono::milliseconds{1};
  leases[2] = cache->acquire(wanted).value();
  pass(2);
  poll();
  ASSERT_FALSE(ready(2));
  release(2);
  ASSERT_TRUE(acquire(3, keys_of({8})).has_value());
  release(3);
  settle();
  const WaitTotals totals = cache->wait_totals() - before;
  EXPECT_EQ(totals.failed, 1U);
  EXPECT_EQ(totals.room.requests + waits_for_loads(totals), 0U);
}

TEST(WaitTimes, count_an_end_once_however_often_it_is_told) {
  ManualClock clock;
  WaitTimes times;
  const TimePoint begun = clock.now();
  clock.advance(std::chrono::milliseconds{4});
  times.begin(RequestId{1}, begun);
  times.end(RequestId{1}, clock.now(), {});
  clock.advance(std::chrono::milliseconds{4});
  times.end(RequestId{1}, clock.now(), {});
  times.fail(RequestId{1}, clock.now());
  EXPECT_DOUBLE_EQ(times.seconds(RequestId{1}, clock.now()), 0.004);
  const WaitTotals totals = times.totals();
  EXPECT_EQ(totals.room.requests, 1U);
  EXPECT_EQ(totals.failed, 0U);
}

TEST(WaitTimes, the_slowest_of_the_last_minute_are_known_and_a_minute_later_forgotten) {
  ManualClock clock;
  WaitTimes times;
  std::uint64_t id = 0;
  const auto wait = [&](int milliseconds, const RequestStats& stats = {}) {
    const TimePoint begun = clock.now();
    clock.advance(std::chrono::milliseconds{milliseconds});
    times.begin(RequestId{++id}, begun);
    times.end(RequestId{id}, clock.now(), stats);
  };
  const auto slowest = [&] {
    std::vector<std::uint64_t> ids;
    for (const SlowRequest& request : times.slowest(clock.now())) ids.push_back(request.id.value());
    return ids;
  };
  RequestStats from_host;
  from_host.found[Source::host] = 1;
  for (const int milliseconds : {3, 7, 1, 9, 2, 8}) wait(milliseconds, milliseconds == 9 ? from_host : RequestStats{});
  EXPECT_EQ(slowest(), (std::vector<std::uint64_t>{4, 6, 2, 1, 5}));  // not the one that is faster than five others
  EXPECT_EQ(times.slowest(clock.now()).front().source, Source::host);
  EXPECT_EQ(clock.now() - times.slowest(clock.now()).front().ended, std::chrono::milliseconds{10});
  EXPECT_FALSE(times.slowest(clock.now()).front().looked);
  EXPECT_EQ(times.slowest(clock.now()).back().source, std::nullopt);
  EXPECT_DOUBLE_EQ(times.slowest(clock.now()).front().seconds, 0.009);
  clock.advance(std::chrono::seconds{40});
  wait(5);
  EXPECT_EQ(slowest(), (std::vector<std::uint64_t>{4, 6, 2, 7, 1}));
  clock.advance(std::chrono::seconds{30});
  EXPECT_EQ(slowest(), std::vector<std::uint64_t>{7});
  clock.advance(std::chrono::seconds{60});
  EXPECT_EQ(slowest(), std::vector<std::uint64_t>{});
  RequestStats looked;
  looked.looked = true;
  wait(1, looked);
  EXPECT_TRUE(times.slowest(clock.now()).front().looked) << "it waited for an answer, and not for slots";
}

}  // namespace
}  // namespace terrace::test
