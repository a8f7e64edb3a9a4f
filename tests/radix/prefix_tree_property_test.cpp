// The tree compared with a model of plain maps, over random operations.

#include "base/random.hpp"
#include "radix/eviction/lru_policy.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace terrace {
namespace {

using Names = std::vector<std::uint32_t>;  // the names from the root to a block identify it

struct ModelBlock {
  std::array<Copy, tier_count> copies{};
  std::uint64_t last_use = 0;
  int pins = 0;
  std::map<std::uint64_t, Priority> retentions;
  std::array<Companion, tier_count> companion{};

  [[nodiscard]] Priority priority(std::size_t tier) const {
    std::optional<Priority> highest;
    if (companion[tier] == Companion::wanted) return highest_priority;
    if (companion[tier] == Companion::unwanted) highest = lowest_priority;
    for (const auto& [id, priority] : retentions) highest = std::max(highest.value_or(0), priority);
    return highest.value_or(usual_priority);
  }
  [[nodiscard]] bool any_copy() const {
    return std::ranges::any_of(copies, [](Copy c) { return c.present(); });
  }
};

struct Model {
  std::map<Names, ModelBlock> blocks;

  static bool begins(const Names& prefix, const Names& names) {
    return prefix.size() <= names.size() && std::equal(prefix.begin(), prefix.end(), names.begin());
  }
  [[nodiscard]] bool anything_below(const Names& names) const {
    const auto next = std::next(blocks.find(names));
    return next != blocks.end() && begins(names, next->first);
  }
  [[nodiscard]] bool copy_below(const Names& names, std::size_t tier) const {
    for (auto at = std::next(blocks.find(names)); at != blocks.end() && begins(names, at->first); ++at) {
      if (at->second.copies[tier].stays()) return true;
    }
    return false;
  }
  [[nodiscard]] bool evictable(const Names& names, std::size_t tier) const {
    const ModelBlock& block = blocks.at(names);
    return block.copies[tier].state() == CopyState::ready && block.pins == 0 && !copy_below(names, tier);
  }
  void prune() {
    for (bool again = true; again;) {
      again = false;
      for (auto at = blocks.begin(); at != blocks.end();) {
        if (!at->second.any_copy() && at->second.pins == 0 && !anything_below(at->first)) {
          at = blocks.erase(at);
          again = true;
        } else {
          ++at;
        }
      }
    }
  }
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_{seed}, equal_prefixes_{seed % 4 == 0} {
    for (std::size_t t = 0; t < 2; ++t) tree_.set_policy(all_tiers[t], policies_[t]);
  }

  void step() {
    switch (random_.below(13)) {
      case 0:
      case 1: insert(); break;
      case 2: pin(); break;
      case 3: unpin(); break;
      case 4: touch(); break;
      case 5: change_copy(); break;
      case 6: retain(); break;
      case 7: end_retention(); break;
      case 8: follow_or_ignore(); break;
      case 9: read_run(); break;
      case 10: set_companion(); break;
      default: evict(); break;
    }
  }

  void check() {
    tree_.check_invariants();
    ASSERT_EQ(tree_.blocks(), model_.blocks.size());
    for (const auto& [names, block] : model_.blocks) {
      const Prefix prefix = tree_.find(keys_of(names));
      ASSERT_EQ(prefix.length, names.size());
      for (std::size_t t = 0; t < tier_count; ++t) ASSERT_EQ(tree_.copy(prefix.last(), all_tiers[t]), block.copies[t]);
      ASSERT_EQ(tree_.last_use(prefix.last()), block.last_use);
      ASSERT_EQ(tree_.pinned(prefix.last()), block.pins > 0);
      for (std::size_t t = 0; t < 2; ++t) {
        ASSERT_EQ(tree_.priority(prefix.last(), all_tiers[t]), block.priority(t));
        ASSERT_EQ(tree_.companion(prefix.last(), all_tiers[t]), block.companion[t]);
      }
    }
    for (std::size_t t = 0; t < 2; ++t) {
      check_victim(t, std::nullopt);
      for (const Tenant tenant : followed_) check_victim(t, tenant);
    }
  }

