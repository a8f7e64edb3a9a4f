// Priorities and tenants: which block is evicted first when age alone does not decide, under both policies that the tiers use.

#include "lab/policies/policies.hpp"
#include "radix/eviction/lru_policy.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace terrace {
namespace {

using tools::PolicyKind;
using Names = std::vector<std::uint32_t>;
constexpr Tier on_device = Tier::device;
constexpr Priority high = usual_priority + 1;
constexpr Priority low = usual_priority - 1;

class Retention : public testing::TestWithParam<PolicyKind> {
 protected:
  Retention() { tree_.set_policy(on_device, *policy_); }

  /// The prefix of one request.
  Prefix add(const Names& names, std::uint64_t tenant = 0) {
    const std::vector<BlockKey> keys = test::keys_of(names);
    Prefix prefix = tree_.find(keys);
    tree_.touch(prefix, ++stamp_);
    prefix = tree_.extend(prefix, std::span{keys}.subspan(prefix.length), TenantId{tenant});
    tree_.pin(prefix);
    std::vector<SlotId> slots(tree_.added());
    tree_.fill(prefix, on_device, slots);
    tree_.touch(prefix, stamp_);
    tree_.unpin(prefix);
    return prefix;
  }
  [[nodiscard]] Prefix find(const Names& names) const { return tree_.find(test::keys_of(names)); }
  void give_up_all_of_first() {
    const auto run = tree_.victims(on_device, 100);
    ASSERT_TRUE(run.has_value());
    tree_.drop(*run, on_device);
  }

  std::unique_ptr<EvictionPolicy> policy_ = make_policy(GetParam(), 1000);
  PrefixTree tree_;
  std::uint64_t stamp_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Policies, Retention, testing::Values(PolicyKind::lru, PolicyKind::adaptive),
                         [](const auto& kind) { return std::string{to_string(kind.param)}; });

TEST_P(Retention, keeps_an_older_prefix_of_higher_priority_before_a_newer_one) {
  const Prefix old = add({1, 2});
  const Prefix young = add({3, 4});
  tree_.retain(old, RetentionId{1}, high);
  EXPECT_EQ(tree_.victim(on_device), young.last());
  tree_.end_retention(old, RetentionId{1});
  EXPECT_EQ(tree_.victim(on_device), old.last());
}

TEST_P(Retention, gives_up_what_came_back_when_its_priority_is_lower) {
  const Prefix again = add({1, 2});
  add({1, 2});
  const Prefix once = add({3, 4});
  tree_.retain(again, RetentionId{1}, low);
  EXPECT_EQ(tree_.victim(on_device), again.last());
  tree_.retain(again, RetentionId{1}, usual_priority);
  tree_.retain(once, RetentionId{2}, low);
  EXPECT_EQ(tree_.victim(on_device), once.last());
}

TEST_P(Retention, takes_the_highest_of_those_that_wish) {
  const Prefix prefix = add({1, 2, 3});
  tree_.retain(prefix, RetentionId{1}, high);
  tree_.retain(prefix, RetentionId{2}, low);
  EXPECT_EQ(tree_.priority(prefix.last(), Tier::device), high);
  tree_.end_retention(prefix, RetentionId{1});
  EXPECT_EQ(tree_.priority(prefix.last(), Tier::device), low);
  tree_.end_retention(prefix, RetentionId{2});
  EXPECT_EQ(tree_.priority(prefix.last(), Tier::device), usual_priority);
}

TEST_P(Retention, holds_for_the_blocks_asked_for_and_goes_with_them_through_a_split) {
  add({1, 2, 3, 4});
  tree_.retain(find({1, 2, 3}), RetentionId{1}, high);
  add({1, 2, 9});  // splits the prefix after its second block
  EXPECT_EQ(tree_.priority(find({1}).last(), Tier::device), high);
  EXPECT_EQ(tree_.priority(find({1, 2, 3}).last(), Tier::device), high);
  EXPECT_EQ(tree_.priority(find({1, 2, 3, 4}).last(), Tier::device), usual_priority);
  EXPECT_EQ(tree_.priority(find({1, 2, 9}).last(), Tier::device), usual_priority);
  tree_.end_retention(find({1, 2, 3}), RetentionId{1});
  EXPECT_EQ(tree_.priority(find({1, 2, 3}).last(), Tier::device), usual_priority);
  EXPECT_EQ(tree_.priority(find({1}).last(), Tier::device), usual_priority);
}

TEST_P(Retention, ends_a_run_of_victims_where_the_priority_changes) {
  add({1, 2, 3, 4});
  tree_.retain(find({1, 2}), RetentionId{1}, high);
  const auto run = tree_.victims(on_device, 100);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->begin, 2U);
  EXPECT_EQ(run->end, 4U);
}

