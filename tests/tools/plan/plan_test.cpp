#include "tools/plan/plan.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/interrupted.hpp"
#include "tools/plan/options.hpp"
#include "tools/plan/plots.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using test::log_of;
using test::random_prompts;
using test::TemporaryDirectory;

PlanOptions options_for(PlannedTier planned) {
  PlanOptions options;
  options.trace = "trace.jsonl";
  options.planned = planned;
  if (planned != PlannedTier::device) options.fixed.device = 40;
  if (planned == PlannedTier::storage) options.fixed.host = 80;
  options.policies.assign(all_plan_policies.begin(), all_plan_policies.end());
  options.machine.block_tokens = test::log_block_tokens;
  options.machine.block_bytes = KiB * 64;
  return options;
}

PlanResult plan(const PlanOptions& options, const RequestLog& log) {
  PlanProgress progress;
  PlanResult result = make_plan(options, log, test::always, progress);
  EXPECT_EQ(progress.done, progress.total);
  return result;
}

/// The smallest size by trying one after the other.
std::optional<std::uint64_t> smallest_size(const PlanOptions& options, const RequestLog& log, PlanPolicy policy, double hits) {
  HitCounts counts{log, test::always};
  for (std::uint64_t size = 0; size <= log.different_blocks(); ++size) {
    const auto found = tier_costs(log, counts, policy, options.with(size), options.machine).hits();
    if (static_cast<double>(found) >= hits) return size;
  }
  return std::nullopt;
}

class PlanOf : public testing::TestWithParam<PlannedTier> {};
INSTANTIATE_TEST_SUITE_P(Tiers, PlanOf, testing::Values(PlannedTier::device, PlannedTier::host, PlannedTier::storage),
                         [](const auto& tier) { return std::string{to_string(tier.param)}; });

TEST(Plan, says_how_far_the_default_policy_goes_from_lru_to_the_bound) {
  EXPECT_EQ(share_of_way(15, 10, 30), 0.25);
  EXPECT_EQ(share_of_way(8, 10, 30), -0.1);
  EXPECT_EQ(share_of_way(10, 10, 10), std::nullopt);
  const RequestLog log = log_of(random_prompts(3, 400, 6, 3));
  PlanOptions options = options_for(PlannedTier::device);
  options.sizes = {20, log.different_blocks()};
  PlanResult result = plan(options, log);
  const std::vector<TierCosts>& costs = result.rows[0].costs;
  ASSERT_LT(costs[0].hits(), costs[2].hits());
  EXPECT_EQ(result.rows[0].share_of_way, share_of_way(costs[1].hits(), costs[0].hits(), costs[2].hits()));
  EXPECT_EQ(result.rows[1].share_of_way, std::nullopt) << "everything fits";
  EXPECT_NE(to_table(options, result).find("; way from lru (0) to opt (1)"), std::string::npos);
  const json::object all = to_json(options, result);
  EXPECT_EQ(all.at("policies").at("default").at(0).at("share_of_way").as_double(), *result.rows[0].share_of_way);
  EXPECT_TRUE(all.at("policies").at("default").at(1).at("share_of_way").is_null());
  options.policies = {PlanPolicy::default_policy, PlanPolicy::opt};
  result = plan(options, log);
  EXPECT_EQ(result.rows[0].share_of_way, std::nullopt);
  EXPECT_EQ(to_table(options, result).find("way"), std::string::npos);
}

TEST_P(PlanOf, finds_the_smallest_size_for_a_hit_rate) {
  const RequestLog log = log_of(random_prompts(3, 400, 6, 3));
  PlanOptions options = options_for(GetParam());
  options.fixed.inclusion = InclusionPolicy::exclusive;
  const double most = 1 - static_cast<double>(log.different_blocks()) / static_cast<double>(log.blocks());
  options.targets = {0, 0.5 * most, 0.9 * most, 0.97 * most, 0.995 * most, 1};
  const PlanResult result = plan(options, log);
  ASSERT_EQ(result.targets.size(), options.targets.size() * 3);
  bool any_size = false;
  for (const PlanResult::Target& target : result.targets) {
    SCOPED_TRACE(std::string{to_string(target.policy)} + " " + std::to_string(target.share));
    const double hits = std::ceil(target.share * static_cast<double>(log.blocks()));
    const auto expected = smallest_size(options, log, target.policy, hits);
    ASSERT_EQ(target.size.has_value(), expected.has_value());
    any_size = any_size || target.size > 0;
    if (!expected) continue;
    EXPECT_EQ(target.exact, target.policy != PlanPolicy::default_policy || expected == 0U);
    if (target.exact) {
      EXPECT_EQ(*target.size, *expected);
    } else {
      HitCounts counts{log, test::always};
      const auto found = tier_costs(log, counts, target.policy, options.with(*target.size), options.machine).hits();
      EXPECT_GE(static_cast<double>(found), hits);
    }
  }
  EXPECT_TRUE(any_size);
  EXPECT_FALSE(result.targets.back().size.has_value());
}

