#pragma once

#include "runtime/cache/index/deferred_eviction.hpp"
#include "runtime/cache/index/residency.hpp"
#include "runtime/cache/measure/load_costs.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "runtime/cache/orders/erasure.hpp"
#include "runtime/cache/orders/flush_scheduler.hpp"
#include "runtime/cache/pool/catalog_recovery.hpp"
#include "runtime/cache/pool/device_slot_allocator.hpp"
#include "runtime/cache/pool/hit_count_write_policy.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/loads.hpp"
#include "runtime/cache/pool/named_copies.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/pool_resizer.hpp"
#include "runtime/cache/pool/shared_writer.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "runtime/cache/pool/stored_reads.hpp"
#include "runtime/cache/pool/swap_outs.hpp"
#include "runtime/cache/pool/watermark_reclaimer.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"
#include "terrace/write_back.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// The part of a prefix that some tier can serve.
struct Found {
  Prefix prefix;
  std::uint32_t on_device = 0;  ///< blocks that are usable on the device
  std::uint32_t filling = 0;    ///< blocks that a load is bringing to the device
  bool evicting = false;        ///< at least one of the device copies is being evicted
};

/// Blocks that a request has computed in one group, one after the other.
struct ComputedBlocks {
  Prefix held;                       ///< the blocks before them, which the request has pinned; empty for an unchained block
  std::span<const BlockKey> keys;    ///< one key per block
  std::span<const SlotId> slots;     ///< one device slot per block, held by the request
  std::uint32_t first_in_table = 0;  ///< index of the first block in the request's block table
  TenantId tenant;
  GroupId group;
  Fence written;            ///< the slots hold the blocks when compute reaches this point
  std::uint64_t stamp = 0;  ///< stamp of the request's last use
  bool companion = false;   ///< an unchained block that is of use only with a block of another group (Companion)
};

/// The cached blocks of one size in all tiers: where each block has copies, the slots of each tier, and the transfers and writes
/// under way between the tiers. A manager has one TieredPool for each block size. Groups whose blocks are equally large share
/// a pool, and one eviction order.
///
/// Blocks of a group with full attention are prefixes in the tree. A block of any other group is a prefix of length one: no other
/// block depends on it, so it is kept, moved, stored and evicted alone.
///
/// The constructor connects the parts (Residency, Loads, StorageWriter and others) with each other. Other classes use some of
/// them directly, through the accessors. They only read Residency.
///
/// Threads: the manager's.
class TieredPool {
 public:
  /// `config` has the sizes of all pools. It, `stats`, `shared`, `events`, `budget`, `offload_totals`, `shared_writes` and `link`
  /// belong to the manager, and outlive the pool.
  TieredPool(PoolId id, const ManagerConfig& config, ManagerStats& stats, SharedTotals& shared, KvEvents& events,
             WriteBudget& budget, OffloadTotals& offload_totals, SharedWriteLimits& shared_writes, LinkGuard& link,
             const TimePoint& now);
  TieredPool(const TieredPool&) = delete;
  TieredPool& operator=(const TieredPool&) = delete;

  [[nodiscard]] PoolId id() const { return id_; }
  [[nodiscard]] const PoolSizes& sizes() const { return sizes_; }
  [[nodiscard]] const Residency& residency() const { return residency_; }
  [[nodiscard]] const StoredReads& stored_reads() const { return stored_reads_; }
  [[nodiscard]] const PoolResizer& resizer() const { return resizer_; }
  [[nodiscard]] DeviceSlotAllocator& device_slots() { return device_slots_; }
  [[nodiscard]] const DeviceSlotAllocator& device_slots() const { return device_slots_; }
  [[nodiscard]] Loads& loads() { return loads_; }
  [[nodiscard]] const Loads& loads() const { return loads_; }
  [[nodiscard]] NamedCopies& named_copies() { return named_copies_; }
  [[nodiscard]] const NamedCopies& named_copies() const { return named_copies_; }
  [[nodiscard]] StorageWriter& storage_writer() { return storage_writer_; }
  [[nodiscard]] const StorageWriter& storage_writer() const { return storage_writer_; }
  /// Returns nullptr if there is no shared store.
  [[nodiscard]] SharedWriter* shared_writer() { return shared_writer_ ? &*shared_writer_ : nullptr; }
  [[nodiscard]] const SharedWriter* shared_writer() const { return shared_writer_ ? &*shared_writer_ : nullptr; }
  [[nodiscard]] FlushScheduler& flushes() { return flushes_; }
  [[nodiscard]] CatalogRecovery& catalog_recovery() { return catalog_recovery_; }
  /// The work that the pool wants done. The owner of the manager takes and clears it.
  [[nodiscard]] Actions& actions() { return actions_; }
  [[nodiscard]] const Actions& actions() const { return actions_; }

