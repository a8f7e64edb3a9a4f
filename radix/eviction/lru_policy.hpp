#pragma once

#include "radix/eviction/leaf_heaps.hpp"

namespace terrace {

/// Evicts the least recently used leaf first (LeafAge). Threads: one. Each event costs O(log n), each query O(1).
class LruPolicy final : public EvictionPolicy {
 public:
  [[nodiscard]] bool keeps_pinned() const override { return true; }
  void on_evictable(const Leaf& leaf) override { heap_.set(0, leaf.tenant, LeafAge{leaf}); }
  void on_unevictable(NodeId node) override { heap_.erase(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override { return node_of(heap_.oldest(0)); }
  [[nodiscard]] std::optional<NodeId> victim(TenantIndex tenant) const override { return node_of(heap_.oldest(0, tenant)); }
  [[nodiscard]] bool knows_tenants() const override { return true; }
  [[nodiscard]] std::uint32_t alike_from(NodeId, std::uint32_t) const override { return 0; }
  [[nodiscard]] std::size_t candidates() const override { return heap_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return heap_.bytes_held(); }
  void check_invariants() const override { heap_.check_invariants(); }

 private:
  [[nodiscard]] static std::optional<NodeId> node_of(const std::optional<LeafAge>& leaf) {
    if (!leaf) return std::nullopt;
    return leaf->node;
  }

  LeafHeaps heap_;
};

}  // namespace terrace
