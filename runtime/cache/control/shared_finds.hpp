#pragma once

#include "base/slab.hpp"
#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/shared_look_ups.hpp"
#include "terrace/clock.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Asks the shared store for OffloadCache::find. The caller of find() calls it again later for the answer.
///
///     find() --> asked --(SharedLookUps has the answer)--> answered --(told once, and SharedConfig::miss_lifetime)--> forgotten
///
/// A question is identified by a digest of all its keys, and callers with the same keys share it. Answers are hints: the blocks
/// are verified when they are read. So a wrong answer costs at most a miss.
///
/// The number of questions is bounded. If there is no room for a question, it is not asked.
///
/// Ownership: OffloadJobs owns it. Threads: the manager's.
class SharedFinds {
 public:
  static constexpr std::size_t finds_max = SharedLookUps::probes_max;

  SharedFinds(ManagerState& state, SharedLookUps& look_ups);
  SharedFinds(const SharedFinds&) = delete;
  SharedFinds& operator=(const SharedFinds&) = delete;

  /// The tiers have the blocks of the first `local` keys, and not the next one. The result includes these blocks.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, std::uint32_t local);
  /// Takes an answer of SharedLookUps.
  void on_answer(std::uint64_t number, std::uint32_t end);
  [[nodiscard]] std::size_t size() const { return finds_.size(); }

 private:
  using Index = std::uint32_t;
  struct Find {
    std::uint64_t name = 0;
    std::uint32_t from = 0;  ///< index of the first key that was asked for
    std::uint32_t end = 0;   ///< the store has the keys from `from` to before this one
    TimePoint until{};       ///< the answer is used until this time, and at least once
    bool answered = false;
    bool told = false;
  };

  [[nodiscard]] static SharedLookUps::Asker asker(Index index) { return {SharedLookUps::Asker::Kind::find, index}; }
  [[nodiscard]] static std::uint64_t name_of(std::span<const BlockKey> keys);
  [[nodiscard]] bool has_room();
  void forget(Index index);
  void forget_before_clear();

  ManagerState& state_;
  SharedLookUps& look_ups_;
  Slab<Find> finds_;
  boost::unordered_flat_map<std::uint64_t, Index> by_name_;
  Epoch epoch_;  ///< the epoch of all finds
};

}  // namespace terrace
