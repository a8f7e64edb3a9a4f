// The reply to each request, and the commands, without sockets.

#include "runtime/admin/routes.hpp"
#include "runtime/admin/command.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/status.hpp"
#include "terrace/waker.hpp"
#include "tests/refusal.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace terrace::admin {
namespace {

constexpr Duration publish_every = std::chrono::seconds{1};

class AdminRoutes : public ::testing::Test {
 protected:
  AdminRoutes() {
    options.publish_interval = publish_every;
    snapshot.number = 1;
    AdminSnapshot::Pool pool;
    pool.block_bytes = MiB;
    pool.device_blocks_max = 100;
    pool.device.blocks = 50;
    pool.host_memory.wanted = 10;
    pool.host_memory.usable = 10;
    pool.store.emplace();
    pool.store->wanted_blocks = pool.store->capacity_blocks = 20;
    snapshot.pools.push_back(pool);
  }
  void publish() {
    snapshot.made = clock.now();
    mailbox.publish(std::make_shared<const AdminSnapshot>(snapshot));
  }
  std::variant<Reply, Command> route(std::string_view method, std::string_view target, std::string_view body = {},
                                     std::string_view authorization = {}) {
    const Routes routes{options, token, mailbox, observations, clock, room};
    return routes.route({method, target, authorization, body});
  }
  Reply reply(std::string_view method, std::string_view target, std::string_view body = {}, std::string_view authorization = {}) {
    auto routed = route(method, target, body, authorization);
    if (Reply* const reply = std::get_if<Reply>(&routed)) return *reply;
    ADD_FAILURE() << target << " became a command";
    return {};
  }
  boost::json::object json(const Reply& reply) { return boost::json::parse(reply.body).as_object(); }

