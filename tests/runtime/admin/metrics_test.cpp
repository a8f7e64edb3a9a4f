// The page for Prometheus. Its names and its arithmetic; promtool, where it is installed, checks the format.

#include "runtime/admin/metrics.hpp"

#include "tests/paths.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace terrace::admin {
namespace {

/// A shared store of two servers, of which one does not answer.
SharedStoreSnapshot full_shared() {
  SharedStoreSnapshot shared;
  shared.health.state = StoreState::degraded;
  shared.health.nodes.push_back(
      {.address = "a:1", .connections = 2, .in_flight = KiB, .reconnects = 3, .redirections = 4, .failed = 5});
  shared.health.nodes.push_back({.address = "b:1", .breaker = BreakerState::half_open});
  shared.stat = {.probes = 70,
                 .keys_asked = 71,
                 .keys_there = 72,
                 .reads = 73,
                 .reads_missing = 74,
                 .writes = 75,
                 .renewed = 76,
                 .removed = 77,
                 .timed_out = 78,
                 .failed = 79,
                 .declined = 80,
                 .full = 81,
                 .mismatches = {1, 2, 3, 4, 5, 6},
                 .read = KiB,
                 .written = KiB * 2};
  return shared;
}

/// A snapshot in which every counter has a value of its own.
AdminSnapshot full() {
  AdminSnapshot snapshot;
  snapshot.number = 3;
  snapshot.unit_tokens = 16;
  snapshot.stats.requests = {.requests = 9, .asked = 100, .found = {}, .external = 3, .miss = 40};
  snapshot.stats.requests.found[Source::device] = 31;
  snapshot.stats.requests.found[Source::host] = 19;
  snapshot.stats.requests.found[Source::storage] = 7;
  snapshot.stats.acquired = 12;
  snapshot.stats.aborted = 2;
  snapshot.stats.preempted.requests = 1;
  snapshot.stats.refused_no_room = 4;
  snapshot.stats.refused_never_fits = 3;
  snapshot.stats.refused_paused = 2;
  snapshot.stats.refused_invalid = 1;
  snapshot.stats.quarantined_unfenced = 6;
  snapshot.stats.quarantined_late = 8;
  snapshot.stats.load_failures = 5;
  snapshot.stats.loads_late = 2;
  snapshot.stats.store_over_budget = 11;
  snapshot.waits.room.requests = 2;
  snapshot.waits.room.seconds = 0.5;
  snapshot.waits.room.microseconds.add(0);
  snapshot.waits.room.microseconds.add(500'000);
  for (int n = 0; n < 2; ++n) {
    AdminSnapshot::Pool pool;
    pool.block_bytes = KiB * 64;
    pool.device = {{.blocks = 10, .free = 3, .evictable = 4}, 1};
    pool.device.eviction = {.by_rank = true, .classes = {{"0", "fresh", 0.75, 7}, {"2+", "long_output", 0.25, 9}}};
    pool.store.emplace();
    pool.store->blocks = 12;
    pool.health.emplace();
    snapshot.pools.push_back(pool);
  }
  snapshot.ranks.push_back({.name = "rank 0 (\"odd\\name\"\n)"});
  snapshot.jobs.push_back({.id = WriteBackId{1}, .under_way = 4});
  snapshot.job_blocks[static_cast<std::size_t>(WriteBackOutcome::dropped_full)] = 9;
  snapshot.offload.emplace();
  snapshot.queues.push_back({.direction = Direction::swap_in, .transfers = 2, .blocks = 33, .oldest_seconds = 0.25});
  snapshot.transfer_times.swap_in.add(std::chrono::milliseconds{3});
  snapshot.transfer_times.storage_read.add(std::chrono::milliseconds{5});
  snapshot.calls.load.add(std::chrono::milliseconds{1});
  snapshot.calls.acquire.add(std::chrono::microseconds{10});
  snapshot.shared = full_shared();
  snapshot.shared->round_trip_seconds = 0.002;
  snapshot.shared->totals = {.look_ups = 40,
                             .look_ups_joined = 41,
                             .look_ups_skipped = 42,
                             .look_ups_late = 43,
                             .asked = 44,
                             .there = 45,
                             .read_gone = 46,
                             .read_corrupt = 47,
                             .read_late = 48,
                             .read_failed = 49,
                             .wishes = 50,
                             .present = 51,
                             .renewed = 52,
                             .written = 53,
                             .drop_bound = 54,
                             .drop_gone = 55,
                             .drop_failed = 56,
                             .drop_full = 57,
                             .drop_budget = 58,
                             .drop_off = 59};
  snapshot.moved.shared_reads = {.blocks = 60, .bytes = KiB, .seconds = 61};
  snapshot.waits.looking.microseconds.add(2000);
  snapshot.waits.looking.seconds = 0.002;
  snapshot.transfer_times.shared_probe.add(std::chrono::milliseconds{2});
  return snapshot;
}

/// The same of a TierStore.
AdminSnapshot full_store() {
  AdminSnapshot snapshot;
  snapshot.number = 3;
  AdminSnapshot::Pool& pool = snapshot.pools.emplace_back();
  pool.block_bytes = KiB * 64;
  pool.store.emplace();
  pool.store->blocks = 12;
  pool.store->free = 4;
  pool.store->evicted = 13;
  pool.health.emplace();
  pool.health->state = StoreState::down;
  pool.health->used_in_full = false;
  snapshot.tier_store = {.gets = 21,
                         .hits = 1,
                         .misses = 2,
                         .corrupt = 3,
                         .get_failures = 4,
                         .gets_cancelled = 5,
                         .gets_late = 6,
                         .puts = 34,
                         .stored = 7,
                         .put_failures = 8,
                         .puts_cancelled = 9,
                         .puts_late = 10,
                         .read = KiB * 64,
                         .written = KiB * 448,
                         .unaligned = 14,
                         .refused = 15,
                         .without_parent = 16,
                         .flushes = 20,
                         .flush_failures = 3,
                         .not_flushed = 18,
                         .events_dropped = 19,
                         .batches = 21,
                         .waiting = 4,
                         .under_way = 3,
                         .regions = 22,
                         .shared_hits = 23,
                         .shared_misses = 24,
                         .shared_stored = 25,
                         .shared_present = 26,
                         .shared_not_stored = 27};
  snapshot.shared = full_shared();
  return snapshot;
}

class AdminMetrics : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!metrics_text(AdminSnapshot{}, {}, {})) GTEST_SKIP() << "this build has no prometheus-cpp";
  }
  /// The samples of a page: "name{labels}" to the value.
  static std::map<std::string, double> samples(const std::string& text) {
    std::map<std::string, double> all;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '#') continue;
      const std::size_t space = line.rfind(' ');
      const auto [at, is_new] = all.emplace(line.substr(0, space), std::strtod(line.c_str() + space, nullptr));
      EXPECT_TRUE(is_new) << "twice: " << at->first;
    }
    return all;
  }
  static std::map<std::string, double> samples(const AdminSnapshot& snapshot) {
    return samples(*metrics_text(snapshot, {}, std::chrono::seconds{1}));
  }
};

