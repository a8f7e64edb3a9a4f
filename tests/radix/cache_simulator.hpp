#pragma once

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace terrace::test {

/// Keys for workloads of millions of blocks. They are chained like real keys, but with a mixing function instead of a digest.
class CheapKeys {
 public:
  /// The keys of the prefix whose blocks have these names. Valid until the next call.
  [[nodiscard]] std::span<const BlockKey> of(std::span<const std::uint64_t> names) {
    keys_.clear();
    std::uint64_t state = 0;
    for (const std::uint64_t name : names) {
      state = mix(state ^ mix(name));
      BlockKey key;
      for (std::size_t word = 0; word < 4; ++word) {
        const std::uint64_t bits = mix(state + word);
        std::memcpy(key.bytes.data() + 8 * word, &bits, sizeof bits);
      }
      keys_.push_back(key);
    }
    return keys_;
  }

 private:
  /// splitmix64 by Vigna.
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9E37'79B9'7F4A'7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58'476D'1CE4'E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D0'49BB'1331'11EBU;
    return x ^ (x >> 31U);
  }

  std::vector<BlockKey> keys_;
};

/// One tier of a cache, with the event order of reference mode: the tree and a policy, without slots or bytes.
class CacheSimulator {
 public:
  CacheSimulator(EvictionPolicy& policy, std::uint32_t capacity) : capacity_{capacity} { tree_.set_policy(device, policy); }

  /// Serves one request. Returns how many of its blocks were cached.
  std::uint32_t serve(std::span<const BlockKey> keys) {
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
    for (std::uint32_t depth = hit.length; depth < whole.length; ++depth) {
      tree_.set_copy({whole.node, depth}, device, Copy{CopyState::ready, SlotId{0}});
    }
    tree_.touch(whole, stamp_);
    tree_.unpin(whole);
    tree_.unpin(hit);
    return hit.length;
  }

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }

 private:
  static constexpr Tier device = Tier::device;

  std::uint32_t capacity_;
  PrefixTree tree_;
  std::uint64_t stamp_ = 0;
};

}  // namespace terrace::test
