// The notes of a cache's thread for the endpoint, and the results that the endpoint makes of them, without sockets and time.

#include "runtime/admin/observer.hpp"
#include "runtime/admin/cache_admin.hpp"
#include "runtime/admin/history/history.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/observations.hpp"
#include "runtime/admin/size_effects.hpp"
#include "terrace/clock.hpp"
#include "tests/runtime/fixture.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace terrace::admin {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using test::keys_of;
using test::sizes;
using test::with_storage;
using State = Observations::State;

class AdminObserver : public test::CacheFixture {
 protected:
  void begin(const ManagerConfig& config) {
    watch = &admin;
    make(config);
    admin.begin(*cache, [](AdminSnapshot& snapshot) { snapshot.key_tokens = 16; });
  }
  void TearDown() override {
    leases.clear();
    admin.end();
    CacheFixture::TearDown();
  }
  void order(StartCapture capture) {
    std::optional<Reply> reply;
    ASSERT_TRUE(mailbox.post(capture, [&](Reply got) { reply = std::move(got); }).has_value());
    poll();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 202U) << reply->body;
  }
  /// Lets time pass, and hands everything over to the endpoint.
  void pass(Duration time) {
    clock.advance(time);
    poll();
    observe();
  }
  void observe() {
    for (Observed& portion : mailbox.observed()) observations.add(std::move(portion));
  }
  [[nodiscard]] Observations::Status status(CaptureKind kind) const { return observations.status(kind, clock.now()); }
  /// The spans of the trace by name.
  [[nodiscard]] std::map<std::string, std::vector<json::object>> spans() {
    std::map<std::string, std::vector<json::object>> all;
    const json::object trace = json::parse(*observations.trace()).as_object();
    for (const json::value& event : trace.at("traceEvents").as_array()) {
      const json::object& it = event.as_object();
      if (it.at("ph") != "M") all[std::string{it.at("name").as_string()}].push_back(it);
    }
    return all;
  }
  [[nodiscard]] std::vector<json::object> recorded() {
    std::vector<json::object> requests;
    std::istringstream lines{*observations.recording(16)};
    for (std::string line; std::getline(lines, line);) requests.push_back(json::parse(line).as_object());
    return requests;
  }

  Mailbox mailbox{cache_waker.emplace()};
  CacheAdmin admin{mailbox, clock, 1s};
  Observations observations;
};

TEST_F(AdminObserver, traces_what_a_cache_does_while_it_is_asked_to) {
  begin(with_storage(sizes(4, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3, 4}));
  pass(1s);
  EXPECT_EQ(status(CaptureKind::trace).state, State::none);
  EXPECT_FALSE(admin.wants_spans());
  order({CaptureKind::trace, 10s});
  EXPECT_TRUE(admin.wants_spans());
  EXPECT_EQ(cache->next_deadline(), clock.now() + 1s);
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  clock.advance(3ms);
  settle();
  ASSERT_TRUE(commit(2, keys_of({5, 6})).has_value());
  clock.advance(20ms);
  release(2);
  settle();
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3, 4})).has_value());
  release(3);  // gives up
  settle();
  pass(1s);
  EXPECT_EQ(status(CaptureKind::trace).state, State::running);
  EXPECT_DOUBLE_EQ(status(CaptureKind::trace).seconds, 10);
  pass(10s);
  EXPECT_EQ(status(CaptureKind::trace).state, State::done);
  EXPECT_FALSE(admin.wants_spans());
  run(4, keys_of({9}));
  pass(1s);

  const auto all = spans();
  EXPECT_EQ(all.at("acquire").size(), 2U);
  EXPECT_EQ(all.at("acquire").front().at("ph"), "X");
  EXPECT_EQ(all.at("commit").size(), 1U);
  EXPECT_EQ(all.at("release").size(), 2U);
  EXPECT_GT(all.at("poll").size(), 10U);
  const std::vector<json::object>& waits = all.at("wait");
  ASSERT_EQ(waits.size(), 4U);  // each has a begin and an end
  EXPECT_EQ(waits[0].at("args").at("id").to_number<int>(), 2);
  EXPECT_EQ(waits[0].at("args").at("blocks").to_number<int>(), 2);
  EXPECT_EQ(waits[0].at("args").at("failed"), false);
  EXPECT_NEAR(waits[1].at("ts").to_number<double>() - waits[0].at("ts").to_number<double>(), 3000, 0.1);
  EXPECT_EQ(waits[2].at("args").at("failed"), true);
  const std::vector<json::object>& holds = all.at("hold");
  EXPECT_NEAR(holds[1].at("ts").to_number<double>() - holds[0].at("ts").to_number<double>(), 20'000, 0.1);
  EXPECT_EQ(holds[0].at("id"), waits[0].at("id"));
  EXPECT_FALSE(all.at("swap_out").empty());
  EXPECT_FALSE(all.at("storage_write").empty());
}

