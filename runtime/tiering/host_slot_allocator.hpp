#pragma once

#include "base/fifo.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/storage_writer.hpp"
#include "runtime/tiering/swap_outs.hpp"

#include <cstdint>
#include <optional>

namespace terrace {

/// Gives host slots to device copies: a free slot, or the slot of the copy that Quotas and the eviction policy choose. Under
/// write policy `write-back`, a copy that is not on the device, not in storage and not on its way there is first given to
/// StorageWriter if staging has room. That moves no byte: the copy's slot becomes a staging slot (Residency). If no slot can be
/// had now but a transfer under way will free one, the swap-out waits here, in order of arrival. Nothing here waits for a disk.
/// Threads: the manager's.
class HostSlotAllocator {
 public:
  HostSlotAllocator(const ManagerConfig& config, Residency& residency, DeferredEviction& deferred_eviction, SwapOuts& swap_outs,
                    StorageWriter& storage_writer, ManagerStats& stats)
      : write_back_{config.storage && config.write_policy == WritePolicy::write_back},
        residency_{residency},
        deferred_eviction_{deferred_eviction},
        swap_outs_{swap_outs},
        storage_writer_{storage_writer},
        stats_{stats} {}

  enum class Answer : std::uint8_t { begun, waiting, impossible };
  /// Copies the block's device copy to the host as soon as there is a slot; for evict it is evicting from now on. `impossible`:
  /// everything in the host tier is pinned; nothing was done.
  [[nodiscard]] Answer swap_out(BlockRef block, SwapOutPurpose purpose);
  /// Takes a host slot into which a block of this tenant is to be read from storage. Returns nothing if there is no slot, or if
  /// the copy to evict would first have to be written to storage. The caller calls has_landed() when the read has ended.
  [[nodiscard]] std::optional<SlotId> take_for_landing(TenantId tenant);
  void has_landed() { --landing_; }
  /// Gives up the least recently used leaf, though nobody waits for its room. False where there is none, or it has to be
  /// saved and cannot be yet.
  [[nodiscard]] bool evict_ahead() { return evict_one(std::nullopt, Unsaved::is_saved); }
  /// Gives up this copy, which is ready and which nobody pins, as if it were the oldest. False as above.
  [[nodiscard]] bool give_up(BlockRef block) { return evict(block, Unsaved::is_saved); }
  /// Serves who waits, and gives up what exceeds the tier's size. True where anything changed.
  bool pump();

  [[nodiscard]] bool idle() const { return wants_.empty(); }

 private:
  struct Want {
    BlockRef block;
    SwapOutPurpose purpose = SwapOutPurpose::evict;
  };
  /// What is to become of a copy that lives nowhere else, where the policy is to write back.
  enum class Unsaved : std::uint8_t {
    stays,
    is_saved,           ///< and stays while it is to be saved later
    goes_all_the_same,  ///< saved if it can be now
  };

  /// Gives up the least recently used leaf. `tenant`: who asks.
  [[nodiscard]] bool evict_one(std::optional<TenantId> tenant, Unsaved unsaved);
  [[nodiscard]] bool evict(BlockRef victim, Unsaved unsaved);
  [[nodiscard]] std::optional<SlotId> take(Residency::PrefixOrder order, TenantId tenant, Unsaved unsaved);
  /// The link will make something in the host tier free or evictable.
  [[nodiscard]] bool in_transition() const;
  bool shrink();

  bool write_back_;
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  SwapOuts& swap_outs_;
  StorageWriter& storage_writer_;
  ManagerStats& stats_;
  Fifo<Want> wants_;
  std::uint64_t landing_ = 0;
};

}  // namespace terrace
