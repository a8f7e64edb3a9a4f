#pragma once

#include "base/clock.hpp"
#include "runtime/manager/manager_state.hpp"
#include "runtime/measure/load_costs.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// How much a request wants.
struct RequestSize {
  std::uint32_t blocks = 0;          ///< hash units in all
  std::uint32_t blocks_now = 0;      ///< hash units that it has, or waits for
  std::uint32_t key_count = 0;       ///< hash units of its prompt that have a key
  std::uint32_t encoder_tokens = 0;  ///< of the input of an encoder
};

/// What one group contributes to a hit.
struct GroupHit {
  Found found;                   ///< chained group: the prefix; other groups: sums over the unchained blocks
  std::vector<Found> unchained;  ///< the blocks [first, end)
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  bool serves = true;  ///< false: an optional group that does not have the blocks
  bool looked_up = false;
  std::vector<Tier> tiers;  ///< where the blocks [first, end) come from
};

/// Answers what a prompt hits, in each group and in all groups together, which of the hits are worth loading, and how many slots
/// the rest needs. It decides nothing and moves nothing.
///
/// The hit of a prompt is its longest beginning that every group can serve, except optional groups. Each look_up() replaces the
/// answers of the one before.
///
/// Threads: the manager's.
class HitPlanner {
 public:
  /// `state` outlives the planner.
  explicit HitPlanner(ManagerState& state);

  /// Returns the number of leading hash units that hit, keys.size() at most. Blocks that are only in tiers below `lowest` do not
  /// hit. Afterwards hit() and tiers() describe this hit.
  [[nodiscard]] std::uint32_t look_up(std::span<const BlockKey> keys, Tier lowest) const;
  [[nodiscard]] const GroupHit& hit(std::size_t group) const { return hits_[group]; }
  /// For each hash unit of the hit, the lowest tier from which a group takes it.
  [[nodiscard]] std::span<const Tier> tiers() const { return found_; }
  /// Pins all prefixes of the last hit.
  void pin_hits();
  /// Takes back pin_hits(), before anything else has changed.
  void unpin_hits();

  /// True if a hit is loaded only where that is sooner than computing it, and reads of a load have a deadline.
  [[nodiscard]] bool measures_loads() const {
    return state_.config.loads == LoadPolicy::measured && (prefill_is_stated() || state_.config.storage);
  }
  /// True if learn_prefill() has an effect.
  [[nodiscard]] bool learns_prefill() const { return measures_loads() && !prefill_is_stated(); }
  /// Sets how many seconds it takes to compute a hash unit, as measured; 0: not known. Only used while
  /// ManagerConfig::unit_prefill_seconds is not stated.
  void learn_prefill(double unit_seconds) { learned_unit_seconds_ = unit_seconds; }
  /// Returns how many leading units of the last hit, `hits` long, are there sooner by loading than by computing. If the prefill
  /// speed is not stated, only loads from storage are weighed. While it is not known either, few loads from storage are allowed,
  /// but these are allowed at any cost.
  [[nodiscard]] std::uint32_t worth_loading(std::uint32_t hits) const;
  /// Deadline for the reads of a load whose units are in the tiers `found`: twice the time that computing takes from the first
  /// unit in storage on, and a little more; waiting longer is of no use. A tenth of a second if that time is not known; `never`
  /// if loads are not measured.
  [[nodiscard]] TimePoint reads_wanted_by(std::span<const Tier> found) const;

  /// Slots that a request needs in the group beyond its hits, which end at block `from`.
  [[nodiscard]] std::uint32_t new_blocks(std::size_t group, const RequestSize& size, std::uint32_t from) const;
  /// Sets `needs`, by PoolId, to the slots that the request needs beside those that hold its hits already.
  void sum_needs(const RequestSize& size, std::span<std::uint32_t> needs) const;
  /// True if each pool can promise the slots.
  [[nodiscard]] bool can_promise(std::span<const std::uint32_t> needs) const;
  /// True if the pools could hold the request if they were empty: with full attention all of it, in other groups what it has at
  /// one time.
  [[nodiscard]] bool could_ever_fit(const RequestSize& size) const;

 private:
  void look_up_group(std::size_t group, std::span<const BlockKey> keys, Tier lowest) const;
  void note_tiers(std::uint32_t hits) const;
  void add_costs(std::size_t group) const;
  [[nodiscard]] bool prefill_is_stated() const { return state_.config.unit_prefill_seconds > 0; }
  [[nodiscard]] double unit_seconds() const {
    return prefill_is_stated() ? state_.config.unit_prefill_seconds : learned_unit_seconds_;
  }

  ManagerState& state_;
  ModelGroups& groups_;
  double learned_unit_seconds_ = 0;
  mutable std::vector<GroupHit> hits_;        ///< by group
  mutable std::vector<Tier> found_;           ///< by hash unit
  mutable std::vector<Tier> unchained_tier_;  ///< scratch: where one unchained block comes from
  mutable std::vector<UnitCost> unit_costs_;  ///< scratch: by hash unit
  mutable std::vector<std::uint32_t> needs_;  ///< scratch: by PoolId
};

}  // namespace terrace
