// The texts of a terminal: the screen of `terrace top` from answers of the endpoint, numbers, and the progress line.

#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"
#include "tools/live/client.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/text.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

boost::json::object answer(const AdminSnapshot& snapshot) {
  boost::json::object all = admin::to_json(snapshot);
  all["health"] = "ok";
  all["reasons"] = boost::json::array{};
  all["age_seconds"] = 0.5;
  return all;
}

AdminSnapshot serving() {
  AdminSnapshot snapshot;
  snapshot.unit_tokens = 16;
  AdminSnapshot::Pool pool;
  pool.block_bytes = MiB;
  pool.device = {{.blocks = 100, .free = 25, .evictable = 50}};
  pool.host = {{.blocks = 1000}};
  pool.host_memory.wanted = pool.host_memory.usable = 1000;
  pool.store.emplace();
  pool.store->capacity_blocks = 123'456;
  pool.health.emplace();
  snapshot.pools.push_back(pool);
  snapshot.stats.requests = {.requests = 10, .asked = 1000, .found = {}, .external = 0, .miss = 250};
  snapshot.stats.requests.found[Source::device] = 750;
  snapshot.moved.swap_in = {.blocks = 1024, .bytes = GiB, .seconds = 2};
  return snapshot;
}

/// The same with a shared store.
AdminSnapshot sharing() {
  AdminSnapshot snapshot = serving();
  SharedStoreSnapshot& shared = snapshot.shared.emplace();
  shared.health.state = StoreState::degraded;
  shared.health.nodes.push_back({.address = "a:1", .connections = 2, .in_flight = MiB});
  shared.health.nodes.push_back({.address = "b:1", .breaker = BreakerState::open});
  shared.stat = {.reads = 90, .reads_missing = 3, .writes = 12, .timed_out = 4, .mismatches = {1, 2}, .read = GiB};
  shared.totals.asked = 200;
  shared.totals.there = 100;
  shared.totals.look_ups_late = 7;
  shared.totals.drop_gone = 5;
  shared.totals.drop_full = 6;
  shared.round_trip_seconds = 0.0021;
  snapshot.stats.requests.found[Source::shared] = 100;
  return snapshot;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines{text};
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(LiveScreen, shows_fill_hits_and_transfers) {
  const std::string screen = screen_of("unix:/run/x.sock", answer(serving()), std::nullopt, 0);
  EXPECT_NE(screen.find("device   ###############.....   75.0%"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  123k"), std::string::npos) << screen;
  EXPECT_NE(screen.find("since start    75.0 %"), std::string::npos) << screen;
  EXPECT_NE(screen.find("16.0k"), std::string::npos) << screen;
  EXPECT_NE(screen.find("512MiB/s busy"), std::string::npos) << screen;
}

TEST(LiveScreen, shows_which_classes_hold_a_tier_and_which_of_them_hit) {
  AdminSnapshot snapshot = serving();
  EXPECT_EQ(screen_of("x", answer(snapshot), std::nullopt, 0, {.classes = true}).find("by LRU"), std::string::npos)
      << "the policy has no classes";
  EvictionView& eviction = snapshot.pools[0].device.eviction;
  eviction = {.by_rank = true,
              .classes = {{"0", "fresh", 0.625, 10}, {"1", "late", 0.125, 0}, {"2+", "medium_output", 0.25, 30}}};
  const ScreenSize with{.classes = true};
  const std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0, with);
  EXPECT_NE(screen.find("         by rank: 62.5 % fresh/0, 25.0 % medium output/2+, 12.5 % late/1\n"
                        "         hits:    75.0 % medium output/2+, 25.0 % fresh/0\n"),
            std::string::npos)
      << screen;
  EXPECT_LE(widest(screen), 80U);
  EXPECT_EQ(screen_of("x", answer(snapshot), std::nullopt, 0).find("by rank"), std::string::npos) << "nobody has asked for it";
  eviction = {.by_rank = false, .classes = {{"0", "fresh", 1, 0}}};
  EXPECT_NE(screen_of("x", answer(snapshot), std::nullopt, 0, with).find("         by LRU:  100.0 % fresh/0\n"),
            std::string::npos);
  boost::json::object old = answer(snapshot);
  old["pools"].as_array()[0].as_object()["device"].as_object().erase("eviction");
  EXPECT_EQ(screen_of("x", old, std::nullopt, 0, with).find("by LRU"), std::string::npos);
}

TEST(LiveScreen, shows_blocks_alone_where_the_engine_owns_the_bytes_and_copies_by_itself) {
  AdminSnapshot snapshot = serving();
  snapshot.pools[0].block_bytes = Bytes{1};
  snapshot.pools[0].device.blocks = 79;
  snapshot.offload = {.loaded_host = 4, .stored = 9};
  snapshot.moved.swap_in = {};
  boost::json::object now = answer(snapshot);
  now["reuse"] = boost::json::parse(
      R"({"tiers": [{"tier": "device", "bytes": 79, "blocks": 79, "lru_hit_ratio": {"same": 0.2, "double": 0.25}}]})");
  const std::string screen = screen_of("x", now, std::nullopt, 0);
  EXPECT_EQ(screen.find("79B"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  larger: device +79 blocks +5.0%\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  host to device   by the engine\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  device to host   by the engine\n"), std::string::npos) << screen;
  snapshot.offload = OffloadTotals{};
  EXPECT_EQ(screen_of("x", answer(snapshot), std::nullopt, 0).find("by the engine"), std::string::npos) << "nothing came or went";
}

TEST(LiveScreen, shows_which_blocks_were_not_stored) {
  AdminSnapshot snapshot = serving();
  EXPECT_EQ(screen_of("x", answer(snapshot), std::nullopt, 0).find("not stored"), std::string::npos);
  snapshot.stats.store_skipped = 19;
  snapshot.stats.store_over_budget = 4;
  const std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("  not stored: 19 skipped, 4 over budget\n"), std::string::npos) << screen;
}

TEST(LiveScreen, shows_what_larger_tiers_would_bring) {
  boost::json::object now = answer(serving());
  EXPECT_EQ(screen_of("x", now, std::nullopt, 0).find("larger"), std::string::npos);
  now["reuse"] = boost::json::parse(R"({"tiers": [
      {"tier": "device", "bytes": 104857600, "blocks": 100, "lru_hit_ratio": {"same": 0.2, "double": 0.25}},
      {"tier": "host", "bytes": 1048576000, "blocks": 1000, "lru_hit_ratio": {"same": 0.3, "double": 0.371}}]})");
  const std::string screen = screen_of("x", now, std::nullopt, 0);
  EXPECT_NE(screen.find("  larger: device +100MiB +5.0%, host +1000MiB +7.1%\n"), std::string::npos) << screen;
}

TEST(LiveScreen, shows_whether_storage_pays) {
  AdminSnapshot snapshot = serving();
  snapshot.stats.requests.found[Source::storage] = 200;
  snapshot.waits.loads[Source::storage].seconds = 1.25;
  snapshot.moved.storage_writes.bytes = GiB * 3;
  snapshot.daily_writes = {.limit = GiB * 40, .written = GiB, .elapsed = std::chrono::hours{1}};
  std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("  gave 3200 tokens, 20.0 % of what was asked; 3GiB written since start\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  written today: 1GiB of 40GiB, at this rate 24GiB a day\n"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("saved"), std::string::npos) << "the prefill speed is not known";
  snapshot.prefill_seconds = 0.05;
  screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("  saved 8.8 s: 10.0 s of prefill, less 1.2 s of waits\n"), std::string::npos) << screen;
  snapshot.offload = {.loaded_storage = 40};
  screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("  gave 40 blocks; 3GiB written since start\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("  saved 0.8 s: 2.0 s of prefill, less 1.2 s of waits\n"), std::string::npos) << screen;
  snapshot.offload.reset();
  boost::json::object now = answer(snapshot);
  now.erase("storage_gain");
  EXPECT_NE(screen_of("x", now, std::nullopt, 0).find("  written today: 1GiB of 40GiB\n"), std::string::npos) << "an old process";
}

TEST(LiveScreen, shows_rates_since_the_screen_before) {
  AdminSnapshot snapshot = serving();
  const boost::json::object before = answer(snapshot);
  snapshot.stats.requests.requests += 8;
  snapshot.stats.requests.asked += 100;
  snapshot.stats.requests.found[Source::host] += 40;
  snapshot.stats.requests.miss += 60;
  snapshot.moved.swap_in.bytes += MiB * 8;
  const std::string screen = screen_of("x", answer(snapshot), before, 2);
  EXPECT_NE(screen.find("18 ready (4.0/s)"), std::string::npos) << screen;
  EXPECT_NE(screen.find("now             0.0 %   40.0 %    0.0 %    0.0 %   60.0 %"), std::string::npos) << screen;
  EXPECT_NE(screen.find("4MiB/s now"), std::string::npos) << screen;
}

TEST(LiveScreen, shows_that_the_shared_store_is_off) {
  AdminSnapshot snapshot = sharing();
  snapshot.shared->off = true;
  const std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("SHARED   OFF since a clear, degraded"), std::string::npos) << screen;
  EXPECT_LE(widest(screen), 80U);
}

