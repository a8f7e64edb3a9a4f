#include "tests/tools/temporary_directory.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "tools/replay/replay.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using std::chrono::microseconds;

/// The table with its long lines joined again. Continuation lines are indented.
std::string unwrapped(const std::string& table) { return std::regex_replace(table, std::regex("\\n +"), " "); }

ReplayResult some_result() {
  ReplayResult result;
  result.counts = {.requests = 12, .rejected = 1, .total = 100, .miss = 30, .joined = 5};
  result.counts.found[Source::device] = 40;
  result.counts.found[Source::host] = 20;
  result.counts.found[Source::storage] = 10;
  result.moved.swap_out = {7, Bytes{700}, 0.5};
  result.moved.swap_in = {8, Bytes{800}, 0.25};
  result.moved.storage_reads = {9, Bytes{900}, 0.125};
  result.moved.storage_writes = {6, Bytes{600}, 1.5};
  result.waits.at_once = 60;
  result.waits.room = {.requests = 30, .seconds = 0.003};
  result.waits.loads[Source::host] = {.requests = 10, .seconds = 0.005};
  result.latency_us.match = {1, 2, 3};
  result.latency_us.acquire = {4, 5, 6};
  result.latency_us.extend = {4.5, 5.5, 6.5};
  result.latency_us.commit = {7, 8, 9};
  result.latency_us.release = {10, 11, 12};
  result.checked = 70;
  result.compared = 75;
  result.engine = {.steps = 20,
                   .requests_in_steps = 50,
                   .prefilled = 1000,
                   .decoded = 200,
                   .recomputed = 30,
                   .preemptions = 4,
                   .hits_again = 11,
                   .aborted = 3,
                   .output_blocks = 13};
  result.mismatches = 2;
  result.seconds = 2.5;
  result.checks.ledgers_balanced = true;
  return result;
}

TEST(Report, has_every_field_that_was_promised) {
  const json::value report = json::parse(to_json({}, some_result()));
  const auto number = [&](const char* pointer) {
    boost::system::error_code error;
    const json::value* const found = report.find_pointer(pointer, error);
    EXPECT_NE(found, nullptr) << pointer;
    return found == nullptr ? -1.0 : found->to_number<double>();
  };
  EXPECT_EQ(number("/requests"), 12);
  EXPECT_EQ(number("/rejected"), 1);
  EXPECT_EQ(number("/blocks/total"), 100);
  EXPECT_EQ(number("/blocks/device"), 40);
  EXPECT_EQ(number("/blocks/host"), 20);
  EXPECT_EQ(number("/blocks/storage"), 10);
  EXPECT_EQ(number("/blocks/miss"), 30);
  EXPECT_EQ(number("/blocks/joined"), 5);
  EXPECT_EQ(number("/moved/swap_out/blocks"), 7);
  EXPECT_EQ(number("/moved/swap_out/bytes"), 700);
  EXPECT_EQ(number("/moved/swap_out/seconds"), 0.5);
  EXPECT_EQ(number("/moved/swap_in/blocks"), 8);
  EXPECT_EQ(number("/moved/prefetch/blocks"), 9);
  EXPECT_EQ(number("/moved/persist/seconds"), 1.5);
  EXPECT_EQ(number("/verify/checked"), 70);
  EXPECT_EQ(number("/verify/mismatches"), 2);
  EXPECT_EQ(number("/waits/none"), 60);
  EXPECT_EQ(number("/waits/room/requests"), 30);
  EXPECT_EQ(number("/waits/host/seconds"), 0.005);
  EXPECT_EQ(number("/waits/storage/requests"), 0);
  EXPECT_EQ(number("/latency_us/match/p50"), 1);
  EXPECT_EQ(number("/latency_us/acquire/p99"), 5);
  EXPECT_EQ(number("/latency_us/commit/max"), 9);
  EXPECT_EQ(number("/latency_us/release/p50"), 10);
  EXPECT_EQ(number("/latency_us/extend/max"), 6.5);
  EXPECT_EQ(number("/verify/compared"), 75);
  EXPECT_EQ(number("/engine/steps"), 20);
  EXPECT_EQ(number("/engine/running_mean"), 2.5);
  EXPECT_EQ(number("/engine/tokens/prefilled"), 1000);
  EXPECT_EQ(number("/engine/tokens/decoded"), 200);
  EXPECT_EQ(number("/engine/tokens/recomputed"), 30);
  EXPECT_EQ(number("/engine/preemptions"), 4);
  EXPECT_EQ(number("/engine/hits_again"), 11);
  EXPECT_EQ(number("/engine/aborted"), 3);
  EXPECT_EQ(number("/engine/output_blocks"), 13);
  EXPECT_EQ(number("/seconds"), 2.5);
  EXPECT_TRUE(report.at("config").is_object());
  EXPECT_TRUE(report.at("checks").at("ok").as_bool());
}

