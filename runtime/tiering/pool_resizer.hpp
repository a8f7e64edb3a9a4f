#pragma once

#include "base/result.hpp"
#include "base/tier.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/device_slot_allocator.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "runtime/tiering/storage_writer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Makes the pools of a serving cache larger and smaller.
///
/// Larger: the new slots are free at once, those of the host tier as soon as there is memory for them (open_host). Smaller: of
/// the device the highest slots retire, for the engine wants that memory back; of the host arena those of the chunks that are
/// to go (`closing`), and of the others any, the highest first. A free slot retires at once. A cached one leaves by the tier's
/// ordinary way, to the tier below or, where that has no room, for good; with a block go the blocks that follow it, and no copy
/// moves within its pool. A slot that is held, pinned or read retires when its holder lets go: a block that requests hold without
/// a break stays until they make one. Slots that are to be retired are handed out to nobody, and promised to nobody.
///
/// A second resize of a tier while one is under way takes its place: what has retired comes back where the new size has it,
/// what has not need not leave. The memory of the eviction policies stays in proportion to the sizes at construction.
/// Threads: the manager's.
class PoolResizer {
 public:
  PoolResizer(const ManagerConfig& config, Residency& residency, const StorageWriter& storage_writer,
              HostSlotAllocator& host_slots, DeviceSlotAllocator& device_slots)
      : first_slot_{config.first_slot},
        residency_{residency},
        storage_writer_{storage_writer},
        host_slots_{host_slots},
        device_slots_{device_slots} {}

  /// The tier has so many blocks from now on, the null block included. Fails: invalid_argument (storage; nothing beside the
  /// null block), never_fits (more slots than can be counted), no_room (requests, pins and promises need more). `closing`: slots
  /// of the host arena that are to go with this.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing = {});
  /// There is memory for these slots of the host arena.
  void open_host(SlotSpan slots);
  /// Of the arena's slots, from one of them on, the first that has not retired: what stands in the way of a chunk's going.
  /// Their end where there is none; slots that were never open are in nobody's way.
  [[nodiscard]] std::uint32_t first_in_use(SlotSpan slots) const;
  /// Slots that are still to retire. At 0 no transfer touches a retired slot any more.
  [[nodiscard]] std::uint64_t retiring(Tier tier) const;
  /// Gives up what can be by now. True where anything changed. Costs a look at each cached slot that is to retire, and only where
  /// any copy was released, read, stored or given up since the last call.
  bool pump();

 private:
  /// So that the queues of the lanes, the host tier and storage see no more of it at a time.
  static constexpr std::uint64_t evicting_max = 256;

  struct Seen {
    std::uint64_t unpinned = 0;
    std::uint64_t readers = 0;
    std::uint64_t evicting = 0;
    std::size_t entries = 0;
    std::uint64_t writes_ended = 0;

    friend bool operator==(const Seen&, const Seen&) = default;
  };

  [[nodiscard]] const std::vector<Residency::Retiring>& entries(Tier tier) const;
  [[nodiscard]] Seen look(Tier tier) const;
  [[nodiscard]] std::uint64_t needed(Tier tier) const;
  bool pump(Tier tier);
  enum class Gone : std::uint8_t { yes, no, later };
  [[nodiscard]] Gone give_up(BlockRef block, Tier tier);

  std::uint32_t first_slot_;
  Residency& residency_;
  const StorageWriter& storage_writer_;
  HostSlotAllocator& host_slots_;
  DeviceSlotAllocator& device_slots_;
  Seen seen_[2];                 ///< of device and host, when the last pump found nothing to do
  std::vector<BlockRef> below_;  ///< scratch
};

}  // namespace terrace