TEST_F(AdminMetrics, tokens_by_source_sum_to_the_tokens_asked_for) {
  auto page = samples(full());
  double sum = 0;
  for (const char* source : {"device", "host", "storage", "external", "none"}) {
    sum += page.at(fmt::format("terrace_request_tokens_total{{source=\"{}\"}}", source));
  }
  EXPECT_EQ(sum, page.at("terrace_request_tokens_asked_total"));
  EXPECT_EQ(sum, 1600);
  EXPECT_EQ(page.at("terrace_request_tokens_total{source=\"host\"}"), 304);
}

TEST_F(AdminMetrics, blocks_are_counted_where_the_tokens_of_a_block_are_not_known) {
  AdminSnapshot snapshot = full();
  snapshot.unit_tokens = 0;
  auto page = samples(snapshot);
  EXPECT_EQ(page.at("terrace_request_blocks_total{source=\"host\"}"), 19);
  EXPECT_FALSE(page.contains("terrace_request_tokens_asked_total"));
}

TEST_F(AdminMetrics, reasons_and_states_are_told_apart) {
  auto page = samples(full());
  EXPECT_EQ(page.at("terrace_load_failures_total{reason=\"late\"}"), 2);
  EXPECT_EQ(page.at("terrace_load_failures_total{reason=\"error\"}"), 3);
  EXPECT_EQ(page.at("terrace_not_stored_total{reason=\"over_budget\"}"), 11);
  for (const auto& [reason, requests] :
       {std::pair{"no_room", 4}, std::pair{"never_fits", 3}, std::pair{"paused", 2}, std::pair{"invalid", 1}}) {
    EXPECT_EQ(page.at(fmt::format("terrace_requests_refused_total{{reason=\"{}\"}}", reason)), requests);
  }
  EXPECT_EQ(page.at("terrace_requests_aborted_total"), 2);
  EXPECT_EQ(page.at("terrace_requests_preempted_total"), 1);
  EXPECT_EQ(page.at("terrace_quarantined_blocks_total{reason=\"unfenced\"}"), 6);
  EXPECT_EQ(page.at("terrace_quarantined_blocks_total{reason=\"late\"}"), 8);
  EXPECT_EQ(page.at("terrace_blocks{pool=\"1\",tier=\"device\",state=\"in_use\"}"), 2);
  EXPECT_EQ(page.at("terrace_blocks{pool=\"1\",tier=\"device\",state=\"quarantined\"}"), 1);
  EXPECT_EQ(page.at("terrace_storage_blocks{pool=\"0\",tier=\"storage\",state=\"stored\"}"), 12);
  EXPECT_EQ(page.at("terrace_storage_up{pool=\"0\"}"), 1);
  EXPECT_EQ(page.at("terrace_write_back_jobs{state=\"running\"}"), 1);
  EXPECT_EQ(page.at("terrace_write_back_blocks_total{outcome=\"dropped_full\"}"), 9);
  EXPECT_EQ(page.at("terrace_health{state=\"ok\"}"), 1);
  EXPECT_EQ(page.at("terrace_health{state=\"stalled\"}"), 0);
}

