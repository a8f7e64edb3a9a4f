#pragma once

#include "base/slab.hpp"
#include "runtime/manager/manager_state.hpp"
#include "runtime/manager/shared_look_ups.hpp"
#include "terrace/clock.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Asks the shared store for OffloadCache::find, whose callers come back for the answer.
///
///     find() --> asked --(SharedLookUps has the answer)--> answered --(told once, and SharedConfig::miss_lifetime)--> forgotten
///
/// A question is named by a digest of all its keys. Callers that ask the same share it. Answers are hints: the blocks
/// are verified when they are read. So a wrong answer costs a miss at most.
///
/// It is bounded. A question for which there is no room is not asked.
///
/// Ownership: OffloadJobs owns it. Threads: the manager's.
class SharedFinds {
 public:
  static constexpr std::size_t finds_max = SharedLookUps::probes_max;

  SharedFinds(ManagerState& state, SharedLookUps& look_ups);
  SharedFinds(const SharedFinds&) = delete;
  SharedFinds& operator=(const SharedFinds&) = delete;

  /// The tiers have the first `local` of the keys, and not the one after them. The result counts these, too.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, std::uint32_t local);
  /// Takes an answer of SharedLookUps.
  void on_answer(std::uint64_t number, std::uint32_t end);
  [[nodiscard]] std::size_t size() const { return finds_.size(); }

 private:
  using Index = std::uint32_t;
  struct Find {
    std::uint64_t name = 0;
    std::uint32_t from = 0;  ///< the first key that was asked for
    std::uint32_t end = 0;   ///< the keys from there to this one are there
    TimePoint until{};       ///< the answer is believed until this time, and at least once
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
  Epoch epoch_;  ///< of all finds
};

}  // namespace terrace