  AdminOptions options;
  std::string token;
  NullWaker waker;
  ManualClock clock;
  Mailbox mailbox{waker};
  Observations observations;
  Room room;
  AdminSnapshot snapshot;
};

TEST_F(AdminRoutes, before_the_first_snapshot_every_question_says_that_there_is_nothing_yet) {
  for (const char* path : {"/healthz", "/metrics", "/v1/status", "/v1/jobs"}) {
    EXPECT_EQ(reply("GET", path).status, 503U) << path;
  }
}

TEST_F(AdminRoutes, questions_are_answered_from_the_snapshot) {
  publish();
  EXPECT_EQ(reply("GET", "/healthz").status, 200U);
  EXPECT_EQ(json(reply("GET", "/healthz?verbose=1")).at("status").as_string(), "ok");
  EXPECT_EQ(json(reply("GET", "/v1/status")).at("pools").as_array().size(), 1U);
  EXPECT_TRUE(json(reply("GET", "/v1/jobs")).at("jobs").as_array().empty());
  EXPECT_EQ(reply("GET", "/v1/jobs/7").status, 404U);
  EXPECT_EQ(reply("GET", "/v1/jobs/x").status, 404U);
  snapshot.jobs.push_back({.id = WriteBackId{7}});
  publish();
  EXPECT_EQ(json(reply("GET", "/v1/jobs/7")).at("id").to_number<int>(), 7);
}

TEST_F(AdminRoutes, health_names_what_is_wrong) {
  snapshot.transfers_paused = true;
  snapshot.pools[0].health.emplace();
  snapshot.pools[0].health->state = StoreState::down;
  snapshot.pools[0].health->reason = "5 writes in a row failed";
  publish();
  const Reply degraded = reply("GET", "/healthz");
  EXPECT_EQ(degraded.status, 200U) << "it still serves";
  EXPECT_EQ(json(degraded).at("status").as_string(), "degraded");
  EXPECT_NE(degraded.body.find("transfers are paused"), std::string::npos);
  EXPECT_NE(degraded.body.find("5 writes in a row failed"), std::string::npos);
}

TEST_F(AdminRoutes, a_shared_store_that_is_down_degrades_and_no_more_because_its_blocks_are_only_misses) {
  SharedStoreSnapshot& shared = snapshot.shared.emplace();
  publish();
  EXPECT_EQ(json(reply("GET", "/healthz")).at("status").as_string(), "ok");
  shared.health.state = StoreState::down;
  shared.health.reason = "cache-1:6379 is not used: connection refused";
  shared.health.nodes.push_back({.address = "cache-1:6379", .breaker = BreakerState::open, .reconnects = 3});
  shared.stat.reads_missing = 4;
  shared.totals.read_gone = 5;
  publish();
  const Reply degraded = reply("GET", "/healthz");
  EXPECT_EQ(degraded.status, 200U);
  EXPECT_EQ(json(degraded).at("status").as_string(), "degraded");
  EXPECT_EQ(json(degraded).at("reasons").at(0).as_string(),
            "the shared store is down, so blocks there are misses: cache-1:6379 is not used: connection refused");
  const boost::json::object status = json(reply("GET", "/v1/status")).at("shared").as_object();
  EXPECT_EQ(status.at("state").as_string(), "down");
  EXPECT_EQ(status.at("nodes").at(0).at("breaker").as_string(), "open");
  EXPECT_EQ(status.at("nodes").at(0).at("reconnects").to_number<int>(), 3);
  EXPECT_EQ(status.at("store").at("reads_missing").to_number<int>(), 4);
  EXPECT_EQ(status.at("cache").at("read_gone").to_number<int>(), 5);
  snapshot.shared.reset();
  publish();
  EXPECT_FALSE(json(reply("GET", "/v1/status")).contains("shared"));
}

TEST_F(AdminRoutes, a_cache_that_is_not_polled_is_idle_or_stalled) {
  publish();
  clock.advance(std::chrono::seconds{4});
  EXPECT_EQ(json(reply("GET", "/healthz")).at("status").as_string(), "ok");
  clock.advance(std::chrono::seconds{2});
  EXPECT_EQ(json(reply("GET", "/healthz")).at("status").as_string(), "idle");
  EXPECT_EQ(reply("GET", "/healthz").status, 200U) << "an engine without requests need not poll";
  ASSERT_TRUE(mailbox.post(Resume{}, [](const Reply&) {}).has_value());
  EXPECT_EQ(json(reply("GET", "/healthz")).at("status").as_string(), "stalled");
  EXPECT_EQ(reply("GET", "/healthz").status, 503U);
  snapshot.work.under_way = true;
  publish();
  clock.advance(std::chrono::minutes{1});
  const Reply stalled = reply("GET", "/healthz");
  EXPECT_EQ(stalled.status, 503U);
  EXPECT_NE(stalled.body.find("for 60.0 s"), std::string::npos);
}

TEST_F(AdminRoutes, commands_are_read) {
  publish();
  EXPECT_TRUE(std::holds_alternative<Command>(route("POST", "/v1/resize", R"({"tier": "host", "blocks": 5})")));
  EXPECT_TRUE(std::holds_alternative<Clear>(std::get<Command>(route("POST", "/v1/clear"))));
  EXPECT_TRUE(std::holds_alternative<Update>(std::get<Command>(route("POST", "/v1/update", R"({"weights-revision": "2"})"))));
  EXPECT_TRUE(std::holds_alternative<Resume>(std::get<Command>(route("POST", "/v1/resume", "{}"))));
  EXPECT_TRUE(std::get<Pause>(std::get<Command>(route("POST", "/v1/pause"))).pause);
  EXPECT_FALSE(std::get<Pause>(std::get<Command>(route("POST", "/v1/unpause"))).pause);
  EXPECT_TRUE(std::holds_alternative<StartJob>(std::get<Command>(route("POST", "/v1/jobs"))));
  EXPECT_TRUE(std::holds_alternative<Change>(std::get<Command>(route("POST", "/v1/settings", R"({"loads": "always"})"))));
  using Action = ChangeJob::Action;
  for (const auto& [word, action] : {std::pair{"pause", Action::pause}, std::pair{"resume", Action::resume},
                                     std::pair{"cancel", Action::cancel}, std::pair{"results", Action::take_results}}) {
    const auto change = std::get<ChangeJob>(std::get<Command>(route("POST", std::string{"/v1/jobs/7/"} + word)));
    EXPECT_EQ(change.id, WriteBackId{7});
    EXPECT_EQ(change.action, action);
  }
}

TEST_F(AdminRoutes, the_history_is_made_of_snapshots_also_of_a_store) {
  const auto look = [&](History::WallTime wall) {
    const Routes routes{options, token, mailbox, observations, clock, room};
    routes.look(wall);
  };
  const History::WallTime wall{std::chrono::seconds{1'000'000'020}};
  look(wall);
  EXPECT_EQ(reply("GET", "/v1/history").body, R"({"waits_of":"requests","minutes":[]})"
                                              "\n")
      << "nothing was published";
  publish();
  look(wall);
  snapshot.tier_store = {.gets_late = 3, .waiting = 7};
  snapshot.waits.loads[Source::storage] = {.requests = 4, .seconds = 2};
  snapshot.waits_now = {.requests = 1, .oldest_seconds = 9};
  snapshot.transfers_paused = true;
  publish();
  look(wall);
  const Reply all = reply("GET", "/v1/history");
  for (const char* const told : {"transfers are paused", "gets were not answered in time", "\"times\":3", "\"blocks\":7",
                                 "\"storage\":{\"requests\":4,\"seconds\":2E0}", "\"oldest_seconds\":9E0"})
    EXPECT_NE(all.body.find(told), std::string::npos) << told << '\n' << all.body;
  EXPECT_EQ(reply("GET", "/v1/history?at=1000000140").body, all.body) << "two minutes later";
  EXPECT_EQ(reply("GET", "/v1/history?at=1000000200").body, R"({"waits_of":"gets","minutes":[]})"
                                                            "\n");
  for (const char* const wrong : {"at=", "at=x", "at=1x", "at=-1", "at=99999999999999999999", "from=1"})
    EXPECT_EQ(reply("GET", "/v1/history?" + std::string{wrong}).status, 400U) << wrong;
}

TEST_F(AdminRoutes, wrong_requests_have_the_status_that_says_why) {
  publish();
  const std::vector<std::pair<std::pair<std::string_view, std::string_view>, unsigned>> wrong{
      {{"GET", "/"}, 404},
      {{"GET", ""}, 404},
      {{"GET", "/v1"}, 404},
      {{"POST", "/v1/status"}, 405},
      {{"POST", "/metrics"}, 405},
      {{"POST", "/v1/nothing"}, 404},
      {{"PUT", "/v1/resize"}, 405},
      {{"DELETE", "/v1/jobs/7"}, 405},
      {{"POST", "/v1/jobs/7"}, 404},
      {{"POST", "/v1/jobs/7/stop"}, 404},
      {{"POST", "/v1/jobs/-1/pause"}, 404}};
  for (const auto& [request, status] : wrong) {
    const Reply got = reply(request.first, request.second);
    EXPECT_EQ(got.status, status) << request.first << " " << request.second;
    EXPECT_TRUE(json(got).contains("error"));
  }
  EXPECT_EQ(reply("POST", "/v1/resize", "{").status, 400U);
  EXPECT_EQ(reply("POST", "/v1/pause", R"({"x": 1})").status, 400U);
}

TEST_F(AdminRoutes, a_process_with_a_store_only_answers_what_it_has_and_names_it_for_the_rest) {
  snapshot.tier_store = {.gets = 5, .hits = 3, .misses = 2, .batches = 1};
  snapshot.io = "io_uring";
  publish();
  EXPECT_EQ(json(reply("GET", "/healthz")).at("status").as_string(), "ok");
  EXPECT_NE(reply("GET", "/metrics").status, 404U);
  const auto status = json(reply("GET", "/v1/status"));
  EXPECT_EQ(status.at("store").at("hits").to_number<int>(), 3);
  EXPECT_EQ(status.at("store").at("batches").to_number<int>(), 1);
  EXPECT_EQ(status.at("pools").as_array().size(), 1U);
  EXPECT_EQ(status.at("pools").at(0).at("block_bytes").to_number<std::uint64_t>(), count(MiB));
  EXPECT_EQ(status.at("pools").at(0).at("storage").at("capacity_blocks").to_number<int>(), 20);
  EXPECT_EQ(status.at("io").as_string(), "io_uring");
  for (const char* of_a_cache : {"requests", "settings", "captures", "jobs"}) EXPECT_FALSE(status.contains(of_a_cache));
  for (const char* of_both : {"waits", "slowest", "misses", "reuse"}) EXPECT_TRUE(status.contains(of_both)) << of_both;
  EXPECT_TRUE(json(reply("GET", "/v1/config")).at("now").as_object().empty());
  EXPECT_TRUE(std::holds_alternative<Clear>(std::get<Command>(route("POST", "/v1/clear"))));
  for (const char* path : {"/v1/resize", "/v1/settings", "/v1/jobs", "/v1/jobs/1/pause", "/v1/trace", "/v1/record", "/v1/resume",
                           "/v1/pause", "/v1/unpause", "/v1/nothing"}) {
    EXPECT_EQ(reply("POST", path).status, 404U) << path;
    EXPECT_EQ(json(reply("POST", path)).at("error").as_string(), store_only) << path;
  }
  for (const char* path : {"/v1/jobs", "/v1/jobs/1", "/v1/trace", "/v1/record", "/v1/clear", "/"}) {
    EXPECT_EQ(json(reply("GET", path)).at("error").as_string(), store_only) << path;
  }
  EXPECT_EQ(reply("PUT", "/healthz").status, 405U);
  options.commands = false;
  EXPECT_EQ(reply("POST", "/v1/clear").status, 403U);
}

TEST_F(AdminRoutes, commands_can_be_off) {
  options.commands = false;
  publish();
  EXPECT_EQ(reply("POST", "/v1/clear").status, 403U);
  EXPECT_EQ(reply("GET", "/v1/status").status, 200U);
}

TEST_F(AdminRoutes, a_token_is_asked_for_everywhere) {
  token = "0123456789abcdef";
  publish();
  for (const char* given : {"", "Bearer", "Bearer ", "Bearer 0123456789abcdeX", "Bearer 0123456789abcdef0",
                            "Bearer 0123456789abcde", "0123456789abcdef", "bearer 0123456789abcdef"}) {
    EXPECT_EQ(reply("GET", "/v1/status", {}, given).status, 401U) << given;
    EXPECT_EQ(reply("POST", "/v1/clear", {}, given).status, 401U) << given;
  }
  EXPECT_EQ(reply("GET", "/v1/status", {}, "Bearer 0123456789abcdef").status, 200U);
}

TEST_F(AdminRoutes, a_growth_that_does_not_fit_is_refused_with_the_largest_size_that_does) {
  room.storage = [](PoolId) { return std::optional{MiB * 7}; };
  publish();
  const std::vector<std::pair<std::string, std::uint64_t>> too_large{
      {R"({"tier": "device", "blocks": 101})", 100},
      {R"({"tier": "storage", "blocks": 28})", 27},
  };
  for (const auto& [body, largest] : too_large) {
    const Reply refused = reply("POST", "/v1/resize", body);
    EXPECT_EQ(refused.status, 409U) << body;
    EXPECT_EQ(json(refused).at("largest_blocks").to_number<std::uint64_t>(), largest) << body;
    EXPECT_EQ(json(refused).at("largest_bytes").to_number<std::uint64_t>(), largest << 20U);
    EXPECT_NE(refused.body.find("the largest size that fits is " + std::to_string(largest) + " blocks"), std::string::npos);
  }
  for (const char* fits : {R"({"tier": "device", "blocks": 100})", R"({"tier": "storage", "blocks": 27})"}) {
    EXPECT_TRUE(std::holds_alternative<Command>(route("POST", "/v1/resize", fits))) << fits;
  }
  snapshot.pools[0].store.reset();
  publish();
  EXPECT_EQ(reply("POST", "/v1/resize", R"({"tier": "storage", "blocks": 28})").status, 400U);
}

TEST_F(AdminRoutes, the_configuration_is_shown_without_secrets) {
  options.config.push_back({"shared", "redis://user:secret@host:6379/0", {}});
  options.config.push_back({"storage.where", "file:/a@b", {ConfigLevel::file, "terrace.toml:3"}});
  publish();
  const Reply shown = reply("GET", "/v1/config");
  EXPECT_EQ(shown.body.find("secret"), std::string::npos);
  EXPECT_NE(shown.body.find("redis://***@host:6379/0"), std::string::npos);
  EXPECT_NE(shown.body.find("file:/a@b"), std::string::npos);
  EXPECT_NE(shown.body.find("terrace.toml:3"), std::string::npos);
  EXPECT_TRUE(json(shown).at("now").as_object().contains("write-policy"));
  EXPECT_EQ(without_secrets("redis://host/a?b"), "redis://host/a?b");
  EXPECT_EQ(without_secrets("a@b://host"), "a@b://host");
  EXPECT_EQ(without_secrets("redis://user:p/a?s@s@host:1/2"), "redis://***@host:1/2");
  EXPECT_EQ(without_secrets("redis://:p@ss@host"), "redis://***@host");
}

TEST_F(AdminRoutes, requests_are_told_in_tokens_where_the_size_of_a_block_is_known) {
  snapshot.stats.requests = {.requests = 2, .asked = 10, .found = {}, .external = 1, .miss = 5};
  snapshot.stats.requests.found[Source::host] = 4;
  publish();
  const auto requests = json(reply("GET", "/v1/status")).at("requests").as_object();
  EXPECT_EQ(requests.at("unit").as_string(), "blocks");
  EXPECT_EQ(requests.at("asked").to_number<int>(), 10);
  snapshot.unit_tokens = 16;
  publish();
  const auto tokens = json(reply("GET", "/v1/status")).at("requests").as_object();
  EXPECT_EQ(tokens.at("unit").as_string(), "tokens");
  EXPECT_EQ(tokens.at("requests").to_number<int>(), 2);
  EXPECT_EQ(tokens.at("asked").to_number<int>(), 160);
  EXPECT_EQ(tokens.at("host").to_number<int>(), 64);
}

// ---- commands as JSON: what is read, and what is refused with which sentence

/// The sentence with which `read` refuses; empty if it accepts.
std::string refusal(const std::function<void()>& read) {
  return test::refusal_of<BadBody>([&] { read(); });
}

TEST(AdminCommand, a_resize_is_in_blocks_or_in_bytes) {
  const Resize in_blocks = read_resize(R"({"tier": "device", "pool": 3, "blocks": 1000})");
  EXPECT_EQ(in_blocks.tier, Tier::device);
  EXPECT_EQ(in_blocks.pool, PoolId{3});
  EXPECT_EQ(in_blocks.blocks, 1000U);
  EXPECT_FALSE(in_blocks.bytes.has_value());
  EXPECT_EQ(read_resize(R"({"tier": "host", "bytes": "8GiB"})").bytes, GiB * 8);
  EXPECT_EQ(read_resize(R"({"tier": "storage", "bytes": 4096})").bytes, KiB * 4);
}

TEST(AdminCommand, a_clear_keeps_nothing_and_does_not_wait_unless_asked_to) {
  EXPECT_FALSE(read_clear("").options.keep_storage);
  EXPECT_FALSE(read_clear("{}").options.keep_shared);
  EXPECT_FALSE(read_clear("{}").options.wait);
  EXPECT_TRUE(read_clear(R"({"keep-storage": true})").options.keep_storage);
  EXPECT_TRUE(read_clear(R"({"keep-shared": true})").options.keep_shared);
  EXPECT_TRUE(read_clear(R"({"wait": true})").options.wait);
  EXPECT_FALSE(read_clear("{}").options.release_host);
  EXPECT_TRUE(read_clear(R"({"release-host": true})").options.release_host);
}

TEST(AdminCommand, an_update_names_the_weights) {
  EXPECT_EQ(read_update(R"({"weights-revision": "2"})").weights_revision, "2");
  EXPECT_FALSE(read_update(R"({"weights-revision": "2"})").wait);
  EXPECT_TRUE(read_update(R"({"weights-revision": "2", "wait": true})").wait);
}

TEST(AdminCommand, a_job_has_a_scope_and_its_bounds) {
  using Scope = WriteBackOrder::Scope;
  EXPECT_EQ(read_start_job("").order.scope, Scope::all);
  EXPECT_EQ(read_start_job("").order.target, WriteBackOrder::Target::storage);
  EXPECT_EQ(read_start_job(R"({"target": "shared"})").order.target, WriteBackOrder::Target::shared);
  EXPECT_TRUE(read_start_job("").order.durable);
  const StartJob idle =
      read_start_job(R"({"scope": "idle", "unused-for": "10min", "deadline": "30s", "budget": "1GiB", "durable": false})");
  EXPECT_EQ(idle.order.scope, Scope::idle);
  EXPECT_EQ(idle.order.unused_for, std::chrono::minutes{10});
  EXPECT_EQ(idle.deadline, std::chrono::seconds{30});
  EXPECT_EQ(idle.order.budget, GiB);
  EXPECT_FALSE(idle.order.durable);
  EXPECT_EQ(read_start_job(R"({"scope": "tenant", "tenant": 18446744073709551615})").order.tenant, TenantId{~0ULL});
  EXPECT_EQ(read_start_job(R"({"scope": "request", "request": 7})").order.request, RequestId{7});
  const std::string key(64, 'a');
  const StartJob prefix = read_start_job(R"({"scope": "prefix", "keys": [")" + key + R"("]})");
  ASSERT_EQ(prefix.keys.size(), 1U);
  EXPECT_EQ(to_hex(prefix.keys[0]), key);
}

TEST(AdminCommand, what_is_wrong_is_named) {
  const std::vector<std::pair<std::function<void()>, std::string>> wrong{
      {[] { (void)read_resize("[1]"); }, "the body must be a JSON object"},
      {[] { (void)read_resize("{"); }, "the body is not JSON"},
      {[] { (void)read_resize(R"({"tier": "host", "bytes": 1, "bytes ": 2})"); }, "did you mean bytes?"},
      {[] { (void)read_resize(R"({"blocks": 5})"); }, "\"tier\" is missing"},
      {[] { (void)read_resize(R"({"tier": "disk", "blocks": 5})"); }, "one of device, host, storage"},
      {[] { (void)read_resize(R"({"tier": "host"})"); }, "give \"blocks\" or \"bytes\""},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 5, "bytes": 5})"); }, "give \"blocks\" or \"bytes\""},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": -5})"); }, "\"blocks\" must be a whole number"},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 1.5})"); }, "\"blocks\" must be a whole number"},
      {[] { (void)read_resize(R"({"tier": "host", "blocks": 5000000000})"); }, "from 0 to 4294967295"},
      {[] { (void)read_resize(R"({"tier": "host", "pool": 70000, "blocks": 5})"); }, "from 0 to 65535"},
      {[] { (void)read_resize(R"({"tier": "host", "bytes": "8GB"})"); }, "\"bytes\""},
      {[] { (void)read_clear(R"({"keep-storage": 1})"); }, "\"keep-storage\" must be true or false"},
      {[] { (void)read_clear(R"({"storage": true})"); }, "\"storage\": there is no such field here"},
      {[] { (void)read_update("{}"); }, "\"weights-revision\" is missing"},
      {[] { (void)read_start_job(R"({"target": "host"})"); }, "\"target\" is \"host\": it must be one of storage, shared"},
      {[] { (void)read_start_job(R"({"scope": "some"})"); }, "one of all, request, prefix, tenant, idle"},
      {[] { (void)read_start_job(R"({"scope": "tenant"})"); }, "\"tenant\" is missing for scope tenant"},
      {[] { (void)read_start_job(R"({"tenant": 1})"); }, "\"tenant\" is for scope tenant"},
      {[] { (void)read_start_job(R"({"scope": "prefix", "keys": []})"); }, "must be a list of keys"},
      {[] { (void)read_start_job(R"({"scope": "prefix", "keys": ["ab"]})"); }, "64 hexadecimal digits"},
      {[] { (void)read_start_job(R"({"deadline": 5})"); }, "\"deadline\" must be a text"},
      {[] { (void)read_start_job(R"({"deadline": "soon"})"); }, "\"deadline\""},
      {[] { (void)read_change("{}"); }, "nothing to change: name some of policy, write-policy"},
      {[] { (void)read_change(R"({"write-polcy": "none"})"); }, "did you mean write-policy?"},
      {[] { (void)read_change(R"({"storage.where": "memory:"})"); }, "cannot change while the cache serves"},
      {[] { (void)read_change(R"({"write-policy": "sometimes"})"); }, "\"write-policy\""},
      {[] { (void)read_change(R"({"host.low-watermark": 2})"); }, "\"host.low-watermark\""},
      {[] { (void)read_change(R"({"daily-writes": []})"); }, "must be a text, a number, true or false"},
      {[] { read_nothing(R"({"x": 1})"); }, "there is no such field here"},
      {[] { (void)read_clear(std::string(10, '[') + std::string(10, ']')); }, "not JSON"},
  };
  for (const auto& [read, sentence] : wrong) {
    const std::string said = refusal(read);
    EXPECT_NE(said.find(sentence), std::string::npos) << "said: " << said << "\nwanted: " << sentence;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(AdminCommand, a_change_leaves_the_other_settings_alone) {
  CacheSettings now;
  now.selective_hits = 7;
  now.host_watermarks = {0.1, 0.2};
  const CacheSettings then =
      changed(now, read_change(R"({"write-policy": "write-back", "daily-writes": "1TiB", "host.high-watermark": "30%",
                           "transfers.store-bandwidth": "5GiB/s", "loads": "always"})"));
  EXPECT_EQ(then.write_policy, WritePolicy::write_back);
  EXPECT_EQ(then.daily_write_bytes, TiB);
  EXPECT_EQ(then.selective_hits, 7U);
  EXPECT_EQ(then.host_watermarks.low, 0.1);
  EXPECT_EQ(then.host_watermarks.high, 0.3);
  EXPECT_EQ(then.loads, LoadPolicy::always);
  EXPECT_EQ(then.lane_rates[static_cast<std::size_t>(Urgency::store)], per_second(GiB * 5));
}

TEST(AdminCommand, the_settings_shown_can_be_sent_back) {
  CacheSettings settings;
  settings.policy = EvictionPolicyName::own;
  settings.write_policy = WritePolicy::selective;
  settings.device_reserve_max = 0.2;
  settings.device_watermarks = {0.05, 0.25};
  settings.lane_rates[1] = per_second(MiB * 3);
  const boost::json::object shown = to_json(settings);
  const CacheSettings back = changed({}, read_change(boost::json::serialize(shown)));
  EXPECT_EQ(to_json(back), shown);
  EXPECT_EQ(back.policy, EvictionPolicyName::own);
  EXPECT_EQ(back.device_reserve_max, 0.2);
  EXPECT_EQ(back.device_watermarks.high, 0.25);
  EXPECT_EQ(back.lane_rates, settings.lane_rates);
}

}  // namespace
}  // namespace terrace::admin
