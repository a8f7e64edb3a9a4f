#pragma once

#include "base/chunked_table.hpp"
#include "radix/eviction/ghost_table.hpp"
#include "radix/eviction/leaf_heaps.hpp"
#include "radix/eviction/policy_selector.hpp"
#include "radix/eviction/shadow_caches.hpp"

namespace terrace {

/// Follows whichever of a few rules would have hit most lately.
///
/// *The rules.* All order leaves by last use, but let a block that has come back count as used later than it was, by so many
/// turnovers of the tier (RecencyBoost): none (LRU); one (what comes back stays a while longer); or so many that what has not come
/// back goes first (as in LRU-2), where the block came back soon, or at all. No fixed rule is best: the tier that is small for
/// its work must not let new blocks push out proven ones, the one that is large must not keep what was proven long ago. For a
/// tree of prefixes "came back" tells a shared prompt, and a conversation that goes on, from a tail that nobody has asked
/// for again.
///
/// *What it knows of blocks.* Whoever uses a block uses those before it, so that a block's ReuseClass is never better than its
/// parent's: along a prefix it only falls, and three depths a node say it for all of its blocks. Of blocks that have left, only
/// landmarks are remembered (GhostTable): each of the first eight of a prefix, and every eighth after. A prefix that comes back is
/// looked up at O(log n) of its landmarks.
///
/// *How it adapts.* Every rule runs a shadow cache over a fixed sample of the blocks, chosen by their keys: 768 of those
/// that fit, all where no more fit. Landmarks alone are looked at for it, later ones with eight times the chance, so that every
/// run of blocks has its share. PolicySelector says which to follow: LRU until another is clearly ahead, and again once that
/// is behind; where nothing is missed, the one that protects most. Taking one up moves nothing: leaves stand in a heap of
/// their own per standing, in order of use, and a rule is only the favour by which the tops of the three are compared.
///
/// After sampled shadow caches (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
/// simulations", ATC 2017) and the choice among experts by what they lately hit (Gramacy, Warmuth, Brandt, Ari, "Adaptive caching
/// by refetching", NIPS 2002). O(log n) an event of a run, and a look at one key in eight.
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
  [[nodiscard]] std::size_t rule() const { return choice_.rule(); }

 private:
  /// Of a node's blocks, by depth: those before `near` stand near, those from there to before `far` far; those before `told` have
  /// been used since they last left (or came into the tree).
  struct Depths {
    std::uint32_t near = 0;
    std::uint32_t far = 0;
    std::uint32_t told = 0;

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
  std::uint64_t sample_below_;       ///< of 32 bits of a key: those less are sampled
  std::uint64_t departures_ = 0;
  std::uint64_t now_ = 0;            ///< the latest stamp
  double residence_time_ = 0;              ///< in stamps
  std::uint64_t measured_at_ = 0;    ///< stamp of the turnover's last measurement
  std::size_t inserted_since_ = 0;
  ShadowCaches shadows_;
  PolicySelector choice_;
  GhostTable ghosts_;
  ChunkedTable<Depths> depths_;      ///< by node
  LeafHeaps leaves_{reuse_class_count};
};

}  // namespace terrace