TEST_F(AdminObserver, a_second_trace_replaces_the_first_and_one_can_be_ended_early) {
  begin(sizes(8));
  order({CaptureKind::trace, 10s});
  run(1, keys_of({1}));
  pass(10s);
  EXPECT_EQ(spans().at("acquire").size(), 1U);
  order({CaptureKind::trace, 1h});
  run(2, keys_of({2}));
  run(3, keys_of({3}));
  order({CaptureKind::trace, 0s});
  observe();
  EXPECT_EQ(status(CaptureKind::trace).state, State::done);
  EXPECT_EQ(spans().at("acquire").size(), 2U);
  clock.advance(5s);
  const double seconds = status(CaptureKind::trace).seconds;
  order({CaptureKind::trace, 0s});  // there is none to end
  observe();
  EXPECT_EQ(status(CaptureKind::trace).seconds, seconds);
  EXPECT_EQ(spans().at("acquire").size(), 2U);
}

TEST_F(AdminObserver, records_requests_with_what_they_have_in_common_and_without_what_they_contain) {
  begin(sizes(40));
  run(1, keys_of({1, 2}));
  order({CaptureKind::record, 10s});
  clock.advance(100ms);
  ASSERT_TRUE(acquire(2, keys_of({7, 8, 9}), 2).has_value());
  clock.advance(50ms);
  ASSERT_TRUE(acquire(3, keys_of({7, 8, 5})).has_value());
  ASSERT_TRUE(commit(2, keys_of({7, 8, 9})).has_value());
  ASSERT_TRUE(commit(2, keys_of({7, 8, 9, 10, 11})).has_value());
  release(2);
  pass(1s);
  EXPECT_EQ(status(CaptureKind::record).entries, 1U);  // the other one has not ended
  pass(10s);
  EXPECT_EQ(status(CaptureKind::record).state, State::done);
  EXPECT_EQ(status(CaptureKind::record).entries, 2U);
  release(3);
  run(4, keys_of({1, 2}));
  pass(1s);
  const std::vector<json::object> requests = recorded();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(json::serialize(requests[0]),
            R"({"timestamp":100,"input_length":48,"output_length":32,"hash_ids":[0,1,2],"block_tokens":16})");
  EXPECT_EQ(json::serialize(requests[1]),
            R"({"timestamp":150,"input_length":48,"output_length":0,"hash_ids":[0,1,3],"block_tokens":16})");
}

TEST_F(AdminObserver, a_capture_is_done_even_if_the_engine_does_not_poll) {
  begin(sizes(8));
  order({CaptureKind::record, 10s});
  observe();
  clock.advance(11s);
  EXPECT_EQ(status(CaptureKind::record).state, State::running);
  clock.advance(2s);
  EXPECT_EQ(status(CaptureKind::record).state, State::done);
}