TEST(Report, has_a_field_for_each_source) {
  ReplayResult result = some_result();
  ReplayOptions options;
  options.block_tokens = 16;
  std::uint64_t tokens = 0;
  for (const Source source : all_sources) tokens += 16 * (result.manager.requests.found[source] = 100 + index(source));
  result.manager.requests.external = 7;
  result.manager.requests.miss = 9;
  result.manager.requests.asked = result.manager.requests.found.sum() + 7 + 9;
  const json::value report = json::parse(to_json(options, result));
  const json::object& blocks = report.at("blocks").as_object();
  const json::object& asked = report.at("tokens").at("requests").as_object();
  for (const Source source : all_sources) {
    EXPECT_EQ(blocks.at(to_string(source)).to_number<std::uint64_t>(), result.counts.found[source]);
    EXPECT_EQ(asked.at(to_string(source)).to_number<std::uint64_t>(), 16 * (100 + index(source)));
  }
  EXPECT_EQ(blocks.size(), source_count + 3);  // and total, miss, joined
  EXPECT_EQ(asked.size(), source_count + 4);   // and requests, asked, external, miss
  EXPECT_EQ(asked.at("asked").to_number<std::uint64_t>(), tokens + 16 * (7 + 9));
  // A cache with groups counts tokens already.
  options.groups = {{.block_tokens = 16}};
  const json::value of_groups = json::parse(to_json(options, result));
  EXPECT_EQ(of_groups.at("tokens").at("requests").at("miss").to_number<std::uint64_t>(), 9U);
}

TEST(Report, tells_people_who_waited_for_what_and_how_long) {
  const std::string table = to_table({}, some_result());
  EXPECT_NE(table.find("  nothing                         60   60.00 %       0.0\n"), std::string::npos) << table;
  EXPECT_NE(table.find("  device slots alone              30   30.00 %     100.0\n"), std::string::npos) << table;
  EXPECT_NE(table.find("  blocks from host                10   10.00 %     500.0\n"), std::string::npos) << table;
  EXPECT_EQ(table.find("blocks from storage"), std::string::npos) << table;
  ReplayResult nobody = some_result();
  nobody.waits = {.at_once = 100};
  EXPECT_EQ(to_table({}, nobody).find("waited for"), std::string::npos);
}

TEST(Report, says_in_its_config_what_was_replayed) {
  ReplayOptions options;
  options.trace = "a/b.jsonl.gz";
  options.block_bytes = KiB * 4;
  options.system.storage = FileStorage{.directories = {"/some/where"}, .capacity = GiB};
  options.system.inclusion = InclusionPolicy::exclusive;
  options.speed = 2;
  options.step_tokens = 512;
  options.abort_rate = 0.25;
  const json::value config = json::parse(to_json(options, some_result())).at("config");
  EXPECT_EQ(config.at("trace").as_string(), "a/b.jsonl.gz");
  EXPECT_EQ(config.at("block_bytes").to_number<int>(), 4096);
  EXPECT_EQ(config.at("storage").at("directory").as_string(), "/some/where");
  EXPECT_EQ(config.at("storage").at("io").as_string(), "auto");
  EXPECT_EQ(config.at("relation").as_string(), "exclusive");
  EXPECT_EQ(config.at("speed").to_number<double>(), 2);
  EXPECT_TRUE(config.at("requests_max").is_null());
  EXPECT_EQ(config.at("step_tokens").to_number<int>(), 512);
  EXPECT_EQ(config.at("abort_rate").to_number<double>(), 0.25);
  EXPECT_TRUE(config.at("cache_output").as_bool());
}

TEST(Report, tells_of_the_store_where_there_is_one) {
  ReplayResult result = some_result();
  EXPECT_TRUE(json::parse(to_json({}, result)).at("store").is_null());
  result.store = StoreStat{};
  result.store->blocks = 17;
  EXPECT_EQ(json::parse(to_json({}, result)).at("store").at("blocks").to_number<int>(), 17);
  EXPECT_FALSE(json::parse(to_json({}, result)).at("store").as_object().contains("io"));
  result.storage_io = "4 threads";
  EXPECT_EQ(json::parse(to_json({}, result)).at("store").at("io").as_string(), "4 threads");
  EXPECT_NE(to_table({}, result).find("by 4 threads\n"), std::string::npos);
  EXPECT_EQ(to_table({}, result).find("no room for more"), std::string::npos);
  result.store->capacity_blocks = 1234;
  result.store->growth_stopped = 2;
  EXPECT_NE(to_table({}, result).find("no room for more than 1,234 blocks\n"), std::string::npos);
  result.store->floor_stopped = 1;
  EXPECT_NE(unwrapped(to_table({}, result)).find("1,234 blocks: the rest of the disk must stay free"), std::string::npos)
      << to_table({}, result);
  EXPECT_EQ(json::parse(to_json({}, result)).at("store").at("floor_stopped").to_number<int>(), 1);
}

