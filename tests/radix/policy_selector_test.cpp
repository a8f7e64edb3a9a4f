// When the selector starts and stops using a rule, for given hits: without a cache or a tree.

#include "radix/eviction/policy_selector.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace terrace {
namespace {

constexpr std::size_t selector_capacity = 1000;
constexpr std::size_t lru = PolicySelector::lru;
constexpr std::uint32_t all = (1U << PolicySelector::rule_count) - 1;
constexpr std::uint32_t none = 0;
constexpr std::uint32_t by_lru_alone = 1U << lru;
constexpr std::uint32_t by_first_alone = 1U;
constexpr std::uint32_t by_second_alone = 1U << 1U;

/// Requests of a fixed number of blocks. Each block is hit by the same rules.
class Uses {
 public:
  void add(std::uint32_t hit_by, int requests, int blocks = 1) {
    for (int i = 0; i < requests; ++i) {
      ++stamp_;
      for (int block = 0; block < blocks; ++block) choice_.add(hit_by, stamp_);
    }
  }
  [[nodiscard]] std::size_t rule() const { return choice_.rule(); }

 private:
  PolicySelector choice_{selector_capacity, selector_capacity};
  std::uint64_t stamp_ = 0;
};

TEST(PolicySelector, begins_with_lru_and_stays_where_nothing_is_hit) {
  Uses uses;
  EXPECT_EQ(uses.rule(), lru);
  uses.add(none, 20 * selector_capacity);
  EXPECT_EQ(uses.rule(), lru);
}

TEST(PolicySelector, takes_up_a_rule_that_is_clearly_ahead) {
  Uses uses;
  for (std::size_t i = 0; i < selector_capacity; ++i) {
    uses.add(by_second_alone, 1);
    uses.add(none, 10);
  }
  EXPECT_EQ(uses.rule(), 1U);
}

/// The same number of additional hits in one request may be chance.
TEST(PolicySelector, takes_a_request_for_one_observation_however_long_it_is) {
  Uses many;
  many.add(none, 500);
  many.add(by_first_alone, 60);
  many.add(none, 100);
  EXPECT_EQ(many.rule(), 0U);
  Uses one;
  one.add(none, 500);
  one.add(by_first_alone, 1, 60);
  one.add(none, 100);
  EXPECT_EQ(one.rule(), lru);
}

TEST(PolicySelector, stays_with_lru_where_rules_win_and_lose_by_turns) {
  Uses uses;
  for (int i = 0; i < 5000; ++i) {
    uses.add(by_lru_alone, 1);
    uses.add(by_first_alone, 1);
    EXPECT_EQ(uses.rule(), lru);
  }
}

TEST(PolicySelector, stays_with_lru_where_the_lead_is_sure_but_small) {
  Uses uses;
  for (int i = 0; i < 500; ++i) {
    uses.add(by_first_alone, 1);
    uses.add(none, 999);
    EXPECT_EQ(uses.rule(), lru);
  }
}

/// Long before its earned lead is used up.
TEST(PolicySelector, gives_a_rule_up_soon_after_it_is_behind) {
  Uses uses;
  uses.add(by_first_alone, 10 * selector_capacity);
  ASSERT_EQ(uses.rule(), 0U);
  uses.add(by_lru_alone, 3 * selector_capacity / 2);
  EXPECT_EQ(uses.rule(), lru);
}

/// Three standard errors are required. Two occur by chance if the question is asked again and again.
TEST(PolicySelector, takes_a_lead_of_two_standard_errors_for_chance) {
  Uses uses;
  uses.add(by_lru_alone, 100);
  uses.add(by_first_alone, 136);
  uses.add(none, 40);
  EXPECT_EQ(uses.rule(), lru);
  uses.add(by_first_alone, 20);
  uses.add(none, 40);
  EXPECT_EQ(uses.rule(), 0U);
}

/// If there are always new blocks, blocks are evicted all the time. Evicting others than LRU does costs hits later.
TEST(PolicySelector, has_no_peace_where_some_blocks_are_missed) {
  Uses uses;
  for (std::size_t i = 0; i < selector_capacity; ++i) {
    uses.add(all, 19);
    uses.add(none, 1);
    ASSERT_EQ(uses.rule(), lru);
  }
}

TEST(PolicySelector, protects_most_where_everything_is_hit_by_all_rules_and_through_a_scan) {
  Uses uses;
  uses.add(all, 2 * selector_capacity);
  EXPECT_EQ(uses.rule(), 0U);
  uses.add(none, 20 * selector_capacity);
  EXPECT_EQ(uses.rule(), 0U);
}

TEST(PolicySelector, ends_the_peace_with_the_first_hits_that_lru_alone_would_have_had) {
  Uses uses;
  uses.add(all, 10 * selector_capacity);
  ASSERT_EQ(uses.rule(), 0U);
  uses.add(by_lru_alone, static_cast<int>(selector_capacity) / 25);
  EXPECT_EQ(uses.rule(), lru);
}

}  // namespace
}  // namespace terrace
