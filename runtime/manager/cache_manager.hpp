#pragma once

#include "runtime/manager/administration.hpp"
#include "runtime/manager/hit_planner.hpp"
#include "runtime/manager/manager_state.hpp"
#include "runtime/manager/requests.hpp"
#include "runtime/manager/write_back_jobs.hpp"
#include "runtime/measure/load_costs.hpp"
#include "runtime/tiering/actions.hpp"
#include "storage/index/block_store.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// The control plane: it decides which request holds which blocks, where each block lives, and what moves.
///
/// It has a part for each concern. Requests serves the requests of engines. HitPlanner answers what a prompt hits. Administration
/// is for what concerns the cache as a whole. WriteBackJobs runs the orders to store blocks. A part knows only the parts named
/// before it in ManagerState, HitPlanner, WriteBackJobs, Requests, Administration.
///
/// It does no I/O, reads no clock, takes no lock and never waits. Its owner (runtime/cache/cache.hpp, or a simulation) carries
/// out `actions()` after each call, and reports how they ended by the calls below.
///
/// Ownership: it owns its parts. Threads: one, for it and its parts.
class CacheManager {
 public:
  /// Throws as validate(), and std::invalid_argument if config.policy makes no policy.
  explicit CacheManager(const ManagerConfig& config);
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  [[nodiscard]] Requests& requests() { return requests_; }
  [[nodiscard]] const Requests& requests() const { return requests_; }
  [[nodiscard]] Administration& administration() { return administration_; }
  [[nodiscard]] const Administration& administration() const { return administration_; }
  [[nodiscard]] WriteBackJobs& write_backs() { return write_backs_; }
  [[nodiscard]] const WriteBackJobs& write_backs() const { return write_backs_; }
  [[nodiscard]] WriteBudget& write_budget() { return state_.write_budget; }
  [[nodiscard]] const WriteBudget& write_budget() const { return state_.write_budget; }

  // ---- what happened elsewhere

  void on_transfer(TransferEvent event);
  /// `event` comes from the pool's store.
  void on_store(const StoreEvent& event, PoolId pool = {});
  /// Fails pending requests whose deadline has passed, and ends loads whose reads are late.
  void on_time(TimePoint now);
  /// The time is at least this. Call before what may begin a load.
  void note_time(TimePoint now) { state_.now = std::max(state_.now, now); }
  /// The same as in HitPlanner.
  [[nodiscard]] bool measures_loads() const { return planner_.measures_loads(); }
  [[nodiscard]] bool learns_prefill() const { return planner_.learns_prefill(); }
  void learn_prefill(double unit_seconds) { planner_.learn_prefill(unit_seconds); }
  /// Sets the present cost of bringing up a block of the pool.
  void set_load_costs(const LoadCosts& costs, PoolId pool = {}) { state_.groups.at(pool).set_load_costs(costs); }
  /// Sets the size of the pool's blocks, for what is counted in bytes. 1 until then.
  void set_block_bytes(Bytes bytes, PoolId pool = {}) { state_.groups.at(pool).set_block_bytes(bytes); }
  /// Call after a batch of the above: serves those who wait with what has become free.
  void settle() { requests_.settle(); }
  /// For blocks that the pool's store holds from before: CatalogRecovery::begin and CatalogRecovery::add.
  void begin_recovery(PoolId pool = {}) { state_.groups.at(pool).begin_recovery(); }
  void recover(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers, PoolId pool = {}) {
    state_.groups.at(pool).recover(blocks, numbers);
  }

  // ---- what is to be done, and what to know

  /// Filled by every call; its owner takes and clears each pool's.
  [[nodiscard]] Actions& actions(PoolId pool = {}) { return state_.groups.at(pool).actions(); }
  [[nodiscard]] TimePoint next_deadline() const;
  /// Transfers, loads and writes to storage under way, or requests that wait.
  [[nodiscard]] bool has_pending_work() const;
  /// For people: what is under way, and who waits.
  [[nodiscard]] std::string describe_pending() const;

  /// Poison mode: its owner overwrites slots as they become free (`device`, `arena`: those since the last call), and says by
  /// when that will be done.
  void remember_freed();
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena, PoolId pool = {});
  void overwritten_by(std::span<const SlotId> device, Fence fence, PoolId pool = {});

  /// Of the device's pool or the host tier's; what an acquire of so many blocks finds.
  [[nodiscard]] Usage usage(Tier tier, PoolId pool = {}) const { return state_.groups.at(pool).usage(tier); }
  /// Slots that a request of so many tokens needs.
  [[nodiscard]] static constexpr std::uint32_t blocks_for(std::uint64_t tokens, std::uint32_t block_tokens) {
    return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
  }
  /// Of the pool's tree. Looks at every node.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const { return residency(pool).tree().counts(); }
  /// For people: what is cached where, one line a node, down to `lines_max` of them.
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;

  [[nodiscard]] const ManagerConfig& config() const { return state_.config; }
  [[nodiscard]] const ManagerStats& stats() const { return state_.stats; }
  [[nodiscard]] Ledger device_ledger(PoolId pool = {}) const { return residency(pool).pool(Tier::device).ledger(); }
  /// Of the host arena: the host tier's slots and the staging slots (held while in use) together.
  [[nodiscard]] Ledger host_ledger(PoolId pool = {}) const { return residency(pool).pool(Tier::host).ledger(); }
  /// Transfers that read a copy just now.
  [[nodiscard]] std::uint64_t readers() const;
  [[nodiscard]] const Residency& residency(PoolId pool = {}) const { return state_.groups.at(pool).residency(); }
  [[nodiscard]] std::size_t pool_count() const { return state_.groups.pools().size(); }
  [[nodiscard]] std::size_t group_count() const { return state_.groups.size(); }
  /// Tokens of a hash unit; 1 for a manager that was given no groups, which does not know.
  [[nodiscard]] std::uint32_t unit_tokens() const { return state_.groups.unit_tokens(); }
  /// Memory of the books that grow with the cached blocks.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  ManagerState state_;
  HitPlanner planner_{state_};
  WriteBackJobs write_backs_;
  Requests requests_{state_, planner_, write_backs_};
  Administration administration_{state_, planner_, requests_, write_backs_};
};

}  // namespace terrace
