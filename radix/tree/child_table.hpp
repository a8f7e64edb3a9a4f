#pragma once

#include "base/block_key.hpp"
#include "base/check.hpp"
#include "base/large_memory.hpp"
#include "radix/eviction/eviction_policy.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace terrace {

/// Nodes by the first key of each: an open-addressing table with linear probing. A bucket has 32 bits of the key beside the node,
/// so that a look-up touches one cache line here and then the node it is after, hardly ever another; those bits say where a
/// bucket belongs, too, so that neither erasing (neighbours move up, nothing is left to clean up later) nor growing looks at
/// nodes or keys. Buckets lie in the order of those bits: the table grows by a quarter, from beginning to end, all at once but
/// as fast as memory is read. Two nodes may have one key: the caller tells them apart. Three fifths to three quarters full.
/// Threads: one.
class ChildTable {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const { return buckets_.size() * sizeof(Bucket); }

  /// The node of this first key that `is_it` accepts; what else it is asked about is rare. Or NodeId{none}.
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
  /// It must be there.
  void erase(const BlockKey& first, NodeId node) {
    std::size_t hole = home(tag_of(first));
    while (buckets_[hole].node != node) {
      TERRACE_CHECK(buckets_[hole].node != empty);
      hole = next(hole);
    }
    for (std::size_t at = next(hole); buckets_[at].node != empty; at = next(at)) {
      if (distance(home(buckets_[at].tag), at) < distance(hole, at)) continue;  // it would come before its home
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

  /// Keys are digests: any of their bits are a hash.
  [[nodiscard]] static std::uint32_t tag_of(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }
  [[nodiscard]] std::size_t home(std::uint32_t tag) const { return std::uint64_t{tag} * buckets_.size() >> 32U; }
  [[nodiscard]] std::size_t next(std::size_t at) const { return at + 1 == buckets_.size() ? 0 : at + 1; }
  /// From one bucket on to another, around the end.
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
