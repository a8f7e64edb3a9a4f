#pragma once

#include "base/check.hpp"
#include "base/indexed_heap.hpp"
#include "lab/index/index_subject.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

namespace terrace::tools {

/// A tree of prefixes as most caches keep it: a node and a hash lookup for each block, and a heap of the leaves by last use. Keys
/// are chained, so one table serves for the children of all nodes.
class TreeIndex final : public IndexSubject {
 public:
  explicit TreeIndex(std::uint32_t capacity) {
    nodes_.resize(capacity);
    by_key_.reserve(capacity);
    for (std::uint32_t node = capacity; node-- > 0;) free_.push_back(node);
  }

  std::uint32_t match(std::span<const BlockKey> keys) override {
    find_prefix(keys);
    return static_cast<std::uint32_t>(path_.size());
  }

  std::uint32_t serve(std::span<const BlockKey> keys) override {
    find_prefix(keys);
    const std::size_t hits = path_.size();
    ++now_;
    for (const std::uint32_t node : path_) {
      nodes_[node].last_use = now_;
      ++nodes_[node].leases;
      leaves_.erase(node);
    }
    const std::size_t missing = keys.size() - hits;
    if (missing > free_.size()) evict(static_cast<std::uint32_t>(missing - free_.size()));
    for (std::size_t i = hits; i < keys.size(); ++i) {
      const std::uint32_t node = free_.back();
      free_.pop_back();
      nodes_[node] = {keys[i], i == 0 ? none : path_.back(), static_cast<std::uint32_t>(i), 0, 1, now_};
      if (i > 0) ++nodes_[path_.back()].children;
      by_key_.emplace(keys[i], node);
      path_.push_back(node);
    }
    for (const std::uint32_t node : path_) {
      if (--nodes_[node].leases == 0 && nodes_[node].children == 0) add_leaf(node);
    }
    return static_cast<std::uint32_t>(hits);
  }

  void evict(std::uint32_t blocks) override {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t node = leaves_.top().handle;
      leaves_.erase(node);
      by_key_.erase(nodes_[node].key);
      free_.push_back(node);
      const std::uint32_t parent = nodes_[node].parent;
      if (parent == none || --nodes_[parent].children > 0 || nodes_[parent].leases > 0) continue;
      add_leaf(parent);
    }
  }

  std::size_t bytes() const override {
    const std::size_t a_leaf = sizeof(IndexedHeap<Age>::Entry) + sizeof(std::uint32_t);
    return nodes_.capacity() * sizeof(Node) + by_key_.bucket_count() * (sizeof(BlockKey) + sizeof(std::uint32_t) + 5) +
           free_.capacity() * sizeof(std::uint32_t) + leaves_.size() * a_leaf;
  }

 private:
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  struct Node {
    BlockKey key;
    std::uint32_t parent = none;
    std::uint32_t depth = 0;
    std::uint32_t children = 0;
    std::uint32_t leases = 0;
    std::uint64_t last_use = 0;
  };
  struct Age {
    std::uint64_t last_use;
    std::uint32_t depth;
    friend bool operator<(const Age& a, const Age& b) {
      return a.last_use != b.last_use ? a.last_use < b.last_use : a.depth > b.depth;
    }
  };

  void add_leaf(std::uint32_t node) { leaves_.set(node, {nodes_[node].last_use, nodes_[node].depth}); }

  void find_prefix(std::span<const BlockKey> keys) {
    path_.clear();
    for (const BlockKey& key : keys) {
      const auto found = by_key_.find(key);
      if (found == by_key_.end()) return;
      path_.push_back(found->second);
    }
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_;
  boost::unordered_flat_map<BlockKey, std::uint32_t, std::hash<BlockKey>> by_key_;
  IndexedHeap<Age> leaves_;
  std::vector<std::uint32_t> path_;
  std::uint64_t now_ = 0;
};

}  // namespace terrace::tools