  // ---- prefixes of requests

  /// The longest prefix whose blocks can come from `farthest` or a nearer source. `sources` gets one source per block: the tier
  /// or store that would serve it. A block that only the shared store has counts only if a load is bringing it already.
  [[nodiscard]] Found find(std::span<const BlockKey> keys, Source farthest, std::vector<Source>& sources) const;
  /// A request uses the prefix that find() has just found: updates its last use, cancels evictions of its device copies, and
  /// tells storage and the write policy of the hit.
  void hit(const Found& found, std::uint64_t stamp);
  /// Keeps the device copies of the prefix that were going to be evicted.
  void cancel_evictions(Prefix prefix);
  /// Shares blocks that a request has computed, and copies them to the lower tiers as the inclusion policy and the write policy
  /// say. Returns the prefix that includes the new blocks; this prefix is pinned in place of `computed.held`. It ends before the
  /// first block that a load is bringing to the device. If a block has a device copy already, that copy is shared. The block is
  /// then appended to `duplicates`, and the request keeps its own slot.
  [[nodiscard]] Prefix commit(const ComputedBlocks& computed, std::vector<Duplicate>& duplicates);
  /// The same as in Residency.
  void pin(Prefix prefix) { residency_.pin(prefix); }
  /// The shared store has the blocks of `keys`, which follow the prefix `at`. Adds them without copies, and pins the whole
  /// prefix.
  [[nodiscard]] Prefix extend_pinned(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group) {
    return residency_.extend_pinned(at, keys, tenant, group);
  }
  void unpin(Prefix prefix) { residency_.unpin(prefix); }
  void unpin_incomplete(Prefix prefix) { residency_.unpin_incomplete(prefix); }
  /// Unpins the prefix. If the manager stores without caching, drops the copies that are not needed any more
  /// (DeferredEviction::not_needed).
  void let_go(Prefix prefix) {
    residency_.unpin(prefix);
    if (prefix.length > 0) deferred_eviction_.not_needed(prefix.last());
  }
  /// Ties a block of the pool `of` to one of this pool.
  void tie(BlockRef owner, TieredPool& of, BlockRef companion, bool ends_hit) {
    residency_.tie(owner, of.residency_, companion, ends_hit);
  }
  void need_companions(GroupId group) { residency_.need_companions(group); }
  void retain(Prefix prefix, RetentionId id, Priority priority) { residency_.retain(prefix, id, priority); }
  void end_retention(Prefix prefix, RetentionId id) { residency_.end_retention(prefix, id); }
  void set_quota(TenantId tenant, TenantQuota quota) { residency_.set_quota(tenant, quota); }
  bool remove_quota(TenantId tenant) { return residency_.remove_quota(tenant); }
  /// Drops the prefix's device and host copies, from its last block towards its first. It stops at a block that is pinned, whose
  /// copy a transfer reads or fills, or that another block follows. Returns the number of device slots that became free.
  std::uint32_t drop(Prefix prefix);

  // ---- device slots of requests. The members of DeviceSlotAllocator say more.

  /// Appends `slots` slots to `out`. If fewer are free, it appends those, promises the others to `waiter`, and returns false.
  [[nodiscard]] bool take_or_wait(std::uint32_t waiter, std::uint32_t slots, TenantId tenant, std::vector<SlotId>& out) {
    reclaimer_.on_request(slots);
    return device_slots_.take_or_wait(waiter, slots, tenant, out);
  }
  /// Takes slots that DeviceSlotAllocator::give_up_chosen has freed.
  void take_given_up(std::uint32_t count, std::vector<SlotId>& out) { residency_.take_device(count, std::nullopt, out); }
  void free_slots(std::span<const SlotId> slots) { residency_.free_slots(Tier::device, slots); }
  void quarantine(SlotId slot) { residency_.quarantine(slot); }
  void raise_fences(std::span<const SlotId> slots, Fence fence) { residency_.raise_fences(slots, fence); }

