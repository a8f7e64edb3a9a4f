#include "runtime/cache/pool/watermark_reclaimer.hpp"

#include <algorithm>

namespace terrace {
namespace {

/// Number of slots for a watermark. Watermarks are shares of a pool, so that they stay right when the pool is resized.
std::uint64_t share_of(double share, std::uint64_t slots) {
  return static_cast<std::uint64_t>(share * static_cast<double>(slots));
}

}  // namespace

std::uint64_t WatermarkReclaimer::ahead_on_device() const {
  const SlotAllocator& pool = residency_.slots_of(Tier::device);
  const std::uint64_t there = pool.count(SlotState::free) + pool.evicting_open();
  return there - std::min(there, device_slots_.promised());
}

std::uint64_t WatermarkReclaimer::device_low() const {
  const std::uint64_t slots = device_slots();
  return std::max(share_of(config_.device_watermarks.low, slots),
                  std::min(reserve_.slots(), share_of(config_.device_reserve_max, slots)));
}

std::uint64_t WatermarkReclaimer::device_high() const {
  return std::max(share_of(config_.device_watermarks.high, device_slots()), device_low());
}

void WatermarkReclaimer::on_request(std::uint64_t slots) {
  if (slots == 0) return;
  const std::uint64_t free = residency_.slots_of(Tier::device).count(SlotState::free);
  reserve_.on_request(slots, free, device_slots_.promised(), device_low());
}

bool WatermarkReclaimer::host_below_low() const {
  return config_.host_watermarks.low > 0 &&
         residency_.host_free() < share_of(config_.host_watermarks.low, residency_.host_blocks());
}

void WatermarkReclaimer::make_room(Tier tier, std::uint64_t slots) {
  (tier == Tier::device ? wanted_device_ : wanted_host_) = slots;
  pump();
}

bool WatermarkReclaimer::pump() {
  filling_device_ |= device_below_low() || wanted_device_ > 0;
  filling_host_ |= host_below_low() || wanted_host_ > 0;
  const std::uint64_t on_device = filling_device_ ? pump_device() : 0;
  const std::uint64_t in_host = filling_host_ ? pump_host() : 0;
  // A call that reached its bound continues in the next one. Otherwise the high watermark is reached, or nothing more can be
  // evicted now.
  filling_device_ = on_device == evictions_max;
  filling_host_ = in_host == evictions_max;
  if (!filling_device_) wanted_device_ = 0;
  if (!filling_host_) wanted_host_ = 0;
  is_due_ = filling_device_ || filling_host_;
  return on_device + in_host > 0;
}

std::uint64_t WatermarkReclaimer::pump_device() {
  const std::uint64_t high = std::max(device_copies_down() ? device_high() : 0, wanted_device_);
  std::uint64_t given_up = 0;
  while (given_up < evictions_max) {
    const std::uint64_t ahead = ahead_on_device();
    if (ahead >= high) break;
    const std::uint32_t some =
        device_slots_.evict_ahead(static_cast<std::uint32_t>(std::min(high - ahead, evictions_max - given_up)));
    if (some == 0) break;
    given_up += some;
  }
  stats_.ahead_device += given_up;
  return given_up;
}

std::uint64_t WatermarkReclaimer::pump_host() {
  const std::uint64_t high = std::max(share_of(config_.host_watermarks.high, residency_.host_blocks()), wanted_host_);
  std::uint64_t given_up = 0;
  while (given_up < evictions_max && residency_.host_free() < high && host_slots_.evict_ahead()) ++given_up;
  stats_.ahead_host += given_up;
  return given_up;
}

}  // namespace terrace
