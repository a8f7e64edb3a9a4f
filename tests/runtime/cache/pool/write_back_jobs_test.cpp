// Write-back jobs: what they write to storage, and what they report for each block.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <set>

namespace terrace::test {
namespace {

using enum WriteBackOutcome;
using Scope = WriteBackOrder::Scope;
using std::chrono::seconds;

class WriteBackJobsTest : public CacheFixture {
 protected:
  void make_store(std::uint32_t device_blocks, std::uint32_t host_blocks = 0, std::uint32_t stored_blocks = 1024) {
    make(with_storage(sizes(device_blocks, host_blocks), WritePolicy::none), stored_blocks);
  }
  static WriteBackOrder order(Scope scope) {
    WriteBackOrder made;
    made.scope = scope;
    return made;
  }
  static WriteBackOrder prefix(const std::vector<BlockKey>& keys) {
    WriteBackOrder made = order(Scope::prefix);
    made.keys = keys;
    return made;
  }
  WriteBackId start(const WriteBackOrder& wanted) {
    const Result<WriteBackId> id = cache->start_write_back(wanted);
    EXPECT_TRUE(id.has_value()) << id.error().message();
    return id ? *id : WriteBackId{};
  }
  std::uint64_t of(WriteBackId id, WriteBackOutcome outcome) { return progress(id).of(outcome); }
  /// Serves `count` prefixes of a few blocks each.
  void run_prefixes(std::uint32_t first, std::uint32_t count, std::uint32_t length = 3) {
    for (std::uint32_t i = first; i < first + count; ++i) run(i, keys_from(i * 16, length));
  }
};

TEST_F(WriteBackJobsTest, store_a_prefix_and_say_so_of_each_block) {
  make_store(4);
  const auto keys = keys_of({1, 2, 3});
  run(1, keys);
  const WriteBackId id = start(prefix(keys));
  EXPECT_EQ(progress(id).state, WriteBackState::running);
  EXPECT_EQ(progress(id).under_way, 3U);
  settle();
  const WriteBackProgress ended = progress(id);
  EXPECT_EQ(ended.state, WriteBackState::done);
  EXPECT_TRUE(ended.ended());
  EXPECT_EQ(ended.of(stored), 3U);
  EXPECT_EQ(ended.under_way, 0U);
  EXPECT_EQ(ended.written, Bytes{3 * block_bytes});
  EXPECT_EQ(store->stat().blocks, 3U);
  const auto results = cache->take_write_back_results(id).value();
  ASSERT_EQ(results.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].key, keys[i]);  // ancestors first
    EXPECT_EQ(results[i].outcome, stored);
  }
  EXPECT_TRUE(cache->take_write_back_results(id)->empty());
  // A second job changes nothing.
  const WriteBackId again = start(prefix(keys));
  settle();  // storage is asked whether it still has them
  EXPECT_EQ(progress(again).state, WriteBackState::done);
  EXPECT_EQ(of(again, already_there), 3U);
  const auto& totals = cache->manager().write_backs().totals();
  EXPECT_EQ(totals[static_cast<std::size_t>(stored)], 3U);
  EXPECT_EQ(totals[static_cast<std::size_t>(already_there)], 3U);
  EXPECT_EQ(store->stat().writes, 3U);
}

TEST_F(WriteBackJobsTest, store_what_a_request_has_committed) {
  make_store(8);
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3})).has_value());
  WriteBackOrder of_request = order(Scope::request);
  of_request.request = RequestId{1};
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  const WriteBackId id = start(of_request);
  settle();
  EXPECT_EQ(of(id, stored), 2U);
  of_request.request = RequestId{7};
  EXPECT_EQ(cache->start_write_back(of_request).error(), Errc::unknown_request);
}

TEST_F(WriteBackJobsTest, store_what_a_tenant_has_and_nothing_of_others) {
  make_store(8);
  for (const std::uint64_t tenant : {1, 2}) {
    AcquireRequest wanted = request(tenant, keys_of({static_cast<std::uint32_t>(tenant * 10)}), 0);
    const auto keys = keys_of({static_cast<std::uint32_t>(tenant * 10), 5});
    wanted.keys = keys;
    wanted.units = 2;
    wanted.tenant = TenantId{tenant};
    leases[tenant] = cache->acquire(wanted).value();
    ASSERT_TRUE(commit(tenant, keys).has_value());
    release(tenant);
  }
  WriteBackOrder of_tenant = order(Scope::tenant);
  of_tenant.tenant = TenantId{2};
  const WriteBackId id = start(of_tenant);
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(cache->match(keys_of({20, 5})).total(), 2U);
  std::set<TenantId> owners;
  store->for_each([&](const StoredBlock& block) { owners.insert(block.tenant); });
  EXPECT_EQ(owners, std::set{TenantId{2}});
}