  // ---- settings

  /// The same as CacheManager::set_load_costs.
  void set_load_costs(const LoadCosts& now) { load_costs_ = now; }
  [[nodiscard]] const LoadCosts& load_costs() const { return load_costs_; }
  /// The settings of the configuration have changed.
  void on_settings() { hit_count_writes_.on_settings(); }
  /// The same as Residency::set_policies.
  void set_policies(Residency::Policies policies) { residency_.set_policies(std::move(policies)); }

  // ---- copies to and from slots that a caller names. The members of NamedCopies say more.

  /// Updates the last use of those blocks that are cached.
  void use_named(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t stamp);
  /// The same as PrefixTree::expect.
  std::uint32_t expect(Prefix prefix, const ExpectedUse& use) { return residency_.expect(prefix, use); }
  /// The request with this stamp, or the one that was the last to use these blocks, has written so many output tokens. The former
  /// still pins its blocks.
  void end_request(std::uint64_t stamp, std::uint64_t output_tokens) { residency_.end_request(stamp, output_tokens); }
  void end_request(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t output_tokens);
  /// Starts a load job. The order has been checked (NamedCopies::check). `stamp`: the stamp of this use of the blocks. If they
  /// stand alone, there is one stamp per key, and `stamp` is the first. `group`: the group of the blocks.
  void load_named(const OffloadOrder& order, std::optional<TimePoint> shared_until, std::uint64_t stamp, GroupId group = {});

  // ---- storage and the shared store

  /// A read of the pool has ended. `token` is that of its order.
  void on_shared_read(std::uint32_t token, ErrorCode error) {
    stored_reads_.on_read(token, error);
    hand_out_reads();
  }

  // ---- events and time

  /// Returns false if the event is not about a transfer of this pool. Otherwise handles it, and
  /// keeps the memory of its runs for later transfers.
  [[nodiscard]] bool on_transfer(TransferEvent& event);
  void on_store(const StoreEvent& event);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// Returns true if neither pump() nor start_transfers() has anything to do, which is the usual case.
  [[nodiscard]] bool rests() const {
    return device_slots_.idle() && !has_events() && resizer_.rests() && host_slots_.rests() && swap_outs_.rests() &&
           loads_.rests() && named_copies_.rests() && stored_reads_.rests() && storage_writer_.rests() && !any_hidden() &&
           (!shared_writer_ || shared_writer_->rests());
  }
  /// Call this when slots may have been taken since the last pump(). pump() calls it, too.
  void on_slots_taken() { reclaimer_.on_slots_taken(); }
  /// Gives free slots to the requests and transfers that wait for them. Returns true if anything changed. It stops early, and
  /// returns true, when there are events to take (has_events). The caller takes them and calls it again, so that these requests
  /// continue before work that no request waits for.
  bool pump();
  /// Does the work that no request waits for: updates the eviction policies, and evicts what the watermarks ask for
  /// (WatermarkReclaimer::pump). Call it when pump() has nothing left to do. Returns true if anything was evicted.
  bool reclaim() {
    catch_up();
    return reclaimer_.pump();
  }
  /// Updates the eviction policies.
  void catch_up() { residency_.catch_up(); }
  [[nodiscard]] bool wants_reclaim() const { return reclaimer_.is_due(); }
  void make_room(Tier tier, std::uint64_t slots) { reclaimer_.make_room(tier, slots); }
  /// Returns true if DeviceSlotAllocator::take_served or Loads::take_events has something to take.
  [[nodiscard]] bool has_events() const { return device_slots_.has_served() || loads_.has_events(); }
  /// Makes transfers of the copies that have been decided on since the last call.
  void start_transfers(std::uint64_t& last_transfer);

  // ---- the pool as a whole

