#pragma once

#include "base/chunked_table.hpp"
#include "radix/eviction/ghost_table.hpp"
#include "radix/eviction/leaf_heaps.hpp"
#include "radix/eviction/policy_selector.hpp"
#include "radix/eviction/shadow_caches.hpp"

#include <boost/circular_buffer.hpp>

namespace terrace {

/// The default policy: it chooses among four simple rules the rule that recently had the most hits.
///
/// *The rules.* Every rule evicts the least recently used leaf first, but treats a block that has been used again as if its last
/// use were later than it was. The rules differ in this additional time (RecencyBoost, in cache residence times of the tier):
///
/// - none: this is LRU;
/// - one residence time: a reused block stays somewhat longer;
/// - a very large number of residence times, in one rule for blocks that were used again soon, and in another for all blocks that
///   were used again: a block without a second use is always evicted first, as in LRU-2.
///
/// No fixed rule is always best. If the tier is small for its workload, new blocks must not replace blocks that are used
/// repeatedly. If it is large, blocks that were popular long ago must not stay. In a prefix tree, a second use indicates a shared
/// prompt or a conversation that continues. The end of an answer that is never requested again has no second use.
///
/// *Reuse classes.* A request that uses a block uses all blocks before it. So the ReuseClass of blocks never gets better along a
/// prefix, and three depths per node describe all blocks of the node. For evicted blocks, only landmarks are remembered
/// (GhostTable): the first eight blocks of a prefix, and every eighth block after them. When a prefix returns, O(log n) of its
/// landmarks are looked up.
///
/// *The choice of a rule.* Every rule runs a shadow cache over a fixed sample of the blocks, which their keys determine. The
/// sample represents 768 of the blocks that the tier holds, or all blocks if it holds fewer. A tier of 6144 blocks or more
/// samples only landmarks. A landmark after the first eight blocks is eight times as likely to be sampled, because it represents
/// eight blocks. PolicySelector chooses the rule by the hits of the shadow caches: LRU until another rule is clearly ahead, and
/// LRU again when that rule falls behind; while there are no misses, the rule that protects reused blocks most. A change of the
/// rule moves no leaves: there is one heap of leaves per reuse class, ordered by last use, and a rule only compares the tops of
/// the three heaps.
///
/// *Deferred work.* A sampled use takes a few hundred nanoseconds in the shadow caches, and a waiting request needs no rule
/// unless a block must be evicted for it. So sampled uses are recorded, and the shadow caches process them in catch_up(), or
/// directly before a rule is needed. Each record has the residence time at the time of the use, so the result is the same.
///
/// The design follows sampled shadow caches (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using
/// miniature simulations", ATC 2017) and the choice among experts by their recent hits (Gramacy, Warmuth, Brandt, Ari, "Adaptive
/// caching by refetching", NIPS 2002).
///
/// Threads: one. Each event of a run costs O(log n), and reads one of eight keys.
class AdaptivePolicy final : public EvictionPolicy {
 public:
  static constexpr std::size_t rule_count = PolicySelector::rule_count;

  explicit AdaptivePolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  [[nodiscard]] bool keeps_pinned() const override { return true; }
  void on_inserted(const BlockRun& blocks) override;
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const BlockRun& blocks) override;
  void on_split(NodeId upper, NodeId lower, std::uint32_t depth) override;
  void on_gone(NodeId node, std::uint32_t depth) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override { leaves_.erase(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::optional<NodeId> victim(TenantIndex tenant) const override;
  [[nodiscard]] bool knows_tenants() const override { return true; }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override;
  void catch_up() override { learn(); }
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override;
  [[nodiscard]] std::size_t ghosts() const override { return ghosts_.size(); }
  void check_invariants() const override;

  /// Returns the current rule, from 0 (protects reused blocks most) to rule_count - 1 (LRU).
  [[nodiscard]] std::size_t rule() const;

 private:
  /// The reuse classes of a node's blocks, by depth: blocks before `near` are near; blocks from `near` on and before `far` are
  /// far. Blocks before `used` have been used since they were last evicted (or were added to the tree).
  struct Depths {
    std::uint32_t near = 0;
    std::uint32_t far = 0;
    std::uint32_t used = 0;

    void cut(std::uint32_t depth);
  };

  /// A use of a sampled block that the shadow caches have not processed yet.
  struct SampledUse {
    std::uint64_t name = 0;
    std::uint64_t stamp = 0;
    double residence_time = 0;
  };
  static constexpr std::size_t put_off_max = 256;

  [[nodiscard]] Depths& depths_of(NodeId node);
  [[nodiscard]] ReuseClass reuse_class(NodeId node, std::uint32_t depth) const;
  void recall(const BlockRun& blocks, std::uint32_t first, std::uint32_t last);
  void recall_loaded(const BlockRun& blocks, std::uint32_t first, std::uint32_t last);
  void count_inserted(std::size_t blocks);
  void count_loaded(std::size_t blocks);
  void sample(const BlockRun& blocks, std::uint32_t from, std::uint64_t stamp);
  void put_off(const SampledUse& use);
  void learn() const;
  void learn_first() const;
  void measure_residence_time();
  template <class OldestOf>
  [[nodiscard]] std::optional<NodeId> next_victim(OldestOf oldest_of) const;

  std::size_t capacity_;
  std::size_t sample_capacity_;
  std::uint64_t sample_below_;  ///< a block is sampled if the upper 32 bits of its key's prefix64() are less than this
  std::uint64_t evictions_ = 0;
  std::uint64_t now_ = 0;          ///< the latest stamp of a use
  double residence_time_ = 0;      ///< in stamps
  std::uint64_t measured_at_ = 0;  ///< stamp of the last measurement of the residence time
  std::size_t inserted_since_ = 0;
  // Const functions that need the rule first do the deferred work, so these members are mutable.
  mutable ShadowCaches shadows_;
  mutable PolicySelector selector_;
  mutable boost::circular_buffer<SampledUse> put_off_{put_off_max};
  GhostTable ghosts_;
  ChunkedTable<Depths> depths_;  ///< by node
  LeafHeaps leaves_{reuse_class_count};
};

}  // namespace terrace
