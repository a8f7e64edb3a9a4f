// Commands and snapshots on the thread of the cache, without threads and without time.

#include "runtime/admin/cache_admin.hpp"

#include "runtime/admin/history/history.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/moment.hpp"
#include "runtime/admin/status.hpp"
#include "tests/runtime/fixture.hpp"

#include <boost/json.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace terrace::admin {
namespace {

using test::keys_of;
using test::sizes;
using test::with_storage;

constexpr Duration interval = std::chrono::seconds{1};

class CacheAdminTest : public test::CacheFixture {
 protected:
  /// Wakes the cache.
  struct CountingWaker final : Waker {
    explicit CountingWaker(std::optional<EventFdWaker>& to) : cache{to} {}
    void wake() noexcept override {
      ++wakes;
      cache->wake();
    }
    std::optional<EventFdWaker>& cache;
    int wakes = 0;
  };

  void begin(const ManagerConfig& config) {
    cache_waker.emplace();
    watch = &admin;
    make(config);
    admin.begin(*cache);
  }
  void TearDown() override {
    admin.end();
    CacheFixture::TearDown();
  }
  /// Posts the command, polls once, and returns the reply; nothing if there is none.
  std::optional<Reply> order(Command command) {
    std::optional<Reply> reply;
    EXPECT_TRUE(mailbox.post(std::move(command), [&](Reply got) { reply = std::move(got); }).has_value());
    poll();
    return reply;
  }
  static boost::json::object body(const std::optional<Reply>& reply) {
    return reply ? boost::json::parse(reply->body).as_object() : boost::json::object{};
  }
  [[nodiscard]] const AdminSnapshot& seen() const { return *mailbox.latest(); }

  CountingWaker counting_waker{cache_waker};
  Mailbox mailbox{counting_waker};
  CacheAdmin admin{mailbox, clock, interval};
};

TEST_F(CacheAdminTest, the_history_tells_waits_clears_and_new_sizes) {
  begin(with_storage(sizes(4, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3, 4}));
  History history;
  History::WallTime wall{std::chrono::hours{24 * 365 * 50}};
  const auto look = [&] {
    clock.advance(interval);
    wall += interval;
    poll();
    history.look(moment_of(seen(), {}), clock.now(), wall);
  };
  look();
  EXPECT_EQ(order(Clear{{.keep_storage = true}})->status, 200U);
  run(2, keys_of({1, 2}));
  ASSERT_TRUE(cache->resize(Tier::host, Blocks{2}).has_value());
  look();
  const std::string minute = boost::json::serialize(history.to_json());
  for (const char* const told : {"\"storage\":{\"requests\":1,", "\"id\":2,", "\"for\":\"storage\"", "\"storage_reads\":128",
                                 "copies of blocks were dropped by a clear", "host blocks: 2, before 4"})
    EXPECT_NE(minute.find(told), std::string::npos) << told << '\n' << minute;
}

TEST_F(CacheAdminTest, what_storage_has_brought_is_known) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_through);
  config.unit_prefill_seconds = 0.5;
  begin(config);
  run(1, keys_of({1, 2, 3, 4}));
  EXPECT_EQ(storage_gain(seen()).found, 0U);
  EXPECT_EQ(count(storage_gain(seen()).written_per_day), 0U) << "too early to say";
  EXPECT_EQ(order(Clear{{.keep_storage = true}})->status, 200U);
  run(2, keys_of({1, 2}));
  clock.advance(std::chrono::hours{12});
  poll();
  const StorageGain gain = storage_gain(seen());
  EXPECT_EQ(gain.found, 2U);
  EXPECT_EQ(gain.prefill_seconds, 1.0);
  EXPECT_EQ(gain.waited_seconds, seen().waits.loads[Source::storage].seconds);
  EXPECT_EQ(gain.written, Bytes{4 * block_bytes});
  EXPECT_NEAR(static_cast<double>(count(gain.written_per_day)), 8.0 * block_bytes, block_bytes);
}

TEST_F(CacheAdminTest, a_snapshot_is_there_at_once_and_then_every_interval) {
  begin(sizes(8, 8));
  EXPECT_EQ(seen().number, 1U);
  EXPECT_EQ(cache->next_deadline(), clock.now() + interval);
  poll();
  EXPECT_EQ(seen().number, 1U);
  clock.advance(interval);
  poll();
  EXPECT_EQ(seen().number, 2U);
  EXPECT_EQ(seen().made, clock.now());
  EXPECT_EQ(cache->next_deadline(), clock.now() + interval);
}