TEST_F(WriteBackJobsTest, store_what_was_not_used_for_so_long) {
  make_store(16);
  run_prefixes(1, 2);
  clock.advance(seconds{1});
  poll();
  clock.advance(seconds{60});
  poll();
  run_prefixes(3, 2);
  clock.advance(seconds{1});
  poll();
  clock.advance(seconds{10});
  poll();
  WriteBackOrder of_age = order(Scope::idle);
  of_age.unused_for = seconds{30};
  WriteBackId id = start(of_age);
  settle();
  EXPECT_EQ(of(id, stored), 6U);
  of_age.unused_for = seconds{1000};
  id = start(of_age);
  settle();
  EXPECT_EQ(of(id, stored) + of(id, already_there), 0U);
  of_age.unused_for = seconds{5};
  id = start(of_age);
  settle();
  EXPECT_EQ(of(id, stored), 6U);
  EXPECT_EQ(of(id, already_there), 6U);
}

TEST_F(WriteBackJobsTest, store_all_there_is_in_device_and_host_a_part_at_a_time) {
  make_store(600, 700, 2048);
  run_prefixes(1, 400);
  ASSERT_GT(resident(Tier::host), 500U);
  const WriteBackId id = start(order(Scope::all));
  const std::uint32_t ahead_max = cache->manager().config().write_back_blocks_ahead;
  EXPECT_LE(progress(id).under_way, ahead_max);
  EXPECT_TRUE(cache->has_pending_work());
  std::uint64_t most = 0;
  std::vector<double> looked_at{progress(id).looked_at};
  for (int i = 0; i < 2000 && !progress(id).ended(); ++i) {
    device->run();
    poll();
    most = std::max(most, progress(id).under_way);
    if (!progress(id).ended()) looked_at.push_back(progress(id).looked_at);
  }
  EXPECT_TRUE(std::ranges::is_sorted(looked_at));
  EXPECT_TRUE(std::ranges::any_of(looked_at, [](double part) { return part > 0.25 && part < 0.75; }));
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_LE(most, ahead_max);
  EXPECT_EQ(of(id, stored), 1200U);
  EXPECT_EQ(store->stat().blocks, 1200U);
  EXPECT_EQ(store->stat().orphans, 0U);
  EXPECT_EQ(cache->take_write_back_results(id)->size(), 1200U);
  cache->drain();
}

TEST_F(WriteBackJobsTest, copy_a_block_once_for_all_who_want_it) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3})).has_value());  // the write policy is already storing them
  const WriteBackId a = start(prefix(keys_of({1, 2, 3})));
  const WriteBackId b = start(order(Scope::all));
  settle();
  EXPECT_EQ(of(a, stored), 3U);
  EXPECT_EQ(of(b, stored), 3U);
  EXPECT_EQ(store->stat().writes, 3U);
}

TEST_F(WriteBackJobsTest, end_at_once_when_they_are_cancelled) {
  make_store(8);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 9}));
  const WriteBackId mine = start(prefix(keys_of({1, 2, 3})));
  const WriteBackId other = start(prefix(keys_of({1, 2, 9})));
  ASSERT_TRUE(cache->cancel_write_back(mine).has_value());
  EXPECT_EQ(progress(mine).state, WriteBackState::cancelled);
  EXPECT_EQ(of(mine, cancelled), 3U);
  EXPECT_EQ(cache->cancel_write_back(mine).error(), Errc::not_found);
  settle();
  // The block on which the other job's blocks depend is stored anyway.
  EXPECT_EQ(progress(other).state, WriteBackState::done);
  EXPECT_EQ(of(other, stored), 3U);
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 3U);
}

