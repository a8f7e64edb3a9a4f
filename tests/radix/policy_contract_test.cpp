// The contract of every eviction policy with the tree, whatever it evicts first: random operations on a tree with observed
// policies.

#include "base/random.hpp"
#include "lab/policies/policies.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "tests/radix/cheap_keys.hpp"
#include "tests/radix/workloads.hpp"
#include "tests/seed.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace terrace {
namespace {

using tools::PolicyKind;

constexpr std::size_t ghosts_per_block_max = 8;

/// Forwards every call to a policy, and keeps a simple record for comparison.
class Watched final : public EvictionPolicy {
 public:
  Watched(PolicyKind kind, std::uint32_t capacity) : policy_{make_policy(kind, capacity)}, capacity_{capacity} {}

  [[nodiscard]] bool follows_blocks() const override { return policy_->follows_blocks(); }
  void on_inserted(const BlockRun& blocks) override {
    EXPECT_TRUE(policy_->follows_blocks());
    for (const BlockKey& key : blocks.keys) ++blocks_[key];
    policy_->on_inserted(blocks);
    check();
  }
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override {
    EXPECT_FALSE(blocks.keys.empty());
    policy_->on_used(blocks, stamp, known);
    check();
  }
  void on_expected(const BlockRun& blocks, const ExpectedUse& use) override {
    EXPECT_FALSE(blocks.keys.empty());
    policy_->on_expected(blocks, use);
    check();
  }
  void on_removed(const BlockRun& blocks) override {
    for (const BlockKey& key : blocks.keys) EXPECT_EQ(blocks_[key]--, 1);
    policy_->on_removed(blocks);
    check();
  }
  void on_split(NodeId upper, NodeId lower, std::uint32_t depth) override {
    EXPECT_NE(upper, lower);
    policy_->on_split(upper, lower, depth);
  }
  void on_gone(NodeId node, std::uint32_t depth) override {
    EXPECT_TRUE(!leaves_.contains(node) || leaves_.at(node) < depth);
    policy_->on_gone(node, depth);
  }
  void on_evictable(const Leaf& leaf) override {
    if (follows_blocks()) {
      EXPECT_EQ(blocks_[leaf.key], 1);
    }
    leaves_[leaf.block.node] = leaf.block.depth;
    policy_->on_evictable(leaf);
    check();
  }
  void on_unevictable(NodeId node) override {
    EXPECT_EQ(leaves_.erase(node), 1U);
    policy_->on_unevictable(node);
    check();
  }
  [[nodiscard]] std::optional<NodeId> victim() const override { return policy_->victim(); }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override {
    return policy_->alike_from(node, depth);
  }
  [[nodiscard]] std::size_t candidates() const override { return policy_->candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return policy_->bytes_held(); }
  void check_invariants() const override { policy_->check_invariants(); }

  [[nodiscard]] const std::map<NodeId, std::uint32_t>& leaves() const { return leaves_; }

 private:
  /// (The policy's own invariants hold between operations of the tree, which checks them.)
  void check() const {
    EXPECT_EQ(policy_->candidates(), leaves_.size());
    EXPECT_LE(policy_->ghosts(), ghosts_per_block_max * capacity_);
    const std::optional<NodeId> victim = policy_->victim();
    ASSERT_EQ(victim.has_value(), !leaves_.empty());
    if (victim) {
      EXPECT_TRUE(leaves_.contains(*victim));
    }
    EXPECT_EQ(policy_->victim(), victim);  // asking changes nothing
  }

  std::unique_ptr<EvictionPolicy> policy_;
  std::size_t capacity_;
  std::map<NodeId, std::uint32_t> leaves_;
  std::map<BlockKey, int> blocks_;
};

/// A device and a host with so few blocks that they evict all the time. More blocks than fit may be cached: a policy must accept
/// it.
class TwoTiers {
 public:
  TwoTiers(PolicyKind kind, std::uint64_t seed) : random_{seed}, kind_{kind} {
    for (const Tier tier : memory_tiers) tree_.set_policy(tier, watched(tier));
  }

  void step() {
    if (random_.chance(0.02)) replace_policy();
    switch (random_.below(7)) {
      case 0:
      case 1: request(); break;
      case 5: expect(); break;
      case 2: let_go(); break;
      case 3: read_or_not(); break;
      case 4: give_up(random_.chance(0.5) ? Tier::device : Tier::host); break;
      default: swap_out(); break;
    }
    tree_.check_invariants();
  }

  /// Evicts everything, leaf by leaf.
  void drain() {
    while (!held_.empty()) let_go();
    for (const BlockRef block : busy_) tree_.set_copy(block, Tier::device, ready);
    for (const Tier tier : {Tier::host, Tier::device}) {
      while (tree_.resident(tier) > 0) {
        ASSERT_TRUE(tree_.victim(tier).has_value());
        give_up(tier);
      }
      EXPECT_EQ(tree_.resident(tier), 0U);
      EXPECT_FALSE(tree_.victim(tier).has_value());
    }
    EXPECT_EQ(tree_.blocks(), 0U);
  }

 private:
  static constexpr Copy ready{CopyState::ready, SlotId{0}};

