#include "radix/groups/groups.hpp"

#include "base/random.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

GroupConfig group(GroupKind kind, std::uint32_t block_tokens, std::uint32_t span_tokens = 0) {
  GroupConfig config;
  config.kind = kind;
  config.block_tokens = block_tokens;
  config.span_tokens = span_tokens;
  return config;
}

std::string refusal(const GroupConfig& config, std::uint32_t unit) {
  try {
    const GroupRule rule{config, unit};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// Whether the token at `position` attends to the token at `to`, by the definition of the kind. A token does not attend to
/// itself.
bool attends(const GroupConfig& config, std::uint64_t position, std::uint64_t to) {
  switch (config.kind) {
    case GroupKind::full: return true;
    case GroupKind::sliding_window: return position - to < config.span_tokens;
    case GroupKind::chunked_local: return position / config.span_tokens == to / config.span_tokens;
    case GroupKind::recurrent: return to + 1 == position;  // it uses the state after the token before it
    case GroupKind::cross: return false;
  }
  return false;
}

std::vector<GroupConfig> many_groups() {
  std::vector<GroupConfig> groups;
  for (const std::uint32_t block : {1U, 2U, 4U}) {
    groups.push_back(group(GroupKind::full, block));
    groups.push_back(group(GroupKind::recurrent, block));
    for (const std::uint32_t span : {1U, 2U, 3U, 4U, 5U, 8U, 12U}) {
      groups.push_back(group(GroupKind::sliding_window, block, span));
      if (span % block == 0) groups.push_back(group(GroupKind::chunked_local, block, span));
    }
  }
  return groups;
}

TEST(GroupRule, needs_exactly_the_blocks_that_later_tokens_attend_to) {
  for (const GroupConfig& config : many_groups()) {
    const GroupRule rule{config, 1};
    for (std::uint64_t computed = 0; computed < 30; ++computed) {
      // For all tokens from `computed` on: no later one attends further back than the first.
      std::uint64_t first = computed;
      for (std::uint64_t later = computed; later < computed + 40; ++later) {
        for (std::uint64_t to = 0; to < computed; ++to) {
          if (attends(config, later, to)) first = std::min(first, to);
        }
      }
      // Whole blocks to which no token attends can be given up.
      const std::uint64_t expected = first / config.block_tokens;
      EXPECT_EQ(rule.first_needed(computed), expected) << to_string(config.kind) << " blocks of " << config.block_tokens
                                                       << " span " << config.span_tokens << " at " << computed;
    }
  }
}

TEST(GroupRule, counts_blocks_in_hash_units) {
  const GroupRule rule{group(GroupKind::full, 48), 16};
  EXPECT_EQ(rule.units_per_block(), 3U);
  EXPECT_EQ(rule.blocks_for(0), 0U);
  EXPECT_EQ(rule.blocks_for(1), 1U);
  EXPECT_EQ(rule.blocks_for(3), 1U);
  EXPECT_EQ(rule.blocks_for(4), 2U);
  EXPECT_EQ(rule.full_blocks(5), 1U);
  EXPECT_EQ(GroupRule(group(GroupKind::cross, 16), 16).encoder_blocks(33), 3U);
}

TEST(GroupRule, of_a_state_only_the_last_of_what_is_computed_gets_a_slot) {
  const GroupRule state{group(GroupKind::recurrent, 32), 16};
  EXPECT_EQ(state.first_new(2, 9, 18), 8U);
  EXPECT_EQ(state.first_new(2, 9, 17), 8U);
  EXPECT_EQ(state.first_new(2, 9, 16), 7U);  // one block behind what is computed, which has room for the state before it
  EXPECT_EQ(state.first_new(2, 2, 4), 2U);
  EXPECT_EQ(state.first_new(2, 9, 3), 2U);
  EXPECT_EQ(state.first_new(0, 1, 0), 0U);
  EXPECT_EQ(GroupRule(group(GroupKind::sliding_window, 16, 32), 16).first_new(2, 9, 9), 2U);
}

TEST(GroupRule, refuses_what_does_not_fit_its_kind_and_says_why) {
  EXPECT_NE(refusal(group(GroupKind::sliding_window, 16), 16).find("needs span_tokens"), std::string::npos);
  EXPECT_NE(refusal(group(GroupKind::full, 16, 32), 16).find("must be 0"), std::string::npos);
  EXPECT_NE(refusal(group(GroupKind::full, 0), 16).find("at least one token"), std::string::npos);
  EXPECT_NE(refusal(group(GroupKind::full, 24), 16).find("24"), std::string::npos);
  EXPECT_NE(refusal(group(GroupKind::chunked_local, 16, 40), 8).find("whole number of blocks"), std::string::npos);
  EXPECT_EQ(refusal(group(GroupKind::chunked_local, 16, 48), 8), "");
}

TEST(GroupsHashUnit, is_that_of_the_groups_that_are_cached) {
  const std::vector<GroupConfig> groups{group(GroupKind::full, 64), group(GroupKind::recurrent, 48), group(GroupKind::cross, 5)};
  EXPECT_EQ(hash_unit(groups), 16U);
}

TEST(GroupsHashUnit, may_be_smaller_if_it_divides_all_blocks) {
  const std::vector<GroupConfig> groups{group(GroupKind::full, 64), group(GroupKind::recurrent, 48), group(GroupKind::cross, 5)};
  EXPECT_EQ(hash_unit(groups, 8), 8U);
  EXPECT_EQ(hash_unit(groups, 16), 16U);
  for (const std::uint32_t wanted : {32U, 12U}) {
    EXPECT_EQ(test::refusal_of<std::invalid_argument>([&] { (void)hash_unit(groups, wanted); }),
              "a hash unit of " + std::to_string(wanted) +
                  " tokens does not divide the blocks of all groups; 16 tokens and the divisors of 16 do");
  }
}

TEST(KeyInGroup, tells_groups_apart_and_leads_back) {
  const BlockKey key = test::keys_of({1, 2}).back();
  EXPECT_EQ(key_in_group(key, GroupId{0}), key);
  std::vector<BlockKey> seen;
  for (const std::uint16_t g : std::initializer_list<std::uint16_t>{0, 1, 2, 255, 256, 65535}) {
    const BlockKey named = key_in_group(key, GroupId{g});
    for (const BlockKey& other : seen) EXPECT_NE(named, other);
    seen.push_back(named);
    EXPECT_EQ(key_in_group(named, GroupId{g}), key);
  }
}

/// The cached blocks of each group.
struct Cached {
  std::vector<std::vector<bool>> blocks;

  std::uint32_t chain(std::size_t g, std::uint32_t most) const {
    std::uint32_t length = 0;
    while (length < most && blocks[g][length]) ++length;
    return length;
  }
  bool has(std::size_t g, std::uint32_t block) const { return blocks[g][block]; }
};

/// Whether a hit of `unit` units can be served, by the definition: group by group and block by block.
bool servable(std::span<const GroupRule> rules, std::uint32_t unit, const Cached& cached, std::uint32_t units) {
  for (std::size_t g = 0; g < rules.size(); ++g) {
    const GroupConfig& config = rules[g].config();
    if (config.optional || !rules[g].cached()) continue;
    const std::uint64_t tokens = std::uint64_t{units} * unit;
    if (tokens % config.block_tokens != 0) return false;
    for (std::uint64_t to = 0; to < tokens; ++to) {
      bool needed = false;
      for (std::uint64_t later = tokens; later < tokens + 16; ++later) needed |= attends(config, later, to);
      if (needed && !cached.blocks[g][to / config.block_tokens]) return false;
    }
  }
  return true;
}

TEST(LongestCommonHit, is_the_longest_that_all_required_groups_can_serve) {
  Random random{20261121};
  std::uint64_t hits = 0;
  std::uint64_t vetoed = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::uint32_t unit = 1;
    std::vector<GroupConfig> groups;
    const std::vector<GroupConfig> all = many_groups();
    for (std::uint64_t n = random.between(1, 4); n > 0; --n) {
      groups.push_back(all[random.below(all.size())]);
      groups.back().optional = random.chance(0.2);
    }
    if (random.chance(0.2)) groups.push_back(group(GroupKind::cross, 7));
    std::vector<GroupRule> rules;
    for (const GroupConfig& config : groups) rules.emplace_back(config, unit);
    const auto limit = static_cast<std::uint32_t>(random.below(30));
    Cached cached;
    const double share = random.chance(0.5) ? 0.95 : 0.7;
    for (const GroupRule& rule : rules) {
      auto& blocks = cached.blocks.emplace_back();
      for (std::uint32_t block = 0; rule.cached() && block < rule.blocks_for(limit); ++block) {
        blocks.push_back(random.chance(share));
      }
    }
    const std::uint32_t found = longest_common_hit(rules, unit, hit_alignment(rules), limit, cached);
    std::uint32_t expected = limit;
    while (!servable(rules, unit, cached, expected)) --expected;
    ASSERT_EQ(found, expected) << "round " << round;
    hits += found;
    vetoed += limit - found;
  }
  EXPECT_GT(hits, 1000U);
  EXPECT_GT(vetoed, 1000U);
}

TEST(LongestCommonHit, asks_for_each_block_of_a_window_about_once) {
  struct Counting {
    mutable std::uint64_t asked = 0;
    std::uint32_t chain(std::size_t, std::uint32_t most) const { return most; }
    bool has(std::size_t, std::uint32_t block) const {
      ++asked;
      return block % 7 != 0;
    }
  };
  const std::vector<GroupRule> rules{{group(GroupKind::full, 1), 1}, {group(GroupKind::sliding_window, 1, 100), 1}};
  const Counting there;
  EXPECT_EQ(longest_common_hit(rules, 1, 1, 10'000, there), 0U);
  EXPECT_LE(there.asked, 10'000U);
}

}  // namespace
}  // namespace terrace