TEST_F(CacheAdminTest, a_snapshot_tells_what_the_cache_tells) {
  begin(with_storage(sizes(4, 8), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  clock.advance(interval);
  poll();
  ASSERT_EQ(seen().pools.size(), 1U);
  EXPECT_EQ(seen().pools[0].device.blocks, 4U);
  EXPECT_EQ(seen().pools[0].device.evictable, cache->usage(Tier::device).evictable);
  EXPECT_EQ(seen().pools[0].host.blocks, 8U);
  EXPECT_EQ(seen().stats.requests.asked, 3U);
  EXPECT_EQ(seen().moved.storage_writes.blocks, 3U);
  EXPECT_EQ(seen().settings.write_policy, WritePolicy::write_through);
  EXPECT_FALSE(seen().offload.has_value());
  EXPECT_TRUE(seen().work.none());
}

TEST_F(CacheAdminTest, how_long_blocks_stay_is_measured_from_the_start) {
  begin(sizes(4));
  for (std::uint32_t number = 1; number <= 500; ++number) run(number, keys_of({number}));
  clock.advance(interval);
  poll();
  const SummedHistogram& lifetime = seen().pools[0].residency.device.lifetime;
  ASSERT_GT(lifetime.total(), 0U) << "of 496 evicted blocks about eight are followed";
  EXPECT_EQ(lifetime.sum, 4 * lifetime.total()) << "each stays until four more requests have come";
}

TEST_F(CacheAdminTest, a_command_wakes_the_cache_and_is_carried_out_in_the_next_poll) {
  begin(sizes(8, 8));
  std::optional<Reply> reply;
  ASSERT_TRUE(mailbox.post(Resize{.tier = Tier::host, .blocks = 4}, [&](Reply got) { reply = std::move(got); }).has_value());
  EXPECT_EQ(counting_waker.wakes, 1);
  EXPECT_FALSE(reply.has_value());
  EXPECT_EQ(cache->usage(Tier::host).blocks, 8U);
  poll();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->status, 202U);
  EXPECT_EQ(cache->usage(Tier::host).blocks, 4U);
  EXPECT_EQ(seen().pools[0].host.blocks, 4U) << "who asks after the reply sees the effect";
}

TEST_F(CacheAdminTest, a_command_that_was_withdrawn_has_no_effect) {
  begin(sizes(8, 8));
  bool replied = false;
  const auto id = mailbox.post(Resize{.tier = Tier::host, .blocks = 4}, [&](const Reply&) { replied = true; });
  ASSERT_TRUE(id.has_value());
  EXPECT_TRUE(mailbox.withdraw(*id));
  EXPECT_FALSE(mailbox.withdraw(*id));
  poll();
  EXPECT_FALSE(replied);
  EXPECT_EQ(cache->usage(Tier::host).blocks, 8U);
}

TEST_F(CacheAdminTest, a_command_that_was_taken_cannot_be_withdrawn) {
  begin(sizes(8, 8));
  const auto id = mailbox.post(Pause{true}, [](const Reply&) {});
  ASSERT_TRUE(id.has_value());
  poll();
  EXPECT_FALSE(mailbox.withdraw(*id));
}

TEST_F(CacheAdminTest, too_many_commands_are_refused_and_the_end_replies_to_those_that_wait) {
  begin(sizes(8, 8));
  unsigned refused = 0;
  const auto note = [&](const Reply& reply) { refused += reply.status == 503 ? 1U : 0U; };
  for (std::size_t n = 0; n < Mailbox::commands_max; ++n) EXPECT_TRUE(mailbox.post(Pause{true}, note).has_value());
  EXPECT_FALSE(mailbox.post(Pause{true}, note).has_value());
  admin.end();
  EXPECT_EQ(refused, Mailbox::commands_max);
  EXPECT_FALSE(mailbox.post(Pause{true}, note).has_value());
  poll();
  EXPECT_FALSE(cache->transfers_paused());
}

TEST_F(CacheAdminTest, a_host_tier_larger_than_the_memory_of_the_machine_is_refused_with_the_largest_size) {
  host_limits = [] { return MemoryLimits{.available = Bytes{5 * block_bytes}}; };
  host_warm = false;
  begin(sizes(8, 0));
  const auto refused = order(Resize{.tier = Tier::host, .blocks = 6});
  EXPECT_EQ(refused->status, 409U);
  EXPECT_EQ(body(refused).at("largest_blocks").to_number<int>(), 5);
  EXPECT_NE(refused->body.find("the largest size that fits is 5 blocks (320B)"), std::string::npos) << refused->body;
  EXPECT_EQ(cache->host_memory().wanted, 0U);
  EXPECT_EQ(order(Resize{.tier = Tier::host, .blocks = 5})->status, 202U);
}

TEST_F(CacheAdminTest, sizes_in_bytes_are_whole_blocks) {
  begin(sizes(8, 8));
  const auto reply = order(Resize{.tier = Tier::host, .bytes = Bytes{5 * block_bytes + 1}});
  EXPECT_EQ(body(reply).at("blocks").to_number<int>(), 5);
  EXPECT_EQ(body(reply).at("bytes").to_number<std::uint64_t>(), 5 * block_bytes);
  EXPECT_EQ(cache->usage(Tier::host).blocks, 5U);
  EXPECT_EQ(order(Resize{.tier = Tier::host, .bytes = Bytes{1}})->status, 400U);
}

TEST_F(CacheAdminTest, what_the_cache_refuses_has_a_status_and_a_sentence) {
  begin(sizes(8, 8));
  EXPECT_EQ(order(Resize{.tier = Tier::host, .pool = PoolId{3}, .blocks = 1})->status, 400U);
  EXPECT_EQ(order(Resize{.tier = Tier::storage, .blocks = 1})->status, 400U);
  EXPECT_EQ(order(StartJob{})->status, 400U);
  EXPECT_NE(order(StartJob{})->body.find("has no storage"), std::string::npos);
  EXPECT_EQ(order(ChangeJob{ChangeJob::Action::cancel, WriteBackId{9}})->status, 404U);
  EXPECT_EQ(order(ChangeJob{ChangeJob::Action::take_results, WriteBackId{9}})->status, 404U);
  EXPECT_EQ(order(Change{{{"write-policy", "write-back"}}})->status, 400U);
  EXPECT_EQ(order(Change{{{"host.low-watermark", "50%"}, {"host.high-watermark", "40%"}}})->status, 400U);
  EXPECT_EQ(cache->settings().host_watermarks.low, 0);
  EXPECT_NE(order(Change{{{"device.reserve-max", "100%"}}})->body.find("less than 100 %"), std::string::npos);
}

TEST_F(CacheAdminTest, settings_change) {
  begin(sizes(8, 8));
  const auto reply = order(Change{{{"host.low-watermark", "10%"}, {"host.high-watermark", "20%"}}});
  EXPECT_EQ(reply->status, 200U);
  EXPECT_EQ(cache->settings().host_watermarks.high, 0.2);
  EXPECT_EQ(seen().settings.host_watermarks.high, 0.2);
}

TEST_F(CacheAdminTest, a_job_starts_pauses_resumes_and_tells_its_results) {
  begin(with_storage(sizes(8, 8), WritePolicy::none));
  run(1, keys_of({1, 2, 3}));
  const auto started = order(StartJob{});
  ASSERT_EQ(started->status, 201U);
  const WriteBackId id{body(started).at("id").to_number<std::uint64_t>()};
  EXPECT_EQ(body(order(ChangeJob{ChangeJob::Action::pause, id})).at("state").as_string(), "paused");
  EXPECT_EQ(body(order(ChangeJob{ChangeJob::Action::resume, id})).at("state").as_string(), "running");
  settle();
  clock.advance(interval);
  poll();
  ASSERT_EQ(seen().jobs.size(), 1U);
  EXPECT_EQ(seen().jobs[0].state, WriteBackState::done);
  EXPECT_EQ(seen().jobs[0].looked_at, 1);
  EXPECT_EQ(seen().jobs[0].of(WriteBackOutcome::stored), 3U);
  const auto results = order(ChangeJob{ChangeJob::Action::take_results, id});
  EXPECT_EQ(boost::json::parse(results->body).as_array().size(), 3U);
  EXPECT_EQ(order(ChangeJob{ChangeJob::Action::cancel, id})->status, 409U);
}

TEST_F(CacheAdminTest, the_deadline_of_a_job_counts_from_its_start) {
  begin(with_storage(sizes(8, 8), WritePolicy::none));
  run(1, keys_of({1, 2, 3}));
  clock.advance(std::chrono::hours{1});
  StartJob job;
  job.deadline = std::chrono::seconds{10};
  cache->pause_transfers();
  ASSERT_EQ(order(job)->status, 201U);
  clock.advance(std::chrono::seconds{9});
  poll();
  EXPECT_EQ(cache->write_backs().front().state, WriteBackState::running);
  clock.advance(std::chrono::seconds{2});
  poll();
  EXPECT_EQ(cache->write_backs().front().state, WriteBackState::deadline_exceeded);
  cache->resume_transfers();
}

TEST_F(CacheAdminTest, a_clear_that_waits_is_seen_and_resumed) {
  begin(sizes(8, 8));
  run(1, keys_of({1, 2}));
  EXPECT_EQ(order(Clear{{.wait = true}})->status, 200U);
  EXPECT_NE(seen().status, CacheStatus::normal);
  settle();
  EXPECT_EQ(order(Resume{})->status, 200U);
  EXPECT_EQ(seen().status, CacheStatus::normal);
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
}

TEST_F(CacheAdminTest, a_clear_without_words_clears_storage_and_says_until_when_it_may_come_back) {
  begin(with_storage(sizes(8, 8), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  EXPECT_EQ(body(order(Clear{{.keep_storage = true}})).at("erasing").as_bool(), false);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  const auto reply = order(Clear{});
  EXPECT_EQ(reply->status, 202U);
  EXPECT_TRUE(body(reply).at("erasing").as_bool());
  EXPECT_TRUE(seen().erasing);
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  settle();
  clock.advance(interval);
  poll();
  EXPECT_FALSE(seen().erasing);
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(CacheAdminTest, a_drain_ends_a_pause_of_an_operator) {
  begin(with_storage(sizes(8, 8), WritePolicy::write_through));
  EXPECT_EQ(order(Pause{true})->status, 200U);
  ASSERT_TRUE(cache->transfers_paused());
  EXPECT_TRUE(seen().transfers_paused);
  cache->drain();
  EXPECT_FALSE(cache->transfers_paused());
}

}  // namespace
}  // namespace terrace::admin