 private:
  /// In some worlds only a comparison of whole keys tells blocks apart.
  [[nodiscard]] std::vector<BlockKey> keys_of(const Names& names) const {
    const std::vector<BlockKey> keys = test::keys_of(names);
    return equal_prefixes_ ? test::with_equal_prefix64(keys) : keys;
  }

  using Tenant = TenantId;
  static Tenant tenant_of(const Names& names) { return Tenant{names.front()}; }
  static bool counts(const Names& names, std::optional<Tenant> tenant) { return !tenant || tenant_of(names) == *tenant; }

  using Age = std::tuple<Priority, std::uint64_t, std::size_t>;  // priority, last use and depth
  /// The next block to evict: the oldest of the lowest priority; the deepest among equals.
  std::optional<Age> oldest(std::size_t t, std::optional<Tenant> tenant) {
    std::optional<Age> found;
    const auto before = [](const Age& a, const Age& b) {
      const auto& [priority, use, depth] = a;
      const auto& [other_priority, other_use, other_depth] = b;
      return std::tie(priority, use, other_depth) < std::tie(other_priority, other_use, depth);
    };
    for (const auto& [names, block] : model_.blocks) {
      if (!counts(names, tenant) || !model_.evictable(names, t)) continue;
      const Age age{block.priority(t), block.last_use, names.size()};
      if (!found || before(age, *found)) found = age;
    }
    return found;
  }
  Age age_of(BlockRef block, std::size_t t) {
    return {tree_.priority(block, all_tiers[t]), tree_.last_use(block), block.depth + 1};
  }

  std::optional<BlockRef> victim(std::size_t t, std::optional<Tenant> tenant) {
    return tenant ? tree_.victim(all_tiers[t], *tenant) : tree_.victim(all_tiers[t]);
  }
  void check_victim(std::size_t t, std::optional<Tenant> tenant) {
    std::uint64_t resident = 0;
    std::uint64_t unpinned = 0;
    for (const auto& [names, block] : model_.blocks) {
      if (!counts(names, tenant) || !block.copies[t].present()) continue;
      ++resident;
      if (block.pins == 0) ++unpinned;
    }
    ASSERT_EQ(tenant ? tree_.resident(all_tiers[t], *tenant) : tree_.resident(all_tiers[t]), resident);
    ASSERT_EQ(tenant ? tree_.unpinned(all_tiers[t], *tenant) : tree_.unpinned(all_tiers[t]), unpinned);
    const std::optional<Age> oldest = this->oldest(t, tenant);
    const std::optional<BlockRef> victim = this->victim(t, tenant);
    ASSERT_EQ(victim.has_value(), oldest.has_value());
    if (!victim) return;
    ASSERT_EQ(age_of(*victim, t), *oldest);
    if (tenant) {
      ASSERT_EQ(tree_.tenant(*victim), *tenant);
    }
  }