TEST_F(AdminMetrics, transfers_and_calls_are_told_by_kind) {
  auto page = samples(full());
  EXPECT_EQ(page.at("terrace_transfers_queued_blocks{direction=\"swap_in\",urgency=\"request\"}"), 33);
  EXPECT_EQ(page.at("terrace_transfers_oldest_seconds{direction=\"swap_in\",urgency=\"request\"}"), 0.25);
  EXPECT_EQ(page.at("terrace_transfer_seconds_count{direction=\"swap_in\"}"), 1);
  EXPECT_NEAR(page.at("terrace_transfer_seconds_sum{direction=\"swap_in\"}"), 0.003, 1e-9);
  EXPECT_EQ(page.at("terrace_transfer_seconds_count{direction=\"storage_read\"}"), 1);
  EXPECT_EQ(page.at("terrace_transfer_seconds_count{direction=\"storage_write\"}"), 0);
  EXPECT_EQ(page.at("terrace_call_seconds_count{call=\"load\"}"), 1);
  EXPECT_EQ(page.at("terrace_call_seconds_count{call=\"acquire\"}"), 1);
  EXPECT_EQ(page.at("terrace_call_seconds_count{call=\"poll\"}"), 0);
}

TEST_F(AdminMetrics, a_store_tells_gets_and_puts_by_result) {
  auto page = samples(full_store());
  double gets = 0;
  double puts = 0;
  for (const auto& [name, value] : page) {
    if (name.starts_with("terrace_store_gets_total{")) gets += value;
    if (name.starts_with("terrace_store_puts_total{")) puts += value;
  }
  EXPECT_EQ(gets, 21);
  EXPECT_EQ(puts, 34);
  const std::map<std::string, double> wanted{{"terrace_store_gets_total{result=\"hit\"}", 1},
                                             {"terrace_store_gets_total{result=\"miss\"}", 2},
                                             {"terrace_store_gets_total{result=\"corrupt\"}", 3},
                                             {"terrace_store_gets_total{result=\"error\"}", 4},
                                             {"terrace_store_gets_total{result=\"cancelled\"}", 5},
                                             {"terrace_store_gets_total{result=\"late\"}", 6},
                                             {"terrace_store_puts_total{result=\"stored\"}", 7},
                                             {"terrace_store_puts_total{result=\"error\"}", 8},
                                             {"terrace_store_puts_total{result=\"cancelled\"}", 9},
                                             {"terrace_store_puts_total{result=\"late\"}", 10},
                                             {"terrace_moved_bytes_total{direction=\"storage_read\"}", 65536},
                                             {"terrace_moved_bytes_total{direction=\"storage_write\"}", 458752},
                                             {"terrace_moved_blocks_total{direction=\"storage_read\"}", 1},
                                             {"terrace_moved_blocks_total{direction=\"storage_write\"}", 7},
                                             {"terrace_evictions_total{tier=\"storage\"}", 13},
                                             {"terrace_store_unaligned_total", 14},
                                             {"terrace_store_batches_refused_total", 15},
                                             {"terrace_store_without_parent_total", 16},
                                             {"terrace_store_flushes_total{result=\"flushed\"}", 17},
                                             {"terrace_store_flushes_total{result=\"error\"}", 3},
                                             {"terrace_store_blocks_not_flushed", 18},
                                             {"terrace_store_events_dropped_total", 19},
                                             {"terrace_store_batches", 21},
                                             {"terrace_store_batch_blocks{state=\"waiting\"}", 4},
                                             {"terrace_store_batch_blocks{state=\"under_way\"}", 3},
                                             {"terrace_store_regions", 22}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(page.at(name), value) << name;
}

TEST_F(AdminMetrics, a_store_tells_storage_as_a_cache_does_and_nothing_of_other_tiers) {
  auto page = samples(full_store());
  EXPECT_EQ(page.at("terrace_storage_blocks{pool=\"0\",tier=\"storage\",state=\"stored\"}"), 12);
  EXPECT_EQ(page.at("terrace_storage_blocks{pool=\"0\",tier=\"storage\",state=\"free\"}"), 4);
  EXPECT_EQ(page.at("terrace_storage_up{pool=\"0\"}"), 0);
  EXPECT_EQ(page.at("terrace_block_bytes{pool=\"0\"}"), 65536);
  EXPECT_TRUE(page.contains("terrace_request_wait_seconds_count{for=\"storage\"}"));
  EXPECT_TRUE(page.contains("terrace_missed_units_total{reason=\"damaged\"}"));
  for (const auto& [name, value] : page) {
    for (const char* of_a_cache : {"terrace_requests", "terrace_request_tokens", "terrace_blocks", "terrace_host",
                                   "terrace_daily", "terrace_write_back", "terrace_call", "terrace_moving"}) {
      EXPECT_FALSE(name.starts_with(of_a_cache)) << name;
    }
  }
}

TEST_F(AdminMetrics, caches_and_stores_tell_what_the_shared_store_does_and_each_of_its_servers) {
  const std::map<std::string, double> wanted{{"terrace_shared_up", 0},
                                             {"terrace_shared_probes_total", 70},
                                             {"terrace_shared_probed_blocks_total", 71},
                                             {"terrace_shared_probed_blocks_there_total", 72},
                                             {"terrace_shared_reads_total{result=\"read\"}", 73},
                                             {"terrace_shared_reads_total{result=\"missing\"}", 74},
                                             {"terrace_shared_reads_total{result=\"corrupt\"}", 21},
                                             {"terrace_shared_corrupt_total{reason=\"format\"}", 1},
                                             {"terrace_shared_corrupt_total{reason=\"fingerprint\"}", 3},
                                             {"terrace_shared_corrupt_total{reason=\"checksum\"}", 5},
                                             {"terrace_shared_writes_total{result=\"written\"}", 75},
                                             {"terrace_shared_writes_total{result=\"full\"}", 81},
                                             {"terrace_shared_renewed_total", 76},
                                             {"terrace_shared_removed_total", 77},
                                             {"terrace_shared_failures_total{reason=\"timed_out\"}", 78},
                                             {"terrace_shared_failures_total{reason=\"error\"}", 79},
                                             {"terrace_shared_failures_total{reason=\"declined\"}", 80},
                                             {"terrace_shared_bytes_total{direction=\"read\"}", 1024},
                                             {"terrace_shared_bytes_total{direction=\"write\"}", 2048},
                                             {"terrace_shared_node_breaker{node=\"a:1\",state=\"closed\"}", 1},
                                             {"terrace_shared_node_breaker{node=\"a:1\",state=\"open\"}", 0},
                                             {"terrace_shared_node_breaker{node=\"b:1\",state=\"closed\"}", 0},
                                             {"terrace_shared_node_breaker{node=\"b:1\",state=\"half_open\"}", 1},
                                             {"terrace_shared_node_connections{node=\"a:1\"}", 2},
                                             {"terrace_shared_node_in_flight_bytes{node=\"a:1\"}", 1024},
                                             {"terrace_shared_node_reconnects_total{node=\"a:1\"}", 3},
                                             {"terrace_shared_node_redirections_total{node=\"a:1\"}", 4},
                                             {"terrace_shared_node_failures_total{node=\"a:1\"}", 5}};
  for (const AdminSnapshot& snapshot : {full(), full_store()}) {
    auto page = samples(snapshot);
    for (const auto& [name, value] : wanted) {
      ASSERT_TRUE(page.contains(name)) << name;
      EXPECT_EQ(page.at(name), value) << name;
    }
  }
}

TEST_F(AdminMetrics, a_cache_tells_what_it_asked_the_shared_store_for_and_what_it_wrote_there) {
  const std::map<std::string, double> wanted{{"terrace_shared_look_ups_total", 40},
                                             {"terrace_shared_look_ups_joined_total", 41},
                                             {"terrace_shared_look_ups_skipped_total", 42},
                                             {"terrace_shared_look_ups_late_total", 43},
                                             {"terrace_shared_asked_blocks_total", 44},
                                             {"terrace_shared_found_blocks_total", 45},
                                             {"terrace_shared_not_read_total{reason=\"gone\"}", 46},
                                             {"terrace_shared_not_read_total{reason=\"corrupt\"}", 47},
                                             {"terrace_shared_not_read_total{reason=\"late\"}", 48},
                                             {"terrace_shared_not_read_total{reason=\"error\"}", 49},
                                             {"terrace_shared_wishes_total", 50},
                                             {"terrace_shared_present_total", 51},
                                             {"terrace_shared_not_written_total{reason=\"skipped\"}", 54},
                                             {"terrace_shared_not_written_total{reason=\"gone\"}", 55},
                                             {"terrace_shared_not_written_total{reason=\"failed\"}", 56},
                                             {"terrace_shared_not_written_total{reason=\"full\"}", 57},
                                             {"terrace_shared_not_written_total{reason=\"over_budget\"}", 58},
                                             {"terrace_shared_not_written_total{reason=\"off\"}", 59},
                                             {"terrace_shared_round_trip_seconds", 0.002},
                                             {"terrace_moved_blocks_total{direction=\"shared_read\"}", 60},
                                             {"terrace_moving_seconds_total{direction=\"shared_read\"}", 61},
                                             {"terrace_request_wait_seconds_count{for=\"looking\"}", 1},
                                             {"terrace_request_wait_seconds_count{for=\"shared\"}", 0},
                                             {"terrace_transfer_seconds_count{direction=\"shared_probe\"}", 1}};
  auto page = samples(full());
  for (const auto& [name, value] : wanted) {
    ASSERT_TRUE(page.contains(name)) << name;
    EXPECT_EQ(page.at(name), value) << name;
  }
  page = samples(full_store());
  EXPECT_FALSE(page.contains("terrace_shared_asked_blocks_total"));
  EXPECT_EQ(page.at("terrace_store_shared_gets_total{result=\"hit\"}"), 23);
  EXPECT_EQ(page.at("terrace_store_shared_gets_total{result=\"miss\"}"), 24);
  EXPECT_EQ(page.at("terrace_store_shared_puts_total{result=\"stored\"}"), 25);
  EXPECT_EQ(page.at("terrace_store_shared_puts_total{result=\"present\"}"), 26);
  EXPECT_EQ(page.at("terrace_store_shared_puts_total{result=\"not_stored\"}"), 27);
}

TEST_F(AdminMetrics, a_cache_that_owns_the_slots_tells_of_its_prefetches) {
  AdminSnapshot snapshot = full();
  EXPECT_FALSE(samples(snapshot).contains("terrace_prefetches_cut_total"));
  snapshot.offload.reset();
  snapshot.prefetches = {
      .orders = 1, .refused = 2, .cut = 3, .cancelled = 4, .joined = 5, .from_storage = 6, .from_shared = 7, .failed = 8};
  auto page = samples(snapshot);
  EXPECT_EQ(page.at("terrace_prefetches_total{result=\"accepted\"}"), 1);
  EXPECT_EQ(page.at("terrace_prefetches_total{result=\"refused\"}"), 2);
  EXPECT_EQ(page.at("terrace_prefetches_cut_total"), 3);
  EXPECT_EQ(page.at("terrace_prefetches_cancelled_total"), 4);
  EXPECT_EQ(page.at("terrace_prefetches_joined_total"), 5);
  EXPECT_EQ(page.at("terrace_prefetched_blocks_total{source=\"storage\"}"), 6);
  EXPECT_EQ(page.at("terrace_prefetched_blocks_total{source=\"shared\"}"), 7);
  EXPECT_EQ(page.at("terrace_prefetch_failures_total"), 8);
}

TEST_F(AdminMetrics, nothing_tells_of_a_shared_store_where_there_is_none) {
  for (AdminSnapshot snapshot : {full(), full_store()}) {
    snapshot.shared.reset();
    for (const auto& [name, value] : samples(snapshot)) {
      EXPECT_TRUE(name.find("shared") == std::string::npos || name.find("=\"shared\"") != std::string::npos) << name;
      EXPECT_EQ(name.find("looking"), std::string::npos) << name;
    }
  }
}

TEST_F(AdminMetrics, waits_are_a_histogram_in_seconds) {
  auto page = samples(full());
  EXPECT_EQ(page.at("terrace_request_wait_seconds_count{for=\"room\"}"), 2);
  EXPECT_EQ(page.at("terrace_request_wait_seconds_sum{for=\"room\"}"), 0.5);
  EXPECT_EQ(page.at("terrace_request_wait_seconds_bucket{for=\"room\",le=\"+Inf\"}"), 2);
  double below = 0;
  double above = 0;
  for (const auto& [name, value] : page) {
    if (!name.starts_with("terrace_request_wait_seconds_bucket{for=\"room\",le=\"")) continue;
    const double bound = std::strtod(name.c_str() + name.find("le=\"") + 4, nullptr);
    if (bound < 0.5) below = std::max(below, value);
    else above = std::max(above, value);
  }
  EXPECT_EQ(below, 1);
  EXPECT_EQ(above, 2);
}

TEST_F(AdminMetrics, names_follow_the_conventions) {
  for (const AdminSnapshot& snapshot : {full(), full_store()}) {
    std::istringstream lines{*metrics_text(snapshot, {}, {})};
    std::set<std::string> families;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("# TYPE ")) continue;
      std::istringstream words{line.substr(7)};
      std::string name;
      std::string type;
      words >> name >> type;
      EXPECT_TRUE(families.insert(name).second) << name << " is two families";
      EXPECT_TRUE(name.starts_with("terrace_")) << name;
      EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
      for (const char* unit : {"_ms", "_us", "_kib", "_milliseconds", "_percent"}) EXPECT_FALSE(name.ends_with(unit)) << name;
    }
    EXPECT_GT(families.size(), 20U);
  }
}

