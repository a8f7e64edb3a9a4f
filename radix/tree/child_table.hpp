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

/// A hash table with open addressing and linear probing. Erasing moves the following buckets up and leaves no tombstone. Growing
/// adds a quarter to the table in one pass from beginning to end, because buckets are in the order of their hashes. The table is
/// between three fifths and three quarters full.
///
/// A bucket is empty() if it is default-constructed. A hash has 32 bits; `hash_of` returns that of a bucket. Threads: one.
template <class Bucket>
class ProbedTable {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const { return buckets_.capacity() * sizeof(Bucket); }

  /// Returns the first bucket from the home of this hash on that `is_it` accepts, or an empty one.
  template <class IsIt>
  [[nodiscard]] Bucket find(std::uint32_t hash, IsIt&& is_it) const {
    for (std::size_t at = home(hash);; at = next(at)) {
      const Bucket& bucket = buckets_[at];
      if (bucket.empty() || is_it(bucket)) return bucket;
    }
  }
  template <class HashOf>
  void insert(Bucket bucket, HashOf&& hash_of) {
    if ((size_ + 1) * 4 > buckets_.size() * 3) grow(hash_of);
    put(bucket, hash_of);
    ++size_;
  }
  /// The bucket must be in the table.
  template <class HashOf>
  void erase(Bucket bucket, HashOf&& hash_of) {
    std::size_t hole = home(hash_of(bucket));
    while (buckets_[hole] != bucket) {
      TERRACE_CHECK(!buckets_[hole].empty());
      hole = next(hole);
    }
    for (std::size_t at = next(hole); !buckets_[at].empty(); at = next(at)) {
      if (distance(home(hash_of(buckets_[at])), at) < distance(hole, at)) continue;  // it would be placed before its home
      buckets_[hole] = buckets_[at];
      hole = at;
    }
    buckets_[hole] = {};
    --size_;
  }
  /// Removes all buckets, and keeps the memory.
  void clear() {
    buckets_.assign(buckets_.size(), Bucket{});
    size_ = 0;
  }

 private:
  using Buckets = std::vector<Bucket, LargeAllocator<Bucket>>;

  [[nodiscard]] std::size_t home(std::uint32_t hash) const { return std::uint64_t{hash} * buckets_.size() >> 32U; }
  [[nodiscard]] std::size_t next(std::size_t at) const { return at + 1 == buckets_.size() ? 0 : at + 1; }
  /// Number of steps forward from one bucket to another, wrapping at the end of the table.
  [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + buckets_.size() - from;
  }
  template <class HashOf>
  void put(const Bucket& bucket, HashOf&& hash_of) {
    std::size_t at = home(hash_of(bucket));
    while (!buckets_[at].empty()) at = next(at);
    buckets_[at] = bucket;
  }
  template <class HashOf>
  void grow(HashOf&& hash_of) {
    const Buckets smaller = std::exchange(buckets_, Buckets(buckets_.size() + buckets_.size() / 4));
    for (const Bucket& bucket : smaller) {
      if (!bucket.empty()) put(bucket, hash_of);
    }
  }

  Buckets buckets_ = Buckets(64);
  std::size_t size_ = 0;
};

/// Finds nodes by their first key. Two nodes may have the same first key; the caller distinguishes them.
///
/// A bucket holds the node and 32 bits of the key. So a look-up reads one cache line of the table and then, almost always, only
/// the wanted node. The same 32 bits determine the position of the bucket, so neither erasing nor growing reads nodes or keys.
///
/// Threads: one.
class ChildTable {
 public:
  [[nodiscard]] std::size_t size() const { return table_.size(); }
  [[nodiscard]] std::size_t bytes_held() const { return table_.bytes_held(); }

  /// Returns the node with this first key that `is_it` accepts, or NodeId{0xFFFF'FFFF} if there is none. `is_it` is seldom called
  /// for another node.
  template <class IsIt>
  [[nodiscard]] NodeId find(const BlockKey& first, IsIt&& is_it) const {
    const std::uint32_t tag = tag_of(first);
    return table_.find(tag, [&](const Bucket& bucket) { return bucket.tag == tag && is_it(bucket.node); }).node;
  }
  void insert(const BlockKey& first, NodeId node) { table_.insert({tag_of(first), node}, HashOf{}); }
  /// The node must be in the table.
  void erase(const BlockKey& first, NodeId node) { table_.erase({tag_of(first), node}, HashOf{}); }

 private:
  static constexpr NodeId none{std::numeric_limits<std::uint32_t>::max()};
  struct Bucket {
    std::uint32_t tag = 0;
    NodeId node = none;

    [[nodiscard]] bool empty() const { return node == none; }
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  struct HashOf {
    std::uint32_t operator()(const Bucket& bucket) const { return bucket.tag; }
  };

  /// Keys are digests, so any 32 of their bits are a good hash.
  [[nodiscard]] static std::uint32_t tag_of(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }

  ProbedTable<Bucket> table_;
};

}  // namespace terrace
