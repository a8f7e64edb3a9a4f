// A slow or hanging disk does not delay requests: an engine in virtual time, with storage and without it.

#include "base/random.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/tools/replay/virtual_engine.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using tools::Mode;

constexpr std::uint32_t block_tokens = VirtualEngine::block_tokens;
/// Blocks of 64 KiB at 50 MiB/s. The blocks of this engine are smaller, so that the test is fast.
constexpr Duration slow = 1250us;

/// Parallel conversations of several turns each, with a shared system prompt. The next turn begins with the answer.
std::vector<VirtualRequest> conversations(std::uint64_t seed) {
  Random random{seed};
  std::vector<std::vector<std::uint32_t>> histories(20);
  std::uint32_t last_name = 1000;
  for (auto& history : histories) {
    history.resize(8);
    std::iota(history.begin(), history.end(), 1U);
  }
  std::vector<VirtualRequest> requests;
  for (int turn = 0; turn < 6; ++turn) {
    for (auto& history : histories) {
      VirtualRequest request;
      const auto grow = [&](std::uint64_t blocks) {
        while (blocks-- > 0) history.push_back(++last_name);
      };
      grow(random.between(2, 8));
      request.prompt_tokens = history.size() * block_tokens + 5;
      const std::uint64_t answer = random.between(1, 4);
      request.output_tokens = answer * block_tokens;
      grow(answer);
      request.keys = keys_of(history);
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

VirtualOptions without_storage(InclusionPolicy inclusion, Mode mode) {
  VirtualOptions options;
  options.manager.pools[0].device_blocks = 200;
  options.manager.pools[0].host_blocks = 300;
  options.manager.inclusion = inclusion;
  options.manager.policy = lru_policy;
  options.mode = mode;
  return options;
}

VirtualOptions with_storage(InclusionPolicy inclusion, Mode mode, WritePolicy policy, std::optional<Duration> disk_operation) {
  VirtualOptions options = without_storage(inclusion, mode);
  options.manager.storage = true;
  options.manager.pools[0].staging_blocks = 32;
  options.manager.write_policy = policy;
  options.disk_operation = disk_operation;
  return options;
}

struct Case {
  InclusionPolicy inclusion;
  Mode mode;
};

class SlowDisk : public ::testing::TestWithParam<Case> {
 protected:
  const std::vector<VirtualRequest> requests_ = conversations(1);

  [[nodiscard]] VirtualResult run(const VirtualOptions& options) const { return VirtualEngine{options}.run(requests_); }
};
INSTANTIATE_TEST_SUITE_P(
    All, SlowDisk,
    ::testing::Values(Case{InclusionPolicy::non_inclusive, Mode::confined}, Case{InclusionPolicy::exclusive, Mode::confined},
                      Case{InclusionPolicy::inclusive, Mode::confined}, Case{InclusionPolicy::lazy_exclusive, Mode::confined},
                      Case{InclusionPolicy::lazy_exclusive, Mode::loop}, Case{InclusionPolicy::non_inclusive, Mode::loop},
                      Case{InclusionPolicy::exclusive, Mode::loop}, Case{InclusionPolicy::inclusive, Mode::loop}),
    [](const auto& row) {
      std::string name = fmt::format("{}_{}", to_string(row.param.inclusion), tools::to_string(row.param.mode));
      std::ranges::replace(name, '-', '_');
      return name;
    });

constexpr WritePolicy policies[] = {WritePolicy::none, WritePolicy::write_through, WritePolicy::selective,
                                    WritePolicy::write_back};

TEST_P(SlowDisk, that_stands_still_changes_no_step_and_preempts_nobody) {
  const auto [inclusion, mode] = GetParam();
  const VirtualResult without = run(without_storage(inclusion, mode));
  EXPECT_GT(without.counts.preemptions, 0U) << "room is tight";
  for (const WritePolicy policy : policies) {
    SCOPED_TRACE(to_string(policy));
    VirtualOptions options = with_storage(inclusion, mode, policy, std::nullopt);
    options.farthest_source = Source::host;
    const VirtualResult with = run(options);
    EXPECT_EQ(with.counts.preemptions, without.counts.preemptions);
    EXPECT_EQ(with.counts.steps, without.counts.steps);
    EXPECT_EQ(with.counts.requests_in_steps, without.counts.requests_in_steps);
    EXPECT_EQ(with.counts.prefilled, without.counts.prefilled);
    EXPECT_EQ(with.counts.recomputed, without.counts.recomputed);
    EXPECT_EQ(with.first_tokens, without.first_tokens);
    EXPECT_EQ(with.took, without.took);
    EXPECT_EQ(with.store.blocks, 0U);
    const bool some_had_no_room = with.stats.store_no_room > 0;
    EXPECT_EQ(some_had_no_room, policy == WritePolicy::write_back) << "what was not stored is counted";
  }
}

/// Eviction skips a block that the link is copying to staging, and evicts another one instead. This changes later hits, for
/// better or worse, so that single runs differ by some steps. Their sums over many workloads do not.
TEST_P(SlowDisk, that_moves_changes_no_step_on_average) {
  const auto [inclusion, mode] = GetParam();
  struct Sum {
    std::uint64_t steps = 0;
    std::uint64_t preemptions = 0;
    Duration took{};
    void add(const VirtualResult& result) {
      steps += result.counts.steps;
      preemptions += result.counts.preemptions;
      took += result.took;
    }
  };
  constexpr std::uint64_t workloads = 20;
  Sum without;
  std::array<Sum, std::size(policies)> with;
  for (std::uint64_t seed = 1; seed <= workloads; ++seed) {
    const std::vector<VirtualRequest> requests = conversations(seed);
    without.add(VirtualEngine{without_storage(inclusion, mode)}.run(requests));
    for (std::size_t i = 0; i < std::size(policies); ++i) {
      VirtualOptions options = with_storage(inclusion, mode, policies[i], slow);
      options.farthest_source = Source::host;
      const VirtualResult result = VirtualEngine{options}.run(requests);
      with[i].add(result);
      EXPECT_EQ(result.store.blocks > 0, policies[i] != WritePolicy::none);
      EXPECT_EQ(result.store.orphans, 0U);
    }
  }
  for (std::size_t i = 0; i < std::size(policies); ++i) {
    SCOPED_TRACE(to_string(policies[i]));
    EXPECT_LE(with[i].preemptions, without.preemptions + workloads);
    EXPECT_LE(with[i].steps * 1000, without.steps * 1005);
    EXPECT_LE(with[i].took, without.took * 1005 / 1000);
  }
}

Duration p99(std::vector<Duration> times) {
  std::ranges::sort(times);
  return times.at(times.size() * 99 / 100);
}

TEST_P(SlowDisk, with_look_ups_keeps_nobody_waiting_for_the_first_token) {
  const auto [inclusion, mode] = GetParam();
  const VirtualResult without = run(without_storage(inclusion, mode));
  for (const WritePolicy policy : {WritePolicy::write_through, WritePolicy::selective, WritePolicy::write_back}) {
    for (const bool stops : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, 50 MiB/s{}", to_string(policy), stops ? ", then at a stand-still" : ""));
      VirtualOptions options = with_storage(inclusion, mode, policy, slow);
      // At that time, blocks that are in no other tier have been stored, and are requested.
      if (stops) options.disk_stops_after = without.took * 3 / 4;
      const VirtualResult with = run(options);
      EXPECT_LE(p99(with.first_tokens), p99(without.first_tokens) * 11 / 10);
      EXPECT_LE(with.took, without.took * 11 / 10);
      const std::uint64_t taken = with.stats.requests.found[Source::storage] + with.stats.preempted.found[Source::storage];
      EXPECT_GT(taken + with.stats.turned_down + with.stats.loads_late, 0U) << "storage was neither asked nor passed over";
    }
  }
}

}  // namespace
}  // namespace terrace::test