TEST_F(AdminMetrics, nothing_that_a_snapshot_contains_makes_it_throw) {
  AdminSnapshot snapshot = full();
  snapshot.waits.room.seconds = std::numeric_limits<double>::quiet_NaN();
  snapshot.moved.swap_in.seconds = std::numeric_limits<double>::infinity();
  snapshot.stats.load_failures = 0;  // less than the late ones: counters may be read in any order
  EXPECT_NO_THROW((void)metrics_text(snapshot, {}, Duration::max()));
  const AdminSnapshot empty;
  EXPECT_NO_THROW((void)metrics_text(empty, {}, {}));
}

/// The families of a page, as the table of docs/metrics.md has them: "| `name{labels}` | help |". Names say the type, except for
/// histograms.
std::string table_of(const std::string& page) {
  std::istringstream lines{page};
  std::string table;
  std::string help;
  std::string name;
  std::string type;
  std::set<std::string> labels;
  const auto end_family = [&] {
    if (name.empty()) return;
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    const std::string shown = labels.empty() ? name : fmt::format("{}{{{}}}", name, fmt::join(labels, ", "));
    table += fmt::format("| `{}`{} | {} |\n", shown, type == "histogram" ? " (histogram)" : "", help);
    labels.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      end_family();
      name = line.substr(7, line.find(' ', 7) - 7);
      help = line.substr(8 + name.size());
    } else if (line.starts_with("# TYPE ")) {
      type = line.substr(line.rfind(' ') + 1);
    } else {
      const std::size_t open = line.find('{');
      for (std::size_t at = open; at != std::string::npos;) {
        const std::size_t equals = line.find('=', at);
        if (equals == std::string::npos) break;
        const std::string label = line.substr(at + 1, equals - at - 1);
        if (label != "le") labels.insert(label);
        at = line.find("\",", equals);
        if (at != std::string::npos) ++at;
      }
    }
  }
  end_family();
  return table;
}

