#pragma once

#include "runtime/tiering/device_slot_allocator.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "runtime/types/config.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"

#include <cstdint>

namespace terrace {

/// Evicts copies in the background, before a request needs their slots. If a tier has fewer free slots than its low watermark,
/// its next victims are evicted, in the same way as for a request, until the free slots and those that evictions under way will
/// free reach the high watermark. The swap-outs go in the lane of transfers that no request waits for. A request that waits loses
/// nothing by this: the slots become free for it, too. Pinned copies stay; if all copies are pinned, the tier stays below its
/// watermark.
///
/// Threads: the manager's.
class WatermarkReclaimer {
 public:
  /// Reads the watermarks of `config` at each call.
  WatermarkReclaimer(const ManagerConfig& config, Residency& residency, DeviceSlotAllocator& device_slots,
                     HostSlotAllocator& host_slots, ManagerStats& stats);

  /// Returns true if any eviction was begun.
  bool pump();

 private:
  bool pump_device();
  bool pump_host();

  const Watermarks& device_;
  const Watermarks& host_;
  Residency& residency_;
  DeviceSlotAllocator& device_slots_;
  HostSlotAllocator& host_slots_;
  ManagerStats& stats_;
};

}  // namespace terrace
