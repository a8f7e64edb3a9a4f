#pragma once

#include "base/fifo.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "runtime/cache/pool/swap_outs.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// Gives host slots to device copies: a free slot, the slot of a duplicate (Residency::duplicate), or the slot of a copy that
/// Quotas and the eviction policy choose. Under write policy `write-back`, a copy of a block that is not on the device, not in
/// storage and not being written to storage is first given to StorageWriter if staging has room. No bytes are moved for that: the
/// copy's slot becomes a staging slot (Residency). If no slot is available now but a transfer under way will free one, the
/// swap-out waits here, in order of arrival. Nothing here waits for a disk. Threads: the manager's.
class HostSlotAllocator : PoolPart {
 public:
  HostSlotAllocator(const PoolPart& part, SwapOuts& swap_outs, StorageWriter& storage_writer)
      : PoolPart{part}, swap_outs_{swap_outs}, storage_writer_{storage_writer} {}

  /// Copies the block's device copy to the host as soon as a slot is available. If the purpose is an eviction, the device copy is
  /// evicting from now on. Returns false, and does nothing, if no host copy can be evicted, now or when transfers end, or if
  /// copies to the host fail now.
  bool swap_out(BlockRef block, SwapOutPurpose purpose);
  /// Begins to copy blocks from the end of a run whose device copies are ready. The block after the run is being copied to the
  /// host. Evicts a run of host copies to make room. Returns the number of blocks; 0 if the last one has to be swapped out by
  /// itself.
  [[nodiscard]] std::uint32_t swap_out(Run run, SwapOutPurpose purpose);
  /// The same as SwapOuts::allowed.
  [[nodiscard]] bool can_copy() const { return swap_outs_.allowed(); }
  /// Takes a host slot into which a block of this tenant is to be read from storage. `from`: which slots may be taken. Returns
  /// nothing if there is no slot, or if the victim must be written to storage first. The caller calls has_landed() when the read
  /// has ended.
  enum class LandsIn : bool { any_slot, free_or_duplicates };
  [[nodiscard]] std::optional<SlotId> take_for_landing(TenantId tenant, LandsIn from);
  void has_landed() { --landing_; }
  /// Takes a host slot for a block of this tenant that a transfer or the caller fills at once. Evicts as swap_out() does, and
  /// never waits. Returns nothing if every copy is in use.
  [[nodiscard]] std::optional<SlotId> take_for_store(TenantId tenant) {
    return take(Residency::PrefixOrder::from_begin, tenant, Unsaved::evict_anyway);
  }
  /// Evicts the next victim, although nothing waits for the slot. Returns false if there is none, or if it must be stored first
  /// and cannot be stored now.
  [[nodiscard]] bool evict_ahead() { return evict_one(std::nullopt, Unsaved::is_saved); }
  /// Evicts this copy, which is ready and not pinned. Returns false as evict_ahead() does.
  [[nodiscard]] bool give_up(BlockRef block) { return evict(block, Unsaved::is_saved); }
  /// Evicts what exceeds the size of the tier, and serves waiting swap-outs. Returns true if anything changed.
  bool pump();

  [[nodiscard]] bool idle() const { return wants_.empty(); }
  /// pump() would change nothing.
  [[nodiscard]] bool rests() const {
    if (residency_.slots_of(Tier::host).capacity() == 0) return true;
    return idle() && residency_.host_used() <= residency_.host_blocks() && !residency_.host_slots_can_retire();
  }

 private:
  struct Want {
    BlockRef block;
    SwapOutPurpose purpose = SwapOutPurpose::evict;
  };
  using Unsaved = StorageWriter::Unsaved;

  [[nodiscard]] bool begin_now(BlockRef block, SwapOutPurpose purpose);
  /// Evicts the next victim. `tenant`: the tenant that asks for the slot; none if no tenant does.
  [[nodiscard]] bool evict_one(std::optional<TenantId> tenant, Unsaved unsaved);
  [[nodiscard]] bool evict(BlockRef victim, Unsaved unsaved);
  void evict_run(std::uint32_t most);
  [[nodiscard]] std::optional<SlotId> take(Residency::PrefixOrder order, TenantId tenant, Unsaved unsaved);
  /// A transfer under way will make a slot of the host tier free, or a copy evictable.
  [[nodiscard]] bool in_transition() const;
  bool shrink();

  SwapOuts& swap_outs_;
  StorageWriter& storage_writer_;
  /// Swap-outs for which no host copy can be evicted now. A transfer under way will free a slot (in_transition), so they are not
  /// dropped. They hold their device copies.
  Fifo<Want> wants_;
  std::vector<SlotId> slots_;  ///< scratch
  std::uint64_t landing_ = 0;
};

}  // namespace terrace