/// All metrics that there are: the page in tokens, and the families that only a page in blocks or of a store has.
std::string all_families() {
  AdminSnapshot snapshot = full();
  snapshot.ranks.front().name = "rank 0";
  const SizeEffect effect{.tier = Tier::host, .blocks = 10};
  std::string table = table_of(*metrics_text(snapshot, {}, {}, {&effect, 1}));
  snapshot.unit_tokens = 0;
  AdminSnapshot with_requests = snapshot;
  with_requests.offload.reset();
  with_requests.prefill_seconds = 0.05;
  for (const AdminSnapshot& other : {snapshot, with_requests, full_store()}) {
    std::istringstream lines{table_of(*metrics_text(other, {}, {}))};
    for (std::string line; std::getline(lines, line);) {
      if (table.find(line.substr(0, line.find(" | "))) == std::string::npos) table += line + "\n";
    }
  }
  return table;
}

TEST_F(AdminMetrics, the_page_of_the_documentation_lists_them_all) {
  const std::filesystem::path docs = std::filesystem::path{test::paths.source} / "docs" / "metrics.md";
  const std::string page = test::read_file(docs);
  const std::size_t begin = page.find("| `");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin), all_families()) << "replace the table of docs/metrics.md by the second text";
}

TEST_F(AdminMetrics, the_dashboard_and_the_alerts_name_only_metrics_that_there_are) {
  const std::string families = all_families();
  for (const char* file : {"dashboard.json", "alerts.yml"}) {
    const std::string text = test::read_file(std::filesystem::path{test::paths.source} / "docs" / "monitoring" / file);
    const std::regex name{"terrace_[a-z_]+"};
    std::size_t names = 0;
    for (std::sregex_iterator at{text.begin(), text.end(), name}, end; at != end; ++at, ++names) {
      std::string family = at->str();
      for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
        if (family.ends_with(suffix)) family.resize(family.size() - suffix.size());
      }
      EXPECT_TRUE(families.find("`" + family + "`") != std::string::npos ||
                  families.find("`" + family + "{") != std::string::npos)
          << file << ": " << at->str();
    }
    EXPECT_GT(names, 5U) << file;
  }
}

