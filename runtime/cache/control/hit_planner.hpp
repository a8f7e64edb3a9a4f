#pragma once

#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/shared_answer.hpp"
#include "runtime/cache/measure/load_costs.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The size of a request.
struct RequestSize {
  std::uint32_t blocks = 0;          ///< hash units in all
  std::uint32_t blocks_now = 0;      ///< hash units for which the request has slots now, or waits for slots
  std::uint32_t key_count = 0;       ///< hash units of the prompt that have a key
  std::uint32_t encoder_tokens = 0;  ///< tokens of the encoder's input
};

/// The contribution of one group to a hit.
struct GroupHit {
  Found found;                   ///< chained group: the prefix; other groups: sums over the unchained blocks
  std::vector<Found> unchained;  ///< the blocks [first, end); a block that only the shared store has is empty before pin_hits()
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  bool serves = true;           ///< false: an optional group that lacks blocks of the hit
  bool looked_up = false;       ///< `reach` has been set by the present look_up()
  std::uint32_t reach = 0;      ///< scratch of look_up(): leading blocks that a chained group has
  std::vector<Source> sources;  ///< sources of the blocks [first, end); not set if single()
};

/// Finds the hit of a prompt, in each group and in all groups together; which of the hits are worth loading; and how many slots
/// the rest of the request needs. It starts nothing and moves nothing; only pin_hits() and unpin_hits() change the cache.
///
/// The hit of a prompt is its longest prefix that every group can serve, apart from optional groups. Each look_up() replaces the
/// results of the one before.
///
/// Threads: the manager's.
class HitPlanner {
 public:
  /// `state` outlives the planner.
  explicit HitPlanner(ManagerState& state);

  /// Returns the number of leading hash units that hit, keys.size() at most. Blocks that only sources beyond `farthest` have do
  /// not hit, and the shared store is not asked. Afterwards hit() and sources() describe this hit.
  [[nodiscard]] std::uint32_t look_up(std::span<const BlockKey> keys, Source farthest) const;
  /// After look_up(): the shared store has the units from the end of the hit up to `units`. They are part of the hit from now on.
  /// Returns `units`. Only for a model with a single group.
  std::uint32_t add_shared(std::uint32_t units) const;
  /// The same as look_up(), including the blocks that the shared store has according to `answer`. For a model with several
  /// groups.
  std::uint32_t look_up_with(const SharedAnswer& answer, std::span<const BlockKey> keys, Source farthest) const;
  /// After look_up(), which found `hits` units of `keys`: returns true if a load of the units up to `all` from the shared store
  /// would be faster than computing them. Does not change hit() and sources().
  [[nodiscard]] bool shared_would_pay(std::uint32_t all, std::uint32_t hits) const;
  [[nodiscard]] bool shared_would_pay(std::span<const BlockKey> keys, std::uint32_t hits, Source farthest) const;

  /// A question for the shared store: which of these blocks it has. A longer hit needs some of them.
  struct Question {
    std::span<const BlockKey> keys;
    std::span<const GroupId> groups;  ///< by key
    /// The first block that no tier has, of each group with full attention. If the store lacks one of them, the hit cannot become
    /// longer.
    std::span<const BlockKey> first_missing;
  };
  /// Makes the question, for a model with several groups whose tiers can serve `found` units of `keys`. `answer` gets the places
  /// of the blocks. The question is valid until the next call. It has no keys if no block of the shared store could make the hit
  /// longer.
  [[nodiscard]] Question ask(std::span<const BlockKey> keys, std::uint32_t found, Source farthest, SharedAnswer& answer) const;
  /// The keys of Question::first_missing that the store does not have, according to a complete answer. Valid until the next call
  /// of this function or of ask().
  [[nodiscard]] std::span<const BlockKey> not_there(std::span<const BlockKey> keys, const SharedAnswer& answer) const;

  [[nodiscard]] const GroupHit& hit(std::size_t group) const { return hits_[group]; }
  /// For each hash unit of the hit, the farthest source from which a group takes it.
  [[nodiscard]] std::span<const Source> sources() const { return found_; }
  /// Number of leading units of the hit that come from the device or the host tier.
  [[nodiscard]] std::uint32_t near_units() const;
  /// Pins all prefixes of the last hit. Adds the units of add_shared() to the tree. `keys` and `tenant` are those of the request.
  void pin_hits(std::span<const BlockKey> keys, TenantId tenant);
  /// Undoes pin_hits(). Call it before anything else changes.
  void unpin_hits();

