#pragma once

#include "runtime/cache/index/residency.hpp"
#include "runtime/cache/pool/device_slot_allocator.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Makes the pools of a cache larger and smaller while it serves.
///
/// Larger: new slots of the device are free at once. New slots of the host are free when they have memory (open_host).
///
/// Smaller: slots retire. On the device these are the highest slots, because the engine wants that memory back. In the host arena
/// they are first the slots of the chunks whose memory is returned (`closing`), and then any others. A free slot retires at once.
/// A cached copy is evicted in the ordinary way: it is copied to the tier below, or dropped if that has no room. The blocks that
/// follow it are evicted, too. No copy moves within its pool. A slot that is held, pinned or read retires when that ends. So a
/// block that requests always hold delays the resize for as long. With WritePolicy::write_back, a block that only the device has
/// is stored first: while copies from the device fail or do not end (Cache::link_health reports this), it stays, and the resize
/// waits for the next try. Slots that have to retire are not handed out or promised any more.
///
/// A second resize of a tier replaces one that is under way. Retired slots that the new size includes are free again.
///
/// Memory: the memory of the eviction policies stays in proportion to the sizes at construction.
///
/// Threads: the manager's.
class PoolResizer {
 public:
  PoolResizer(const PoolSizes& sizes, Residency& residency, const StorageWriter& storage_writer, HostSlotAllocator& host_slots,
              DeviceSlotAllocator& device_slots)
      : sizes_{sizes},
        residency_{residency},
        storage_writer_{storage_writer},
        host_slots_{host_slots},
        device_slots_{device_slots} {}

  /// Sets the size of the tier, in blocks. The null block is included. `closing`: slots of the host arena whose memory is to be
  /// returned. Fails: invalid_argument (the tier is storage, no slot would be left beside the null block, or the device has no
  /// memory for this many slots: PoolSizes::device_blocks_max), never_fits (more slots than a Copy can name), no_room (requests,
  /// pins and promises need more slots).
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing = {});
  /// These slots of the host arena have memory now.
  void open_host(SlotSpan slots);
  /// The first of these slots of the host arena that has not retired, or their end if all have. The memory of a chunk can be
  /// returned when all its slots have retired. Slots that never had memory count as retired.
  [[nodiscard]] std::uint32_t first_in_use(SlotSpan slots) const;
  /// Number of slots that still have to retire. If it is 0, no transfer touches a retired slot any more.
  [[nodiscard]] std::uint64_t retiring(Tier tier) const;
  /// No copy is in a slot that has to retire.
  [[nodiscard]] bool rests() const {
    return residency_.retiring(Tier::device).empty() && residency_.retiring(Tier::host).empty();
  }
  /// Evicts the copies in slots that have to retire, except those that cannot be evicted now. Returns true if anything changed.
  /// Looks at each of these slots, but only if since the last call a block lost its last pin, a read of a copy or a write to
  /// storage ended, a copy came into a slot that has to retire, or copies from the device may be begun again.
  bool pump() {
    const bool device = !residency_.retiring(Tier::device).empty() && pump(Tier::device);
    return (!residency_.retiring(Tier::host).empty() && pump(Tier::host)) || device;
  }

 private:
  /// Upper bound of the evictions at a time, so that the queues of transfers, host tier and storage do not fill up.
  static constexpr std::uint64_t evicting_max = 256;

  /// Counts the events after which pump() may evict more. The counts only grow between two calls of pump(). If it compared the
  /// number of unpinned copies instead, a pin that begins would hide the end of another one.
  struct Seen {
    std::uint64_t unpins = 0;
    std::uint64_t reads_ended = 0;  ///< an eviction that is under way ends with a read
    std::size_t entries = 0;
    std::uint64_t writes_ended = 0;
    bool copies_allowed = true;

    friend bool operator==(const Seen&, const Seen&) = default;
  };

  [[nodiscard]] Seen look(Tier tier) const;
  [[nodiscard]] std::uint64_t needed(Tier tier) const;
  bool pump(Tier tier);
  enum class Gone : std::uint8_t { yes, no, later };
  [[nodiscard]] Gone give_up(BlockRef block, Tier tier);

  const PoolSizes& sizes_;
  Residency& residency_;
  const StorageWriter& storage_writer_;
  HostSlotAllocator& host_slots_;
  DeviceSlotAllocator& device_slots_;
  Seen seen_[2];                 ///< by tier: the result of look() at the end of the last pump()
  std::vector<BlockRef> below_;  ///< scratch
};

}  // namespace terrace