TEST_F(AdminObserver, a_capture_has_a_limit_and_says_what_is_missing) {
  Observed portion;
  portion.captures[0] = {1, clock.now(), clock.now() + 1h};
  portion.captures[1] = portion.captures[0];
  portion.spans.assign(1000, {.kind = TraceSpan::Kind::wait, .id = 1});
  portion.requests.assign(10, {.at = clock.now(), .prompt = std::vector<std::uint64_t>(100'000)});
  while (!status(CaptureKind::trace).truncated || !status(CaptureKind::record).truncated) observations.add(portion);
  const std::uint64_t spans = status(CaptureKind::trace).entries;
  const std::uint64_t requests = status(CaptureKind::record).entries;
  observations.add(portion);
  EXPECT_EQ(status(CaptureKind::trace).entries, spans);
  EXPECT_EQ(status(CaptureKind::record).entries, requests);
  EXPECT_LT(observations.trace()->size(), Observations::capture_bytes_max + 4096);
  EXPECT_NE(observations.trace()->find("\"truncated\":true"), std::string::npos);
  portion.captures[0].number = 2;
  observations.add(portion);
  EXPECT_FALSE(status(CaptureKind::trace).truncated);
  EXPECT_EQ(status(CaptureKind::trace).entries, 1000U);
}

TEST_F(AdminObserver, a_capture_takes_at_most_a_quarter_of_the_memory_that_is_left) {
  Observations poor{[] { return std::optional{MiB * 16}; }};
  Observed portion;
  portion.captures[0] = portion.captures[1] = {1, clock.now(), clock.now() + 1h};
  portion.spans.assign(1000, {.kind = TraceSpan::Kind::wait, .id = 1});
  portion.requests.assign(10, {.at = clock.now(), .prompt = std::vector<std::uint64_t>(10'000)});
  const auto truncated = [&](CaptureKind kind) { return poor.status(kind, clock.now()).truncated; };
  while (!truncated(CaptureKind::trace) || !truncated(CaptureKind::record)) poor.add(portion);
  EXPECT_LT(poor.trace()->size(), (4U << 20U) + 4096);
  EXPECT_LE(poor.status(CaptureKind::record, clock.now()).entries, (4U << 20U) / (10'000 * sizeof(std::uint64_t)));
}

TEST_F(AdminObserver, a_capture_is_one_text_for_all_and_the_next_one_waits_until_nobody_reads_it) {
  Observed portion;
  portion.captures[0] = portion.captures[1] = {1, clock.now(), clock.now()};
  portion.requests.assign(1, {.at = clock.now(), .prompt = {7}});
  observations.add(portion);
  for (const auto& text : {std::function{[&] { return observations.trace(); }}, {[&] { return observations.recording(1); }}}) {
    portion.captures[0].number += 1;
    portion.captures[1].number += 1;
    observations.add(portion);
    Observations::Text first = text();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(text(), first);
    portion.captures[0].number += 1;
    portion.captures[1].number += 1;
    observations.add(portion);
    EXPECT_EQ(text(), nullptr);
    first.reset();
    EXPECT_NE(text(), nullptr);
  }
}

TEST_F(AdminObserver, measures_how_often_blocks_come_back) {
  begin(sizes(30, 8));
  for (std::uint64_t id = 1; id <= 3; ++id) run(id, keys_of({1}));
  ASSERT_TRUE(acquire(9, keys_of({1}), 1).has_value());
  ASSERT_TRUE(commit(9, keys_of({1, 2})).has_value());
  release(9);
  run(10, keys_of({1, 2}));
  pass(1s);
  EXPECT_EQ(observations.curve().asked(), 6);
  EXPECT_EQ(observations.curve().different(), 2U);
  // Block 2 was computed by a request that had not asked for it.
  EXPECT_DOUBLE_EQ(observations.curve().hit_ratio(10), 5.0 / 6);
}

TEST_F(AdminObserver, measures_blocks_of_an_offload_cache_by_their_keys_alone) {
  begin(sizes(8));
  ASSERT_TRUE(admin.wants_offload_asked());
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t name = 0; name < 400; ++name) admin.on_offload_asked(PoolId{}, keys_of({name}));
    admin.on_offload_asked(PoolId{1}, keys_of({1000, 2000, 3000}));  // one size tells nothing of several pools
  }
  pass(1s);
  EXPECT_NEAR(observations.curve().asked(), 1200, 200);
  EXPECT_NEAR(observations.curve().different(), 400, 70);
  EXPECT_EQ(observations.curve().hit_ratio(200), 0);
  EXPECT_DOUBLE_EQ(observations.curve().hit_ratio(600), 2.0 / 3);
}

TEST_F(AdminObserver, measures_the_group_with_full_attention_and_tells_its_pool) {
  ManagerConfig config = sizes(30);
  config.pools[0].null_block = true;
  config.pools.push_back({.device_blocks = 20});
  config.groups = {{.kind = GroupKind::sliding_window, .block_tokens = 16, .span_tokens = 32},
                   {.block_tokens = 32, .pool = PoolId{1}}};
  begin(config);
  run(1, keys_of({1, 2, 3, 4}));
  pass(1s);
  EXPECT_EQ(observations.curve().asked(), 4) << "hash units";
  EXPECT_EQ(mailbox.latest()->measured.pool, PoolId{1});
  EXPECT_EQ(mailbox.latest()->measured.units_per_block, 2);
}

TEST_F(AdminObserver, does_not_measure_a_cache_without_full_attention) {
  ManagerConfig config = sizes(30);
  config.pools[0].null_block = true;
  config.groups = {{.kind = GroupKind::sliding_window, .block_tokens = 16, .span_tokens = 32}};
  begin(config);
  run(1, keys_of({1, 2}));
  pass(1s);
  EXPECT_EQ(observations.curve().asked(), 0);
}

TEST_F(AdminObserver, an_endpoint_that_does_not_look_costs_no_memory_without_end) {
  Observed portion;
  portion.captures[0] = {1, clock.now(), clock.now() + 1h};
  observations.add(portion);
  EXPECT_FALSE(status(CaptureKind::trace).truncated);
  portion.spans.resize(1);
  for (std::size_t n = 0; n < 3 * Mailbox::observed_max; ++n) mailbox.give(portion);
  std::deque<Observed> kept = mailbox.observed();
  EXPECT_EQ(kept.size(), Mailbox::observed_max);
  EXPECT_TRUE(mailbox.observed().empty());
  for (Observed& each : kept) observations.add(std::move(each));
  EXPECT_TRUE(status(CaptureKind::trace).truncated) << "a part of the trace was lost";
  EXPECT_FALSE(status(CaptureKind::record).truncated) << "there was none";
}

TEST_F(AdminObserver, nothing_of_an_idle_cache_is_lost_before_the_endpoint_looks) {
  begin(sizes(8));
  run(1, keys_of({1, 2}));
  for (std::size_t n = 0; n < 3 * Mailbox::observed_max; ++n) {
    clock.advance(1s);
    poll();
  }
  const std::deque<Observed> kept = mailbox.observed();
  EXPECT_LE(kept.size(), 3U);
  EXPECT_FALSE(kept.front().gap);
  EXPECT_EQ(kept.back().made, clock.now());
  for (const Observed& each : kept) observations.add(each);
  EXPECT_EQ(observations.curve().asked(), 2);
}

TEST(SizeEffects, follow_how_the_copies_of_tiers_relate) {
  const TierBlocks tiers{.device = 10, .host = 30, .storage = 100};
  using enum InclusionPolicy;
  EXPECT_EQ(tiers.together(Tier::device, exclusive, WritePolicy::none), 10);
  EXPECT_EQ(tiers.together(Tier::host, exclusive, WritePolicy::none), 40);
  EXPECT_EQ(tiers.together(Tier::host, non_inclusive, WritePolicy::none), 40);
  EXPECT_EQ(tiers.together(Tier::host, inclusive, WritePolicy::none), 30);
  EXPECT_EQ(tiers.together(Tier::storage, inclusive, WritePolicy::write_back), 130);
  EXPECT_EQ(tiers.together(Tier::storage, exclusive, WritePolicy::write_through), 100);
}

TEST(SizeEffects, tell_what_half_and_double_a_tier_would_have_hit) {
  ReuseCurve curve;
  AdminSnapshot snapshot;
  snapshot.pools.push_back({.block_bytes = KiB, .device = {{.blocks = 4}}, .host = {{.blocks = 8}}});
  EXPECT_TRUE(size_effects(curve, snapshot).empty());
  // A scan of ten blocks, again and again: a cache that has room for all ten hits them all, and a smaller one none.
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t block = 0; block < 10; ++block) curve.use(std::vector<ReuseSample>{{block, 1, true}}, {});
  }
  const std::vector<SizeEffect> effects = size_effects(curve, snapshot);
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_EQ(effects[0].tier, Tier::device);
  EXPECT_EQ(effects[0].hit_ratio, (std::array<double, 4>{0, 0, 0, 0.8}));
  EXPECT_EQ(effects[1].tier, Tier::host);
  EXPECT_EQ(effects[1].bytes, KiB * 8);
  EXPECT_EQ(effects[1].hit_ratio, (std::array<double, 4>{0, 0.8, 0.8, 0.8}));
  // Five blocks, each with two hash units, hit as much as ten blocks with one.
  snapshot.pools.push_back({.block_bytes = KiB * 4, .device = {{.blocks = 5}}});
  snapshot.measured = {.pool = PoolId{1}, .units_per_block = 2};
  const std::vector<SizeEffect> of_groups = size_effects(curve, snapshot);
  ASSERT_EQ(of_groups.size(), 1U);
  EXPECT_EQ(of_groups[0].bytes, KiB * 20);
  EXPECT_EQ(of_groups[0].hit_ratio, (std::array<double, 4>{0, 0.8, 0.8, 0.8}));
}

TEST(SizeEffects, are_those_of_groups_with_full_attention) {
  const GroupConfig window{.kind = GroupKind::sliding_window, .block_tokens = 16, .span_tokens = 64};
  const GroupConfig beside{.kind = GroupKind::sliding_window, .block_tokens = 32, .span_tokens = 64, .pool = PoolId{1}};
  const GroupConfig state{.kind = GroupKind::recurrent, .block_tokens = 32, .pool = PoolId{1}};
  const GroupConfig full{.block_tokens = 32, .pool = PoolId{1}};
  const GroupConfig larger{.block_tokens = 64, .pool = PoolId{1}};
  EXPECT_EQ(measured_blocks({}).units_per_block, 1);
  EXPECT_EQ(measured_blocks(std::vector{window}).units_per_block, 0) << "no prefix needs all of its blocks";
  EXPECT_EQ(measured_blocks(std::vector{full}).units_per_block, 1);
  EXPECT_EQ(measured_blocks(std::vector{window, full}).pool, PoolId{1});
  EXPECT_EQ(measured_blocks(std::vector{window, full}).units_per_block, 2);
  EXPECT_EQ(measured_blocks(std::vector{window, full, full}).units_per_block, 1) << "two blocks for the same tokens";
  EXPECT_EQ(measured_blocks(std::vector{window, full, beside}).units_per_block, 1);
  EXPECT_EQ(measured_blocks(std::vector{window, full, state}).units_per_block, 2);
  EXPECT_DOUBLE_EQ(measured_blocks(std::vector{window, full, larger}).units_per_block, 4.0 / 3);
}

// ---- the history of the last hour, without threads and without time

class AdminHistory : public ::testing::Test {
 protected:
  void pass(std::chrono::seconds time) {
    clock.advance(time);
    wall += time;
  }
  void look() { history.look(moment, clock.now(), wall); }
  void slow(std::uint64_t id, double seconds) { moment.slowest.push_back({id, seconds, "storage", clock.now()}); }
  /// The minutes, the oldest first.
  [[nodiscard]] std::vector<json::value> minutes(std::optional<History::WallTime> at = {}) const {
    const json::array all = history.to_json(at);
    return {all.begin(), all.end()};
  }
  /// "TEXT" or "TEXT xTIMES", of the last minute.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> texts;
    const json::array all = minutes().back().at("events").as_array();
    for (const json::value& event : all) {
      const auto times = event.at("times").to_number<std::uint64_t>();
      texts.push_back(std::string{event.at("text").as_string()} + (times == 1 ? "" : " x" + std::to_string(times)));
    }
    return texts;
  }
  [[nodiscard]] static std::vector<std::uint64_t> slowest(const json::value& minute) {
    std::vector<std::uint64_t> ids;
    for (const json::value& each : minute.at("slowest").as_array()) ids.push_back(each.at("id").to_number<std::uint64_t>());
    return ids;
  }

  using Texts = std::vector<std::string>;
  using Ids = std::vector<std::uint64_t>;

  ManualClock clock;
  History::WallTime wall{1'000'000'020s};  // a minute begins
  Moment moment;
  History history;
};

TEST_F(AdminHistory, counts_in_each_minute_what_was_waited_for) {
  moment.waits = {{"room", 5, 1.0}, {"storage", 7, 2.0}};
  moment.moved_bytes = {{"swap_in", 100}};
  look();
  pass(1s);
  moment.waits = {{"room", 5, 1.0}, {"storage", 9, 3.5}};
  moment.moved_bytes = {{"swap_in", 140}};
  moment.ready_at_once = 3;
  moment.queued_blocks = 8;
  moment.queued_seconds = 0.25;
  moment.waiting = 2;
  moment.waiting_seconds = 5.5;
  look();
  moment.waiting = 0;
  moment.waiting_seconds = 0;
  moment.queued_blocks = 2;
  look();
  pass(60s);
  look();
  ASSERT_EQ(minutes().size(), 2U);
  const json::value first = minutes().front();
  EXPECT_EQ(first.at("begin").to_number<std::int64_t>(), 1'000'000'020);
  EXPECT_EQ(json::serialize(first.at("waits")), R"({"at_once":3,"storage":{"requests":2,"seconds":1.5E0}})");
  EXPECT_EQ(json::serialize(first.at("moved_bytes")), R"({"swap_in":40})");
  EXPECT_EQ(json::serialize(first.at("queue")), R"({"blocks":8,"oldest_seconds":2.5E-1})");
  EXPECT_EQ(json::serialize(first.at("waiting")), R"({"requests":2,"oldest_seconds":5.5E0})");
  EXPECT_EQ(json::serialize(minutes().back().at("waiting")), R"({"requests":0,"oldest_seconds":0E0})");
  EXPECT_EQ(json::serialize(minutes().back().at("waits")), R"({"at_once":0})");
}

TEST_F(AdminHistory, a_reason_that_changes_its_cause_is_not_over) {
  moment.reasons = {"the shared store is down: it does not answer in time", "pool 0: storage is degraded: reads: a",
                    "pool 0: x: y"};
  look();
  moment.reasons = {"the shared store is down: connection refused", "pool 0: storage is degraded: writes: b"};
  look();
  EXPECT_EQ(events(), (Texts{"the shared store is down: connection refused", "pool 0: storage is degraded: writes: b",
                             "over: pool 0: x: y"}));
}

TEST_F(AdminHistory, keeps_the_slowest_waits_of_each_minute_once) {
  look();
  for (std::uint64_t id = 1; id <= 7; ++id) slow(id, static_cast<double>(id % 4));
  pass(1s);
  look();
  look();
  EXPECT_EQ(slowest(minutes().back()), (Ids{3, 7, 2, 6, 1}));
  pass(59s);
  moment.slowest.erase(moment.slowest.begin());  // the others ended in the minute before, too
  slow(7, 3);                                    // another request with the same number
  look();
  ASSERT_EQ(minutes().size(), 2U);
  EXPECT_EQ(slowest(minutes().front()), (Ids{3, 7, 2, 6, 1}));
  EXPECT_EQ(slowest(minutes().back()), Ids{7});
  EXPECT_EQ(minutes().back().at("slowest").at(0).at("ended").to_number<double>(), 1'000'000'080.0);
}

TEST_F(AdminHistory, tells_what_changed) {
  moment.values = {{"host blocks", "100"}};
  moment.troubles = {{"blocks did not arrive", 4}};
  look();
  EXPECT_EQ(events(), Texts{}) << "how it begins is no event";
  moment.values = {{"host blocks", "50"}, {"write-back job 1", "running"}};
  moment.troubles.front().amount = 6;
  moment.reasons = {"storage is slow: 3 reads in 1.5 s"};
  look();
  EXPECT_EQ(events(), (Texts{"storage is slow: 3 reads in 1.5 s", "host blocks: 50, before 100", "write-back job 1: running",
                             "blocks did not arrive x2"}));
  moment.reasons = {"storage is slow: 4 reads in 2.5 s"};
  moment.troubles.front().amount = 7;
  look();
  EXPECT_EQ(events().size(), 4U) << "the same reason with other numbers goes on";
  EXPECT_EQ(events().back(), "blocks did not arrive x3");
  moment.reasons.clear();
  look();
  EXPECT_EQ(events().back(), "over: storage is slow: 4 reads in 2.5 s");
}

TEST_F(AdminHistory, keeps_an_hour_and_shows_the_minutes_around_a_time) {
  for (int minute = 0; minute < 100; ++minute) {
    history.note("minute " + std::to_string(minute), wall);
    pass(60s);
  }
  ASSERT_EQ(minutes().size(), History::minutes_max);
  EXPECT_EQ(minutes().front().at("events").at(0).at("text").as_string(), "minute 39");
  const auto around = minutes(wall - 10min);
  ASSERT_EQ(around.size(), 5U);
  EXPECT_EQ(around.front().at("events").at(0).at("text").as_string(), "minute 88");
  EXPECT_EQ(minutes(wall - 2h).size(), 0U);
}

TEST_F(AdminHistory, is_bounded_whatever_happens) {
  for (std::size_t n = 0; n < History::events_max + 3; ++n) history.note(std::string(1000, 'x') + std::to_string(n), wall);
  EXPECT_EQ(events(), Texts{std::string(History::text_max, 'x') + " x" + std::to_string(History::events_max + 3)});
  for (std::size_t n = 0; n < History::events_max + 3; ++n) history.note(std::to_string(n), wall);
  EXPECT_EQ(events().size(), History::events_max);
  EXPECT_EQ(minutes().back().at("events_left_out").to_number<std::uint64_t>(), 4U);
}

TEST_F(AdminHistory, cuts_no_character_in_two) {
  const std::string fits(History::text_max - 1, 'x');
  history.note(fits + "\u00e9", wall);
  EXPECT_EQ(events(), Texts{fits});
}

TEST_F(AdminHistory, a_clock_that_is_set_back_makes_no_minute_twice) {
  history.note("before", wall);
  history.note("after", wall - 30min);
  ASSERT_EQ(minutes().size(), 1U);
  EXPECT_EQ(events(), (Texts{"before", "after"}));
}

}  // namespace
}  // namespace terrace::admin