  /// Returns true if a hit is loaded only when that is faster than computing it, and if the reads of a load have a deadline.
  [[nodiscard]] bool measures_loads() const {
    return state_.config.loads == LoadPolicy::measured &&
           (prefill_is_stated() || state_.config.storage || state_.config.shared.on);
  }
  /// Returns true if learn_prefill() has an effect.
  [[nodiscard]] bool learns_prefill() const { return measures_loads() && !prefill_is_stated(); }
  /// Sets the measured time for computing one hash unit, in seconds. 0: not known. It is used only if the configuration does not
  /// state that time (ManagerConfig::unit_prefill_seconds).
  void learn_prefill(double unit_seconds) { learned_unit_seconds_ = unit_seconds; }
  /// Returns the seconds for computing one hash unit: stated, or learned. 0: not known.
  [[nodiscard]] double unit_seconds() const {
    return prefill_is_stated() ? state_.config.unit_prefill_seconds : learned_unit_seconds_;
  }
  /// Returns how many leading units of the last hit are available earlier if they are loaded than if they are computed. `hits` is
  /// the length of that hit. If the configuration does not state the prefill speed, only loads from storage and from the shared
  /// store are compared with computing. While the speed has not been learned either, the number of these loads is limited
  /// (LoadCosts::reads_max, shared_max), but their time does not count. While copies to the device fail, only what is on the
  /// device counts (LinkGuard).
  [[nodiscard]] std::uint32_t worth_loading(std::uint32_t hits) const;
  /// Returns the deadline for the reads of a load whose units come from the sources `found`: 20 ms plus twice the time for
  /// computing the units from the first one in storage, or farther, on. Waiting longer costs more than computing them. 100 ms if
  /// that time is not known. If loads are not measured: SharedConfig::read_timeout if units come from the shared store, otherwise
  /// `never`.
  [[nodiscard]] TimePoint reads_wanted_by(std::span<const Source> found) const;

  /// Returns how many slots a request needs in the group for blocks after its hits. The hits end before block `from`.
  [[nodiscard]] std::uint32_t new_blocks(std::size_t group, const RequestSize& size, std::uint32_t from) const;
  /// Sets needs[pool] to the number of slots that the request needs in each pool, for blocks that it computes and for hits that
  /// have to be loaded.
  void sum_needs(const RequestSize& size, std::span<std::uint32_t> needs) const;
  /// Returns true if each pool can promise its slots now.
  [[nodiscard]] bool can_promise(std::span<const std::uint32_t> needs) const;
  /// Returns true if each pool has at least this many slots in total.
  [[nodiscard]] bool fit_in_empty_pools(std::span<const std::uint32_t> needs) const;
  /// Returns true if the request would fit into the pools if they were empty. Groups with full attention must hold all its
  /// blocks; other groups must hold the blocks that it has now.
  [[nodiscard]] bool could_ever_fit(const RequestSize& size) const;

 private:
  /// The blocks that the shared store has, in a model with several groups. nullptr: it was not asked.
  struct Elsewhere {
    const SharedAnswer* answer = nullptr;
    bool everything = false;  ///< assume that it has all blocks

    [[nodiscard]] bool has(std::size_t group, std::uint32_t block) const {
      return everything || (answer != nullptr && answer->has(group, block));
    }
  };
  std::uint32_t look_up_groups(std::span<const BlockKey> keys, Source farthest, Elsewhere elsewhere) const;
  void look_up_group(std::size_t group, std::span<const BlockKey> keys, Source farthest, Elsewhere elsewhere) const;
  [[nodiscard]] bool in_tiers(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block, Source farthest) const;
  void note_sources(std::uint32_t hits) const;
  void add_costs(std::size_t group) const;
  [[nodiscard]] bool prefill_is_stated() const { return state_.config.unit_prefill_seconds > 0; }

  ManagerState& state_;
  ModelGroups& groups_;
  double learned_unit_seconds_ = 0;
  mutable std::vector<GroupHit> hits_;            ///< by group
  mutable std::vector<Source> found_;             ///< by hash unit
  mutable std::vector<Source> unchained_source_;  ///< scratch: the source of one unchained block
  mutable std::vector<UnitCost> unit_costs_;      ///< scratch: by hash unit
  mutable std::vector<std::uint32_t> needs_;      ///< scratch: by PoolId
  struct Asked {
    std::uint64_t changes = 0;  ///< PrefixTree::changes() at that time
    std::size_t keys = 0;
    Source farthest = Source::device;
    BlockKey last;
  };
  mutable std::vector<BlockKey> asked_keys_;   ///< result of ask(), like the next two
  mutable std::vector<GroupId> asked_groups_;  ///< by key
  mutable std::vector<BlockKey> first_missing_;
  mutable Asked asked_;  ///< for a single group: the last look_up(), whose results are in hits_ and found_
};

}  // namespace terrace
