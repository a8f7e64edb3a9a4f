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
  std::vector<Found> unchained;  ///< the blocks [first, end); a block that only the shared store has is empty before pin_hit()
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  bool serves = true;           ///< false: an optional group that lacks blocks of the hit
  std::vector<Source> sources;  ///< sources of the blocks [first, end)
  bool looked_up = false;       ///< scratch of find_hit(): `reach` is set
  std::uint32_t reach = 0;      ///< scratch of find_hit(): leading blocks that a chained group has
};

/// The hit of a prompt: its longest prefix that every group can serve, apart from optional groups, at the time of the look-up.
/// Whoever looks up keeps a Hit, so that its memory is used again.
///
/// It is valid until the cache changes. Units: hash units.
struct Hit {
  std::uint32_t units = 0;           ///< its length
  std::vector<GroupHit> groups;      ///< by GroupId
  std::vector<Source> unit_sources;  ///< empty if each unit is a block of the only group

  /// For each unit, the farthest source from which a group takes it.
  [[nodiscard]] std::span<const Source> sources() const { return unit_sources.empty() ? groups.front().sources : unit_sources; }
  /// Returns true if it is known without a look at each unit that the device has all of them.
  [[nodiscard]] bool all_on_device() const { return unit_sources.empty() && groups.front().found.on_device == units; }
  /// Number of leading units that come from the device or the host tier.
  [[nodiscard]] std::uint32_t near_units() const;

  /// The question that it answers. Only HitPlanner::find_hit() uses it, and only with a single group.
  struct Asked {
    std::uint64_t changes = 0;  ///< PrefixTree::changes() at that time
    std::size_t keys = 0;       ///< 0: no question
    Source farthest = Source::device;
    BlockKey last;
  } asked;
};

/// Finds the hit of a prompt, in each group and in all groups together; which of the hits are worth loading; and how many slots
/// the rest of the request needs. It starts nothing and moves nothing; only pin_hit() and unpin_hit() change the cache.
///
/// Ownership: its callers own the hits that it fills. Threads: the manager's.
class HitPlanner {
 public:
  /// `state` outlives the planner.
  explicit HitPlanner(ManagerState& state);

  /// Sets `hit` to the hit of `keys`. Blocks that only sources beyond `farthest` have do not hit. `shared`: what the shared store
  /// has, according to its answer; it is not asked.
  void find_hit(std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared, Hit& hit);
  void find_hit(std::span<const BlockKey> keys, Source farthest, Hit& hit) { find_hit(keys, farthest, SharedAnswer{}, hit); }
  /// Returns true if a load of more than `hits` units of `keys` would be faster than computing them if the shared store had all
  /// of them.
  [[nodiscard]] bool shared_would_pay(std::span<const BlockKey> keys, std::uint32_t hits, Source farthest);
  /// Pins all prefixes of the hit. Adds the units that only the shared store has to the tree. `keys` and `tenant` are those of
  /// the request.
  void pin_hit(Hit& hit, std::span<const BlockKey> keys, TenantId tenant);
  /// Undoes pin_hit(). Call it before anything else changes.
  void unpin_hit(const Hit& hit);

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
  /// Returns how many leading units of the hit are available earlier if they are loaded than if they are computed. If the
  /// configuration does not state the prefill speed, only loads from storage and from the shared store are compared with
  /// computing. While the speed has not been learned either, the number of these loads is limited (LoadCosts::reads_max,
  /// shared_max), but their time does not count. While copies to the device fail, only what is on the device counts (LinkGuard).
  [[nodiscard]] std::uint32_t worth_loading(const Hit& hit);
  /// Returns the deadline for the reads of a load whose units come from the sources `found`: 20 ms plus twice the time for
  /// computing the units from the first one in storage, or farther, on. Waiting longer costs more than computing them. 100 ms if
  /// that time is not known. If loads are not measured: SharedConfig::read_timeout if units come from the shared store, otherwise
  /// `never`.
  [[nodiscard]] TimePoint reads_wanted_by(std::span<const Source> found) const;

  /// Returns how many slots a request needs in the group for blocks after its hits. The hits end before block `from`.
  [[nodiscard]] std::uint32_t new_blocks(std::size_t group, const RequestSize& size, std::uint32_t from) const;
  /// Sets needs[pool] to the number of slots that the request needs in each pool, for blocks that it computes and for blocks of
  /// its hit that have to be loaded.
  void sum_needs(const RequestSize& size, const Hit& hit, std::span<std::uint32_t> needs) const;
  /// Returns true if each pool can promise its slots now, and `left` more.
  [[nodiscard]] bool can_promise(std::span<const std::uint32_t> needs, std::uint64_t left = 0) const;
  /// Returns true if each pool has at least this many slots in total.
  [[nodiscard]] bool fit_in_empty_pools(std::span<const std::uint32_t> needs) const;
  /// Returns true if the request would fit into the pools if they were empty. Groups with full attention must hold all its
  /// blocks; other groups must hold the blocks that it has now.
  [[nodiscard]] bool could_ever_fit(const RequestSize& size, const Hit& hit);

 private:
  void find_hit_of_groups(std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared, Hit& hit);
  void find_hit_of_group(std::size_t group, std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared,
                         GroupHit& hit);
  void note_sources(Hit& hit) const;
  void add_costs(std::size_t group, const GroupHit& hit);
  [[nodiscard]] bool prefill_is_stated() const { return state_.config.unit_prefill_seconds > 0; }

  ManagerState& state_;
  ModelGroups& groups_;
  double learned_unit_seconds_ = 0;
  Hit if_shared_;                         ///< scratch of shared_would_pay()
  std::vector<Source> unchained_source_;  ///< scratch: the source of one unchained block
  std::vector<UnitCost> unit_costs_;      ///< scratch: by hash unit
  std::vector<std::uint32_t> needs_;      ///< scratch: by PoolId
};

}  // namespace terrace
