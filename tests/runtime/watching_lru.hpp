#pragma once

#include "radix/eviction/lru_policy.hpp"

#include <cstddef>
#include <optional>
#include <set>

namespace terrace::test {

/// LRU, for policies that note what they are told.
class WatchingLru : public EvictionPolicy {
 public:
  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_evictable(const Leaf& leaf) override { lru_.on_evictable(leaf); }
  void on_unevictable(NodeId node) override { lru_.on_unevictable(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override { return lru_.victim(); }
  [[nodiscard]] std::size_t candidates() const override { return lru_.candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return lru_.bytes_held(); }
  void check_invariants() const override { lru_.check_invariants(); }

 private:
  LruPolicy lru_;
};

/// LRU that notes which blocks are used. The set must outlive it.
class UsesPolicy final : public WatchingLru {
 public:
  explicit UsesPolicy(std::multiset<BlockKey>& used) : used_{used} {}

  [[nodiscard]] bool knows_tenants() const override { return true; }
  void on_used(const BlockRun& blocks, std::uint64_t, std::uint32_t) override {
    used_.insert(blocks.keys.begin(), blocks.keys.end());
  }

 private:
  std::multiset<BlockKey>& used_;
};

}  // namespace terrace::test
