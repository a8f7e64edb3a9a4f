#pragma once

#include "radix/eviction/reuse_class.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// What caches of so many blocks would hit, each by a rule of its own (RecencyBoost), of the same uses: names and ages, no
/// blocks. They know no tree and need none: a parent's age is no less than its child's (it is used whenever the child is), so
/// that by age alone a prefix would go from its end too.
///
/// One record a block serves all rules: it is looked up once, and lies in a cache line. A block that no rule holds is
/// remembered for as long as there is room. O(1) a use; memory is taken at construction. Threads: one.
class ShadowCaches {
 public:
  static constexpr std::size_t rule_count = 4;
  static constexpr std::size_t capacity_max = 4096;

  /// `capacity`: of each, from 1 to capacity_max.
  ShadowCaches(std::size_t capacity, const std::array<RecencyBoost, rule_count>& rules);

  /// A set of the rules that had the block: bit i for rule i. `name`: its own; two blocks of one name would be one.
  /// `residence_time`: the cache residence time now, in stamps.
  std::uint32_t use(std::uint64_t name, std::uint64_t stamp, double residence_time);

  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  using Index = std::uint16_t;
  static constexpr Index none = 0xFFFF;
  static constexpr std::size_t ghosts_per_block = 4;

  /// A line of blocks in order of use.
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
    std::uint64_t last = 0;                             ///< stamp
    std::array<std::uint32_t, rule_count> evictions{};  ///< Rule::evictions when the rule last evicted this; 0: never
    std::array<Links, rule_count> links;                ///< in the rule's line where it is there
    Links ghost;                                        ///< in the line of those that no rule holds
    Index next = none;                                  ///< in its bucket
    std::uint8_t holders = 0;                           ///< bit i: rule i has it
    std::array<ReuseClass, rule_count> reuse_classes{};
  };
  static_assert(sizeof(Record) <= 64);
  struct Rule {
    RecencyBoost recency_boost;
    std::uint32_t evictions = 0;
    std::uint32_t blocks = 0;
    std::array<Line, reuse_class_count> lines{};  ///< of what is there, by reuse class
  };

  [[nodiscard]] Index& bucket_of(std::uint64_t name) { return buckets_[name >> 32U & (buckets_.size() - 1)]; }
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
  std::vector<Index> free_;
  std::vector<Index> buckets_;
};

}  // namespace terrace
