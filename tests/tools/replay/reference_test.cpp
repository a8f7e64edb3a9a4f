// Hit rates of reference mode and of plans on real traces: the exact results of a correct cache. TERRACE_TRACES is the folder
// with conversation_trace.jsonl.gz, synthetic_trace.jsonl.gz and agent_trace.jsonl.gz.
#include "runtime/cache/measure/reuse_curve.hpp"
#include "terrace/keys.hpp"
#include "tests/seed.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/tier_costs.hpp"
#include "tools/replay/replay.hpp"
#include "tools/replay/workload/trace_reader.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

/// Small blocks: these tests compare counts, and also content.
constexpr Bytes block_bytes{64};

ReplayOptions reference_of(const std::filesystem::path& trace, std::uint32_t device_blocks, std::uint32_t host_blocks,
                           InclusionPolicy inclusion) {
  ReplayOptions options;
  options.trace = trace;
  options.block_tokens = 512;
  options.block_bytes = block_bytes;
  options.device_blocks = device_blocks;
  options.host_blocks = host_blocks;
  options.system.inclusion = inclusion;
  options.reference = true;
  options.concurrency = 1;
  return options;
}

std::optional<std::filesystem::path> trace_file(const std::string& name) {
  const char* const folder = std::getenv("TERRACE_TRACES");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return std::filesystem::path{folder} / (name + "_trace.jsonl.gz");
}

constexpr const char* no_traces = "TERRACE_TRACES is not set: no traces";

/// The share in the form that tables print.
std::string per_cent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.2f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void expect_sound(const ReplayOptions& options, const ReplayResult& result) {
  const Verdict verdict = judge(options, result);
  EXPECT_EQ(verdict.status, ExitStatus::done) << verdict.line;
  EXPECT_EQ(result.counts.rejected, 0);
  EXPECT_EQ(result.checked, result.counts.hits());
}

struct OneTier {
  std::string trace;
  std::uint64_t blocks;
  std::uint32_t device_blocks;
  std::uint64_t hits;

  friend void PrintTo(const OneTier& row, std::ostream* out) { *out << row.trace << " at " << row.device_blocks; }
};

class OneTierReference : public testing::TestWithParam<OneTier> {};

TEST_P(OneTierReference, hits_exactly_what_leaf_lru_hits) {
  const auto trace = trace_file(GetParam().trace);
  if (!trace) GTEST_SKIP() << no_traces;
  const ReplayOptions options = reference_of(*trace, GetParam().device_blocks, 0, InclusionPolicy::non_inclusive);
  const ReplayResult result = run_replay(options);
  EXPECT_EQ(result.counts.total, GetParam().blocks);
  EXPECT_EQ(result.counts.found[Source::device], GetParam().hits);
  EXPECT_EQ(result.counts.hits(), GetParam().hits);
  EXPECT_EQ(result.counts.miss, GetParam().blocks - GetParam().hits);
  expect_sound(options, result);
}

INSTANTIATE_TEST_SUITE_P(
    Traces, OneTierReference,
    testing::Values(OneTier{"conversation", 276'491, 1000, 12'990}, OneTier{"conversation", 276'491, 3000, 19'404},
                    OneTier{"conversation", 276'491, 10'000, 62'005}, OneTier{"conversation", 276'491, 30'000, 95'337},
                    OneTier{"synthetic", 117'888, 1000, 10'370}, OneTier{"synthetic", 117'888, 3000, 23'733},
                    OneTier{"synthetic", 117'888, 10'000, 52'952}, OneTier{"synthetic", 117'888, 30'000, 76'350},
                    OneTier{"agent", 1'022'426, 1000, 25'559}, OneTier{"agent", 1'022'426, 3000, 269'655},
                    OneTier{"agent", 1'022'426, 10'000, 896'587}, OneTier{"agent", 1'022'426, 30'000, 972'283}),
    [](const auto& row) { return fmt::format("{}_{}", row.param.trace, row.param.device_blocks); });

