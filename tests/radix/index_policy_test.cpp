// The policy that ranks leaves by expected hits for their time: what it counts, what it makes of the counts, and what it hits.

#include "lab/policies/index_policy.hpp"

#include "base/random.hpp"
#include "lab/policies/policies.hpp"
#include "tests/radix/cheap_keys.hpp"
#include "tests/radix/workloads.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace terrace::tools {
namespace {

TEST(AgeBins, are_half_octaves) {
  for (std::uint64_t age = 1; age < 100'000; ++age) {
    const std::size_t bin = AgeBins::of(age);
    ASSERT_GE(static_cast<double>(age), AgeBins::begin(bin)) << age;
    ASSERT_LT(static_cast<double>(age), AgeBins::begin(bin + 1)) << age;
  }
  EXPECT_EQ(AgeBins::of(0), 0U);
  EXPECT_EQ(AgeBins::of(std::uint64_t{1} << 60U), AgeBins::count - 1);
}

/// Blocks are used, requests turn out to be of some kind, and blocks are forgotten; a list of all intervals says what there is to
/// count. All intervals are short enough for exact ages.
TEST(ReuseIntervals, count_what_a_list_of_all_intervals_has) {
  constexpr std::size_t remembered = 40;
  struct Open {
    std::uint64_t last = 0;
    std::size_t uses = 0;
  };
  Random random{20'261'127};
  ReuseIntervals intervals{remembered};
  std::map<std::uint64_t, Open> open;  // by name
  std::map<std::uint64_t, std::size_t> kinds;
  ReuseIntervals::Counts hits{};
  ReuseIntervals::Counts ends{};
  std::uint64_t now = 0;
  const auto end = [&](const Open& block, bool with_use) {
    const std::size_t of = IndexClass::of(block.uses, kinds[block.last]);
    const std::size_t bin = AgeBins::of(now - block.last);
    ends[of][bin] += 1;
    if (with_use) hits[of][bin] += 1;
  };
  for (int step = 0; step < 20'000; ++step) {
    if (random.chance(0.6)) ++now;
    if (random.chance(0.2)) {
      const std::uint64_t stamp = now - std::min(now, random.below(50));
      const std::size_t kind = random.below(IndexClass::kinds);
      intervals.tell(stamp, kind);
      kinds[stamp] = kind;
    }
    const std::uint64_t name = (random.below(60) << 32U) + 1;
    const std::size_t uses = random.below(IndexClass::uses);
    intervals.use(name, now, uses);
    const bool is_known = open.contains(name);
    if (is_known && open[name].last == now) continue;
    if (is_known) {
      end(open[name], true);
    } else if (open.size() == remembered) {
      // If one request used several of them, the first one is forgotten.
      std::uint64_t oldest = 0;
      std::uint64_t at = ~std::uint64_t{0};
      for (const auto& [other, block] : open) {
        if (block.last < at && !intervals.last_use(other)) {
          oldest = other;
          at = block.last;
        }
      }
      ASSERT_EQ(at, std::ranges::min_element(open, {}, [](const auto& block) { return block.second.last; })->second.last);
      end(open.at(oldest), false);
      open.erase(oldest);
    }
    open[name] = {now, is_known ? std::max<std::size_t>(uses, 1) : uses};
    ASSERT_EQ(intervals.last_use(name), now);
  }
  intervals.check_invariants();
  ReuseIntervals::Seen seen;
  intervals.read(seen, 0.5F);
  EXPECT_EQ(seen.hits, hits);
  ReuseIntervals::Counts risk = ends;
  for (const auto& [_, block] : open) risk[IndexClass::of(block.uses, kinds[block.last])][AgeBins::of(now - block.last)] += 1;
  for (auto& of_class : risk) {
    for (std::size_t bin = AgeBins::count - 1; bin-- > 0;) of_class[bin] += of_class[bin + 1];
  }
  EXPECT_EQ(seen.risk, risk);
  intervals.read(seen, 1);
  EXPECT_EQ(seen.hits[0][0], hits[0][0] / 2);
}

TEST(ReuseIntervals, forget_blocks_that_were_used_long_ago_and_requests_that_were_skipped) {
  ReuseIntervals intervals{100};
  for (std::uint64_t name = 1; name <= 50; ++name) intervals.use(name << 32U, name * 400, 0);
  EXPECT_EQ(intervals.records(), 50U);
  intervals.check_invariants();
  intervals.use(51ULL << 32U, 70'000, 0);
  EXPECT_LT(intervals.records(), 51U);
  intervals.check_invariants();
  intervals.use(52ULL << 32U, 10'000'000, 0);
  EXPECT_EQ(intervals.records(), 1U);
  intervals.check_invariants();
}

/// Blocks of one class come back after 64 requests, those of another never.
TEST(ReuseRanks, are_highest_just_before_blocks_come_back_and_fall_after_that) {
  ReuseIntervals::Seen seen;
  const std::size_t bin = AgeBins::of(64);
  for (std::size_t before = 0; before <= bin; ++before) seen.risk[0][before] = seen.risk[1][before] = 1000;
  seen.hits[0][bin] = 900;
  ReuseRanks ranks;
  ranks.begin(seen);
  while (!ranks.done()) ranks.step(seen);
  EXPECT_GT(ranks.rank(0, 32), 1.4F * ranks.rank(0, 1));
  EXPECT_GT(ranks.rank(0, 64), ranks.rank(0, 46));
  EXPECT_GT(ranks.rank(0, 64), 5 * ranks.rank(0, 128));
  EXPECT_GT(ranks.rank(0, 32), 5 * ranks.rank(1, 32));
}

double hit_rate(PolicyKind kind, std::uint32_t capacity, const test::Requests& requests, bool catches_up = true) {
  const auto policy = make_policy(kind, capacity);
  CacheSimulator cache{*policy, capacity};
  test::CheapKeys keys;
  std::uint64_t hits = 0;
  std::uint64_t blocks = 0;
  for (const auto& request : requests) {
    hits += cache.serve(keys.of(request));
    blocks += request.size();
    if (catches_up) policy->catch_up();
  }
  policy->check_invariants();
  return 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
}

TEST(IndexPolicy, decides_the_same_whether_it_learns_at_once_or_later) {
  for (const test::Workload& workload : test::all_workloads()) {
    const test::Requests requests = workload.make({1000, 3, 60'000});
    EXPECT_EQ(hit_rate(PolicyKind::index, 400, requests, true), hit_rate(PolicyKind::index, 400, requests, false))
        << workload.name;
  }
}

TEST(IndexPolicy, is_never_a_point_under_lru) {
  for (const test::Workload& workload : test::all_workloads()) {
    for (const std::uint32_t capacity : {150U, 1000U, 3000U}) {
      const test::Requests requests = workload.make({1000, 1, 130'000});
      EXPECT_GE(hit_rate(PolicyKind::index, capacity, requests), hit_rate(PolicyKind::lru, capacity, requests) - 1)
          << workload.name << ", a cache of " << capacity;
    }
  }
}

/// The newest blocks of a loop are those that have to wait longest.
TEST(IndexPolicy, keeps_what_fits_of_a_loop_and_of_shared_prompts) {
  EXPECT_GT(hit_rate(PolicyKind::index, 1000, test::loop({1000, 1, 200'000})), 55);
  EXPECT_GT(hit_rate(PolicyKind::index, 300, test::loop({1000, 1, 200'000})), 15);  // by the oldest blocks alone: 0
  const test::Requests prompts = test::zipf({1000, 1, 200'000});
  EXPECT_GT(hit_rate(PolicyKind::index, 1000, prompts), hit_rate(PolicyKind::lru, 1000, prompts) + 5);
}

}  // namespace
}  // namespace terrace::tools
