#pragma once

#include "base/chunked_table.hpp"
#include "radix/eviction/ghost_table.hpp"
#include "radix/eviction/leaf_heaps.hpp"
#include "radix/eviction/policy_selector.hpp"
#include "radix/eviction/shadow_caches.hpp"

namespace terrace {

/// The default policy: it follows the one of four simple rules that has lately had the most hits.
///
/// *The rules.* Every rule evicts the least recently used leaf first, but treats a block that has been used again as if its last
/// use were later than it was. The rules differ in how much later (RecencyBoost, in cache residence times of the tier):
///
/// - not at all: this is LRU;
/// - one residence time: a reused block stays a while longer;
/// - very many, for blocks that were used again soon, or for all that were used again at all: a block without a second use always
///   goes first, as in LRU-2.
///
/// No fixed rule is best. Where the tier is small for its work, new blocks must not push out blocks that are used again and
/// again; where it is large, blocks that were popular long ago must not stay. In a tree of prefixes a second use tells a shared
/// prompt, or a conversation that goes on, from the end of an answer that nobody asks for again.
///
/// *What is known of blocks.* A request that uses a block uses all blocks before it. So the ReuseClass of blocks only gets worse
/// along a prefix, and three depths per node describe all blocks of the node. Of evicted blocks only landmarks are remembered
/// (GhostTable): the first eight blocks of a prefix, and every eighth block after. A returning prefix is looked up at O(log n)
/// of its landmarks.
///
/// *How a rule is chosen.* Every rule runs a shadow cache over a fixed sample of the blocks, which their keys decide: 768 blocks
/// of those that fit, or all where fewer fit. Only landmarks are sampled; landmarks after the eighth block have eight times the
/// chance, so that every run of blocks has its share. PolicySelector chooses from what the shadow caches hit: LRU until another
/// rule is clearly ahead, and LRU again once that rule is behind; while nothing is missed, the rule that protects most. A change
/// of the rule moves nothing: leaves stand in one heap per reuse class, by last use, and a rule only compares the tops of the
/// three heaps.
///
/// After sampled shadow caches (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
/// simulations", ATC 2017) and the choice among experts by what they lately hit (Gramacy, Warmuth, Brandt, Ari, "Adaptive caching
/// by refetching", NIPS 2002). O(log n) per event of a run, and a look at one key in eight. Threads: one.
class AdaptivePolicy final : public EvictionPolicy {
 public:
  static constexpr std::size_t rule_count = PolicySelector::rule_count;

  explicit AdaptivePolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const Blocks& blocks) override;
  void on_used(const Blocks& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const Blocks& blocks) override;
  void on_split(NodeId upper, NodeId lower, std::uint32_t depth) override;
  void on_gone(NodeId node, std::uint32_t depth) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override { leaves_.erase(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::optional<NodeId> victim(TenantIndex tenant) const override;
  [[nodiscard]] bool knows_tenants() const override { return true; }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override;
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override;
  [[nodiscard]] std::size_t ghosts() const override { return ghosts_.size(); }
  void check_invariants() const override;

  /// Which rule is followed now, from 0 (protects most) to rule_count - 1 (LRU).
  [[nodiscard]] std::size_t rule() const { return selector_.rule(); }

 private:
  /// The reuse classes of a node's blocks, by depth: blocks before `near` are near, blocks from there to before `far` are far.
  /// Blocks before `used` have been used since they were last evicted (or came into the tree).
  struct Depths {
    std::uint32_t near = 0;
    std::uint32_t far = 0;
    std::uint32_t used = 0;

    void cut(std::uint32_t depth);
  };

  [[nodiscard]] Depths& depths_of(NodeId node);
  [[nodiscard]] ReuseClass reuse_class(NodeId node, std::uint32_t depth) const;
  void sample(const Blocks& blocks, std::uint32_t from, std::uint64_t stamp);
  void measure_residence_time();
  template <class OldestOf>
  [[nodiscard]] std::optional<NodeId> first_to_go(OldestOf oldest_of) const;

  std::size_t capacity_;
  std::size_t sample_capacity_;
  std::uint64_t sample_below_;  ///< of 32 bits of a key: those less are sampled
  std::uint64_t evictions_ = 0;
  std::uint64_t now_ = 0;          ///< the latest stamp
  double residence_time_ = 0;      ///< in stamps
  std::uint64_t measured_at_ = 0;  ///< stamp of the last measurement of the residence time
  std::size_t inserted_since_ = 0;
  ShadowCaches shadows_;
  PolicySelector selector_;
  GhostTable ghosts_;
  ChunkedTable<Depths> depths_;  ///< by node
  LeafHeaps leaves_{reuse_class_count};
};

}  // namespace terrace
