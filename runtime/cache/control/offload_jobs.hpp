#pragma once

#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/model_groups.hpp"
#include "runtime/cache/control/shared_questions.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Serves the orders of an OffloadCache: checks them, enforces OffloadLimits, and gives them to the pools (NamedCopies). It also
/// keeps the pins of jobs, and the reservations.
///
/// Threads: the manager's. Errors: a call that fails returns the reason and changes nothing.
class OffloadJobs {
 public:
  OffloadJobs(ManagerState& state, SharedQuestions& questions) : state_{state}, groups_{state.groups}, questions_{questions} {}
  OffloadJobs(const OffloadJobs&) = delete;
  OffloadJobs& operator=(const OffloadJobs&) = delete;

  void set_limits(const OffloadLimits& limits) { limits_ = limits; }
  /// The same as in OffloadCache (include/terrace/offload_cache.hpp).
  void look_up(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, std::span<OffloadHit> hits) const;
  /// The same as OffloadCache::find. `hits`: the present result of look_up() for these keys.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, std::span<const OffloadHit> hits);
  /// How long the question of the last find() took, if that call was the first with its answer.
  [[nodiscard]] std::optional<Duration> take_looked() { return questions_.take_looked(); }
  [[nodiscard]] Result<void> load(const OffloadOrder& order) { return begin(order, Direction::swap_in); }
  [[nodiscard]] Result<void> store(const OffloadOrder& order) { return begin(order, Direction::swap_out); }
  /// Counts an order that the caller refuses before it calls this class.
  [[nodiscard]] Result<void> refuse(const ErrorCode& why) {
    ++state_.offload_totals.refused;
    return why;
  }
  [[nodiscard]] Result<void> cancel(OffloadJobId job);
  /// The transfers for which a stream must wait: OffloadCache::await. Valid until the next call. Fails as OffloadCache::await,
  /// except for the errors of the device.
  [[nodiscard]] Result<std::span<const TransferId>> transfers_for(OffloadJobId job, std::uint32_t layers);
  [[nodiscard]] Result<std::uint32_t> pin(OffloadJobId job, std::span<const BlockKey> keys, KeyOrder order, PoolId pool,
                                          std::span<SlotId> slots, std::uint64_t use);
  [[nodiscard]] Result<void> unpin(OffloadJobId job);
  [[nodiscard]] std::uint64_t new_use() { return state_.new_stamps(); }
  Result<void> touch(std::span<const BlockKey> keys, KeyOrder order, PoolId pool);
  Result<void> end_request(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, std::uint64_t output_tokens);
  Result<void> expect_use(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, Duration in);
  [[nodiscard]] Result<std::uint32_t> reserve(const OffloadOrder& order, std::span<SlotId> slots);
  [[nodiscard]] Result<void> publish(OffloadJobId job, bool filled);
  void stop_accepting() { stopped_ = true; }

  /// The events since the last call, in order for each job. Ends the pins of jobs that have ended.
  void take_events(std::vector<OffloadEvent>& events);
  [[nodiscard]] bool has_events() const {
    return std::ranges::any_of(groups_.pools(), [](const auto& pool) { return pool->named_copies().has_events(); });
  }
  [[nodiscard]] bool alive(OffloadJobId job) const { return jobs_.contains(job); }
  [[nodiscard]] bool idle() const { return jobs_.empty(); }
  [[nodiscard]] bool has_pins() const { return !pins_.empty() || !reservations_.empty(); }
  [[nodiscard]] std::uint32_t unconfirmed() const {
    return groups_.sum([](const TieredPool& pool) { return pool.named_copies().unconfirmed(); });
  }
  [[nodiscard]] std::uint32_t blocks_in_flight() const {
    return groups_.sum([](const TieredPool& pool) { return pool.named_copies().blocks_in_flight(); });
  }
  [[nodiscard]] const OffloadTotals& totals() const { return state_.offload_totals; }
  /// Counts a look-up of the engine. An engine that moves blocks itself may ask again and again before it does: then the blocks
  /// that it pins and reserves count.
  void note_question(std::size_t keys, std::size_t found) {
    if (!engine_moves_) count_asked(keys, found);
  }

 private:
  struct Job {
    PoolId pool;
    Direction direction = Direction::swap_in;
    bool without_slots = false;  ///< the order names no device slots
  };
  struct Pin {
    PoolId pool;
    std::vector<Prefix> prefixes;
    std::uint64_t blocks = 0;  ///< number of blocks that count for OffloadLimits
  };
  struct Reservation {
    PoolId pool;
    NamedCopies::Reserved blocks;
  };

  [[nodiscard]] Result<void> begin(const OffloadOrder& order, Direction direction);
  [[nodiscard]] Result<void> check(const OffloadOrder& order, Direction direction) const;
  [[nodiscard]] Result<void> check_keys(const OffloadOrder& order) const;
  [[nodiscard]] std::optional<BlockRef> block_of(std::size_t i, bool flat) const;
  [[nodiscard]] std::uint64_t stamp_of(std::uint64_t use, std::size_t keys, KeyOrder order, PoolId pool);
  void end_pin(OffloadJobId job);
  void count_asked(std::uint64_t asked, std::uint64_t found) {
    state_.offload_totals.asked += asked;
    state_.offload_totals.found += found;
  }

  ManagerState& state_;
  ModelGroups& groups_;
  SharedQuestions& questions_;
  OffloadLimits limits_;
  std::map<OffloadJobId, Job> jobs_;  ///< jobs that have not ended
  std::map<OffloadJobId, Pin> pins_;
  std::map<OffloadJobId, Reservation> reservations_;
  std::uint64_t pinned_ = 0;    ///< blocks
  std::uint64_t reserved_ = 0;  ///< blocks
  bool stopped_ = false;
  bool engine_moves_ = false;          ///< the engine has asked for slots of the host tier
  std::vector<TransferId> awaited_;    ///< result of the last transfers_for()
  mutable std::vector<Prefix> found_;  ///< scratch
};

}  // namespace terrace
