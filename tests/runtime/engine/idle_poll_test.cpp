// A poll that has nothing to do ends at once. Each source of work for a poll makes the next one look at everything again.

#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/request.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Counts the polls that have looked at everything.
class FullPolls final : public CacheWatch {
 public:
  void on_polled(TimePoint) override { ++count; }
  [[nodiscard]] TimePoint next_deadline() const override { return deadline; }

  int count = 0;
  TimePoint deadline = never;
};

class IdlePoll : public CacheFixture {
 protected:
  IdlePoll() { watch = &full_; }

  /// A cache that rests.
  void make_quiet(const ManagerConfig& config) {
    make(config);
    run(1, keys_of({1, 2, 3}));
    settle();
    ASSERT_FALSE(looks());
  }
  /// Returns true if a poll looks at everything.
  [[nodiscard]] bool looks() {
    const int before = full_.count;
    poll();
    return full_.count > before;
  }

  FullPolls full_;
};

TEST_F(IdlePoll, ends_at_once_also_after_a_hit) {
  make_quiet(sizes(8, 8));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3})).has_value());
  EXPECT_FALSE(looks());
  ASSERT_TRUE(commit(2, keys_of({1, 2, 3})).has_value());
  release(2);
  EXPECT_FALSE(looks());
  clock.advance(seconds{3600});
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, looks_while_copies_are_under_way_and_once_more_when_they_have_ended) {
  make_quiet(sizes(4, 8));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7, 8})).has_value());
  ASSERT_GT(cache->transfers_in_flight(), 0U);
  EXPECT_TRUE(looks());
  settle();
  EXPECT_TRUE(ready(2));
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, looks_when_somebody_wakes_the_cache) {
  cache_waker.emplace();
  make_quiet(sizes(8));
  cache->wake();
  EXPECT_TRUE(looks());
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, ends_a_lease_that_another_thread_has_given_back) {
  make_quiet(sizes(8));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3})).has_value());
  ASSERT_FALSE(looks());
  std::thread{[lease = std::exchange(leases[2], {})]() mutable { lease.reset(); }}.join();
  EXPECT_TRUE(looks());
  EXPECT_EQ(cache->manager().requests().live_requests(), 0U);
}

TEST_F(IdlePoll, ends_pins_and_retentions_when_their_time_has_come) {
  ManagerConfig config = sizes(8);
  config.policy = lru_policy;
  make_quiet(config);
  ASSERT_TRUE(cache->pin(keys_of({1, 2}), clock.now() + seconds{2}).has_value());
  ASSERT_TRUE(cache->retain(keys_of({1, 2, 3}), usual_priority + 1, clock.now() + seconds{4}).has_value());
  EXPECT_FALSE(looks());
  for (int end = 0; end < 2; ++end) {
    clock.advance(seconds{2} - milliseconds{1});
    EXPECT_FALSE(looks());
    clock.advance(milliseconds{1});
    EXPECT_TRUE(looks());
    EXPECT_FALSE(looks());
  }
  EXPECT_FALSE(cache->manager().administration().has_pins());
  EXPECT_EQ(cache->next_deadline(), never);
}

TEST_F(IdlePoll, ends_a_quarantine_though_fences_wake_nobody) {
  make_quiet(sizes(8));
  ASSERT_TRUE(acquire(2, keys_of({4})).has_value());
  ASSERT_EQ(table(2).size(), 1U);  // so compute may use the slot
  (void)device->launch([](BlockAccess&) {});
  release(2);
  ASSERT_EQ(cache->manager().requests().quarantined_requests(), 1U);
  EXPECT_TRUE(looks());
  settle();
  EXPECT_EQ(cache->manager().requests().quarantined_requests(), 0U);
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, looks_when_the_time_of_a_watch_has_come) {
  make_quiet(sizes(8));
  full_.deadline = clock.now() + seconds{1};
  run(2, keys_of({1}));
  EXPECT_FALSE(looks());
  clock.advance(seconds{1});
  EXPECT_TRUE(looks());
  full_.deadline = never;
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, looks_from_time_to_time_where_the_costs_of_loads_are_measured) {
  ManagerConfig config = with_storage(sizes(8, 8), WritePolicy::write_back);
  config.loads = LoadPolicy::measured;
  make_quiet(config);
  clock.advance(milliseconds{9});
  EXPECT_FALSE(looks());
  clock.advance(milliseconds{1});
  EXPECT_TRUE(looks());
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, looks_while_compute_shows_how_fast_it_is) {
  ManagerConfig config = with_storage(sizes(8), WritePolicy::none);
  config.loads = LoadPolicy::measured;
  make_quiet(config);
  ASSERT_TRUE(acquire(2, keys_of({7, 8})).has_value());
  settle();
  ASSERT_FALSE(looks());
  const Fence written = device->launch([](BlockAccess&) {});
  ASSERT_TRUE(cache->commit(leases.at(2), keys_of({7, 8}), written).has_value());
  EXPECT_TRUE(looks());
  EXPECT_TRUE(looks());
  device->run();
  EXPECT_TRUE(looks());
  EXPECT_FALSE(looks());
}

TEST_F(IdlePoll, evicts_for_watermarks_that_have_been_raised) {
  make_quiet(sizes(8, 8));
  CacheSettings settings = cache->settings();
  settings.device_watermarks = {.low = 0.8, .high = 0.9};
  ASSERT_TRUE(cache->change(settings).has_value());
  EXPECT_TRUE(looks());
  settle();
  EXPECT_EQ(free_on_device(), 7U);
}

}  // namespace
}  // namespace terrace::test
