// An example of an eviction policy of your own in the prefix tree. docs/how-to/add-an-eviction-policy.md shows parts of this
// file.

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"
#include <terrace/keys.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace {

using namespace terrace;

/// Evicts the leaf that has been a candidate for the longest time, whatever was used since. Threads: the tree's.
class FifoPolicy final : public EvictionPolicy {
 public:
  void on_evictable(const Leaf& leaf) override {
    // The tree calls this again when a candidate changes, for example when it was used. It keeps its place in the line.
    const auto [place, is_new] = places_.try_emplace(leaf.block.node, next_place_);
    if (is_new) line_.emplace(next_place_++, leaf.block.node);
  }
  void on_unevictable(NodeId node) override {
    const auto place = places_.find(node);
    TERRACE_CHECK(place != places_.end());
    line_.erase(place->second);
    places_.erase(place);
  }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    if (line_.empty()) return std::nullopt;
    return line_.begin()->second;
  }

  [[nodiscard]] std::size_t candidates() const override { return line_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return line_.size() * 2 * (sizeof(std::uint64_t) + sizeof(NodeId)); }
  void check_invariants() const override { TERRACE_CHECK(line_.size() == places_.size()); }

 private:
  std::uint64_t next_place_ = 0;
  std::map<NodeId, std::uint64_t> places_;
  std::map<std::uint64_t, NodeId> line_;
};

std::vector<BlockKey> keys_of(TokenId token, std::size_t blocks) {
  KeyChain chain{root_key({}), 1};
  chain.append(std::vector<TokenId>(blocks, token));
  return {chain.keys().begin(), chain.keys().end()};
}

/// Gives each block of the prefix a device copy, as a commit does.
Prefix insert(PrefixTree& tree, std::span<const BlockKey> keys, std::uint32_t first_slot, std::uint64_t use) {
  const Prefix prefix = tree.extend({}, keys);
  tree.pin(prefix);
  for (std::uint32_t i = 0; i < prefix.length; ++i) {
    tree.set_copy(tree.at(prefix, i), Tier::device, Copy{CopyState::ready, SlotId{first_slot + i}});
  }
  tree.touch(prefix, use);
  tree.unpin(prefix);
  return prefix;
}

}  // namespace

int main() {
  FifoPolicy policy;
  PrefixTree tree;
  tree.set_policy(Tier::device, policy);

  const Prefix first = insert(tree, keys_of(1, 2), 0, 1);
  const Prefix second = insert(tree, keys_of(2, 1), 2, 2);
  tree.touch(first, 3);  // LRU would evict the second prefix now

  // The first prefix goes, from its end. Then the second one goes.
  std::vector<BlockRef> expected{tree.at(first, 1), tree.at(first, 0), second.last()};
  bool right = true;
  for (const BlockRef block : expected) {
    const std::optional<BlockRef> victim = tree.victim(Tier::device);
    right = right && victim && tree.same(*victim, block);
    if (!right) break;
    tree.set_copy(block, Tier::device, Copy{});
    tree.check_invariants();
    policy.check_invariants();
  }
  std::printf("the blocks went %s\n", right ? "in the order in which they came" : "in another order");
  return right && policy.candidates() == 0 ? 0 : 1;
}