TEST(Report, tells_how_storage_does_and_people_only_where_it_is_not_well) {
  ReplayResult result = some_result();
  EXPECT_TRUE(json::parse(to_json({}, result)).at("storage_health").is_null());
  StoreHealth health;
  health.reason = "the tier is in use";
  health.retried = 3;
  health.failed[static_cast<std::size_t>(ErrorClass::transient)] = 4;
  result.storage_health = health;
  const json::value well = json::parse(to_json({}, result)).at("storage_health");
  EXPECT_EQ(well.at("state").as_string(), "well");
  EXPECT_EQ(well.at("retried").to_number<int>(), 3);
  EXPECT_EQ(well.at("failed").at("transient").to_number<int>(), 4);
  EXPECT_EQ(to_table({}, result).find("the tier is in use"), std::string::npos);
  result.storage_health->state = StoreState::degraded;
  result.storage_health->reason = "the tier is not used";
  EXPECT_EQ(json::parse(to_json({}, result)).at("storage_health").at("state").as_string(), "degraded");
  EXPECT_NE(to_table({}, result).find("degraded: the tier is not used"), std::string::npos);
}

TEST(Report, names_the_first_mismatch) {
  ReplayResult result = some_result();
  result.first_mismatch = Mismatch{3, 4, {}, Source::storage, SlotId{5}, 6};
  const json::value first = json::parse(to_json({}, result)).at("verify").at("first");
  EXPECT_EQ(first.at("found_in").as_string(), "storage");
  EXPECT_EQ(first.at("byte").to_number<int>(), 6);
}

TEST(Report, of_people_has_the_shares_and_the_counts) {
  ReplayOptions options;
  options.system.storage = MemoryStorage{GiB};
  ReplayResult result = some_result();
  result.counts.total = 1'234'567;
  result.counts.found[Source::device] = 617'284;
  const std::string table = unwrapped(to_table(options, result));
  EXPECT_NE(table.find("617,284   50.00 %"), std::string::npos) << table;
  EXPECT_NE(table.find("1 rejected as too large"), std::string::npos) << table;
  EXPECT_NE(table.find("70 hit blocks compared, 2 mismatches; 5 more"), std::string::npos) << table;
  EXPECT_NE(table.find("20 steps of 2.5 requests on average, 4 preemptions (then 11 blocks hit again), 3 requests aborted"),
            std::string::npos)
      << table;
}

TEST(Report, of_people_says_how_often_a_block_was_not_stored_and_why) {
  ReplayOptions options;
  options.system.storage = MemoryStorage{GiB};
  ReplayResult result = some_result();
  EXPECT_EQ(to_table(options, result).find("not stored"), std::string::npos);
  result.manager.store_gone = 1000;
  result.manager.store_no_room = 203;
  result.manager.store_skipped = 40;
  result.manager.store_failed = 5;
  result.manager.store_orphaned = 6000;
  result.manager.store_cancelled = 70'000;  // they were no longer needed
  const std::string table = unwrapped(to_table(options, result));
  EXPECT_NE(
      table.find("7,248 blocks were not stored, because they were evicted first (1,203), too many waited for the disk (40), "
                 "the write failed (5), or the block before was not stored (6,000)\n"),
      std::string::npos)
      << table;
  result.manager = {};
  result.manager.store_failed = 1;
  EXPECT_NE(unwrapped(to_table(options, result)).find("1 blocks were not stored"), std::string::npos);
}

TEST(Report, that_cannot_be_written_is_a_failure) {
  const test::TemporaryDirectory directory;
  write_report(directory.path() / "r.json", "{}");
  EXPECT_EQ(test::read_file(directory.path() / "r.json"), "{}\n");
  EXPECT_THROW(write_report(directory.path() / "absent" / "r.json", "{}"), std::runtime_error);
}

TEST(Latencies, are_zero_where_nothing_was_measured) {
  const Percentiles p = Latencies{}.microseconds();
  EXPECT_EQ(p.p50, 0);
  EXPECT_EQ(p.max, 0);
}

TEST(Latencies, are_exact_by_nearest_rank_in_any_order) {
  Latencies latencies;
  for (int i = 200; i > 0; --i) latencies.add(microseconds{i});
  const Percentiles p = latencies.microseconds();
  EXPECT_DOUBLE_EQ(p.p50, 100);
  EXPECT_DOUBLE_EQ(p.p99, 198);
  EXPECT_DOUBLE_EQ(p.max, 200);
}

TEST(Latencies, of_a_coarser_unit_reach_further) {
  Latencies fine;
  Latencies coarse{microseconds{1}};
  for (Latencies* const latencies : {&fine, &coarse}) latencies->add(std::chrono::seconds{100});
  EXPECT_LT(fine.microseconds().max, 4.3e6);
  EXPECT_DOUBLE_EQ(coarse.microseconds().max, 100e6);
}

}  // namespace
}  // namespace terrace::tools
