#include "lab/index/index_subject.hpp"

#include "base/check.hpp"
#include "base/indexed_heap.hpp"
#include "base/large_memory.hpp"
#include "runtime/cache/control/cache_manager.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

namespace terrace::tools {
namespace {

/// Makes the calls that an engine's scheduler makes for a request, without the data plane.
class TerraceSubject final : public IndexSubject {
 public:
  TerraceSubject(std::uint32_t capacity, PolicyFactory policy) : manager_{config(capacity, std::move(policy))} {}

  std::uint32_t match(std::span<const BlockKey> keys) override { return manager_.requests().match(keys).found[Source::device]; }

  std::uint32_t serve(std::span<const BlockKey> keys) override {
    const std::uint32_t hits = manager_.requests().match(keys).found[Source::device];
    const RequestId id = acquire(keys, static_cast<std::uint32_t>(keys.size()));
    TERRACE_CHECK(manager_.requests().commit(id, keys, Fence{}).has_value());
    manager_.settle();
    TERRACE_CHECK(manager_.requests().release(id, Fence{}).has_value());
    manager_.settle();
    return hits;
  }

  void evict(std::uint32_t blocks) override {
    const RequestId id = acquire({}, blocks);
    TERRACE_CHECK(manager_.requests().release(id, Fence{}).has_value());
    manager_.settle();
  }

  std::size_t bytes() const override { return manager_.bytes_held(); }

 private:
  static ManagerConfig config(std::uint32_t capacity, PolicyFactory policy) {
    ManagerConfig made;
    made.pools[0].device_blocks = capacity;
    made.policy = std::move(policy);
    return made;
  }

  RequestId acquire(std::span<const BlockKey> keys, std::uint32_t blocks) {
    AcquireRequest wanted;
    wanted.id = RequestId{++last_id_};
    wanted.keys = keys;
    wanted.units = HashUnits{blocks};
    const Result<Acquired> acquired = manager_.acquire(wanted);
    TERRACE_CHECK(acquired.has_value() && *acquired == Acquired::ready);
    return wanted.id;
  }

  CacheManager manager_;
  std::uint64_t last_id_ = 0;
};

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

enum class Prefetch : bool { no, yes };

/// The minimum that a cache of blocks must do: an open-addressing hash table from keys to slots (linear probing, half full,
/// backward-shift deletion), and an intrusive list of the slots in order of use. With Prefetch::yes it prefetches the memory for
/// the next keys, and puts table and slots into huge pages if there are any. A request uses its blocks from the last to the
/// first, so the list evicts a prefix from its end, as a heap of leaves does.
template <Prefetch prefetch>
class MapIndex final : public IndexSubject {
 public:
  explicit MapIndex(std::uint32_t capacity)
      : table_(std::bit_ceil(std::size_t{capacity} * 2)), mask_{table_.size() - 1}, entries_(std::size_t{capacity} + 1) {
    entries_[end_].newer = entries_[end_].older = end_;
    free_.reserve(capacity);
    for (std::uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot);
  }

  std::uint32_t match(std::span<const BlockKey> keys) override {
    find_prefix(keys);
    return static_cast<std::uint32_t>(found_.size());
  }

  std::uint32_t serve(std::span<const BlockKey> keys) override {
    find_prefix(keys);
    const std::size_t hits = found_.size();
    for (const std::uint32_t slot : found_) unlink(slot);
    const std::size_t missing = keys.size() - hits;
    if (missing > free_.size()) evict(static_cast<std::uint32_t>(missing - free_.size()));
    for (std::size_t i = hits; i < keys.size(); ++i) {
      if constexpr (prefetch == Prefetch::yes) {
        if (i + ahead < keys.size()) __builtin_prefetch(&table_[home(keys[i + ahead])], 1);
      }
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      entries_[slot].key = keys[i];
      insert(slot);
      found_.push_back(slot);
    }
    for (std::size_t i = found_.size(); i-- > 0;) link_newest(found_[i]);
    return static_cast<std::uint32_t>(hits);
  }

  void evict(std::uint32_t blocks) override {
    victims_.clear();
    for (std::uint32_t slot = entries_[end_].newer; victims_.size() < blocks; slot = entries_[slot].newer) {
      TERRACE_CHECK(slot != end_);
      if constexpr (prefetch == Prefetch::yes) __builtin_prefetch(&table_[home(entries_[slot].key)], 1);
      victims_.push_back(slot);
    }
    for (const std::uint32_t slot : victims_) {
      unlink(slot);
      erase(slot);
      free_.push_back(slot);
    }
  }