/// These are no exact numbers, because other policies may improve.
TEST_P(OneTierReference, adaptive_is_never_a_tenth_of_a_point_under_lru_and_well_above_it_where_the_cache_is_small) {
  const auto trace = trace_file(GetParam().trace);
  if (!trace) GTEST_SKIP() << no_traces;
  ReplayOptions options = reference_of(*trace, GetParam().device_blocks, 0, InclusionPolicy::non_inclusive);
  options.policy = {"adaptive", adaptive_policy};
  const ReplayResult result = run_replay(options);
  const auto lru = static_cast<double>(GetParam().hits);
  const auto adaptive = static_cast<double>(result.counts.hits());
  EXPECT_GE(adaptive, lru - 0.001 * static_cast<double>(GetParam().blocks));
  const bool is_small = GetParam().device_blocks <= 3000 && GetParam().trace != "synthetic";
  if (is_small) {
    EXPECT_GE(adaptive, 1.6 * lru);
  }
  expect_sound(options, result);
}

/// Each tier's policy decides by what it sees. With the default inclusion policy the two together are not behind LRU. (Where
/// nearly all of a trace fits, the guard of the default policy may not tell the two apart.)
TEST(TwoTierPolicies, the_default_policy_hits_at_most_a_tenth_of_a_point_less_than_lru_and_three_where_nearly_all_fits) {
  const auto hit_rate = [](const std::filesystem::path& trace, std::uint32_t host_blocks, const PolicyFactory& policy) {
    ReplayOptions options = reference_of(trace, 3000, host_blocks, ReplayOptions{}.system.inclusion);
    options.policy.make = policy;
    const ReplayResult result = run_replay(options);
    expect_sound(options, result);
    return 100.0 * static_cast<double>(result.counts.hits()) / static_cast<double>(result.counts.total);
  };
  for (const std::string name : {"synthetic", "conversation", "agent"}) {
    const auto trace = trace_file(name);
    if (!trace) GTEST_SKIP() << no_traces;
    if (name == "agent" && !test::long_run()) continue;
    const double allowed = name == "agent" ? 0.3 : 0.1;
    for (const std::uint32_t host_blocks : {6000U, 20'000U}) {
      EXPECT_GE(hit_rate(*trace, host_blocks, adaptive_policy), hit_rate(*trace, host_blocks, lru_policy) - allowed)
          << name << ", host blocks: " << host_blocks;
    }
  }
}

struct TwoTiers {
  std::string trace;
  std::uint32_t device_blocks;
  std::uint32_t host_blocks;
  InclusionPolicy inclusion;
  std::string device;  ///< per cent
  std::string host;
  std::string miss;
  std::uint64_t up;
  std::uint64_t down;

  friend void PrintTo(const TwoTiers& row, std::ostream* out) {
    *out << row.trace << " at " << row.device_blocks << " and " << row.host_blocks << ", " << to_string(row.inclusion);
  }
};

class TwoTierReference : public testing::TestWithParam<TwoTiers> {};

TEST_P(TwoTierReference, hits_and_moves_exactly_as_its_inclusion_policy_does) {
  const TwoTiers& row = GetParam();
  const auto trace = trace_file(row.trace);
  if (!trace) GTEST_SKIP() << no_traces;
  // The default run takes each inclusion policy on two traces.
  const bool takes_seconds = row.trace == "agent" || (row.trace == "conversation" && row.host_blocks > 5000);
  if (takes_seconds && !test::long_run()) GTEST_SKIP() << "a long run takes it (TERRACE_LONG=1)";
  const ReplayOptions options = reference_of(*trace, row.device_blocks, row.host_blocks, row.inclusion);
  const ReplayResult result = run_replay(options);
  EXPECT_EQ(per_cent(result.counts.found[Source::device], result.counts.total), row.device);
  EXPECT_EQ(per_cent(result.counts.found[Source::host], result.counts.total), row.host);
  EXPECT_EQ(per_cent(result.counts.miss, result.counts.total), row.miss);
  EXPECT_EQ(result.moved.swap_in.blocks, row.up);
  EXPECT_EQ(result.moved.swap_out.blocks, row.down);
  expect_sound(options, result);
}

INSTANTIATE_TEST_SUITE_P(
    Traces, TwoTierReference,
    testing::Values(
        TwoTiers{"conversation", 1000, 5000, InclusionPolicy::exclusive, "4.70", "10.32", "84.98", 28'540, 262'501},
        TwoTiers{"conversation", 1000, 5000, InclusionPolicy::inclusive, "4.70", "7.67", "87.63", 21'203, 242'298},
        TwoTiers{"conversation", 1000, 5000, InclusionPolicy::non_inclusive, "4.70", "10.09", "85.21", 27'903, 234'801},
        TwoTiers{"conversation", 1000, 5000, InclusionPolicy::lazy_exclusive, "4.70", "10.32", "84.98", 28'540, 262'361},
        TwoTiers{"conversation", 1000, 20'000, InclusionPolicy::exclusive, "4.70", "26.40", "68.90", 72'989, 262'501},
        TwoTiers{"conversation", 1000, 20'000, InclusionPolicy::inclusive, "4.70", "25.93", "69.37", 71'702, 191'799},
        TwoTiers{"conversation", 1000, 20'000, InclusionPolicy::non_inclusive, "4.70", "26.22", "69.08", 72'498, 190'241},
        TwoTiers{"conversation", 3000, 20'000, InclusionPolicy::exclusive, "7.02", "25.05", "67.93", 69'271, 254'087},
        TwoTiers{"synthetic", 1000, 20'000, InclusionPolicy::exclusive, "8.80", "51.95", "39.25", 61'247, 106'518},
        TwoTiers{"synthetic", 1000, 20'000, InclusionPolicy::inclusive, "8.80", "51.30", "39.90", 60'479, 47'039},
        TwoTiers{"synthetic", 1000, 20'000, InclusionPolicy::non_inclusive, "8.80", "51.66", "39.55", 60'898, 46'614},
        TwoTiers{"synthetic", 1000, 20'000, InclusionPolicy::lazy_exclusive, "8.80", "51.95", "39.25", 61'247, 102'348},
        TwoTiers{"agent", 1000, 20'000, InclusionPolicy::lazy_exclusive, "2.50", "92.24", "5.26", 943'071, 727'076},
        TwoTiers{"agent", 1000, 20'000, InclusionPolicy::exclusive, "2.50", "92.24", "5.26", 943'071, 995'867},
        TwoTiers{"agent", 1000, 20'000, InclusionPolicy::inclusive, "2.50", "91.95", "5.55", 940'169, 56'698},
        TwoTiers{"agent", 1000, 20'000, InclusionPolicy::non_inclusive, "2.50", "91.97", "5.53", 940'369, 56'492},
        TwoTiers{"agent", 3000, 1000, InclusionPolicy::non_inclusive, "26.37", "9.43", "64.20", 96'414, 653'669}),
    [](const auto& row) {
      std::string name = fmt::format("{}_{}_{}_{}", row.param.trace, row.param.device_blocks, row.param.host_blocks,
                                     to_string(row.param.inclusion));
      std::ranges::replace(name, '-', '_');
      return name;
    });

/// These results follow from the inclusion policies alone, so they hold for every workload. Here it is the built-in one, without
/// traces.
std::uint64_t hits_of_chat(std::uint32_t device_blocks, std::uint32_t host_blocks, InclusionPolicy inclusion,
                           WritePolicy write_policy = WritePolicy::none) {
  ReplayOptions options = reference_of({}, device_blocks, host_blocks, inclusion);
  options.write_policy = write_policy;
  if (write_policy != WritePolicy::none) options.system.storage = MemoryStorage{MiB * 4};
  options.block_tokens = 64;
  options.requests_max = 1500;
  const ReplayResult result = run_replay(options);
  expect_sound(options, result);
  return result.counts.hits();
}

TEST(ReferenceIdentities, exclusive_tiers_hit_like_one_tier_of_their_sum) {
  const std::uint64_t one_tier = hits_of_chat(2000, 0, InclusionPolicy::non_inclusive);
  EXPECT_EQ(hits_of_chat(700, 1300, InclusionPolicy::exclusive), one_tier);
  EXPECT_EQ(hits_of_chat(700, 1300, InclusionPolicy::lazy_exclusive), one_tier);
}

TEST(ReferenceIdentities, inclusive_tiers_hit_like_one_tier_of_the_hosts_size) {
  EXPECT_EQ(hits_of_chat(700, 2000, InclusionPolicy::inclusive), hits_of_chat(2000, 0, InclusionPolicy::non_inclusive));
}

TEST(ReferenceIdentities, with_storage_for_everything_every_tier_hits_like_one_without_a_limit) {
  const std::uint64_t without_limit = hits_of_chat(30'000, 0, InclusionPolicy::non_inclusive);
  EXPECT_EQ(hits_of_chat(700, 500, InclusionPolicy::non_inclusive, WritePolicy::write_through), without_limit);
  EXPECT_EQ(hits_of_chat(700, 0, InclusionPolicy::non_inclusive, WritePolicy::write_through), without_limit);
  EXPECT_EQ(hits_of_chat(700, 500, InclusionPolicy::exclusive, WritePolicy::write_through), without_limit);
}

/// In the host, the next victim may replace the previous one, which must have arrived there by then.
TEST(ReferenceIdentities, a_host_smaller_than_the_device_gets_one_block_at_a_time) {
  ReplayOptions options = reference_of({}, 1300, 100, InclusionPolicy::non_inclusive);
  options.block_tokens = 64;
  options.requests_max = 1500;
  const ReplayResult result = run_replay(options);
  expect_sound(options, result);
  EXPECT_EQ(result.counts.found[Source::device], 24'957U);
  EXPECT_EQ(result.counts.found[Source::host], 224U);
  EXPECT_EQ(result.moved.swap_out.blocks, 11'827U);
}

TEST(ReferenceIdentities, a_larger_cache_hits_more) {
  EXPECT_LT(hits_of_chat(700, 0, InclusionPolicy::non_inclusive), hits_of_chat(700, 1300, InclusionPolicy::non_inclusive));
}

// ---- plans

struct PlannedTier {
  std::uint64_t blocks;
  std::uint64_t lru_hits;
  std::string opt;  ///< per cent
};

struct PlannedTiers {
  std::uint64_t device;
  std::uint64_t host;
  InclusionPolicy inclusion;
  std::string host_rate;  ///< per cent
  std::uint64_t up;
  std::uint64_t down;
};

struct Trace {
  std::string name;
  std::vector<PlannedTier> one_tier;
  std::vector<PlannedTiers> two_tiers;

  friend void PrintTo(const Trace& trace, std::ostream* out) { *out << trace.name; }
};

class PlanReference : public testing::TestWithParam<Trace> {};

constexpr std::uint32_t block_tokens = 512;

/// The requests of a trace; nothing if there is no folder of traces.
std::optional<RequestLog> read_log(const Trace& trace) {
  const auto file = trace_file(trace.name);
  if (!file) return std::nullopt;
  TraceReader reader{TraceFile{*file}, block_tokens};
  RequestLog log{root_key({}), block_tokens};
  while (const auto request = reader.next()) log.add(*request);
  return log;
}

/// The samples of a cache that serves (ReuseCurve), beside the exact curve.
TEST_P(PlanReference, is_within_a_point_of_what_a_live_cache_measures) {
  const std::optional<RequestLog> read = read_log(GetParam());
  if (!read) GTEST_SKIP() << no_traces;
  const RequestLog& log = *read;
  ReuseCurve live;
  std::vector<BlockNumber> numbers;
  std::vector<BlockKey> keys;
  std::vector<ReuseSample> samples;
  std::size_t taken = 0;
  for (const RequestLog::Request& request : log.requests()) {
    log.read(request, numbers);
    keys.clear();
    samples.clear();
    for (const BlockNumber number : numbers) keys.push_back(log.key(number));
    sample_path(keys, 0, [&](const BlockKey& key, std::uint32_t weight) { samples.push_back({key.prefix64(), weight, true}); });
    live.use(samples, {});
    taken += samples.size();
  }
  HitCounts exact{log, test::always};
  double worst = 0;
  for (double size = 100; size < 2.0 * log.different_blocks(); size *= std::sqrt(2.0)) {
    const auto blocks = static_cast<std::uint64_t>(size);
    const double right = static_cast<double>(exact.hits(PlanPolicy::lru, blocks)) / static_cast<double>(log.blocks());
    worst = std::max(worst, std::abs(live.hit_ratio(static_cast<double>(blocks)) - right));
  }
  EXPECT_LT(worst, 0.01);
  fmt::print("{}: at most {:.2f} points from the exact curve, with {} samples for {} blocks\n", GetParam().name, 100 * worst,
             taken, log.blocks());
}

TEST_P(PlanReference, hits_and_moves_what_a_correct_cache_does) {
  const std::optional<RequestLog> read = read_log(GetParam());
  if (!read) GTEST_SKIP() << no_traces;
  const RequestLog& log = *read;
  HitCounts counts{log, test::always};
  for (const PlannedTier& row : GetParam().one_tier) {
    EXPECT_EQ(counts.hits(PlanPolicy::lru, row.blocks), row.lru_hits) << row.blocks;
    EXPECT_EQ(per_cent(counts.hits(PlanPolicy::opt, row.blocks), log.blocks()), row.opt) << row.blocks;
    // This is no exact number, because the default policy may improve.
    EXPECT_GE(static_cast<double>(counts.hits(PlanPolicy::default_policy, row.blocks)),
              static_cast<double>(row.lru_hits) - 0.001 * static_cast<double>(log.blocks()));
  }
  const PlanMachine machine{.block_tokens = block_tokens, .block_bytes = MiB};
  for (const PlannedTiers& row : GetParam().two_tiers) {
    SCOPED_TRACE(fmt::format("{} and {}, {}", row.device, row.host, to_string(row.inclusion)));
    const TierSizes sizes{.device = row.device, .host = row.host, .inclusion = row.inclusion};
    const TierCosts costs = tier_costs(log, counts, PlanPolicy::lru, sizes, machine);
    if (row.inclusion == InclusionPolicy::non_inclusive) {
      // This is an estimate. It is worst if the host is smaller than the device.
      const double points = row.host < row.device ? 1.5 : 0.1;
      const double share = row.host < row.device ? 0.03 : 0.02;
      EXPECT_NEAR(100.0 * static_cast<double>(costs.host_hits) / static_cast<double>(log.blocks()), std::stod(row.host_rate),
                  points);
      EXPECT_NEAR(static_cast<double>(costs.swap_out), static_cast<double>(row.down), share * static_cast<double>(row.down));
    } else {
      EXPECT_EQ(per_cent(costs.host_hits, log.blocks()), row.host_rate);
      EXPECT_EQ(costs.swap_in, row.up);
      EXPECT_EQ(costs.swap_out, row.down);
    }
  }
}

constexpr InclusionPolicy exclusive = InclusionPolicy::exclusive;
constexpr InclusionPolicy inclusive = InclusionPolicy::inclusive;
constexpr InclusionPolicy non_inclusive = InclusionPolicy::non_inclusive;

INSTANTIATE_TEST_SUITE_P(
    Traces, PlanReference,
    testing::Values(
        Trace{"conversation",
              {{1000, 12'990, "18.70"}, {3000, 19'404, "30.40"}, {10'000, 62'005, "38.19"}, {30'000, 95'337, "38.19"}},
              {{1000, 5000, exclusive, "10.32", 28'540, 262'501},
               {1000, 5000, inclusive, "7.67", 21'203, 242'298},
               {1000, 5000, non_inclusive, "10.09", 27'903, 234'801},
               {1000, 20'000, exclusive, "26.40", 72'989, 262'501},
               {1000, 20'000, inclusive, "25.93", 71'702, 191'799},
               {1000, 20'000, non_inclusive, "26.22", 72'498, 190'241},
               {3000, 20'000, exclusive, "25.05", 69'271, 254'087}}},
        Trace{"synthetic",
              {{1000, 10'370, "27.82"}, {3000, 23'733, "45.83"}, {10'000, 52'952, "63.68"}, {30'000, 76'350, "65.94"}},
              {{1000, 20'000, exclusive, "51.95", 61'247, 106'518},
               {1000, 20'000, inclusive, "51.30", 60'479, 47'039},
               {1000, 20'000, non_inclusive, "51.66", 60'898, 46'614}}},
        Trace{"agent",
              {{1000, 25'559, "27.20"}, {3000, 269'655, "64.80"}, {10'000, 896'587, "92.82"}, {30'000, 972'283, "95.34"}},
              {{1000, 20'000, exclusive, "92.24", 943'071, 995'867},
               {1000, 20'000, inclusive, "91.95", 940'169, 56'698},
               {1000, 20'000, non_inclusive, "91.97", 940'369, 56'492},
               {3000, 1000, non_inclusive, "9.43", 96'414, 653'669}}}),
    [](const auto& trace) { return trace.param.name; });

}  // namespace
}  // namespace terrace::tools
