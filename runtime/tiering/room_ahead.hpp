#pragma once

#include "runtime/types/config.hpp"
#include "runtime/tiering/device_room.hpp"
#include "runtime/tiering/host_room.hpp"
#include "runtime/types/request.hpp"

#include <cstdint>

namespace terrace {

/// Makes room before anybody asks: where fewer slots of a tier are free than its low watermark says, the tier gives up its oldest
/// copies, as it does for requests, until as many are free, or on their way to be, as the high one says. Copies to the host go
/// in the lane of what nobody waits for yet. Takes nothing away from a request that waits: what it evicts was evictable, and is
/// free then. What is pinned stays, and a tier of pinned blocks stays below its mark. Threads: the manager's.
class RoomAhead {
 public:
  /// Throws std::invalid_argument where a watermark makes no sense.
  RoomAhead(const ManagerConfig& config, Residency& residency, DeviceRoom& device_room, HostRoom& host_room, ManagerStats& stats);

  /// True where anything was given up.
  bool pump();

 private:
  bool pump_device();
  bool pump_host();

  Watermarks device_;
  Watermarks host_;
  Residency& residency_;
  DeviceRoom& device_room_;
  HostRoom& host_room_;
  ManagerStats& stats_;
};

}  // namespace terrace
