// The counts of the adaptive policy, the ranks that it makes of them, and the caches that judge the ranks.

#include "radix/eviction/reuse_index.hpp"

#include "base/random.hpp"
#include "radix/eviction/shadow_caches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>

namespace terrace {
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
    const std::size_t of = ReuseClass::of(block.uses, kinds[block.last]);
    const std::size_t bin = AgeBins::of(now - block.last);
    ends[of][bin] += 1;
    if (with_use) hits[of][bin] += 1;
  };
  for (int step = 0; step < 20'000; ++step) {
    if (random.chance(0.6)) ++now;
    if (random.chance(0.2)) {
      const std::uint64_t stamp = now - std::min(now, random.below(50));
      const std::size_t kind = random.below(ReuseClass::kinds);
      intervals.tell(stamp, kind);
      kinds[stamp] = kind;
    }
    const std::uint64_t name = (random.below(60) << 32U) + 1;
    const std::size_t uses = random.below(ReuseClass::uses);
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
  for (const auto& [_, block] : open) risk[ReuseClass::of(block.uses, kinds[block.last])][AgeBins::of(now - block.last)] += 1;
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

/// By the definition: the best ratio of hits and requests over all ages until which the block can be kept.
TEST(ReuseRanks, are_the_best_ratio_of_hits_and_requests) {
  Random random{20'261'128};
  for (int round = 0; round < 50; ++round) {
    ReuseIntervals::Seen seen;
    const std::size_t longest = random.chance(0.5) ? AgeBins::count : 1 + random.below(AgeBins::count);
    for (std::size_t of = 0; of < ReuseClass::count; ++of) {
      double left = random.chance(0.3) ? 0 : static_cast<double>(random.below(3000));
      for (std::size_t bin = 0; bin < longest; ++bin) {
        seen.risk[of][bin] = static_cast<float>(left);
        const double ended = left * static_cast<double>(random.below(100)) / (random.chance(0.5) ? 100 : 400);
        seen.hits[of][bin] = static_cast<float>(ended * static_cast<double>(random.below(100)) / 100);
        left -= ended;
      }
    }
    ReuseRanks ranks;
    ranks.begin(seen);
    while (!ranks.done()) ranks.step(seen);
    for (std::size_t of = 0; of < ReuseClass::count; ++of) {
      const ReuseRanks::Ends ends = ReuseRanks::ends_of(seen, of, ReuseRanks::pooled(seen));
      for (std::size_t age = 0; age < AgeBins::count; ++age) {
        const double width_of_age = AgeBins::begin(age + 1) - AgeBins::begin(age);
        if (width_of_age == 0) continue;  // no age is in this bin
        double alive = 1;
        double hits = 0;
        double time = 0;
        double best = 0;
        for (std::size_t until = age; until < AgeBins::count; ++until) {
          const double width = AgeBins::begin(until + 1) - AgeBins::begin(until);
          if (width == 0) continue;
          time += alive * width;
          hits += alive * ends[until];
          alive *= 1 - ends[until];
          best = std::max(best, hits / time);
        }
        ASSERT_NEAR(ranks.rank(of, static_cast<std::uint64_t>(AgeBins::begin(age))), best, 1e-4 * best + 1e-9)
            << of << ", " << age;
      }
    }
  }
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

/// Ranks by which blocks are worth most just before the age `at`.
ReuseRanks ranks_for(std::uint64_t at) {
  ReuseIntervals::Seen seen;
  for (std::size_t before = 0; before <= AgeBins::of(at); ++before) seen.risk[0][before] = 1000;
  seen.hits[0][AgeBins::of(at)] = 1000;
  ReuseRanks ranks;
  ranks.begin(seen);
  while (!ranks.done()) ranks.step(seen);
  return ranks;
}

/// Ranks by which the newest block goes first, which is right for a loop and wrong for blocks that are used again soon or never.
TEST(ShadowCaches, follow_the_ranks_only_while_they_have_more_hits_than_lru) {
  constexpr std::size_t capacity = 64;
  ShadowCaches shadows{capacity, 1000};
  const ReuseRanks newest_first = ranks_for(100'000);
  std::uint64_t stamp = 0;
  const auto loop = [&](const ReuseRanks& ranks) {
    for (int i = 0; i < 4000; ++i) {
      ++stamp;
      shadows.use(stamp % 100 << 32U, stamp, 0, &ranks);
    }
  };
  // Each block is used twice, twenty requests apart.
  const auto window = [&](const ReuseRanks& ranks) {
    for (int i = 0; i < 2000; ++i) {
      ++stamp;
      shadows.use((stamp + 1000) << 32U, stamp, 0, &ranks);
      shadows.use((stamp + 980) << 32U, stamp, 0, &ranks);
    }
  };
  EXPECT_TRUE(shadows.ranks_lead()) << "nothing speaks for LRU yet";
  loop(newest_first);
  EXPECT_TRUE(shadows.ranks_lead());
  window(newest_first);
  EXPECT_FALSE(shadows.ranks_lead());
  loop(newest_first);
  EXPECT_TRUE(shadows.ranks_lead());
  shadows.check_invariants();
}

TEST(ShadowCaches, count_the_blocks_and_hits_of_each_class_of_the_cache_whose_rule_leads) {
  ShadowCaches shadows{2, 100};
  for (std::uint64_t stamp = 1; stamp <= 3; ++stamp) shadows.use(stamp << 32U, stamp, 1, nullptr);
  shadows.use(std::uint64_t{3} << 32U, 4, 7, nullptr);
  const auto classes = shadows.by_class();
  EXPECT_EQ(classes[1].blocks, 1U);
  EXPECT_EQ(classes[7].blocks, 1U);
  EXPECT_EQ(classes[1].hits, 1U) << "the class that the block had before its use";
  EXPECT_EQ(classes[7].hits, 0U);
}

/// The kind of a request is told after others have used blocks, too.
TEST(ShadowCaches, move_the_blocks_of_a_request_whose_kind_is_told_later) {
  ShadowCaches shadows{8, 100};
  ReuseIntervals::Seen seen;  // blocks of the kind `late` return after about 64 requests, others at once or never
  const std::size_t late = ReuseClass::of(0, ReuseClass::late);
  for (std::size_t before = 0; before <= AgeBins::of(64); ++before) seen.risk[late][before] = seen.risk[0][before] = 1000;
  seen.hits[late][AgeBins::of(64)] = 1000;
  seen.hits[0][0] = 500;
  ReuseRanks ranks;
  ranks.begin(seen);
  while (!ranks.done()) ranks.step(seen);
  const auto use = [&](std::uint64_t name, std::uint64_t stamp) { shadows.use(name << 32U, stamp, 0, &ranks); };
  use(1, 1);
  use(2, 1);
  for (std::uint64_t stamp = 2; stamp < 6; ++stamp) use(100 + stamp, stamp);
  shadows.tell(1, ReuseClass::fresh, ReuseClass::late);
  shadows.check_invariants();
  for (std::uint64_t stamp = 6; stamp < 60; ++stamp) use(100 + stamp, stamp);
  use(153, 60);  // LRU has its last eight blocks, and the other cache its last six and the two of the first request
  EXPECT_FALSE(shadows.ranks_lead());
  use(1, 61);
  use(2, 61);
  EXPECT_TRUE(shadows.ranks_lead());
}

}  // namespace
}  // namespace terrace
