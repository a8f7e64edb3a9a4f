#pragma once

#include "runtime/tiering/device_slot_allocator.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/request.hpp"

#include <cstdint>

namespace terrace {

/// Makes room before anybody asks: where fewer slots of a tier are free than its low watermark says, the tier gives up its oldest
/// copies, as it does for requests, until as many are free, or on their way to be, as the high one says. Copies to the host go
/// in the lane of what nobody waits for yet. Takes nothing away from a request that waits: what it evicts was evictable, and is
/// free then. What is pinned stays, and a tier of pinned blocks stays below its mark. Threads: the manager's.
class WatermarkReclaimer {
 public:
  /// Throws std::invalid_argument where a watermark makes no sense.
  WatermarkReclaimer(const ManagerConfig& config, Residency& residency, DeviceSlotAllocator& device_slots,
                     HostSlotAllocator& host_slots, ManagerStats& stats);

  /// True where anything was given up.
  bool pump();

 private:
  bool pump_device();
  bool pump_host();

  Watermarks device_;
  Watermarks host_;
  Residency& residency_;
  DeviceSlotAllocator& device_slots_;
  HostSlotAllocator& host_slots_;
  ManagerStats& stats_;
};

}  // namespace terrace
