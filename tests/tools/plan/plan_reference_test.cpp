// Hit rates of plans on real traces: the exact results of a correct cache. TERRACE_TRACES is the folder with
// conversation_trace.jsonl.gz, synthetic_trace.jsonl.gz and agent_trace.jsonl.gz.
#include "runtime/cache/measure/reuse_curve.hpp"
#include "terrace/keys.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/tier_costs.hpp"
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
  const char* const folder = std::getenv("TERRACE_TRACES");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  TraceReader reader{TraceFile{std::filesystem::path{folder} / (trace.name + "_trace.jsonl.gz")}, block_tokens};
  RequestLog log{root_key({}), block_tokens};
  while (const auto request = reader.next()) log.add(*request);
  return log;
}

/// The samples of a cache that serves (ReuseCurve), beside the exact curve.
TEST_P(PlanReference, is_within_a_point_of_what_a_live_cache_measures) {
  const std::optional<RequestLog> read = read_log(GetParam());
  if (!read) GTEST_SKIP() << "TERRACE_TRACES is not set: no traces to measure";
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
  if (!read) GTEST_SKIP() << "TERRACE_TRACES is not set: no traces to plan for";
  const RequestLog& log = *read;
  HitCounts counts{log, test::always};
  const auto per_cent = [&](std::uint64_t hits) {
    return fmt::format("{:.2f}", 100.0 * static_cast<double>(hits) / static_cast<double>(log.blocks()));
  };
  for (const PlannedTier& row : GetParam().one_tier) {
    EXPECT_EQ(counts.hits(PlanPolicy::lru, row.blocks), row.lru_hits) << row.blocks;
    EXPECT_EQ(per_cent(counts.hits(PlanPolicy::opt, row.blocks)), row.opt) << row.blocks;
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
      EXPECT_EQ(per_cent(costs.host_hits), row.host_rate);
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
