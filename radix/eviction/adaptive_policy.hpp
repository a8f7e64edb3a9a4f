#pragma once

#include "base/chunked_table.hpp"
#include "radix/eviction/leaf_heaps.hpp"
#include "radix/eviction/reuse_index.hpp"
#include "radix/eviction/shadow_caches.hpp"

#include <boost/circular_buffer.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// The default policy: it evicts the leaf of the lowest *rank*. The rank is the number of hits for each request that the tier
/// would keep the leaf (ReuseRanks). It depends on the leaf's class and age, and is learned from what happened to blocks of the
/// same class and age. docs/design/eviction-policies.md explains each part.
///
/// *Candidates.* Leaves are in one list for each class (ReuseClass), ordered by last use (LeafHeaps). Only the oldest and the
/// newest leaf of each list are compared. The newest one matters: if blocks of a class return late or never, it has to wait
/// longest.
///
/// *Uses.* A request that uses a block uses all blocks before it. So blocks have never been used less often than the blocks after
/// them, and two depths of a node describe all of its blocks.
///
/// *Requests.* The class of a leaf also tells of what kind the last request was that used it: it belongs to the stamp of the use,
/// not to the leaf. A request begins as one that continues another one, or not. If its output length is told at its end
/// (on_ended), this counts instead.
///
/// *The sample.* Which blocks are sampled depends only on their keys. For long prefixes only landmarks are sampled (Landmarks).
/// One sample has up to 8,192 of the blocks that were used lately, evicted blocks included. It shows when blocks are used again
/// (ReuseIntervals), and which blocks return after their eviction. Another one represents 512 blocks of the tier, for
/// ShadowCaches: if LRU has lately had more hits there than the ranks, the policy is LRU.
///
/// *Determined by what happened.* New ranks are made from the counts at every hundredth request, and are valid from the fiftieth
/// request after it. Uses of the sample are noted, and learned in catch_up() or just before they are needed. So a victim does not
/// depend on when catch_up() is called.
///
/// Threads: one. Each event of a run costs O(log n), and reads one of eight keys in a tier of 8,192 blocks or more.
class AdaptivePolicy final : public EvictionPolicy {
 public:
  explicit AdaptivePolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  [[nodiscard]] bool keeps_pinned() const override { return true; }
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_continued(std::uint64_t stamp, std::uint64_t last) override;
  void on_ended(std::uint64_t stamp, std::uint64_t output_tokens) override;
  void on_expected(const BlockRun& blocks, const ExpectedUse& use) override;
  void on_split(NodeId upper, NodeId lower, std::uint32_t depth) override;
  void on_gone(NodeId node, std::uint32_t depth) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::optional<NodeId> victim(TenantIndex tenant) const override;
  [[nodiscard]] bool admits(const Leaf& leaf) const override;
  [[nodiscard]] bool knows_tenants() const override { return true; }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override;
  void catch_up() override { learn(); }
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override;
  [[nodiscard]] EvictionView view() const override;
  /// Returns the number of sampled blocks, those in the tier included.
  [[nodiscard]] std::size_t ghosts() const override { return intervals_.records(); }
  void check_invariants() const override;

  /// Returns true if the policy follows the ranks now, and false if it is LRU.
  [[nodiscard]] bool follows_ranks() const;

 private:
  /// How often a node's blocks were used, by depth: blocks before `used` have been used since they came into the tree, blocks
  /// before `once` once more (or they have returned), and blocks before `twice` at least twice more.
  struct Depths {
    std::uint32_t used = 0;
    std::uint32_t once = 0;
    std::uint32_t twice = 0;

    [[nodiscard]] std::size_t uses_at(std::uint32_t depth) const { return depth < twice ? 2 : depth < once ? 1 : 0; }
    void cut(std::uint32_t depth);
  };
  /// Something to be learned: the use of a sampled block, or the kind of a request.
  struct Noted {
    std::uint64_t name = 0;
    std::uint64_t stamp = 0;
    std::uint8_t uses_or_kind = 0;
    bool is_use = false;
  };
  struct Sampled {
    std::uint64_t name = 0;
    std::uint32_t depth = 0;
  };
  static constexpr std::size_t noted_max = 256;
  static constexpr std::uint64_t kinds_kept = 65'536;

