#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Whether and how soon a block was used again. The class is known for cached blocks, and for evicted blocks while they have a
/// ghost.
///
///     fresh ──► near   used again while it was cached, or within one cache residence time after its eviction
///       └─────► far    used again later than that (a near block that returns this late becomes far)
enum class ReuseClass : std::uint8_t { fresh, far, near };
inline constexpr std::size_t reuse_class_count = 3;

/// For each reuse class, the time that is added to the last use of a block. The unit is the cache residence time: the time in
/// which the number of blocks that the tier takes in equals its capacity. If all values are 0, the rule is LRU.
struct RecencyBoost {
  std::array<double, reuse_class_count> residence_times{};

  /// Returns the stamp that counts as the last use of a block whose true last use was at `last_use`. `residence_time` is in
  /// stamps.
  [[nodiscard]] double age(ReuseClass reuse_class, std::uint64_t last_use, double residence_time) const {
    return static_cast<double>(last_use) + residence_times[static_cast<std::size_t>(reuse_class)] * residence_time;
  }
};

/// Returns the class of a block that returns after the tier has evicted `evictions` blocks since the eviction of this block.
[[nodiscard]] constexpr ReuseClass reuse_class_on_return(std::uint64_t evictions, std::uint64_t capacity) {
  return evictions <= capacity ? ReuseClass::near : ReuseClass::far;
}

/// Simulates caches of equal capacity over the same uses, each with its own rule (RecencyBoost), and reports which of them would
/// have hit. It keeps names and ages, no blocks. The caches need no tree: a block is used whenever its child is used, so its last
/// use is never earlier than the child's. So eviction by last use alone also evicts a prefix from its end.
///
/// There is one record per block for all rules. It is looked up once for each use and fits a cache line. A block that no rule
/// holds stays recorded while there is room.
///
/// Ownership: all memory is taken at construction. Threads: one. A use costs O(1).
class ShadowCaches {
 public:
  static constexpr std::size_t rule_count = 4;
  static constexpr std::size_t capacity_max = 4096;

  /// `capacity` is the number of blocks that each cache holds, from 1 to capacity_max.
  ShadowCaches(std::size_t capacity, const std::array<RecencyBoost, rule_count>& rules);

  /// Reports that a block was used. Returns the set of the rules that had the block: bit i for rule i. `name` identifies the
  /// block; two blocks with the same name are treated as one. `residence_time` is the current cache residence time, in stamps.
  std::uint32_t use(std::uint64_t name, std::uint64_t stamp, double residence_time);
  /// Prefetches the memory that a use() of this block is likely to need first.
  void prefetch(std::uint64_t name) const {
    if (const Index index = buckets_[bucket(name)]; index != none) __builtin_prefetch(&records_[index], 1);
  }

  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  using Index = std::uint16_t;
  static constexpr Index none = 0xFFFF;
  static constexpr std::size_t ghosts_per_block = 4;

  /// A list of blocks in the order of their last use.
  struct Line {
    Index newest = none;
    Index oldest = none;
    std::size_t size = 0;
  };
  struct Links {
    Index newer = none;
    Index older = none;
  };
  struct Record {
    std::uint64_t name = 0;
    std::uint64_t last = 0;                             ///< stamp of the last use
    std::array<std::uint32_t, rule_count> evictions{};  ///< Rule::evictions when the rule last evicted the block; 0: never
    std::array<Links, rule_count> links;  ///< by rule: its position in a line of the rule, if the rule holds the block
    Links ghost;                          ///< its position in ghosts_, if no rule holds the block
    Index next = none;                    ///< the next record in the same hash bucket, or the next free one
    std::uint8_t holders = 0;             ///< bit i: rule i holds the block
    std::array<ReuseClass, rule_count> reuse_classes{};
  };
  static_assert(sizeof(Record) <= 64);
  struct Rule {
    RecencyBoost recency_boost;
    std::uint32_t evictions = 0;
    std::uint32_t blocks = 0;
    std::array<Line, reuse_class_count> lines{};  ///< the blocks that the rule holds, by reuse class
  };

  [[nodiscard]] std::size_t bucket(std::uint64_t name) const { return name >> 32U & (buckets_.size() - 1); }
  [[nodiscard]] Index& bucket_of(std::uint64_t name) { return buckets_[bucket(name)]; }
  [[nodiscard]] Index find_or_add(std::uint64_t name);
  void forget(Index index);
  template <class LinksOf>
  void push_newest(Line& line, Index index, LinksOf links_of);
  template <class LinksOf>
  void take_out(Line& line, Index index, LinksOf links_of);
  void use_by(std::size_t rule, Index index, double residence_time);
  void evict_one(std::size_t rule, double residence_time);
  [[nodiscard]] auto links_in(std::size_t rule) {
    return [this, rule](Index index) -> Links& { return records_[index].links[rule]; };
  }
  [[nodiscard]] auto links_of_ghost() {
    return [this](Index index) -> Links& { return records_[index].ghost; };
  }
  [[nodiscard]] static Line& line_of(Rule& rule, ReuseClass reuse_class) {
    return rule.lines[static_cast<std::size_t>(reuse_class)];
  }

  std::size_t capacity_;
  std::array<Rule, rule_count> rules_;
  Line ghosts_;
  std::vector<Record> records_;
  Index free_ = none;  ///< the first unused record
  std::vector<Index> buckets_;
};

}  // namespace terrace
