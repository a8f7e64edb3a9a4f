#include "tools/plan/options.hpp"

#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

/// Parses as the program does.
PlanOptions parse(std::vector<std::string> words) {
  CLI::App app;
  PlanArguments arguments;
  add_plan_options(app, arguments);
  std::ranges::reverse(words);  // CLI11 expects this order
  app.parse(words);
  return resolve(arguments);
}

TEST(PlanOptions, plan_the_tier_below_those_that_are_given) {
  EXPECT_EQ(parse({"t"}).planned, PlannedTier::device);
  const PlanOptions host = parse({"t", "--device-blocks", "70"});
  EXPECT_EQ(host.planned, PlannedTier::host);
  EXPECT_EQ(host.with(5).device, 70U);
  EXPECT_EQ(host.with(5).host, 5U);
  const PlanOptions storage = parse({"t", "--device-capacity", "1GiB", "--host-blocks", "0", "--block-bytes", "64MiB"});
  EXPECT_EQ(storage.planned, PlannedTier::storage);
  EXPECT_EQ(storage.with(5).device, 16U);
  EXPECT_EQ(storage.with(5).host, 0U);
  EXPECT_EQ(storage.with(5).storage, 5U);
}

TEST(PlanOptions, take_sizes_in_blocks_or_bytes_and_sort_them) {
  const PlanOptions options = parse({"t", "--sizes", "3000,128MiB,64MiB", "2", "--block-bytes", "64MiB"});
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{1, 2, 3000}));
}

TEST(PlanOptions, have_the_defaults_of_the_cache) {
  const PlanOptions trace = parse({"t"});
  EXPECT_EQ(trace.machine.block_tokens, 512U);
  EXPECT_EQ(trace.machine.block_bytes, MiB * 64);
  EXPECT_EQ(trace.fixed.inclusion, InclusionPolicy::lazy_exclusive);
  EXPECT_EQ(trace.fixed.write_policy, WritePolicy::write_through);
  EXPECT_EQ(trace.policies.size(), 3U);
  const PlanOptions workload = parse({});
  EXPECT_EQ(workload.workload, "chat");
  EXPECT_EQ(workload.requests_max, 2000U);
  EXPECT_EQ(workload.machine.block_tokens, 64U);
  EXPECT_EQ(workload.machine.block_bytes, MiB * 8);
}

TEST(PlanOptions, name_each_policy_once) {
  EXPECT_EQ(parse({"t", "--policies", "opt,lru,opt"}).policies, (std::vector{PlanPolicy::lru, PlanPolicy::opt}));
}

struct Bad {
  std::vector<std::string> words;
  std::string message;

  friend void PrintTo(const Bad& row, std::ostream* out) { *out << row.message; }
};

class BadPlanOptions : public testing::TestWithParam<Bad> {};

TEST_P(BadPlanOptions, are_refused_with_the_reason) {
  try {
    (void)parse(GetParam().words);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, BadPlanOptions,
    testing::Values(Bad{{"t", "--workload", "chat"}, "give a trace or --workload, not both"},
                    Bad{{"--workload", "mail"}, "--workload: there is no \"mail\"; there is: chat, agent, rag"},
                    Bad{{"t", "--device-blocks", "3", "--device-capacity", "1GiB"},
                        "give --device-blocks or --device-capacity, not both"},
                    Bad{{"t", "--device-blocks", "3", "--host-blocks", "3", "--host-capacity", "1GiB"},
                        "give --host-blocks or --host-capacity, not both"},
                    Bad{{"t", "--host-blocks", "3"}, "the size of the host needs that of the device: give --device-blocks, too"},
                    Bad{{"t", "--device-blocks", "0"}, "the device needs at least one block"},
                    Bad{{"t", "--sizes", "0,5"}, "--sizes: the device needs at least one block"},
                    Bad{{"t", "--sizes", "1MiB"}, "--sizes: 1MiB is less than a block of 64MiB"},
                    Bad{{"t", "--sizes", "5GB"}, "--sizes: \"5GB\" is not a size (a number and B, KiB, MiB, GiB or TiB)"},
                    Bad{{"t", "--sizes", "20000000000"}, "--sizes: 20000000000 is not from 0 to 17179869184"},
                    Bad{{"t", "--sizes", "1TiB", "--block-bytes", "1B"}, "--sizes: more than 17179869184 blocks"},
                    Bad{{"t", "--block-bytes", "0B"}, "--block-bytes: 0B is not from 1B to 512MiB"},
                    Bad{{"t", "--block-tokens", "10000"}, "--block-bytes: 1.22GiB is not from 1B to 512MiB"},
                    Bad{{"t", "--inclusion", "exclusive"}, "--inclusion is for the host: give --device-blocks"},
                    Bad{{"t", "--device-blocks", "3", "--write-policy", "write-back"},
                        "--write-policy is for storage: give --device-blocks and --host-blocks"},
                    Bad{{"t", "--device-blocks", "3", "--host-blocks", "3", "--write-policy", "none"},
                        "--write-policy: there is no \"none\"; there is: write-through, write-back"},
                    Bad{{"t", "--policies", "arc"}, "--policies: there is no \"arc\"; there is: lru, default, opt"},
                    Bad{{"t", "--target", "120%"}, "--target: \"120%\" is not a number from 0 to 1, or a percentage"},
                    Bad{{"t", "--prefill-speed", "0"}, "--prefill-speed: \"0\" is not a number greater than 0"},
                    Bad{{"t", "--drive-writes-per-day", "-1"}, "--drive-writes-per-day: \"-1\" is not a number greater than 0"}),
    [](const auto& row) { return std::to_string(row.index); });

}  // namespace
}  // namespace terrace::tools
