#pragma once

#include "radix/eviction/reuse_index.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Simulates two caches of equal capacity over the same uses, one that evicts by LRU and one that evicts by ReuseRanks, and says
/// which of them has lately had more hits. It keeps names and ages, no blocks. The caches need no tree: a block is used whenever
/// its child is used, so its last use is never earlier than the child's.
///
/// Ownership: all memory is taken at construction. Threads: one. A use costs O(1).
class ShadowCaches {
 public:
  static constexpr std::size_t capacity_max = 4096;

  /// `capacity`: blocks of each cache, from 1 to capacity_max. `half_life`: a lead counts half after this many uses.
  ShadowCaches(std::size_t capacity, double half_life);

  /// A request uses a block. `name` identifies the block; two blocks with the same name are treated as one. `ranks`: nullptr
  /// while there are none; then both caches evict by LRU. They may change between the uses of two requests.
  void use(std::uint64_t name, std::uint64_t stamp, std::size_t reuse_class, const ReuseRanks* ranks);
  /// The blocks that the request with this stamp used last are of another kind now.
  void tell(std::uint64_t stamp, std::size_t before, std::size_t kind);
  /// The ranks have had more hits than LRU.
  [[nodiscard]] bool ranks_lead() const { return ranks_lead_; }

  struct OfClass {
    std::uint32_t blocks = 0;  ///< in the cache whose rule leads
    std::uint64_t hits = 0;    ///< of the cache whose rule led at that time; of the class that the block had before
  };
  /// Looks at all records.
  [[nodiscard]] std::array<OfClass, ReuseClass::count> by_class() const;
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  using Index = std::uint16_t;
  static constexpr Index none = 0xFFFF;
  static constexpr std::size_t lru = 0;
  static constexpr std::size_t ranked = 1;

  struct Line {
    Index newest = none;
    Index oldest = none;
  };
  struct Links {
    Index newer = none;
    Index older = none;
  };
  struct Record {
    std::uint64_t name = 0;
    std::uint64_t last = 0;        ///< stamp of the last use
    std::array<Links, 2> links{};  ///< by cache
    Index next = none;             ///< the next record in the same hash bucket, or the next free one
    std::uint8_t holders = 0;      ///< bit i: cache i holds the block
    std::uint8_t reuse_class = 0;
  };

  [[nodiscard]] Index& bucket_of(std::uint64_t name) { return buckets_[name >> 32U & (buckets_.size() - 1)]; }
  [[nodiscard]] Line& line_of(std::size_t cache, const Record& record) {
    return cache == lru ? by_use_ : by_class_[record.reuse_class];
  }
  [[nodiscard]] Index find_or_add(std::uint64_t name);
  void insert(std::size_t cache, Index index);
  void take_out(std::size_t cache, Index index);
  void evict(std::size_t cache, Index index);
  /// The block of a class that goes first.
  struct Candidate {
    float rank = 0;
    Index block = none;  ///< none: all blocks of the class are used by the present request
  };
  [[nodiscard]] Candidate candidate_of(std::size_t reuse_class, const ReuseRanks& ranks) const;
  [[nodiscard]] Index next_by_rank(const ReuseRanks& ranks);

  std::size_t capacity_;
  double fading_;
  double lead_ = 0;
  bool ranks_lead_ = true;
  std::array<std::size_t, 2> blocks_{};
  std::array<std::uint64_t, ReuseClass::count> hits_{};
  Line by_use_;                                     ///< the blocks of the first cache
  std::array<Line, ReuseClass::count> by_class_{};  ///< the blocks of the second one
  std::uint32_t lines_held_ = 0;                    ///< bit i: there are blocks of class i
  std::uint64_t now_ = 0;                           ///< the present request
  std::array<Candidate, ReuseClass::count> candidates_{};
  std::uint32_t stale_ = 0;  ///< bit i: the candidate of class i must be found again
  std::vector<Record> records_;
  Index free_ = none;
  std::vector<Index> buckets_;
};

}  // namespace terrace