  void request() {
    std::vector<std::uint64_t> names(random_.between(1, 7));
    for (std::uint64_t& name : names) name = random_.chance(0.6) ? 0 : random_.below(3);
    const std::span<const BlockKey> keys = keys_.of(names);
    const Prefix found = tree_.find(keys);
    ++stamp_;
    if (random_.chance(0.8)) tree_.touch(found, stamp_);
    const Prefix whole = tree_.extend(found, keys.subspan(found.length));
    tree_.pin(whole);
    for (std::uint32_t depth = 0; depth < whole.length; ++depth) {
      const BlockRef block{whole.node, depth};
      if (tree_.copy(block, Tier::device).present()) continue;
      if (random_.chance(0.3)) tree_.set_copy(block, Tier::device, Copy{CopyState::filling, SlotId{0}});
      tree_.set_copy(block, Tier::device, ready);
    }
    tree_.touch(whole, stamp_);
    held_.push_back(whole);
  }
  void expect() {
    std::vector<std::uint64_t> names(random_.between(1, 7));
    for (std::uint64_t& name : names) name = random_.chance(0.6) ? 0 : random_.below(3);
    const std::uint64_t uses = random_.below(12);
    (void)tree_.expect(tree_.find(keys_.of(names)),
                       random_.chance(0.3) ? ExpectedUse{} : ExpectedUse{stamp_ + uses, stamp_ + 2 * uses});
  }
  void let_go() {
    if (held_.empty()) return;
    const std::size_t which = random_.below(held_.size());
    const Prefix prefix = held_[which];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    tree_.unpin(prefix);
  }
  void read_or_not() {
    if (busy_.empty()) {
      if (const auto victim = tree_.victim(Tier::device)) {
        tree_.set_copy(*victim, Tier::device, Copy{CopyState::busy, SlotId{0}});
        busy_.push_back(*victim);
      }
    } else {
      tree_.set_copy(busy_.back(), Tier::device, ready);
      busy_.pop_back();
    }
  }
  void give_up(Tier tier) {
    const auto victim = tree_.victim(tier);
    if (!victim) return;
    EXPECT_EQ(watched(tier).leaves().at(victim->node), victim->depth);
    give_up_run(tier);
  }
  /// A policy that comes later knows of everything that is there.
  void replace_policy() {
    const Tier tier = random_.chance(0.5) ? Tier::device : Tier::host;
    auto next = std::make_unique<Watched>(random_.chance(0.5) ? kind_ : PolicyKind::adaptive, 16);
    tree_.set_policy(tier, *next);
    std::unique_ptr<Watched>& now = watched_[index(tier)];
    EXPECT_EQ(next->leaves(), now->leaves());
    now = std::move(next);
  }
  /// The blocks that are offered as one run are those that would be evicted one by one.
  void give_up_run(Tier tier) {
    const auto run = tree_.victims(tier, static_cast<std::uint32_t>(random_.between(1, 5)));
    ASSERT_TRUE(run.has_value());
    for (std::uint32_t depth = run->end; depth-- > run->begin;) {
      EXPECT_EQ(tree_.victim(tier), (BlockRef{run->node, depth}));
      tree_.set_copy({run->node, depth}, tier, {});
    }
  }
  void swap_out() {
    const auto victim = tree_.victim(Tier::device);
    if (!victim) return;
    if (!tree_.copy(*victim, Tier::host).present()) tree_.set_copy(*victim, Tier::host, ready);
    tree_.set_copy(*victim, Tier::device, {});
  }

  static constexpr std::array memory_tiers{Tier::device, Tier::host};
  [[nodiscard]] Watched& watched(Tier tier) { return *watched_[index(tier)]; }

  Random random_;
  test::CheapKeys keys_;
  PolicyKind kind_;
  std::array<std::unique_ptr<Watched>, 2> watched_{std::make_unique<Watched>(kind_, 16), std::make_unique<Watched>(kind_, 24)};
  PrefixTree tree_;
  std::vector<Prefix> held_;
  std::vector<BlockRef> busy_;
  std::uint64_t stamp_ = 0;
};

class PolicyContract : public testing::TestWithParam<PolicyKind> {};

TEST_P(PolicyContract, victims_are_leaves_and_no_leaf_is_lost) {
  const std::uint64_t base = test::seed_from_env_or(1);
  for (std::uint64_t seed = base; seed < base + 20; ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    TwoTiers tiers{GetParam(), seed};
    for (int i = 0; i < 400; ++i) {
      tiers.step();
      if (HasFailure()) return;
    }
    tiers.drain();
  }
}

TEST_P(PolicyContract, ghosts_have_a_bound) {
  constexpr std::uint32_t capacity = 64;
  const auto policy = make_policy(GetParam(), capacity);
  tools::CacheSimulator cache{*policy, capacity};
  test::CheapKeys keys;
  for (const auto& request : test::zipf({capacity, 1, 100'000})) cache.serve(keys.of(request));
  EXPECT_LE(policy->ghosts(), ghosts_per_block_max * capacity);
  policy->check_invariants();
}

TEST_P(PolicyContract, a_prefix_goes_from_its_end) {
  constexpr std::uint32_t capacity = 8;
  const auto policy = make_policy(GetParam(), capacity);
  tools::CacheSimulator cache{*policy, capacity};
  test::CheapKeys keys;
  const std::vector<std::uint64_t> first{1, 2, 3, 4, 5, 6};
  cache.serve(keys.of(first));
  cache.serve(keys.of(std::vector<std::uint64_t>{7, 8, 9, 10}));
  EXPECT_EQ(cache.serve(keys.of(first)), 4U);
}

TEST_P(PolicyContract, the_same_requests_end_in_the_same_hits) {
  const auto hits = [] {
    const auto policy = make_policy(GetParam(), 200);
    tools::CacheSimulator cache{*policy, 200};
    test::CheapKeys keys;
    std::vector<std::uint32_t> all;
    for (const auto& request : test::phases({200, 5, 20'000})) all.push_back(cache.serve(keys.of(request)));
    return all;
  };
  EXPECT_EQ(hits(), hits());
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyContract, testing::ValuesIn(tools::all_policies), [](const auto& kind) {
  std::string name{to_string(kind.param)};
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace terrace
