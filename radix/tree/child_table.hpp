#pragma once

#include "base/check.hpp"
#include "base/large_memory.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace terrace {

/// Finds nodes by their first key: a hash table with open addressing and linear probing. Two nodes may have the same first key;
/// the caller distinguishes them.
///
/// A bucket holds the node and 32 bits of the key. So a look-up reads one cache line of the table and then, almost always, only
/// the wanted node. The same 32 bits determine the position of the bucket, so neither erasing nor growing reads nodes or keys.
/// Erasing moves the following buckets up and leaves no tombstone. Growing adds a quarter to the table in one pass from beginning
/// to end, because buckets are in the order of these bits. The table is between three fifths and three quarters full.
///
/// Threads: one.
class ChildTable {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const { return buckets_.size() * sizeof(Bucket); }

  /// Returns the node with this first key that `is_it` accepts, or NodeId{0xFFFF'FFFF} if there is none. `is_it` is seldom called
  /// for another node.
  template <class IsIt>
  [[nodiscard]] NodeId find(const BlockKey& first, IsIt&& is_it) const {
    const std::uint32_t tag = tag_of(first);
    for (std::size_t at = home(tag);; at = next(at)) {
      const Bucket& bucket = buckets_[at];
      if (bucket.node == empty) return empty;
      if (bucket.tag == tag && is_it(bucket.node)) return bucket.node;
    }
  }
  void insert(const BlockKey& first, NodeId node) {
    if ((size_ + 1) * 4 > buckets_.size() * 3) grow();
    put({tag_of(first), node});
    ++size_;
  }
  /// The node must be in the table.
  void erase(const BlockKey& first, NodeId node) {
    std::size_t hole = home(tag_of(first));
    while (buckets_[hole].node != node) {
      TERRACE_CHECK(buckets_[hole].node != empty);
      hole = next(hole);
    }
    for (std::size_t at = next(hole); buckets_[at].node != empty; at = next(at)) {
      if (distance(home(buckets_[at].tag), at) < distance(hole, at)) continue;  // it would be placed before its home
      buckets_[hole] = buckets_[at];
      hole = at;
    }
    buckets_[hole] = {};
    --size_;
  }

 private:
  static constexpr NodeId empty{std::numeric_limits<std::uint32_t>::max()};
  struct Bucket {
    std::uint32_t tag = 0;
    NodeId node = empty;
  };
  using Buckets = std::vector<Bucket, LargeAllocator<Bucket>>;

  /// Keys are digests, so any 32 of their bits are a good hash.
  [[nodiscard]] static std::uint32_t tag_of(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }
  [[nodiscard]] std::size_t home(std::uint32_t tag) const { return std::uint64_t{tag} * buckets_.size() >> 32U; }
  [[nodiscard]] std::size_t next(std::size_t at) const { return at + 1 == buckets_.size() ? 0 : at + 1; }
  /// Number of steps forward from one bucket to another, wrapping at the end of the table.
  [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + buckets_.size() - from;
  }
  void put(Bucket bucket) {
    std::size_t at = home(bucket.tag);
    while (buckets_[at].node != empty) at = next(at);
    buckets_[at] = bucket;
  }
  void grow() {
    const Buckets smaller = std::exchange(buckets_, Buckets(buckets_.size() + buckets_.size() / 4));
    for (const Bucket& bucket : smaller) {
      if (bucket.node != empty) put(bucket);
    }
  }

  Buckets buckets_ = Buckets(64);
  std::size_t size_ = 0;
};

}  // namespace terrace