TEST(LiveScreen, shows_the_shared_store_and_its_share_of_the_hits) {
  AdminSnapshot snapshot = sharing();
  std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("SHARED   degraded: 1 of 2 nodes used, 2 connections, 1MiB in flight"), std::string::npos) << screen;
  EXPECT_NE(screen.find("asked    200 blocks,  50.0 % found, 7 answers late, round trip 2.1 ms"), std::string::npos) << screen;
  EXPECT_NE(screen.find("read      90 blocks,    1GiB, 3 missing\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("wrote     12 blocks,      0B, 11 not written"), std::string::npos) << screen;
  EXPECT_NE(screen.find("failed: 4 timed out, 0 errors, 0 declined, 3 corrupt"), std::string::npos) << screen;
  EXPECT_NE(screen.find("since start    75.0 %    0.0 %    0.0 %   10.0 %    0.0 %   25.0 %"), std::string::npos) << screen;
  EXPECT_NE(screen.find("shared reads"), std::string::npos) << screen;
  const boost::json::object before = answer(snapshot);
  snapshot.shared->stat.read += MiB * 8;
  screen = screen_of("x", answer(snapshot), before, 2);
  EXPECT_NE(screen.find("3 missing, 4MiB/s now"), std::string::npos) << screen;
  screen = screen_of("x", answer(snapshot), answer(serving()), 2);
  EXPECT_EQ(screen.find("3 missing, "), std::string::npos) << "it had no shared store before";
  EXPECT_EQ(screen_of("x", answer(serving()), before, 2).find("hared"), std::string::npos);
}

TEST(LiveScreen, shows_the_whole_of_a_long_reason) {
  boost::json::object now = answer(sharing());
  now["reasons"] = boost::json::array{
      "the shared store is down, so blocks there are misses: cache-1.example.org:6379 is not used: connection refused"};
  const std::string screen = screen_of("x", now, std::nullopt, 0);
  EXPECT_NE(screen.find("  ! the shared store is down, so blocks"), std::string::npos) << screen;
  EXPECT_NE(screen.find("connection refused\n"), std::string::npos) << screen;
  EXPECT_LE(widest(screen), 80U);
}

TEST(LiveScreen, with_a_shared_store_is_never_wider_than_80_columns) {
  AdminSnapshot snapshot = sharing();
  constexpr std::uint64_t most = ~0ULL;
  snapshot.shared->health.nodes.resize(1000, {.address = std::string(300, 'x'), .connections = ~0U, .in_flight = Bytes{most}});
  snapshot.shared->stat = {.reads = most,
                           .reads_missing = most,
                           .writes = most,
                           .timed_out = most,
                           .failed = most,
                           .declined = most,
                           .mismatches = {most / 2},
                           .read = Bytes{most},
                           .written = Bytes{most}};
  snapshot.shared->totals.asked = snapshot.shared->totals.look_ups_late = snapshot.shared->totals.drop_off = most;
  snapshot.shared->round_trip_seconds = 1e9;
  EXPECT_LE(widest(screen_of("x", answer(snapshot), answer(sharing()), 1e-3)), 80U);
}

TEST(LiveScreen, a_process_that_started_again_shows_no_negative_rates) {
  AdminSnapshot snapshot = serving();
  const boost::json::object before = answer(snapshot);
  const std::string screen = screen_of("x", answer(AdminSnapshot{}), before, 1);
  EXPECT_EQ(screen.find(" -0"), std::string::npos) << screen;
  EXPECT_NE(screen.find("0 ready (0.0/s)"), std::string::npos) << screen;
}

TEST(LiveScreen, is_never_wider_than_80_columns) {
  AdminSnapshot snapshot = serving();
  snapshot.pools.push_back(snapshot.pools.front());
  snapshot.pools[1].device = {{.blocks = 4'000'000'000, .free = 1, .evictable = 3'999'999'000}};
  snapshot.pools[1].host_memory.usable = 5;
  snapshot.pools[1].device.retiring = 4'000'000'000;
  snapshot.stats.requests.asked = ~0ULL / 1000;
  snapshot.moved.storage_writes = {.blocks = 1, .bytes = Bytes{~0ULL}, .seconds = 1e-9};
  snapshot.jobs.push_back({.id = WriteBackId{~0ULL}, .under_way = ~0ULL, .written = Bytes{~0ULL}});
  for (int n = 0; n < 5; ++n) snapshot.slowest.push_back({RequestId{~0ULL}, 1e9, Source::storage});
  boost::json::object now = answer(snapshot);
  now["reasons"] = boost::json::array{std::string(300, 'x')};
  EXPECT_LE(widest(screen_of(std::string(200, 'y'), now, answer(serving()), 1)), 80U);
}

TEST(LiveScreen, fits_a_small_terminal) {
  boost::json::object now = answer(sharing());
  now["reasons"] = boost::json::array{"the shared store is down, and this is a long sentence"};
  const std::string screen =
      screen_of("unix:/run/\xc3\xa4\xc3\xb6\xc3\xbc/x.sock", now, std::nullopt, 0, {.columns = 20, .lines = 9});
  EXPECT_LE(widest(screen), 20U + 3) << screen;
  EXPECT_EQ(std::ranges::count(screen, '\n'), 9) << screen;
  EXPECT_EQ(screen.find("\xc3."), std::string::npos) << "a character is cut: " << screen;
}

/// Calls `use` with the answer in which each member in turn, at any depth, has been removed or is another value.
void mutate(boost::json::object& all, boost::json::object& object, const std::function<void(const boost::json::object&)>& use) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object) names.emplace_back(name);
  for (const std::string& name : names) {
    const boost::json::value was = object.at(name);
    object.erase(name);
    use(all);
    for (const boost::json::value& other :
         {boost::json::value{"\x1b[2J"}, boost::json::value{-1}, boost::json::value{1e300}, boost::json::value(nullptr),
          boost::json::value{true}, boost::json::value(boost::json::array{1, "\x1b[2J"}),
          boost::json::value(boost::json::object{})}) {
      object[name] = other;
      use(all);
    }
    object[name] = was;
    if (boost::json::object* const inner = object.at(name).if_object()) mutate(all, *inner, use);
    if (boost::json::array* const several = object.at(name).if_array()) {
      for (boost::json::value& each : *several) {
        if (each.is_object()) mutate(all, each.get_object(), use);
      }
    }
  }
}