TEST_P(Retention, is_over_for_what_has_left_and_come_back) {
  add({1, 2});
  tree_.retain(find({1, 2}), RetentionId{1}, high);
  give_up_all_of_first();
  EXPECT_EQ(tree_.blocks(), 0U);
  add({1, 2});
  EXPECT_EQ(tree_.priority(find({1, 2}).last(), Tier::device), usual_priority);
  tree_.retain(find({1, 2}), RetentionId{2}, high);
  tree_.end_retention(find({1, 2}), RetentionId{1});  // does not end any other retention
  EXPECT_EQ(tree_.priority(find({1, 2}).last(), Tier::device), high);
}

TEST_P(Retention, gives_up_a_tenants_own_blocks_when_asked_for_them) {
  const Prefix others = add({1, 2}, 1);
  const Prefix first = add({3, 4}, 2);
  add({5, 6, 7}, 2);
  tree_.follow_tenant(TenantId{2});
  EXPECT_EQ(tree_.resident(on_device, TenantId{2}), 5U);
  EXPECT_EQ(tree_.victim(on_device), others.last());
  EXPECT_EQ(tree_.victim(on_device, TenantId{2}), first.last());
  const auto run = tree_.victims(on_device, 100, TenantId{2});
  ASSERT_TRUE(run.has_value());
  tree_.drop(*run, on_device);
  EXPECT_EQ(tree_.resident(on_device, TenantId{2}), 3U);
  EXPECT_EQ(tree_.victim(on_device, TenantId{2}), find({5, 6, 7}).last());
  EXPECT_EQ(tree_.victim(on_device), others.last());
  tree_.check_invariants();
}

TEST_P(Retention, counts_what_a_tenant_may_give_up) {
  tree_.follow_tenant(TenantId{2});
  const Prefix prefix = add({3, 4, 5}, 2);
  tree_.pin(tree_.first(prefix, 2));
  EXPECT_EQ(tree_.unpinned(on_device, TenantId{2}), 1U);
  tree_.unpin(tree_.first(prefix, 2));
  EXPECT_EQ(tree_.unpinned(on_device, TenantId{2}), 3U);
  tree_.check_invariants();
}

/// A quota as large as the tier changes nothing: a caller that asks for victims of any tenant gets those of a tree without
/// tenants.
TEST_P(Retention, gives_up_the_same_over_all_whether_tenants_are_followed_or_not) {
  const auto order = [](PolicyKind kind, bool follows) {
    const auto policy = make_policy(kind, 1000);
    PrefixTree tree;
    tree.set_policy(on_device, *policy);
    if (follows) {
      for (std::uint64_t number = 0; number < 3; ++number) tree.follow_tenant(TenantId{number});
    }
    for (std::uint64_t stamp = 1; stamp <= 60; ++stamp) {
      const auto root = static_cast<std::uint32_t>(stamp * 7 % 24);
      const std::vector<BlockKey> keys = test::keys_of(Names{root, static_cast<std::uint32_t>(stamp % 5), 1});
      Prefix prefix = tree.find(keys);
      prefix = tree.extend(prefix, std::span{keys}.subspan(prefix.length), TenantId{root % 4});
      tree.pin(prefix);
      tree.fill(prefix, on_device, std::vector<SlotId>(tree.added()));
      tree.touch(prefix, stamp);
      tree.unpin(prefix);
    }
    std::vector<BlockKey> gone;
    while (const auto victim = tree.victim(on_device)) {
      gone.push_back(tree.key(*victim));
      tree.set_copy(*victim, on_device, {});
    }
    return gone;
  };
  EXPECT_EQ(order(GetParam(), true), order(GetParam(), false));
}

TEST(Tenants, can_be_ignored_again_and_their_number_taken_by_another) {
  LruPolicy policy;
  PrefixTree tree;
  tree.set_policy(on_device, policy);
  for (std::uint32_t number = 1; number <= 3; ++number) {
    const TenantId tenant{number};
    tree.follow_tenant(tenant);
    const Prefix prefix = tree.extend({}, test::keys_of({number}), tenant);
    tree.set_copy(prefix.last(), on_device, Copy{CopyState::ready, SlotId{0}});
    EXPECT_EQ(tree.resident(on_device, tenant), 1U);
    tree.ignore_tenant(tenant);
    EXPECT_FALSE(tree.follows_tenant(tenant));
    tree.check_invariants();
  }
  EXPECT_EQ(tree.resident(on_device), 3U);
}

}  // namespace
}  // namespace terrace