TEST_F(WriteBackJobsTest, end_at_their_deadline_and_say_what_was_left) {
  make_store(8);
  run(1, keys_of({1, 2, 3}));
  WriteBackOrder wanted = prefix(keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3});
  wanted.keys = keys;
  wanted.deadline = clock.now() + seconds{1};
  wanted.durable = false;
  const WriteBackId id = start(wanted);
  EXPECT_EQ(cache->manager().next_deadline(), wanted.deadline);
  clock.advance(seconds{1});
  poll();
  EXPECT_EQ(progress(id).state, WriteBackState::deadline_exceeded);
  EXPECT_EQ(of(id, cancelled) + of(id, stored), 3U);
  EXPECT_GT(of(id, cancelled), 0U);
  settle();
  EXPECT_EQ(store->stat().blocks, of(id, stored));
}

TEST_F(WriteBackJobsTest, keep_to_their_budget_from_the_root_on) {
  make_store(8);
  const auto keys = keys_of({1, 2, 3, 4});
  run(1, keys);
  WriteBackOrder wanted = prefix(keys);
  wanted.budget = Bytes{2 * block_bytes + 1};
  const WriteBackId id = start(wanted);
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(of(id, over_budget), 2U);
  EXPECT_EQ(progress(id).written, Bytes{2 * block_bytes});
  WriteBackOrder all = order(Scope::all);
  all.budget = Bytes{block_bytes};
  const WriteBackId more = start(all);
  settle();
  EXPECT_EQ(of(more, already_there), 2U);
  EXPECT_EQ(of(more, stored), 1U);
  EXPECT_EQ(of(more, over_budget), 1U);
}

TEST_F(WriteBackJobsTest, and_policies_keep_to_what_the_drive_may_be_written_to_in_a_day) {
  ManagerConfig config = with_storage(sizes(16), WritePolicy::write_through);
  config.daily_write_bytes = Bytes{4 * block_bytes};
  make(config);
  poll();
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({7, 8, 9}));
  EXPECT_EQ(store->stat().blocks, 4U);
  EXPECT_EQ(cache->manager().stats().store_over_budget, 2U);
  EXPECT_EQ(cache->daily_writes().written, Bytes{4 * block_bytes});
  const WriteBackId id = start(order(Scope::all));
  settle();
  EXPECT_EQ(of(id, over_budget), 2U);
  EXPECT_EQ(of(id, already_there), 4U);
  clock.advance(std::chrono::hours{24});
  poll();
  const WriteBackId tomorrow = start(order(Scope::all));
  settle();
  EXPECT_EQ(of(tomorrow, stored), 2U);
  EXPECT_EQ(cache->daily_writes().written, Bytes{2 * block_bytes});
  CacheSettings settings = cache->settings();
  settings.daily_write_bytes = {};
  ASSERT_TRUE(cache->change(settings).has_value());
  run(3, keys_of({11, 12, 13, 14, 15}));
  EXPECT_EQ(store->stat().blocks, 11U);
}

TEST_F(WriteBackJobsTest, say_what_storage_has_no_room_for) {
  make_store(8, 0, 2);
  run(1, keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3});
  const WriteBackId id = start(prefix(keys));
  settle();
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(of(id, dropped_full), 1U);
}

TEST_F(WriteBackJobsTest, say_what_failed_and_why) {
  make_store(8);
  run(1, keys_of({1, 2, 3}));
  store->fail_next_write();
  const auto keys = keys_of({1, 2, 3});
  const WriteBackId id = start(prefix(keys));
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(of(id, failed), 3U);
  const auto results = cache->take_write_back_results(id).value();
  EXPECT_EQ(results[0].error, Errc::io_failed);
  EXPECT_EQ(results[1].error, Errc::parent_missing);
  const WriteBackId again = start(prefix(keys));
  settle();
  EXPECT_EQ(of(again, stored), 3U);
}