  Names random_names() {
    Names names(random_.between(1, 9));
    for (std::uint32_t& name : names) name = static_cast<std::uint32_t>(random_.chance(0.7) ? 0 : random_.below(3));
    return names;
  }
  std::optional<Names> random_block() {
    if (model_.blocks.empty()) return std::nullopt;
    auto at = model_.blocks.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_.below(model_.blocks.size())));
    return at->first;
  }
  Copy random_copy() {
    return Copy{static_cast<CopyState>(random_.between(1, 4)), SlotId{static_cast<std::uint32_t>(random_.below(1000))}};
  }
  template <class F>
  void for_prefixes(const Names& names, F f) {
    for (std::size_t n = 1; n <= names.size(); ++n)
      f(model_.blocks[Names(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(n))]);
  }

  void insert() {
    const Names names = random_names();
    const std::size_t known = random_.below(names.size() + 1);
    const std::vector<BlockKey> keys = keys_of(names);
    Prefix at = tree_.find(std::span{keys}.first(known));
    at = tree_.extend(at, std::span{keys}.subspan(at.length), tenant_of(names));
    ASSERT_EQ(at.length, names.size());
    tree_.pin(at);
    const std::size_t before = model_.blocks.size();
    for_prefixes(names, [](ModelBlock&) {});
    ASSERT_EQ(tree_.added(), model_.blocks.size() - before);
    fill_added(at, names);
    for (std::uint32_t depth = 0; depth < names.size(); ++depth) {
      const std::size_t tier = random_.below(tier_count);
      if (random_.chance(0.3)) continue;
      const Copy copy = random_copy();
      tree_.set_copy({at.node, depth}, all_tiers[tier], copy);
      model_.blocks[Names(names.begin(), names.begin() + depth + 1)].copies[tier] = copy;
    }
    tree_.touch(at, ++stamp_);
    for_prefixes(names, [&](ModelBlock& b) { b.last_use = stamp_; });
    tree_.unpin(at);
    model_.prune();
  }
  /// Gives some of the new blocks copies in one tier, in one call.
  void fill_added(Prefix at, const Names& names) {
    std::vector<SlotId> slots(random_.below(tree_.added() + 1));
    for (SlotId& slot : slots) slot = SlotId{static_cast<std::uint32_t>(random_.below(1000))};
    const std::size_t tier = random_.below(tier_count);
    tree_.fill(at, all_tiers[tier], slots);
    Names prefix = names;
    for (std::size_t i = slots.size(); i-- > 0; prefix.pop_back()) {
      model_.blocks.at(prefix).copies[tier] = Copy{CopyState::ready, slots[i]};
    }
  }
  void pin() {
    const auto names = random_block();
    if (!names) return;
    const Prefix prefix = tree_.find(keys_of(*names));
    tree_.pin(prefix);
    for_prefixes(*names, [](ModelBlock& b) { ++b.pins; });
    pins_.push_back({prefix, *names});
  }
  void unpin() {
    if (pins_.empty()) return;
    const std::size_t which = random_.below(pins_.size());
    const auto [prefix, names] = pins_[which];
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(which));
    tree_.unpin(prefix);
    for_prefixes(names, [](ModelBlock& b) { --b.pins; });
    model_.prune();
  }
  void touch() {
    const auto names = random_block();
    if (!names) return;
    const std::uint64_t stamp = random_.chance(0.5) ? ++stamp_ : random_.between(0, stamp_);
    tree_.touch(tree_.find(keys_of(*names)), stamp);
    for_prefixes(*names, [&](ModelBlock& b) { b.last_use = std::max(b.last_use, stamp); });
  }
  void change_copy() {
    const auto names = random_block();
    if (!names) return;
    const std::size_t tier = random_.below(tier_count);
    const Copy copy = random_.chance(0.4) ? Copy{} : random_copy();
    tree_.set_copy(tree_.find(keys_of(*names)).last(), all_tiers[tier], copy);
    model_.blocks[*names].copies[tier] = copy;
    model_.prune();
  }
  void retain() {
    const bool again = !retained_.empty() && random_.chance(0.3);
    const std::uint64_t id = again ? random_.between(1, retained_.size()) : retained_.size() + 1;
    if (!again) {
      const auto names = random_block();
      if (!names) return;
      retained_.push_back(*names);
    }
    const auto priority = static_cast<Priority>(random_.between(0, highest_priority));
    const Prefix prefix = tree_.find(keys_of(retained_[id - 1]));
    tree_.retain(prefix, RetentionId{id}, priority);
    Names there = retained_[id - 1];
    there.resize(prefix.length);
    for_prefixes(there, [&](ModelBlock& b) { b.retentions[id] = priority; });
  }
  void end_retention() {
    if (retained_.empty()) return;
    const std::uint64_t id = random_.between(1, retained_.size());
    tree_.end_retention(tree_.find(keys_of(retained_[id - 1])), RetentionId{id});
    for (auto& [names, block] : model_.blocks) block.retentions.erase(id);
  }
  void set_companion() {
    auto names = random_block();
    if (!names) return;
    names->resize(1);
    const std::size_t tier = random_.below(2);
    const auto companion = static_cast<Companion>(random_.below(3));
    tree_.set_companion(tree_.find(keys_of(*names)).last(), all_tiers[tier], companion);
    model_.blocks.at(*names).companion[tier] = companion;
  }
  std::optional<Tenant> some_tenant() {
    if (followed_.empty() || random_.chance(0.4)) return std::nullopt;
    return *std::next(followed_.begin(), static_cast<std::ptrdiff_t>(random_.below(followed_.size())));
  }
  void follow_or_ignore() {
    const Tenant tenant{random_.below(3)};
    ASSERT_EQ(tree_.follows_tenant(tenant), followed_.contains(tenant));
    if (followed_.erase(tenant) > 0) {
      tree_.ignore_tenant(tenant);
    } else {
      tree_.follow_tenant(tenant);
      followed_.insert(tenant);
    }
  }
  void evict() { random_.chance(0.5) ? evict_one() : evict_run(); }
  /// The blocks of the run are, from its end, those that the policy would evict one by one. Their copies go at once, or when a
  /// transfer has read them: all together, or later one by one.
  void evict_run() {
    const std::size_t tier = random_.below(2);
    const auto most = static_cast<std::uint32_t>(random_.between(1, 6));
    const std::optional<Tenant> tenant = some_tenant();
    const auto run = tenant ? tree_.victims(all_tiers[tier], most, *tenant) : tree_.victims(all_tiers[tier], most);
    ASSERT_EQ(run.has_value(), victim(tier, tenant).has_value());
    if (!run) return;
    ASSERT_GE(run->size(), 1U);
    ASSERT_LE(run->size(), most);
    const bool read = random_.chance(0.4);
    const bool stays = read && random_.chance(0.7);
    const std::span<const Copy> copies = tree_.copies(*run, all_tiers[tier]);
    for (std::uint32_t depth = run->end; depth-- > run->begin;) {
      ASSERT_EQ(copies[depth - run->begin], tree_.copy({run->node, depth}, all_tiers[tier]));
      const BlockKey key = tree_.key({run->node, depth});
      ASSERT_EQ(tree_.keys(*run)[depth - run->begin], key);
      const auto oldest = this->oldest(tier, tenant);
      ASSERT_TRUE(oldest.has_value());
      ASSERT_EQ(*oldest, age_of({run->node, depth}, tier));
      const Copy copy = copies[depth - run->begin];
      set_copy_of(key, tier, stays ? Copy{CopyState::evicting, copy.slot()} : Copy{});
    }
    if (read) tree_.change(*run, all_tiers[tier], CopyState::evicting);
    if (!stays) tree_.drop(*run, all_tiers[tier]);
    model_.prune();
  }
  /// A transfer begins to read a run, and may end before the next check.
  void read_run() {
    const std::size_t tier = random_.below(2);
    const auto run = tree_.victims(all_tiers[tier], static_cast<std::uint32_t>(random_.between(1, 6)));
    if (!run) return;
    const bool ends = random_.chance(0.5);
    for (std::uint32_t depth = run->begin; depth < run->end && !ends; ++depth) {
      const BlockRef block{run->node, depth};
      set_copy_of(tree_.key(block), tier, Copy{CopyState::busy, tree_.copy(block, all_tiers[tier]).slot()});
    }
    tree_.change(*run, all_tiers[tier], CopyState::busy);
    if (ends) tree_.change(*run, all_tiers[tier], CopyState::ready);
  }
  void set_copy_of(const BlockKey& key, std::size_t tier, Copy copy) {
    for (auto& [names, block] : model_.blocks) {
      if (keys_of(names).back() == key) block.copies[tier] = copy;
    }
  }
  void evict_one() {
    const std::size_t tier = random_.below(2);
    const auto victim = this->victim(tier, some_tenant());
    if (!victim) return;
    const BlockKey key = tree_.key(*victim);
    tree_.set_copy(*victim, all_tiers[tier], {});
    set_copy_of(key, tier, {});
    model_.prune();
  }

  Random random_;
  bool equal_prefixes_;
  std::array<LruPolicy, 2> policies_;
  PrefixTree tree_;
  Model model_;
  std::vector<std::pair<Prefix, Names>> pins_;
  std::vector<Names> retained_;  // index: RetentionId - 1
  std::set<Tenant> followed_;
  std::uint64_t stamp_ = 0;
};

TEST(PrefixTreeProperty, agrees_with_plain_maps_over_random_operations) {
  const std::uint64_t base = test::seed_from_env_or(1);
  for (std::uint64_t seed = base; seed < base + 60; ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    World world{seed};
    for (int i = 0; i < 150; ++i) {
      world.step();
      world.check();
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace terrace
