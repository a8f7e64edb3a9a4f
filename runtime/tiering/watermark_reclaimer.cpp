#include "runtime/tiering/watermark_reclaimer.hpp"

#include <algorithm>

namespace terrace {
namespace {

/// Number of slots for a watermark. Watermarks are shares of a pool, so that they stay right when the pool is resized.
std::uint64_t share_of(double share, std::uint64_t slots) {
  return static_cast<std::uint64_t>(share * static_cast<double>(slots));
}

/// Slots that are free, or will be, less those that are promised to requests.
std::uint64_t beyond(std::uint64_t there, std::uint64_t promised) { return there - std::min(there, promised); }

}  // namespace

WatermarkReclaimer::WatermarkReclaimer(const ManagerConfig& config, Residency& residency, DeviceSlotAllocator& device_slots,
                                       HostSlotAllocator& host_slots, ManagerStats& stats)
    : device_{config.device_watermarks},
      host_{config.host_watermarks},
      residency_{residency},
      device_slots_{device_slots},
      host_slots_{host_slots},
      stats_{stats} {}

bool WatermarkReclaimer::pump() {
  const bool on_device = device_.low > 0 && pump_device();
  const bool in_host = host_.low > 0 && pump_host();
  return on_device || in_host;
}

bool WatermarkReclaimer::pump_device() {
  const SlotAllocator& pool = residency_.pool(Tier::device);
  const auto ahead = [&] {
    const std::uint64_t evicting = pool.evicting_total() - pool.retiring_and_evicting();
    return beyond(pool.count(SlotState::free) + evicting, device_slots_.promised());
  };
  const std::uint64_t usable = pool.capacity() - pool.count(SlotState::null);
  if (ahead() >= share_of(device_.low, usable)) return false;
  const std::uint64_t high = share_of(device_.high, usable);
  std::uint64_t given_up = 0;
  while (ahead() < high) {
    const std::uint32_t some = device_slots_.evict_ahead(static_cast<std::uint32_t>(high - ahead()));
    if (some == 0) break;
    given_up += some;
  }
  stats_.ahead_device += given_up;
  return given_up > 0;
}

bool WatermarkReclaimer::pump_host() {
  const auto ahead = [&] { return residency_.host_free(); };
  if (ahead() >= share_of(host_.low, residency_.host_blocks())) return false;
  const std::uint64_t high = share_of(host_.high, residency_.host_blocks());
  std::uint64_t given_up = 0;
  while (ahead() < high && host_slots_.evict_ahead()) ++given_up;
  stats_.ahead_host += given_up;
  return given_up > 0;
}

}  // namespace terrace
