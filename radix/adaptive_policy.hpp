#pragma once

#include "base/indexed_heap.hpp"
#include "radix/block_records.hpp"
#include "radix/eviction_policy.hpp"
#include "radix/shadow_cache.hpp"

#include <array>
#include <vector>

namespace terrace {

/// Follows whichever of a few rules would have hit most lately; the default.
///
/// *The rules.* All order leaves by last use, but let a block that has come back count as used later than it was, by so many
/// turnovers of the tier (Favour): none (LRU); one (what comes back stays a while longer); or so many that what has not come
/// back goes first (as in LRU-2), where the block came back soon, or at all. No fixed rule is best: the tier that is small for
/// its work must not let new blocks push out proven ones, the one that is large must not keep what was proven long ago. For a
/// tree of prefixes "came back" tells a shared prompt, and a conversation that goes on, from a tail that nobody has asked
/// for again.
///
/// *How it adapts.* Every rule runs a ShadowCache over a fixed sample of the blocks (by their keys: about two thousand of
/// those that fit, all where no more fit), with its part of the capacity. What each hits is counted, and counts half
/// after four capacities of uses (16,384 of the sample at least, or small caches would follow chance). Another rule is taken up
/// once it is ahead by a tenth of a point of hit rate. Of rules that do equally well, and where they have lately hit the very
/// same (everything fits, or nothing comes twice), it is the one that protects proven blocks most: what that costs now
/// is nothing, and a scan may come. Taking one up costs nothing and moves nothing: leaves stand in a heap of their
/// own per standing, in order of use, and a rule is only the favour by which the tops of the three are compared.
///
/// After sampled shadow caches (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
/// simulations", ATC 2017) and the choice among experts by what they lately hit (Gramacy, Warmuth, Brandt, Ari, "Adaptive caching
/// by refetching", NIPS 2002). Ghosts: four times what the tier holds. O(log n) an event, O(1) a used block.
class AdaptivePolicy final : public EvictionPolicy {
 public:
  static constexpr std::size_t ghosts_per_block = 4;
  static constexpr std::size_t rule_count = 4;

  explicit AdaptivePolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const BlockKey& key) override;
  void on_used(std::span<const BlockKey> keys, std::uint64_t stamp) override;
  void on_removed(const BlockKey& key) override;
  void on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override;
  [[nodiscard]] std::size_t bytes_held() const override;
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(); }
  void check_invariants() const override;

  /// Which rule is followed now, from 0 (protects most) to rule_count - 1 (LRU).
  [[nodiscard]] std::size_t rule() const { return rule_; }

 private:
  struct Block {
    std::uint64_t last = 0;       ///< stamp; 0: never used
    std::uint64_t departure = 0;  ///< the how manieth its last was; 0: none, or it has been used since
    Standing standing = Standing::fresh;
    bool awaits_use = false;      ///< it is there, but the use that brought it is still to be told
  };
  struct Age {
    std::uint64_t last_use;
    std::uint32_t depth;
    std::uint32_t node;

    friend bool operator<(const Age& a, const Age& b) {
      if (a.last_use != b.last_use) return a.last_use < b.last_use;
      if (a.depth != b.depth) return a.depth > b.depth;
      return a.node < b.node;
    }
  };
  using Records = BlockRecords<Block>;
  struct Rule {
    ShadowCache shadow;
    double hits = 0;  ///< decayed
  };

  [[nodiscard]] bool sampled(const BlockKey& key) const { return (key.prefix64() >> 32U) % sample_every_ == 0; }
  void come_back(Block& block) const;
  void remember_as_ghost(Records::Index index);
  void use_in_shadows(const BlockKey& key, std::uint64_t stamp);
  void choose_rule();
  void measure_turnover();

  std::size_t capacity_;
  std::size_t ghosts_max_;
  std::uint64_t sample_every_;
  std::size_t sample_capacity_;
  std::uint64_t departures_ = 0;
  std::uint64_t now_ = 0;            ///< the latest stamp
  double turnover_ = 0;              ///< in stamps
  std::uint64_t measured_at_ = 0;    ///< stamp of the turnover's last measurement
  std::size_t inserted_since_ = 0;
  std::size_t uses_until_choice_ = 0;
  double uses_ = 0;                  ///< of the sample, decayed as the rules' hits
  double lately_ = 0;                ///< the same, decayed sooner
  double disputed_ = 0;              ///< of those, which some rules hit and others did not
  std::size_t rule_ = 0;
  Records records_;
  std::vector<Rule> rules_;
  std::array<IndexedHeap<Age>, standing_count> leaves_;  ///< by standing
};

}  // namespace terrace