TEST(LiveScreen, of_a_wrong_answer_is_a_sentence_and_never_a_control_character) {
  AdminSnapshot snapshot = sharing();
  snapshot.jobs.push_back({.id = WriteBackId{7}});
  snapshot.slowest.push_back({RequestId{7}, 1, Source::storage});
  boost::json::object now = answer(snapshot);
  int refused = 0;
  mutate(now, now, [&](const boost::json::object& wrong) {
    std::string shown;
    try {
      shown = understood([&] { return screen_of("x", wrong, wrong, 1); });
    } catch (const std::runtime_error& error) {
      shown = error.what();
      EXPECT_TRUE(shown.starts_with("the answer of the process is not what this version expects: ")) << shown;
      ++refused;
    }
    EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
    EXPECT_EQ(shown.find("[boost"), std::string::npos) << shown;
  });
  EXPECT_GT(refused, 100);
}

AdminSnapshot storing() {
  AdminSnapshot snapshot;
  AdminSnapshot::Pool& pool = snapshot.pools.emplace_back();
  pool.block_bytes = MiB;
  pool.store.emplace();
  pool.store->capacity_blocks = 1000;
  pool.store->blocks = 750;
  pool.store->free = 250;
  pool.health.emplace();
  snapshot.tier_store = {.gets = 200, .hits = 150, .corrupt = 1, .get_failures = 2, .puts = 100, .stored = 99, .put_failures = 1};
  snapshot.tier_store->read = GiB;
  snapshot.tier_store->refused = 3;
  return snapshot;
}