  [[nodiscard]] Depths& depths_of(NodeId node);
  [[nodiscard]] std::size_t uses_of(NodeId node, std::uint32_t depth) const;
  [[nodiscard]] std::size_t class_of(const LeafAge& leaf) const;
  /// The expected use of a node, and its leaf once it is in the line of expected uses.
  struct Told {
    ExpectedUse use;
    LeafAge leaf{};
    TenantIndex tenant = other_tenants;
  };
  [[nodiscard]] Told* expected(NodeId node) const;
  void end_late() const;
  [[nodiscard]] float rank_of(std::size_t line, const LeafAge& leaf) const;
  void begin_request(std::uint64_t stamp);
  void end_expected(NodeId node, std::uint64_t stamp);
  void find_sampled(const BlockRun& blocks, std::uint32_t from);
  [[nodiscard]] std::uint64_t recall(std::uint32_t end, Depths& depths) const;
  [[nodiscard]] std::size_t kind_of(std::uint64_t stamp) const;
  void tell(std::uint64_t stamp, ReuseClass::Kind kind);
  void note(const Noted& noted);
  void learn() const;
  void learn_first() const;
  void make_valid(std::uint64_t stamp) const;
  /// The ends of a list: the leaf that LRU would evict first, and the one of the same priority that it would evict last.
  struct Candidate {
    LeafAge oldest;
    LeafAge newest;
    float rank_of_oldest = 0;
    float rank_of_newest = 0;

    [[nodiscard]] bool newest_goes_first() const { return rank_of_newest < rank_of_oldest; }
    [[nodiscard]] const LeafAge& first() const { return newest_goes_first() ? newest : oldest; }
    [[nodiscard]] float rank() const { return newest_goes_first() ? rank_of_newest : rank_of_oldest; }
  };
  /// The leaves of a class are a line. So are those of which a caller has told when they are used next; the oldest of them is the
  /// one that is used last.
  static constexpr std::size_t expected_line = ReuseClass::count;
  static constexpr std::size_t lines = ReuseClass::count + 1;
  using Candidates = std::array<Candidate, lines>;
  using Classes = std::uint32_t;  ///< bit i: line i
  void give_ranks(Candidate& candidate, std::size_t line) const;
  [[nodiscard]] static const Candidate* first_of(const Candidates& candidates, Classes there);
  [[nodiscard]] const Candidate* next_victim() const;
  void has_changed(std::optional<std::size_t> line) {
    if (line) changed_ |= 1U << *line;
  }

  std::size_t capacity_;
  std::size_t shadow_capacity_;
  std::size_t records_max_;
  std::uint64_t shadow_below_;  ///< a block is in a sample if the upper 32 bits of its key's prefix64() are less than this
  std::uint64_t reuse_below_;
  std::uint64_t now_ = 0;            ///< the latest stamp of a use
  std::vector<std::uint8_t> kinds_;  ///< by stamp: the kind of the request
  Quantile gap_{0.5, 5};
  Quantile short_output_{1.0 / 3, 6};
  Quantile long_output_{2.0 / 3, 8};
  // Const functions that need ranks first do the deferred work, so these members are mutable.
  mutable ShadowCaches shadows_;
  mutable ReuseIntervals intervals_;
  mutable ReuseIntervals::Seen seen_;  ///< the counts from which next_ranks_ are made
  mutable ReuseRanks ranks_;
  mutable ReuseRanks next_ranks_;
  mutable bool has_ranks_ = false;
  mutable std::uint64_t learned_ = 0;   ///< the latest stamp that has been learned
  mutable std::uint64_t read_at_ = 0;   ///< stamp at which the counts are read next
  mutable std::uint64_t valid_at_ = 0;  ///< stamp from which on next_ranks_ are valid; 0: there are none
  mutable boost::circular_buffer<Noted> noted_{noted_max};
  mutable Candidates candidates_{};      ///< by line
  mutable Classes there_ = 0;            ///< the lines that have a candidate
  mutable Classes changed_ = 0;          ///< the lines whose candidate must be read again
  mutable std::uint64_t ranked_at_ = 0;  ///< the request for which the candidates have their ranks; 0: for none
  mutable bool by_rank_ = false;         ///< the rule of the last decision
  std::vector<Sampled> sampled_;         ///< of the last run
  ChunkedTable<Depths> depths_;          ///< by node
  mutable boost::unordered_flat_map<std::uint32_t, Told> expected_;  ///< by node
  mutable ExpectedUses expected_uses_;
  mutable LeafHeaps leaves_{lines};
};

}  // namespace terrace