TEST_F(WriteBackJobsTest, have_one_outcome_for_each_block_that_was_ordered_whatever_goes_wrong) {
  enum class Fault : std::uint8_t { none, write, link, dead_link, cancel, budget, clear };
  constexpr std::uint32_t blocks = 6;
  const auto sum = [](const WriteBackProgress& of) {
    return std::accumulate(of.blocks.begin(), of.blocks.end(), std::uint64_t{});
  };
  make_store(64);
  std::uint32_t number = 0;
  for (const Fault fault :
       {Fault::none, Fault::write, Fault::link, Fault::dead_link, Fault::cancel, Fault::budget, Fault::clear}) {
    SCOPED_TRACE(static_cast<int>(fault));
    const std::uint32_t first = 100 * ++number;
    const auto keys = keys_of({first, first + 1, first + 2, first + 3, first + 4, first + 5});
    run(number, keys);
    WriteBackOrder wanted = prefix(keys);
    if (fault == Fault::write) store->fail_next_write();
    if (fault == Fault::link) device->fail_next(Direction::swap_out);
    if (fault == Fault::budget) wanted.budget = Bytes{2 * block_bytes};
    device->dead(Direction::swap_out, fault == Fault::dead_link);
    const WriteBackId id = start(wanted);
    EXPECT_EQ(sum(progress(id)) + progress(id).under_way, blocks);
    poll();
    if (fault == Fault::cancel) (void)cache->cancel_write_back(id);
    if (fault == Fault::clear) cache->clear({});
    settle();
    EXPECT_TRUE(progress(id).ended());
    EXPECT_EQ(sum(progress(id)), blocks);
    EXPECT_EQ(progress(id).under_way, 0U);
    EXPECT_EQ(of(id, stored) == blocks, fault == Fault::none);
  }
  const auto& totals = cache->manager().write_backs().totals();
  EXPECT_EQ(std::accumulate(totals.begin(), totals.end(), std::uint64_t{}), std::uint64_t{number} * blocks);
}

TEST_F(WriteBackJobsTest, try_a_block_that_fails_once) {
  make_store(8);
  run(1, keys_of({1, 2, 3}));
  store->fail_next_write();
  const WriteBackId id = start(order(Scope::all));
  run(2, keys_of({1, 2, 9}));  // splits the prefix: another pass follows
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(of(id, failed), 3U);
  EXPECT_LE(of(id, stored), 1U);
}

TEST_F(WriteBackJobsTest, say_what_is_not_cached_any_more) {
  make_store(8);
  run(1, keys_of({1, 2}));
  const auto keys = keys_of({1, 2, 3, 4});
  const WriteBackId id = start(prefix(keys));
  settle();
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(of(id, dropped_gone), 2U);
  const auto strangers = keys_of({7, 8});
  EXPECT_EQ(cache->start_write_back(prefix(strangers)).error(), Errc::not_found);
  // Blocks that are cleared while a job stores them.
  run(2, keys_of({21, 22}));
  const auto others = keys_of({21, 22});
  const WriteBackId cleared = start(prefix(others));
  cache->clear({});
  settle();
  EXPECT_EQ(progress(cleared).state, WriteBackState::done);
  EXPECT_EQ(of(cleared, dropped_gone) + of(cleared, stored), 2U);
}

TEST_F(WriteBackJobsTest, begin_nothing_while_they_are_paused) {
  make_store(1200, 0, 2048);
  run_prefixes(1, 300);
  const WriteBackId id = start(order(Scope::all));
  ASSERT_TRUE(cache->pause_write_back(id).has_value());
  for (int i = 0; i < 100 && progress(id).under_way > 0; ++i) settle();
  EXPECT_EQ(progress(id).state, WriteBackState::paused);
  const std::uint64_t so_far = of(id, stored);
  EXPECT_GT(so_far, 0U);  // the blocks that were under way
  EXPECT_LT(so_far, 900U);
  settle();
  EXPECT_EQ(of(id, stored), so_far);
  EXPECT_FALSE(cache->has_pending_work());
  ASSERT_TRUE(cache->resume_write_back(id).has_value());
  for (int i = 0; i < 2000 && !progress(id).ended(); ++i) {
    device->run();
    poll();
  }
  EXPECT_EQ(of(id, stored), 900U);
}

TEST_F(WriteBackJobsTest, see_blocks_that_move_to_where_they_had_looked_already) {
  make_store(600, 0, 2048);
  run_prefixes(1, 100, 4);
  const WriteBackId id = start(order(Scope::all));
  ASSERT_FALSE(progress(id).ended());
  // Each of these splits a prefix that is not completely stored yet. The end of it gets another node.
  for (std::uint32_t i = 1; i <= 100; ++i) run(1000 + i, keys_of({i * 16, i * 16 + 1, 5000 + i}));
  for (int i = 0; i < 2000 && !progress(id).ended(); ++i) {
    device->run();
    poll();
  }
  for (std::uint32_t i = 1; i <= 100; ++i) {
    const auto match = cache->manager().residency().tree().find(keys_of({i * 16, i * 16 + 1, i * 16 + 2, i * 16 + 3}));
    ASSERT_EQ(match.length, 4U);
    EXPECT_TRUE(cache->manager().residency().stored(match.last())) << i;
  }
}