TEST_F(AdminMetrics, promtool_accepts_the_rules_and_the_expressions_of_the_dashboard) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const std::filesystem::path folder = std::filesystem::path{test::paths.source} / "docs" / "monitoring";
  const test::TemporaryDirectory directory;
  const std::string out = (directory.path() / "out").string();
  EXPECT_EQ(std::system(fmt::format("promtool check rules {} > {} 2>&1", (folder / "alerts.yml").string(), out).c_str()), 0)
      << test::read_file(out);
  // Each expression of the dashboard becomes a rule, because promtool checks rules.
  const boost::json::value dashboard = boost::json::parse(test::read_file(folder / "dashboard.json"));
  std::string rules = "groups:\n  - name: dashboard\n    rules:\n";
  int number = 0;
  for (const boost::json::value& panel : dashboard.at("panels").as_array()) {
    for (const boost::json::value& target : panel.at("targets").as_array()) {
      std::string expression{target.at("expr").as_string()};
      for (std::size_t at = 0; (at = expression.find("$__rate_interval")) != std::string::npos;) expression.replace(at, 16, "1m");
      rules += fmt::format("      - record: panel{}\n        expr: {}\n", ++number,
                           boost::json::serialize(boost::json::string(expression)));
    }
  }
  EXPECT_GT(number, 10);
  const std::string file = directory.write("rules.yml", rules).string();
  EXPECT_EQ(std::system(fmt::format("promtool check rules {} > {} 2>&1", file, out).c_str()), 0) << test::read_file(out);
}

