#pragma once

#include "runtime/measure/load_costs.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/actions.hpp"
#include "runtime/tiering/catalog_recovery.hpp"
#include "runtime/tiering/device_slot_allocator.hpp"
#include "runtime/tiering/flush_scheduler.hpp"
#include "runtime/tiering/hit_count_write_policy.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "runtime/tiering/loads.hpp"
#include "runtime/tiering/pool_resizer.hpp"
#include "runtime/tiering/storage_writer.hpp"
#include "runtime/tiering/swap_outs.hpp"
#include "runtime/tiering/watermark_reclaimer.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/request.hpp"
#include "runtime/types/write_back.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// What of a prefix is there.
struct Found {
  Prefix prefix;
  std::uint32_t on_device = 0;  ///< usable there
  std::uint32_t filling = 0;    ///< on their way there
  bool lower = false;           ///< blocks of the prefix may have copies in other tiers, too
  bool evicting = false;        ///< one of the device copies is
};

/// Blocks of one size, in all tiers: which are cached where, the pools of slots, and what is under way between them. A manager
/// has one for each size of block; groups whose blocks are equally large share it, and so its room, by age alone.
///
/// A group with full attention keeps its blocks as prefixes of the tree. Of others each block is a prefix by itself: nothing
/// hangs on it, so that it is kept, moved, stored and given up alone, by the same rules.
///
/// The parts are public: this class says what belongs together, and holds what concerns all of them. Threads: the manager's.
class TieredPool {
 public:
  /// `sizes`: of this pool, where `config` has the first pool's. `stats`, `events` and `budget` are the manager's.
  TieredPool(PoolId id, const ManagerConfig& config, const PoolSizes& sizes, ManagerStats& stats, KvEvents& events,
             WriteBudget& budget);
  TieredPool(const TieredPool&) = delete;
  TieredPool& operator=(const TieredPool&) = delete;

  /// Where each block of the longest prefix would come from, as far as that is `lowest` or above.
  [[nodiscard]] Found find(std::span<const BlockKey> keys, Tier lowest, std::vector<Tier>& tiers) const;
  /// The prefix, which find() has just found, is wanted: its copies that were on their way out stay; storage hears what is in use
  /// above it.
  void cancel_eviction(const Found& found);
  /// The prefix's blocks from depth `from` on have become shared. Begins the copies to host and storage that the inclusion
  /// policy and the write policy ask for.
  void copy_down(std::uint32_t from, Prefix prefix);

  /// True where the event is of a transfer of this pool; takes its runs then.
  [[nodiscard]] bool on_transfer(TransferEvent& event);
  void on_store(const StoreEvent& event);
  /// Serves those who wait with what has become free. Returns true if anything changed. If there are events then, it has stopped
  /// early: what requests do next goes before what nobody waits for.
  bool pump();
  /// True if device_slots or loads have events that nobody has taken yet.
  [[nodiscard]] bool has_events() const { return device_slots.has_served() || loads.has_events(); }
  /// Makes transfers of what was decided.
  void flush(std::uint64_t& last_transfer);

  /// Forgets everything that is cached; `storage`: there too. What is held or read goes when that ends.
  void clear(bool storage);
  [[nodiscard]] bool any_hidden() const { return residency.tree().any_hidden(); }
  /// Gives up the prefix's device and host copies from its end, up to the first block that others follow, hold or are just
  /// reading. Returns how many device blocks that freed.
  std::uint32_t drop(Prefix prefix);
  /// As CacheManager::evict and find_block.
  [[nodiscard]] EvictedBlocks evict(std::span<const SlotId> slots);
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key) const;
  /// As CacheManager::resize.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing = {});

  [[nodiscard]] Usage usage(Tier tier) const;
  [[nodiscard]] std::uint64_t readers() const {
    return residency.pool(Tier::device).readers_total() + residency.pool(Tier::host).readers_total();
  }
  /// As CacheManager::set_load_costs.
  void set_load_costs(const LoadCosts& now) { load_costs_ = now; }
  [[nodiscard]] const LoadCosts& load_costs() const { return load_costs_; }
  [[nodiscard]] bool idle() const;
  [[nodiscard]] Durability durability() const;
  [[nodiscard]] std::string describe_pending() const;
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;
  [[nodiscard]] std::size_t bytes_held() const { return residency.bytes_held() + hit_count_writes.bytes_held(); }
  /// `held`: device slots that requests hold themselves. `at_rest`: there are no requests and no pins.
  void check_invariants(std::uint64_t held, bool at_rest) const;

  const PoolId id;
  ManagerConfig config;  ///< with the sizes of this pool
  Actions actions;
  Residency residency;
  DeferredEviction deferred_eviction;
  SwapOuts swap_outs;
  FlushScheduler flushes;
  StorageWriter storage_writer;
  HitCountWritePolicy hit_count_writes;
  HostSlotAllocator host_slots;
  DeviceSlotAllocator device_slots;
  PoolResizer resizer;
  WatermarkReclaimer reclaimer;
  Loads loads;
  CatalogRecovery catalog_recovery;

 private:
  bool sweep_hidden();
  [[nodiscard]] bool in_use(BlockRef block) const;

  ManagerStats& stats_;
  LoadCosts load_costs_;
  std::vector<std::pair<BlockRef, Tier>> gone_;   ///< scratch
  std::vector<SwapOuts::Staged> staged_;          ///< scratch
  mutable std::vector<Copy> copies_[tier_count];  ///< scratch of find(), read by cancel_eviction()
};

}  // namespace terrace
