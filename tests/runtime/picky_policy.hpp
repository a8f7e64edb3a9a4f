#pragma once

#include "radix/eviction/lru_policy.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace terrace::test {

/// LRU that admits only some blocks to a full tier.
class PickyPolicy final : public EvictionPolicy {
 public:
  using Admits = std::function<bool(const BlockKey&)>;

  explicit PickyPolicy(Admits admits) : admits_{std::move(admits)} {}
  /// Makes such policies.
  [[nodiscard]] static PolicyFactory factory(const Admits& admits) {
    return [admits](std::uint32_t) { return std::make_unique<PickyPolicy>(admits); };
  }

  [[nodiscard]] bool admits(const Leaf& leaf) const override { return admits_(leaf.key); }
  [[nodiscard]] bool keeps_pinned() const override { return lru_.keeps_pinned(); }
  void on_evictable(const Leaf& leaf) override { lru_.on_evictable(leaf); }
  void on_unevictable(NodeId node) override { lru_.on_unevictable(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override { return lru_.victim(); }
  [[nodiscard]] std::optional<NodeId> victim(TenantIndex tenant) const override { return lru_.victim(tenant); }
  [[nodiscard]] bool knows_tenants() const override { return true; }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override { return lru_.alike_from(node, depth); }
  [[nodiscard]] std::size_t candidates() const override { return lru_.candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return lru_.bytes_held(); }
  void check_invariants() const override { lru_.check_invariants(); }

 private:
  Admits admits_;
  LruPolicy lru_;
};

}  // namespace terrace::test