/// The job has looked at half of the tree when prefixes are split, so it scans the whole tree again.
TEST_F(WriteBackJobsTest, tell_of_each_block_once_though_they_meet_it_twice) {
  ManagerConfig config = with_storage(sizes(600), WritePolicy::none);
  config.write_back_blocks_ahead = 8;
  make(config, 2048);
  run_prefixes(1, 40, 4);
  for (std::uint32_t i = 1; i <= 10; ++i) start(prefix(keys_of({i * 16, i * 16 + 1, i * 16 + 2, i * 16 + 3})));
  settle();
  ASSERT_EQ(store->stat().blocks, 40U);
  const WriteBackId id = start(order(Scope::all));
  for (std::uint32_t i = 1; i <= 40; ++i) run(1000 + i, keys_of({i * 16, i * 16 + 1, 5000 + i}));
  settle();
  ASSERT_EQ(progress(id).state, WriteBackState::done);
  const auto results = cache->take_write_back_results(id).value();
  std::set<BlockKey> keys;
  for (const WriteBackResult& result : results) EXPECT_TRUE(keys.insert(result.key).second) << to_string(result.outcome);
  EXPECT_EQ(of(id, already_there), 40U);
  EXPECT_EQ(of(id, stored), keys.size() - 40);
  EXPECT_EQ(progress(id).written, Bytes{block_bytes} * of(id, stored));
}

template <class Manager>
concept StartsJobsUnchecked =
    requires(Manager& manager, const WriteBackOrder& order) { (void)manager.write_backs().start(order, std::uint64_t{0}); };

TEST_F(WriteBackJobsTest, start_by_one_call_which_checks_them) { EXPECT_FALSE(StartsJobsUnchecked<CacheManager>); }

TEST_F(WriteBackJobsTest, are_refused_without_storage) {
  make(sizes(4));
  EXPECT_EQ(cache->start_write_back(order(Scope::all)).error(), Errc::invalid_argument);
}

TEST_F(WriteBackJobsTest, are_refused_beyond_their_bound) {
  make_store(8);
  run(1, keys_of({1, 2}));
  std::vector<WriteBackId> ids;
  const auto keys = keys_of({1, 2});
  for (std::size_t i = 0; i < WriteBackJobs::running_max; ++i) ids.push_back(start(prefix(keys)));
  EXPECT_EQ(cache->start_write_back(prefix(keys)).error(), Errc::refused);
  settle();
  for (const WriteBackId id : ids) EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(cache->write_backs().size(), ids.size());
  for (std::size_t i = 0; i < WriteBackJobs::ended_max; ++i) {
    start(prefix(keys));
    settle();
  }
  EXPECT_FALSE(cache->write_back(ids.front()).has_value());  // it ended long ago
  EXPECT_LE(cache->write_backs().size(), WriteBackJobs::ended_max);
  EXPECT_EQ(cache->take_write_back_results(ids.front()).error(), Errc::not_found);
  EXPECT_EQ(to_string(Scope::tenant), "tenant");
  EXPECT_EQ(to_string(dropped_full), "dropped: full");
  EXPECT_EQ(to_string(WriteBackState::deadline_exceeded), "deadline exceeded");
}

TEST(UseClock, is_exact_to_a_small_part_of_its_time_and_never_says_too_much) {
  UseClock clock;
  const TimePoint start{std::chrono::hours{1}};
  for (std::uint64_t i = 0; i < 100'000; ++i) clock.note(start + seconds{i}, i * 10);
  for (std::uint64_t i = 0; i < 100'000; i += 997) {
    const std::uint64_t stamp = clock.stamp_at(start + seconds{i});
    EXPECT_LE(stamp, i * 10);
    EXPECT_GE(stamp + 640, i * 10);
  }
  EXPECT_EQ(clock.stamp_at(start - seconds{1}), 0U);
  EXPECT_GE(clock.stamp_at(start + seconds{200'000}), 999'360U);
}

}  // namespace
}  // namespace terrace::test