TEST(Plan, a_share_that_is_a_whole_number_of_blocks_is_not_rounded_up) {
  // 7 of the 100 blocks are hit. 0.07 * 100 is more than 7.
  test::Prompts prompts{{1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7}};
  for (std::uint64_t id = 100; id < 186; ++id) prompts.push_back({id});
  const RequestLog log = log_of(prompts);
  ASSERT_EQ(log.blocks(), 100U);
  PlanOptions options = options_for(PlannedTier::device);
  options.targets = {0.07};
  for (const PlanResult::Target& target : plan(options, log).targets) EXPECT_EQ(target.size, 7U);
}

TEST_P(PlanOf, chooses_twenty_sizes_up_to_all_different_blocks) {
  const RequestLog log = log_of(random_prompts(3, 3000, 12, 3));
  const std::vector<std::uint64_t> sizes = automatic_sizes(options_for(GetParam()), log);
  const bool is_device = GetParam() == PlannedTier::device;
  ASSERT_EQ(sizes.size(), is_device ? 20U : 21U);
  EXPECT_TRUE(std::ranges::is_sorted(sizes, std::ranges::less_equal{})) << "none is there twice";
  EXPECT_EQ(sizes.front(), is_device ? log.longest() : 0);
  EXPECT_EQ(sizes.back(), log.different_blocks());
}

