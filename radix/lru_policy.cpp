#include "radix/lru_policy.hpp"

namespace terrace {

void LruPolicy::on_evictable(BlockRef leaf, const BlockKey&, std::uint64_t last_use) {
  heap_.set(leaf.node.value(), Age{last_use, leaf.depth, leaf.node.value()});
}

void LruPolicy::on_unevictable(NodeId node) { heap_.erase(node.value()); }

std::optional<NodeId> LruPolicy::victim() const {
  if (heap_.empty()) return std::nullopt;
  return NodeId{heap_.top().handle};
}

}  // namespace terrace
