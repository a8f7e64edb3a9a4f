#include "radix/eviction/leaf_heaps.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace terrace {
namespace {

LeafAge age(std::uint64_t last_use, std::uint32_t depth, std::uint32_t node, Priority priority = usual_priority) {
  const BlockKey key;
  return LeafAge{{.block = {NodeId{node}, depth}, .key = key, .last_use = last_use, .priority = priority}};
}

TEST(LeafHeaps, name_the_oldest_whatever_the_order_of_uses) {
  LeafHeaps leaves;
  leaves.set(0, other_tenants, age(5, 0, 1));
  leaves.set(0, other_tenants, age(9, 0, 2));
  leaves.set(0, other_tenants, age(7, 0, 3));
  for (std::uint32_t node = 10; node < 40; ++node) leaves.set(0, other_tenants, age(node, 0, node));
  leaves.set(0, other_tenants, age(6, 0, 4));  // older than all but one of many
  for (const std::uint32_t node : {1U, 4U, 3U, 2U, 10U}) {
    ASSERT_TRUE(leaves.oldest(0).has_value());
    EXPECT_EQ(leaves.oldest(0)->node, NodeId{node});
    leaves.erase(NodeId{node});
    leaves.check_invariants();
  }
}

TEST(LeafHeaps, evict_retained_leaves_last) {
  LeafHeaps leaves;
  leaves.set(0, other_tenants, age(1, 0, 1, highest_priority));
  leaves.set(0, other_tenants, age(2, 0, 2));
  leaves.set(0, other_tenants, age(3, 0, 3, Priority{0}));
  for (const std::uint32_t node : {3U, 2U, 1U}) {
    EXPECT_EQ(leaves.oldest(0)->node, NodeId{node});
    leaves.erase(NodeId{node});
  }
  EXPECT_FALSE(leaves.oldest(0).has_value());
  EXPECT_EQ(leaves.size(), 0U);
}

TEST(LeafHeaps, name_the_newest_of_a_priority) {
  LeafHeaps leaves;
  EXPECT_FALSE(leaves.newest(0, usual_priority).has_value());
  leaves.set(0, other_tenants, age(5, 0, 1));
  leaves.set(0, other_tenants, age(9, 0, 2, highest_priority));
  leaves.set(0, other_tenants, age(8, 0, 3, Priority{0}));
  for (std::uint32_t node = 10; node < 40; ++node) leaves.set(0, other_tenants, age(node, 0, node));
  leaves.set(0, other_tenants, age(6, 0, 4));  // older than all but one of many
  EXPECT_EQ(leaves.newest(0, usual_priority)->node, NodeId{39});
  EXPECT_EQ(leaves.newest(0, highest_priority)->node, NodeId{2});
  EXPECT_EQ(leaves.newest(0, Priority{0})->node, NodeId{3});
  EXPECT_FALSE(leaves.newest(0, Priority{1}).has_value());
  for (std::uint32_t node = 10; node < 40; ++node) leaves.erase(NodeId{node});
  EXPECT_EQ(leaves.newest(0, usual_priority)->node, NodeId{4});
}

/// Leaves of two lines and three tenants come, are used and go; a map says which is the oldest and the newest.
TEST(LeafHeaps, agree_with_a_sorted_list) {
  constexpr std::uint32_t nodes = 60;
  struct Known {
    std::size_t line = 0;
    TenantIndex tenant = 0;
    LeafAge age;
  };
  Random random{20'261'125};
  LeafHeaps leaves{2};
  std::map<std::uint32_t, Known> known;
  std::uint64_t now = 100;
  for (int step = 0; step < 20'000; ++step) {
    const auto node = static_cast<std::uint32_t>(random.below(nodes));
    const bool is_new_use = random.chance(0.7);
    now += is_new_use ? 1 : 0;
    const std::uint64_t last_use = is_new_use ? now : now - random.below(100);
    const Priority priority = random.chance(0.9) ? usual_priority : static_cast<Priority>(random.below(highest_priority + 1U));
    if (random.chance(0.25)) {
      leaves.erase(NodeId{node});
      known.erase(node);
    } else {
      // Only one tenant at first, so that the second comes when leaves are there.
      const auto tenant = static_cast<TenantIndex>(step < 5'000 ? 0 : random.below(3));
      Known& leaf = known[node];
      leaf = {random.below(2), tenant, age(last_use, static_cast<std::uint32_t>(random.below(3)), node, priority)};
      leaves.set(leaf.line, tenant, leaf.age);
    }
    ASSERT_EQ(leaves.size(), known.size());
    const auto line_of_node = leaves.line_of(NodeId{node});
    ASSERT_EQ(line_of_node.has_value(), known.contains(node));
    if (line_of_node) {
      ASSERT_EQ(*line_of_node, known.at(node).line);
    }
    for (std::size_t line = 0; line < 2; ++line) {
      const auto best = [&](auto is_of, auto goes_before) {
        const Known* found = nullptr;
        for (const auto& [_, leaf] : known) {
          if (leaf.line == line && is_of(leaf) && (found == nullptr || goes_before(leaf.age, found->age))) found = &leaf;
        }
        return found == nullptr ? std::nullopt : std::optional{found->age.node};
      };
      const auto oldest = [&](auto is_of) { return best(is_of, [](const LeafAge& a, const LeafAge& b) { return a < b; }); };
      const auto newest = [&](auto is_of) { return best(is_of, [](const LeafAge& a, const LeafAge& b) { return b < a; }); };
      const auto node_of = [](const std::optional<LeafAge>& leaf) { return leaf ? std::optional{leaf->node} : std::nullopt; };
      ASSERT_EQ(node_of(leaves.oldest(line)), oldest([](const Known&) { return true; })) << step;
      const auto wanted = step % 3 == 0 ? static_cast<Priority>(random.below(highest_priority + 1U)) : usual_priority;
      const auto has_priority = [&](const Known& leaf) { return leaf.age.priority() == wanted; };
      ASSERT_EQ(node_of(leaves.newest(line, wanted)), newest(has_priority)) << step;
      for (TenantIndex tenant = 0; tenant < 3; ++tenant) {
        ASSERT_EQ(node_of(leaves.oldest(line, tenant)), oldest([&](const Known& leaf) { return leaf.tenant == tenant; })) << step;
        ASSERT_EQ(node_of(leaves.newest(line, wanted, tenant)),
                  newest([&](const Known& leaf) { return leaf.tenant == tenant && has_priority(leaf); }))
            << step;
      }
    }
    if (step % 100 == 0) leaves.check_invariants();
  }
}

}  // namespace
}  // namespace terrace