TEST_F(AdminMetrics, every_alert_fires_for_a_process_in_trouble_and_none_for_one_that_is_well) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const test::TemporaryDirectory directory;
  const std::filesystem::path source{test::paths.source};
  const std::string out = (directory.path() / "out").string();
  const std::string cases = (source / "tests" / "servers" / "alerts.yml").string();
  EXPECT_EQ(std::system(fmt::format("promtool test rules {} > {} 2>&1", cases, out).c_str()), 0) << test::read_file(out);
  // All of them are in the cases.
  const std::string rules = test::read_file(source / "docs" / "monitoring" / "alerts.yml");
  const std::regex alert{"alert: ([A-Za-z]+)"};
  for (std::sregex_iterator at{rules.begin(), rules.end(), alert}, end; at != end; ++at) {
    EXPECT_NE(test::read_file(cases).find("alertname=\"" + (*at)[1].str() + "\""), std::string::npos) << (*at)[1];
  }
}

TEST_F(AdminMetrics, promtool_accepts_the_page) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "page").string();
  for (const AdminSnapshot& snapshot : {full(), full_store()}) {
    std::ofstream{file} << *metrics_text(snapshot, {}, std::chrono::seconds{1});
    EXPECT_EQ(std::system(fmt::format("promtool check metrics < {} > {}.out 2>&1", file, file).c_str()), 0)
        << std::ifstream{file + ".out"}.rdbuf();
  }
}

}  // namespace
}  // namespace terrace::admin
