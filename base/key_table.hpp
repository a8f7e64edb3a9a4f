#pragma once

#include "base/check.hpp"
#include "base/large_memory.hpp"
#include "terrace/types.hpp"

#include <algorithm>
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
  /// Loads the home of this hash into the processor's cache.
  void prefetch(std::uint32_t hash) const { __builtin_prefetch(&buckets_[home(hash)]); }
  /// Makes an empty table so large that it does not grow before it has this many buckets that are not empty.
  void reserve(std::size_t size) {
    TERRACE_CHECK(size_ == 0);
    buckets_ = Buckets(std::max(buckets_.size(), size / 3 * 4 + 4));
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

/// Finds things by a key that each of them has; several things may have the same key, and the caller distinguishes them. `Number`
/// is the StrongId of 32 bits by which the caller knows a thing. The highest number means that there is none.
///
/// A bucket holds the number and 32 bits of the key. So a look-up reads one cache line of the table and then, almost always, only
/// the wanted thing. The same 32 bits determine the position of the bucket, so neither erasing nor growing reads things or keys.
/// Keys are digests, so any 32 of their bits are a good hash.
///
/// This class is in base/, because radix/ and storage/ both use it. Threads: one.
template <class Number>
class KeyTable {
 public:
  static constexpr Number none{std::numeric_limits<std::uint32_t>::max()};

  [[nodiscard]] std::size_t size() const { return table_.size(); }
  [[nodiscard]] std::size_t bytes_held() const { return table_.bytes_held(); }
  /// Makes an empty table so large that it does not grow before it has this many entries.
  void reserve(std::size_t entries) { table_.reserve(entries); }

  /// Returns the thing with this key that `is_it` accepts, or `none`. `is_it` is seldom called for another thing.
  template <class IsIt>
  [[nodiscard]] Number find(const BlockKey& key, IsIt&& is_it) const {
    const std::uint32_t tag = tag_of(key);
    return table_.find(tag, [&](const Bucket& bucket) { return bucket.tag == tag && is_it(bucket.number); }).number;
  }
  /// Loads the place of this key into the processor's cache.
  void prefetch(const BlockKey& key) const { table_.prefetch(tag_of(key)); }
  void insert(const BlockKey& key, Number number) { table_.insert({tag_of(key), number}, HashOf{}); }
  /// The entry must be in the table.
  void erase(const BlockKey& key, Number number) { table_.erase({tag_of(key), number}, HashOf{}); }

 private:
  struct Bucket {
    std::uint32_t tag = 0;
    Number number = none;

    [[nodiscard]] bool empty() const { return number == none; }
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  struct HashOf {
    std::uint32_t operator()(const Bucket& bucket) const { return bucket.tag; }
  };

  [[nodiscard]] static std::uint32_t tag_of(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }

  ProbedTable<Bucket> table_;
};

}  // namespace terrace