  std::size_t bytes() const override {
    return table_.capacity() * sizeof(Bucket) + entries_.capacity() * sizeof(Entry) + free_.capacity() * sizeof(std::uint32_t);
  }

 private:
  template <class Row>
  using Table = std::conditional_t<prefetch == Prefetch::yes, std::vector<Row, LargeAllocator<Row>>, std::vector<Row>>;
  struct Entry {
    BlockKey key;
    std::uint32_t newer;
    std::uint32_t older;
  };
  struct Bucket {
    std::uint32_t tag = 0;
    std::uint32_t slot = end_;
  };
  static constexpr std::uint32_t end_ = 0;  ///< marks the end of the list; no block has this slot
  /// how many keys ahead memory is prefetched; the best value from 4 to 32 on the machine of the benchmarks
  static constexpr std::size_t ahead = 12;

  [[nodiscard]] static std::uint32_t tag(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }
  [[nodiscard]] std::size_t home(std::uint32_t tag) const { return tag & mask_; }
  [[nodiscard]] std::size_t home(const BlockKey& key) const { return home(tag(key)); }

  [[nodiscard]] std::uint32_t find(const BlockKey& key) const {
    for (std::size_t at = home(key);; at = (at + 1) & mask_) {
      const Bucket& bucket = table_[at];
      if (bucket.slot == end_) return end_;
      if (bucket.tag == tag(key) && entries_[bucket.slot].key == key) return bucket.slot;
    }
  }

  void find_prefix(std::span<const BlockKey> keys) {
    found_.clear();
    if constexpr (prefetch == Prefetch::yes) {
      for (std::size_t i = 0; i < std::min(keys.size(), 2 * ahead); ++i) __builtin_prefetch(&table_[home(keys[i])]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if constexpr (prefetch == Prefetch::yes) {
        if (i + 2 * ahead < keys.size()) __builtin_prefetch(&table_[home(keys[i + 2 * ahead])]);
        if (i + ahead < keys.size()) __builtin_prefetch(&entries_[table_[home(keys[i + ahead])].slot]);
      }
      const std::uint32_t slot = find(keys[i]);
      if (slot == end_) return;
      found_.push_back(slot);
    }
  }

  void insert(std::uint32_t slot) {
    std::size_t at = home(entries_[slot].key);
    while (table_[at].slot != end_) at = (at + 1) & mask_;
    table_[at] = {tag(entries_[slot].key), slot};
  }

  void erase(std::uint32_t slot) {
    std::size_t hole = home(entries_[slot].key);
    while (table_[hole].slot != slot) hole = (hole + 1) & mask_;
    for (std::size_t at = (hole + 1) & mask_; table_[at].slot != end_; at = (at + 1) & mask_) {
      const std::size_t wanted = home(table_[at].tag);
      if (((at - wanted) & mask_) < ((at - hole) & mask_)) continue;
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole] = {};
  }

  void unlink(std::uint32_t slot) {
    const Entry& entry = entries_[slot];
    entries_[entry.newer].older = entry.older;
    entries_[entry.older].newer = entry.newer;
  }

  void link_newest(std::uint32_t slot) {
    Entry& entry = entries_[slot];
    entry.newer = end_;
    entry.older = entries_[end_].older;
    entries_[entry.older].newer = slot;
    entries_[end_].older = slot;
  }

  Table<Bucket> table_;
  std::size_t mask_;
  Table<Entry> entries_;  ///< entries_[end_].newer is the oldest, .older the newest
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> found_;
  std::vector<std::uint32_t> victims_;
};

}  // namespace

std::string_view to_string(SubjectKind kind) {
  constexpr std::array names{"terrace-adaptive", "terrace-lru", "tree", "map", "floor"};
  return names.at(static_cast<std::size_t>(kind));
}

std::unique_ptr<IndexSubject> make_subject(SubjectKind kind, std::uint32_t capacity) {
  switch (kind) {
    case SubjectKind::terrace_adaptive: return std::make_unique<TerraceSubject>(capacity, adaptive_policy);
    case SubjectKind::terrace_lru: return std::make_unique<TerraceSubject>(capacity, lru_policy);
    case SubjectKind::tree: return std::make_unique<TreeIndex>(capacity);
    case SubjectKind::map: return std::make_unique<MapIndex<Prefetch::no>>(capacity);
    case SubjectKind::floor: return std::make_unique<MapIndex<Prefetch::yes>>(capacity);
  }
  return nullptr;
}

}  // namespace terrace::tools