  /// Forgets everything that is cached. A copy that is pinned or read is dropped when that ends. Unless `keep_storage`, the
  /// blocks in storage and those that are being written to it are removed, too. `stored` has the keys of the first blocks of the
  /// prefixes in storage; the store removes the blocks that follow them.
  void clear(bool keep_storage, std::span<const BlockKey> stored);
  /// The same as Cache::erasing.
  [[nodiscard]] bool erasing() const { return erasure_.pending(); }
  [[nodiscard]] bool any_hidden() const { return residency_.tree().any_hidden(); }
  /// The same as Administration::evict and find_block.
  [[nodiscard]] EvictedBlocks evict(std::span<const SlotId> slots);
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key) const;
  [[nodiscard]] BlockPlace place_of(BlockRef block) const;
  /// The same as Administration::resize.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing = {}) {
    return resizer_.resize(tier, blocks, closing);
  }
  void open_host(SlotSpan slots) { resizer_.open_host(slots); }
  /// The same as in Residency.
  void follow_sample(std::uint32_t one_in) { residency_.follow_sample(one_in); }
  void tell(MissReasons& misses) {
    residency_.tell(misses);
    misses_ = &misses;
  }
  [[nodiscard]] ResidencySample& sample() { return residency_.sample(); }
  /// For the poison mode: the same as CacheManager::remember_freed, take_freed and overwritten_by.
  void remember_freed() { residency_.remember_freed(); }
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena) { residency_.take_freed(device, arena); }
  void overwritten_by(std::span<const SlotId> device, Fence fence);

  [[nodiscard]] Usage usage(Tier tier) const;
  /// Transfers that read a device or host copy now, counted once per copy.
  [[nodiscard]] std::uint64_t readers() const {
    return residency_.slots_of(Tier::device).readers_total() + residency_.slots_of(Tier::host).readers_total();
  }
  [[nodiscard]] bool idle() const;
  [[nodiscard]] Durability durability() const;
  [[nodiscard]] std::string describe_pending() const;
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;
  [[nodiscard]] std::size_t bytes_held() const { return residency_.bytes_held() + hit_count_writes_.bytes_held(); }
  /// `held`: number of device slots that requests hold and that hold no cached block. `at_rest`: there are no requests and no
  /// pins.
  void check_invariants(std::uint64_t held, bool at_rest) const;

 private:
  void tell_storage_of_hit(const Found& found);
  void use(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t stamp);
  void copy_down(std::uint32_t from, Prefix prefix);
  void hand_out_reads();
  void note_damage(const StoreEvent& event);
  bool sweep_hidden();
  [[nodiscard]] bool in_use(BlockRef block) const;

  PoolId id_;
  const ManagerConfig& config_;
  const PoolSizes& sizes_;  ///< in config_
  Actions actions_;
  Residency residency_;
  DeferredEviction deferred_eviction_;
  PoolPart part_;  ///< the next members are made with it
  SwapOuts swap_outs_;
  FlushScheduler flushes_;
  Erasure erasure_{flushes_};
  StorageWriter storage_writer_;
  HitCountWritePolicy hit_count_writes_;
  HostSlotAllocator host_slots_;
  DeviceSlotAllocator device_slots_;
  PoolResizer resizer_;
  WatermarkReclaimer reclaimer_;
  StoredReads stored_reads_;
  Loads loads_;
  std::optional<SharedWriter> shared_writer_;
  MissReasons* misses_ = nullptr;  ///< null: the reasons of misses are not recorded
  NamedCopies named_copies_;
  CatalogRecovery catalog_recovery_;

  ManagerStats& stats_;
  LinkGuard& link_;
  LoadCosts load_costs_;
  std::vector<std::pair<BlockRef, Tier>> gone_;   ///< scratch
  std::vector<SwapOuts::Staged> staged_;          ///< scratch
  std::vector<Prefix> named_;                     ///< scratch
  std::vector<StoredReads::Result> read_;         ///< scratch
  std::vector<StoredReads::Reader> late_;         ///< scratch
  mutable std::vector<Copy> copies_[tier_count];  ///< scratch of find() and hit()
};

}  // namespace terrace