TEST(LiveScreen, shows_a_process_that_has_a_store_only) {
  AdminSnapshot snapshot = storing();
  const boost::json::object before = answer(snapshot);
  std::string screen = screen_of("x", before, std::nullopt, 0);
  EXPECT_NE(screen.find("storage  ###############.....   75.0%"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("device"), std::string::npos) << screen;
  EXPECT_NE(screen.find("0 under way; 3 refused"), std::string::npos) << screen;
  EXPECT_NE(screen.find("gets    200 blocks,  75.0 % hits, 3 failed, 1GiB\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("puts    100 blocks,  99.0 % stored, 1 failed"), std::string::npos) << screen;
  EXPECT_NE(screen.find("STORAGE  well"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("not flushed"), std::string::npos) << screen;
  snapshot.tier_store->read += MiB * 8;
  snapshot.tier_store->not_flushed = 7;
  screen = screen_of("x", answer(snapshot), before, 2);
  EXPECT_NE(screen.find("4MiB/s now"), std::string::npos) << screen;
  EXPECT_NE(screen.find("7 blocks are not flushed"), std::string::npos) << screen;
  EXPECT_EQ(screen_of("x", answer(snapshot), answer(serving()), 2).find("/s now"), std::string::npos) << "another process";
}

TEST(LiveScreen, shows_the_hit_rate_of_questions_because_only_hits_are_ordered) {
  AdminSnapshot snapshot = storing();
  snapshot.tier_store->asked = 400;
  snapshot.tier_store->found = 100;
  const boost::json::object before = answer(snapshot);
  snapshot.tier_store->asked = 500;
  snapshot.tier_store->found = 150;
  std::string screen = screen_of("x", answer(snapshot), before, 2);
  EXPECT_NE(screen.find("asked for keys: hits 50.0 % of 100 now, 30.0 % of 500 since start"), std::string::npos) << screen;

  snapshot = serving();
  snapshot.offload = OffloadTotals{.jobs = 9, .loaded_host = 60, .loaded_storage = 32, .load_misses = 8, .stored = 70};
  snapshot.offload->asked = 1000;
  snapshot.offload->found = 250;
  screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("asked for keys: hits 25.0 % of 1000 since start"), std::string::npos) << screen;
  EXPECT_NE(screen.find("loaded     92 blocks: 60 host, 32 storage, 0 shared; 8 missing, 0 failed"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("REQUESTS"), std::string::npos) << screen;
  EXPECT_LE(widest(screen), 80U);
}

TEST(LiveScreen, shows_copies_that_fail_and_damage) {
  AdminSnapshot snapshot = serving();
  EXPECT_EQ(screen_of("x", answer(snapshot), std::nullopt, 0).find("between device and host"), std::string::npos);
  snapshot.link = {.in_use = false, .stopped = 1, .reason = "copies between device and host fail"};
  snapshot.stats.swap_outs.failed = 7;
  const std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("between device and host: NOT USED, 7 blocks failed, 0 late"), std::string::npos) << screen;
  const admin::Health health = admin::health_of(snapshot, Duration{}, std::chrono::seconds{1}, false);
  EXPECT_EQ(health.reasons, std::vector<std::string>{"copies between device and host fail"});
  EXPECT_LE(widest(screen), 80U);
}

TEST(LiveScreen, of_a_store_is_never_wider_than_80_columns) {
  AdminSnapshot snapshot = storing();
  constexpr std::uint64_t most = ~0ULL;
  snapshot.tier_store = {.gets = most,
                         .hits = 1,
                         .corrupt = most,
                         .puts = most,
                         .put_failures = most,
                         .read = Bytes{most},
                         .written = Bytes{most},
                         .refused = most,
                         .batches = ~0U,
                         .waiting = ~0U,
                         .under_way = ~0U};
  EXPECT_LE(widest(screen_of(std::string(200, 'y'), answer(snapshot), answer(storing()), 1e-3)), 80U);
}

TEST(LiveScreen, shows_a_job_and_the_slowest_requests) {
  AdminSnapshot snapshot = serving();
  snapshot.jobs.push_back({.id = WriteBackId{3}, .looked_at = 0.5, .written = GiB});
  snapshot.jobs.push_back({.id = WriteBackId{2}, .state = WriteBackState::done});
  snapshot.slowest.push_back({RequestId{77}, 0.0123, std::nullopt});
  const std::string screen = screen_of("x", answer(snapshot), std::nullopt, 0);
  EXPECT_NE(screen.find("JOB 3    all running: ##########.......... 50 %, 1GiB written"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("JOB 2"), std::string::npos);
  EXPECT_NE(screen.find("SLOWEST  77: 12.3 ms (room)"), std::string::npos) << screen;
}

struct Sample {
  std::string bytes;
  std::string shown;
};

const std::vector<Sample> samples{
    {"", ""},
    {"plain text ~", "plain text ~"},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"a\x1b[31mb", "a\\x1b[31mb"},
    {"line\nend\r\t", "line\\x0aend\\x0d\\x09"},
    {std::string{"\0", 1}, "\\x00"},
    {"\x7f", "\\x7f"},
    {"\xc2\x9b"
     "2J",
     "\\xc2\\x9b2J"},            // the control sequence introducer as one character
    {"\xff\xc3", "\\xff\\xc3"},  // no lead byte; a lead byte without a second byte
    {"\xc0\x80", "\\xc0\\x80"},  // longer than necessary
    {"\xe0\x80\x80", "\\xe0\\x80\\x80"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // a surrogate
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond Unicode
    {"\xe2\x28\xa1", "\\xe2(\\xa1"},
};

/// The minutes of `terrace why` of a process that tells of the waits of `things`, in the first of which `requests` of them
/// waited.
std::string minutes_of(std::string_view things, std::uint64_t requests, double oldest = 0) {
  const auto minute = [&](std::uint64_t waited) {
    boost::json::object waits{{"at_once", 3}};
    if (waited > 0) waits["storage"] = boost::json::object{{"requests", waited}, {"seconds", 4.5}};
    boost::json::array slowest;
    if (waited > 0) slowest.push_back({{"id", 15}, {"seconds", 2.5}, {"for", "storage"}, {"ended", 1000}});
    return boost::json::object{{"begin", 960},
                               {"waits", std::move(waits)},
                               {"slowest", std::move(slowest)},
                               {"waiting", {{"requests", 2}, {"oldest_seconds", oldest}}},
                               {"queue", {{"blocks", 0}, {"oldest_seconds", 0}}},
                               {"moved_bytes", boost::json::object{}},
                               {"events", boost::json::array{}},
                               {"events_left_out", 0}};
  };
  return history_text({{"waits_of", things}, {"minutes", {minute(requests), minute(0)}}});
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Why, says_what_waits_and_not_that_nothing_did_where_no_request_is_told) {
  const std::string requests = minutes_of("requests", 2);
  EXPECT_TRUE(has(requests, "waited: 2 for storage (4.5 s in all); 3 requests did not wait")) << requests;
  EXPECT_TRUE(has(requests, "slowest: request 15 2.5 s for storage")) << requests;
  EXPECT_TRUE(has(requests, "nothing waited; 3 requests did not wait")) << requests;
  EXPECT_FALSE(has(requests, "at a time")) << requests;
  const std::string loads = minutes_of("loads", 2, 5.6);
  EXPECT_TRUE(has(loads, "waited: 2 loads for storage (4.5 s in all)")) << loads;
  EXPECT_TRUE(has(loads, "slowest: load 15 2.5 s for storage")) << loads;
  EXPECT_TRUE(has(loads, "no load has ended; this engine does not tell of its requests")) << loads;
  EXPECT_TRUE(has(loads, "up to 2 loads waited at a time, one for 5.6 s and longer")) << loads;
  EXPECT_FALSE(has(loads, "did not wait") || has(loads, "nothing waited")) << loads;
  EXPECT_FALSE(has(minutes_of("gets", 0), "nothing waited"));
}

TEST(Text, is_printable_whatever_the_bytes_and_stays_it) {
  for (const Sample& sample : samples) {
    EXPECT_EQ(printable(sample.bytes), sample.shown);
    EXPECT_EQ(printable(sample.shown), sample.shown);
  }
  EXPECT_EQ(printable_format("{} of {}\n", std::string{"a\nb"}, 3), "a\\x0ab of 3\n");
  EXPECT_EQ(printable_format("{:>4}|", "\x07"), "\\x07|");
}

TEST(Text, as_json_is_valid_whatever_the_bytes) {
  for (const Sample& sample : samples) {
    const std::string text = json_text(boost::json::array{boost::json::string{sample.bytes}, 1});
    boost::system::error_code error;
    const boost::json::value parsed = boost::json::parse(text, error);
    ASSERT_FALSE(error) << sample.shown;
    EXPECT_EQ(printable(text), text) << "no control character";
    if (sample.shown == sample.bytes || sample.bytes == "\x7f") {
      EXPECT_EQ(parsed.as_array().front().as_string(), sample.bytes);
    }
  }
  EXPECT_EQ(json_text(boost::json::string{"\xff"}), "\"\\ufffd\"");
  EXPECT_EQ(json_text(boost::json::string{"\xc2\x9b"}), "\"\\u009b\"");
  EXPECT_EQ(safe_json("{\"a\": \"\x1b\xff\"}\n{}\n"), "{\"a\": \"\\u001b\\ufffd\"}\n{}\n");
}

TEST(Text, as_json_has_fractions_as_people_write_them) {
  const boost::json::value value{0.04717183100000002, -1.0, 0.0, 1e300, 7, "1.5E-3 \\\" 2E1", {{"E", 2.5}}};
  const std::string text = json_text(value);
  EXPECT_EQ(text, "[0.04717183100000002,-1.0,0.0,1e+300,7,\"1.5E-3 \\\\\\\" 2E1\",{\"E\":2.5}]");
  EXPECT_EQ(boost::json::parse(text), value) << "not a bit is lost";
}

TEST(ProgressText, has_share_text_time_and_what_is_left) {
  EXPECT_EQ(progress_text({25, 100, "250 requests"}, 20, 100),
            "[#######.......................]  25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text({0, 100, "none yet"}, 5, 60), "[..............................]   0.0 %  none yet  5 s");
  EXPECT_EQ(progress_text({0, 0, "reading the trace"}, 3700, 80), "reading the trace  1:01:40");
}

TEST(ProgressText, gives_up_the_bar_first_and_then_the_time_that_has_passed) {
  const ProgressState state{25, 100, "250 requests"};
  EXPECT_EQ(progress_text(state, 20, 55), "[###..........]  25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text(state, 20, 45), " 25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text(state, 20, 34), " 25.0 %  250 requests  1:00 left");
}

TEST(ProgressText, is_never_wider_than_the_terminal) {
  for (std::size_t columns = 0; columns < 120; ++columns) {
    for (const std::uint64_t done : {0U, 1U, 50U, 100U, 200U}) {
      for (const std::uint64_t total : {0U, 100U}) {
        const std::string line = progress_text({done, total, "some text of a usual length"}, 1e9, columns);
        EXPECT_LE(line.size(), columns > 0 ? columns - 1 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace terrace::tools
