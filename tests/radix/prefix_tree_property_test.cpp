// The tree against a model of plain maps, over random operations.

#include "base/random.hpp"
#include "radix/lru_policy.hpp"
#include "radix/prefix_tree.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace terrace {
namespace {

using Names = std::vector<std::uint32_t>;  // a block is known by the names from the root to it

struct ModelBlock {
  std::array<Copy, tier_count> copies{};
  std::uint64_t last_use = 0;
  int pins = 0;

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
  explicit World(std::uint64_t seed) : random_{seed} {
    for (std::size_t t = 0; t < 2; ++t) tree_.set_policy(plane(t), policies_[t]);
  }

  void step() {
    switch (random_.below(8)) {
      case 0:
      case 1: insert(); break;
      case 2: pin(); break;
      case 3: unpin(); break;
      case 4: touch(); break;
      case 5: change_copy(); break;
      default: evict(); break;
    }
  }

  void check() {
    tree_.check_invariants();
    ASSERT_EQ(tree_.blocks(), model_.blocks.size());
    std::size_t seen = 0;
    for (const auto& [names, block] : model_.blocks) {
      const Path path = tree_.find(test::keys_of(names));
      ASSERT_EQ(path.length, names.size());
      for (std::size_t t = 0; t < tier_count; ++t) ASSERT_EQ(tree_.copy(path.last(), plane(t)), block.copies[t]);
      ASSERT_EQ(tree_.last_use(path.last()), block.last_use);
      ASSERT_EQ(tree_.pinned(path.last()), block.pins > 0);
      ++seen;
    }
    for (std::size_t t = 0; t < 2; ++t) check_victim(t);
    (void)seen;
  }

 private:
  static Plane plane(std::size_t t) { return {GroupId{0}, all_tiers[t]}; }

  void check_victim(std::size_t t) {
    std::optional<std::pair<std::uint64_t, std::size_t>> oldest;  // (last use, -depth) by hand: deepest first
    std::uint64_t resident = 0;
    std::uint64_t unpinned = 0;
    for (const auto& [names, block] : model_.blocks) {
      if (block.copies[t].present()) {
        ++resident;
        if (block.pins == 0) ++unpinned;
      }
      if (!model_.evictable(names, t)) continue;
      if (!oldest || block.last_use < oldest->first || (block.last_use == oldest->first && names.size() > oldest->second)) {
        oldest = {block.last_use, names.size()};
      }
    }
    ASSERT_EQ(tree_.resident(plane(t)), resident);
    ASSERT_EQ(tree_.unpinned(plane(t)), unpinned);
    const std::optional<BlockRef> victim = tree_.victim(plane(t));
    ASSERT_EQ(victim.has_value(), oldest.has_value());
    if (!victim) return;
    ASSERT_EQ(tree_.last_use(*victim), oldest->first);
    ASSERT_EQ(victim->depth + 1, oldest->second);
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
    const std::vector<BlockKey> keys = test::keys_of(names);
    Path at = tree_.find(std::span{keys}.first(known));
    at = tree_.extend(at, std::span{keys}.subspan(at.length));
    ASSERT_EQ(at.length, names.size());
    tree_.pin(at);
    for_prefixes(names, [](ModelBlock&) {});
    for (std::uint32_t depth = 0; depth < names.size(); ++depth) {
      const std::size_t tier = random_.below(tier_count);
      if (random_.chance(0.3)) continue;
      const Copy copy = random_copy();
      tree_.set_copy({at.node, depth}, plane(tier), copy);
      model_.blocks[Names(names.begin(), names.begin() + depth + 1)].copies[tier] = copy;
    }
    tree_.touch(at, ++stamp_);
    for_prefixes(names, [&](ModelBlock& b) { b.last_use = stamp_; });
    tree_.unpin(at);
    model_.prune();
  }
  void pin() {
    const auto names = random_block();
    if (!names) return;
    const Path path = tree_.find(test::keys_of(*names));
    tree_.pin(path);
    for_prefixes(*names, [](ModelBlock& b) { ++b.pins; });
    pins_.push_back({path, *names});
  }
  void unpin() {
    if (pins_.empty()) return;
    const std::size_t which = random_.below(pins_.size());
    const auto [path, names] = pins_[which];
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(which));
    tree_.unpin(path);
    for_prefixes(names, [](ModelBlock& b) { --b.pins; });
    model_.prune();
  }
  void touch() {
    const auto names = random_block();
    if (!names) return;
    const std::uint64_t stamp = random_.chance(0.5) ? ++stamp_ : random_.between(0, stamp_);
    tree_.touch(tree_.find(test::keys_of(*names)), stamp);
    for_prefixes(*names, [&](ModelBlock& b) { b.last_use = std::max(b.last_use, stamp); });
  }
  void change_copy() {
    const auto names = random_block();
    if (!names) return;
    const std::size_t tier = random_.below(tier_count);
    const Copy copy = random_.chance(0.4) ? Copy{} : random_copy();
    tree_.set_copy(tree_.find(test::keys_of(*names)).last(), plane(tier), copy);
    model_.blocks[*names].copies[tier] = copy;
    model_.prune();
  }
  void evict() {
    const std::size_t tier = random_.below(2);
    const auto victim = tree_.victim(plane(tier));
    if (!victim) return;
    const BlockKey key = tree_.key(*victim);
    tree_.set_copy(*victim, plane(tier), {});
    for (auto& [names, block] : model_.blocks) {
      if (test::keys_of(names).back() == key) block.copies[tier] = {};
    }
    model_.prune();
  }

  Random random_;
  std::array<LruPolicy, 2> policies_;
  PrefixTree tree_;
  Model model_;
  std::vector<std::pair<Path, Names>> pins_;
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