TEST(Plan, of_few_blocks_has_few_sizes) {
  EXPECT_EQ(automatic_sizes(options_for(PlannedTier::device), log_of({{1, 2}, {3}})), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(automatic_sizes(options_for(PlannedTier::device), log_of({{1, 2}})), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(automatic_sizes(options_for(PlannedTier::host), log_of({{1, 2}})), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST_P(PlanOf, default_policy_hits_no_more_than_opt_in_any_size) {
  const RequestLog log = log_of(random_prompts(3, 1000, 6, 3));
  const PlanResult result = plan(options_for(GetParam()), log);
  for (const PlanResult::Row& row : result.rows) {
    EXPECT_LE(row.costs[0].hits(), row.costs[2].hits());
    EXPECT_LE(row.costs[1].hits(), row.costs[2].hits());
    EXPECT_EQ(row.costs[1].hits() + row.costs[1].misses, log.blocks());
  }
  // The largest size evicts nothing.
  EXPECT_EQ(result.rows.back().costs[1].misses, log.different_blocks());
}

/// Every point at which the work can be stopped.
TEST(Plan, ends_wherever_it_is_interrupted) {
  const RequestLog log = log_of(random_prompts(3, 20, 4, 2));
  PlanOptions options = options_for(PlannedTier::device);
  options.sizes = {5, 9};
  options.targets = {0.2};
  std::uint64_t calls = 0;
  PlanProgress counted;
  (void)make_plan(
      options, log, [&] { return ++calls > 0; }, counted);
  ASSERT_GT(calls, 100U);
  for (std::uint64_t stop = 0; stop < calls; ++stop) {
    std::uint64_t left = stop;
    PlanProgress progress;
    EXPECT_THROW((void)make_plan(
                     options, log, [&] { return left > 0 && left-- > 0; }, progress),
                 Interrupted)
        << stop;
  }
}

/// A workload of ten thousand million blocks of 512 MiB.
PlanResult huge() {
  constexpr std::uint64_t blocks = 10'000'000'000;
  TierCosts costs;
  costs.device_hits = costs.host_hits = costs.storage_hits = blocks / 4;
  costs.swap_out = costs.swap_in = costs.storage_reads = costs.storage_writes = blocks;
  costs.first_token_seconds = 1234.5;
  costs.saved_seconds = 1e9;
  costs.drive_writes_per_day = 123456.789;
  costs.drive_years = 1e-7;
  return {.requests = 4'000'000'000,
          .blocks = blocks,
          .different_blocks = blocks / 2,
          .tokens = blocks * 512,
          .longest = 1'000'000,
          .seconds = 3e8,
          .rows = {{blocks / 2, {costs, costs, costs}}},
          .targets = {{PlanPolicy::default_policy, 1, blocks / 2, false}, {PlanPolicy::opt, 0.5, std::nullopt, true}}};
}

TEST_P(PlanOf, fits_on_a_screen_of_80_columns) {
  PlanOptions options = options_for(GetParam());
  options.machine.block_bytes = MiB * 512;
  std::istringstream lines{to_table(options, huge())};
  std::vector<std::size_t> sections(1);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    if (line.empty()) sections.push_back(0);
    else ++sections.back();
  }
  // Each section but the first has its title, the heads of the columns or a target, and a row or a target. No row is broken.
  const std::size_t tables = GetParam() == PlannedTier::device ? 1 : GetParam() == PlannedTier::host ? 2 : 3;
  ASSERT_EQ(sections.size(), 1 + tables + 1);
  for (std::size_t section = 1; section < sections.size(); ++section) EXPECT_EQ(sections[section], 3U) << section;
}

TEST(Plan, table_shows_the_figures_of_each_tier) {
  PlanOptions options = options_for(PlannedTier::storage);
  options.fixed.write_policy = WritePolicy::write_back;
  options.sizes = {100, 1000};
  options.targets = {0.1, 1};
  const RequestLog log = log_of(random_prompts(3, 1000, 6, 3));
  const PlanResult result = plan(options, log);
  const std::string table = to_table(options, result);
  for (const char* const words :
       {"trace.jsonl: 1,000 requests in 16.6 minutes", "device 40 blocks (2.5MiB); host 80 blocks (5MiB), lazy-exclusive;\n",
        "write-back", "; way from lru (0) to opt (1)\n", "lru default     opt   way   first token   GPU saved",
        "default: hits by tier", "swap-out", "drive writes a day", "\n         1,000   62.5MiB", "10.00 %  lru      0 blocks",
        "100.00 %  opt      no size"}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << "\n" << table;
  }
  EXPECT_EQ(table.find("note"), std::string::npos) << table;
  options.policies = {PlanPolicy::lru};
  EXPECT_NE(to_table(options, plan(options, log)).find("lru: hits by tier"), std::string::npos);
}

TEST(Plan, says_that_a_device_is_too_small_for_the_longest_prompt) {
  PlanOptions options = options_for(PlannedTier::device);
  options.sizes = {3, 100};
  const RequestLog log = log_of(random_prompts(3, 100, 6, 3));
  EXPECT_NE(to_table(options, plan(options, log)).find("the longest prompt has 6 blocks"), std::string::npos);
}

TEST(Plan, as_json_has_all_figures_of_all_policies) {
  PlanOptions options = options_for(PlannedTier::storage);
  options.sizes = {100, 1000};
  options.targets = {0.1, 1};
  const RequestLog log = log_of(random_prompts(3, 1000, 6, 3));
  const PlanResult result = plan(options, log);
  const json::object all = to_json(options, result);
  const json::object inputs{{"source", "trace.jsonl"},
                            {"requests", 1000},
                            {"blocks", log.blocks()},
                            {"different_blocks", log.different_blocks()},
                            {"longest_prompt_blocks", 6},
                            {"tokens", log.tokens()},
                            {"seconds", 999.0},
                            {"block_tokens", 10},
                            {"block_bytes", 65536},
                            {"planned", "storage"},
                            {"device_blocks", 40},
                            {"host_blocks", 80},
                            {"inclusion", "lazy-exclusive"},
                            {"write_policy", "write-through"},
                            {"link_bytes_per_second", 50ULL << 30U},
                            {"disk_bytes_per_second", 3ULL << 30U},
                            {"prefill_tokens_per_second", 20000.0},
                            {"rated_drive_writes_per_day", 1.0}};
  for (const auto& [name, value] : inputs) EXPECT_EQ(all.at(name), value) << name;
  EXPECT_EQ(all.size(), inputs.size() + 2) << "policies and targets";
  for (std::size_t policy = 0; policy < all_plan_policies.size(); ++policy) {
    const json::array& rows = all.at("policies").at(to_string(all_plan_policies[policy])).as_array();
    ASSERT_EQ(rows.size(), 2U);
    const TierCosts& costs = result.rows[1].costs[policy];
    const auto moved = [](std::uint64_t blocks) { return json::object{{"blocks", blocks}, {"bytes", blocks * 65536}}; };
    json::object expected{
        {"blocks", 1000},
        {"bytes", 65'536'000},
        {"hits",
         {{"device", costs.device_hits}, {"host", costs.host_hits}, {"storage", costs.storage_hits}, {"all", costs.hits()}}},
        {"misses", costs.misses},
        {"block_hit_rate", static_cast<double>(costs.hits()) / static_cast<double>(log.blocks())},
        {"token_hit_rate", static_cast<double>(costs.hits() * 10) / static_cast<double>(log.tokens())},
        {"moved",
         {{"swap_out", moved(costs.swap_out)},
          {"swap_in", moved(costs.swap_in)},
          {"prefetch", moved(costs.storage_reads)},
          {"persist", moved(costs.storage_writes)}}},
        {"first_token_seconds", costs.first_token_seconds},
        {"prefill_seconds", costs.prefill_seconds},
        {"gpu_seconds_saved", costs.saved_seconds},
        {"drive_writes_per_day", costs.drive_writes_per_day.value()},
        {"drive_years", costs.drive_years.value()}};
    if (all_plan_policies[policy] == PlanPolicy::default_policy) expected["share_of_way"] = nullptr;  // everything fits
    EXPECT_EQ(rows[1].as_object(), expected) << json::serialize(rows[1]);
  }
  const json::array& targets = all.at("targets").as_array();
  ASSERT_EQ(targets.size(), 6U);
  EXPECT_EQ(targets[0], (json::object{{"policy", "lru"}, {"share", 0.1}, {"blocks", 0}, {"bytes", 0}, {"exact", true}}));
  EXPECT_EQ(targets[5], (json::object{{"policy", "opt"}, {"share", 1.0}, {"blocks", nullptr}, {"bytes", nullptr}}));
}

/// Parses as the program does.
PlanOptions parse_plan(std::vector<std::string> words) {
  CLI::App app;
  PlanArguments arguments;
  add_plan_options(app, arguments);
  std::ranges::reverse(words);  // CLI11 expects this order
  app.parse(words);
  return resolve(arguments);
}

TEST(PlanOptions, plan_the_tier_below_those_that_are_given) {
  EXPECT_EQ(parse_plan({"t"}).planned, PlannedTier::device);
  const PlanOptions host = parse_plan({"t", "--device-blocks", "70"});
  EXPECT_EQ(host.planned, PlannedTier::host);
  EXPECT_EQ(host.with(5).device, 70U);
  EXPECT_EQ(host.with(5).host, 5U);
  const PlanOptions storage = parse_plan({"t", "--device-capacity", "1GiB", "--host-blocks", "0", "--block-bytes", "64MiB"});
  EXPECT_EQ(storage.planned, PlannedTier::storage);
  EXPECT_EQ(storage.with(5).device, 16U);
  EXPECT_EQ(storage.with(5).host, 0U);
  EXPECT_EQ(storage.with(5).storage, 5U);
}

TEST(PlanOptions, take_sizes_in_blocks_or_bytes_and_sort_them) {
  const PlanOptions options = parse_plan({"t", "--sizes", "3000,128MiB,64MiB", "2", "--block-bytes", "64MiB"});
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{1, 2, 3000}));
}

TEST(PlanOptions, have_the_defaults_of_the_cache) {
  const PlanOptions trace = parse_plan({"t"});
  EXPECT_EQ(trace.machine.block_tokens, 512U);
  EXPECT_EQ(trace.machine.block_bytes, MiB * 64);
  EXPECT_EQ(trace.fixed.inclusion, InclusionPolicy::lazy_exclusive);
  EXPECT_EQ(trace.fixed.write_policy, WritePolicy::write_through);
  EXPECT_EQ(trace.policies.size(), 3U);
  const PlanOptions workload = parse_plan({});
  EXPECT_EQ(workload.workload, "chat");
  EXPECT_EQ(workload.requests_max, 2000U);
  EXPECT_EQ(workload.machine.block_tokens, 64U);
  EXPECT_EQ(workload.machine.block_bytes, MiB * 8);
}

TEST(PlanOptions, name_each_policy_once) {
  EXPECT_EQ(parse_plan({"t", "--policies", "opt,lru,opt"}).policies, (std::vector{PlanPolicy::lru, PlanPolicy::opt}));
}

struct BadPlan {
  std::vector<std::string> words;
  std::string message;

  friend void PrintTo(const BadPlan& row, std::ostream* out) { *out << row.message; }
};

class BadPlanOptions : public testing::TestWithParam<BadPlan> {};

TEST_P(BadPlanOptions, are_refused_with_the_reason) {
  EXPECT_EQ(test::refusal_of<UsageError>([&] { (void)parse_plan(GetParam().words); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Each, BadPlanOptions,
    testing::Values(
        BadPlan{{"t", "--workload", "chat"}, "give a trace or --workload, not both"},
        BadPlan{{"--workload", "mail"}, "--workload: there is no \"mail\"; there is: chat, agent, rag"},
        BadPlan{{"t", "--device-blocks", "3", "--device-capacity", "1GiB"},
                "give --device-blocks or --device-capacity, not both"},
        BadPlan{{"t", "--device-blocks", "3", "--host-blocks", "3", "--host-capacity", "1GiB"},
                "give --host-blocks or --host-capacity, not both"},
        BadPlan{{"t", "--host-blocks", "3"}, "the size of the host needs that of the device: give --device-blocks, too"},
        BadPlan{{"t", "--device-blocks", "0"}, "the device needs at least one block"},
        BadPlan{{"t", "--sizes", "0,5"}, "--sizes: the device needs at least one block"},
        BadPlan{{"t", "--sizes", "1MiB"}, "--sizes: 1MiB is less than a block of 64MiB"},
        BadPlan{{"t", "--sizes", "5GB"}, "--sizes: \"5GB\" is not a size (a number and B, KiB, MiB, GiB or TiB)"},
        BadPlan{{"t", "--sizes", "20000000000"}, "--sizes: 20000000000 is not from 0 to 17179869184"},
        BadPlan{{"t", "--sizes", "1TiB", "--block-bytes", "1B"}, "--sizes: more than 17179869184 blocks"},
        BadPlan{{"t", "--block-bytes", "0B"}, "--block-bytes: 0B is not from 1B to 512MiB"},
        BadPlan{{"t", "--block-tokens", "10000"}, "--block-bytes: 1.22GiB is not from 1B to 512MiB"},
        BadPlan{{"t", "--inclusion", "exclusive"}, "--inclusion is for the host: give --device-blocks"},
        BadPlan{{"t", "--device-blocks", "3", "--write-policy", "write-back"},
                "--write-policy is for storage: give --device-blocks and --host-blocks"},
        BadPlan{{"t", "--device-blocks", "3", "--host-blocks", "3", "--write-policy", "none"},
                "--write-policy: there is no \"none\"; there is: write-through, write-back"},
        BadPlan{{"t", "--policies", "arc"}, "--policies: there is no \"arc\"; there is: lru, default, opt"},
        BadPlan{{"t", "--target", "120%"}, "--target: \"120%\" is not a number from 0 to 1, or a percentage"},
        BadPlan{{"t", "--prefill-speed", "0"}, "--prefill-speed: \"0\" is not a number greater than 0"},
        BadPlan{{"t", "--drive-writes-per-day", "-1"}, "--drive-writes-per-day: \"-1\" is not a number greater than 0"}),
    [](const auto& row) { return std::to_string(row.index); });

/// Stops at the first place at which the text is no well-formed XML, and returns it. Comments and declarations do not occur.
std::string first_fault(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t at = 0;
  const auto rest = [&] { return xml.substr(at, 60); };
  while (at < xml.size()) {
    if (xml[at] == '&') {
      const std::size_t end = xml.find(';', at);
      const std::string entity = xml.substr(at, end == std::string::npos ? 1 : end - at + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") return rest();
    }
    if (xml[at] == '>') return rest();
    if (xml[at] != '<') {
      if (open.empty() && xml[at] != '\n') return rest();
      ++at;
      continue;
    }
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return rest();
    std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return rest();
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return rest();
      open.pop_back();
    } else {
      if (std::ranges::count(tag, '"') % 2 != 0) return rest();
      const bool is_empty = tag.ends_with('/');
      if (!is_empty) open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

std::size_t number_of(const std::string& what, const std::string& text) {
  std::size_t number = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++number;
  return number;
}

TEST(LineChart, is_well_formed_whatever_its_names_are) {
  LineChart chart;
  chart.title = "<a & \"b\"> \x1b[31m \xff";
  chart.x_title = "x";
  chart.y_title = "y";
  chart.x_text = [](double) { return std::string{"1\n<2>"}; };
  chart.series = {{"&", {{1, 0}, {10, 5}, {1000, 7}}}, {"two", {{1, 1}}}, {"three", {}}, {"four", {{3, 3}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt; \\x1b[31m \\xff"), std::string::npos) << svg;
  EXPECT_EQ(number_of("<polyline", svg), 4U);
  EXPECT_EQ(number_of("<circle", svg), 4U) << "three points and one in the legend";
}

TEST(LineChart, of_one_point_or_of_none_is_well_formed) {
  LineChart chart;
  chart.x_text = [](double) { return std::string{}; };
  chart.series = {{"one", {{7, 0}}}};
  EXPECT_EQ(first_fault(to_svg(chart)), "");
  chart.series = {{"none", {}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(LineChart, has_marks_that_are_easy_to_read) {
  EXPECT_EQ(linear_marks(38.2), (std::vector<double>{0, 10, 20, 30, 40}));
  EXPECT_EQ(linear_marks(10), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_marks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(logarithmic_marks(171, 5000), (std::vector<double>{200, 500, 1000, 2000, 5000}));
  EXPECT_EQ(logarithmic_marks(1, 100'000), (std::vector<double>{1, 10, 100, 1000, 10'000, 100'000}));
  EXPECT_EQ(logarithmic_marks(3, 4), (std::vector<double>{3, 4})) << "there is always something to read";
}

class Plots : public testing::Test {
 protected:
  Plots() {
    options_.trace = "a<b.jsonl";
    options_.planned = PlannedTier::host;
    options_.fixed.device = 40;
    options_.policies.assign(all_plan_policies.begin(), all_plan_policies.end());
    options_.machine.block_tokens = test::log_block_tokens;
    options_.machine.block_bytes = MiB;
  }

  TemporaryDirectory directory_;
  PlanOptions options_;
};

TEST_F(Plots, are_two_files_with_a_line_for_each_policy) {
  PlanProgress progress;
  const PlanResult result = make_plan(options_, test::log_of(test::random_prompts(3, 500, 6, 3)), test::always, progress);
  const std::filesystem::path folder = directory_.path() / "new" / "plots";
  check_plots(folder);
  EXPECT_FALSE(std::filesystem::exists(folder.parent_path()));
  write_plots(folder, options_, result);
  const std::string rates = test::read_file(folder / "hit-rate.svg");
  const std::string times = test::read_file(folder / "first-token.svg");
  for (const std::string& svg : {rates, times}) {
    EXPECT_EQ(first_fault(svg), "");
    EXPECT_EQ(number_of("<polyline", svg), 3U);
    EXPECT_NE(svg.find("a&lt;b.jsonl"), std::string::npos);
    EXPECT_NE(svg.find(">default<"), std::string::npos);
  }
  EXPECT_NE(rates.find("Hit rate"), std::string::npos);
  EXPECT_NE(times.find("Time to first token"), std::string::npos);
  // They may replace what an earlier plan has written.
  check_plots(folder);
  write_plots(folder, options_, result);
}

TEST_F(Plots, replace_no_file_that_is_not_an_svg_file) {
  directory_.write("hit-rate.svg", "my notes");
  const std::string said = test::refusal_of<UsageError>([&] { check_plots(directory_.path()); });
  EXPECT_TRUE(said.ends_with("hit-rate.svg: it exists and is not an SVG file")) << said;
  directory_.write("hit-rate.svg", "");
  check_plots(directory_.path());
}

TEST_F(Plots, need_a_directory) {
  const std::filesystem::path file = directory_.write("file", "x");
  EXPECT_THROW(check_plots(file), UsageError);
  EXPECT_THROW(check_plots(file / "below"), UsageError);
  std::filesystem::create_directory(directory_.path() / "first-token.svg");
  EXPECT_THROW(check_plots(directory_.path()), UsageError);
}

TEST_F(Plots, that_cannot_be_written_are_an_error_with_the_name) {
  const std::string said =
      test::refusal_of<std::runtime_error>([&] { write_plots(directory_.write("file", "x"), options_, {}); });
  EXPECT_NE(said.find("file"), std::string::npos);
}

}  // namespace
}  // namespace terrace::tools
