#pragma once

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace::tools {

/// One tier of a cache, with the event order of a reference run (`terrace replay --reference`): the prefix tree and a policy,
/// without slots or bytes. The policy must outlive it. Threads: one.
class CacheSimulator {
 public:
  CacheSimulator(EvictionPolicy& policy, std::uint32_t capacity) : capacity_{capacity} { tree_.set_policy(device, policy); }

  /// Serves one request. Returns how many of its blocks were cached. Blocks beyond the capacity are not cached. `output_tokens`:
  /// the length of the answer, for the policy, if it is known.
  std::uint32_t serve(std::span<const BlockKey> keys, std::optional<std::uint64_t> output_tokens = {}) {
    if (keys.size() > capacity_) keys = keys.first(capacity_);
    const Prefix hit = tree_.find(keys);
    tree_.pin(hit);
    tree_.touch(hit, ++stamp_);
    while (tree_.resident(device) + keys.size() - hit.length > capacity_) {
      const auto victim = tree_.victim(device);
      TERRACE_CHECK(victim.has_value());
      tree_.set_copy(*victim, device, {});
    }
    const Prefix whole = tree_.extend(hit, keys.subspan(hit.length));
    tree_.pin(whole);
    slots_.resize(whole.length - hit.length);
    tree_.fill(whole, device, slots_, CopyState::ready);
    tree_.touch(whole, stamp_);
    if (output_tokens) tree_.end_request(stamp_, *output_tokens);
    tree_.unpin(whole);
    tree_.unpin(hit);
    return hit.length;
  }

  /// The same as PrefixTree::expect.
  std::uint32_t expect(std::span<const BlockKey> keys, const ExpectedUse& use) { return tree_.expect(tree_.find(keys), use); }

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }

 private:
  static constexpr Tier device = Tier::device;

  std::uint32_t capacity_;
  PrefixTree tree_;
  std::uint64_t stamp_ = 0;
  std::vector<SlotId> slots_;  ///< the simulation has no memory, so all slots are the same
};

}  // namespace terrace::tools
