#pragma once

#include "runtime/cache/pool/device_slot_allocator.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"

#include <algorithm>
#include <cstdint>

namespace terrace {

/// Learns the number of free slots with which only one request in 200 finds too few. The number is larger if requests come in
/// bursts of long prompts. It should not be larger than needed, because a free slot caches nothing.
///
/// It estimates the 99.5th percentile of the slots that a request and the requests just before it took together, until evictions
/// had replaced them. Each request above the estimate raises it by a step, each other one lowers it by a 199th of that (H.
/// Robbins and S. Monro, A Stochastic Approximation Method, 1951). The step is the mean of what a request takes.
class BurstReserve {
 public:
  /// A request takes `slots` slots. Before that, `free` slots were free, and `promised` slots, free ones or future ones, were
  /// promised to waiting requests. `kept`: the number of slots that should have been free.
  void on_request(std::uint64_t slots, std::uint64_t free, std::uint64_t promised, std::uint64_t kept) {
    const auto taken = static_cast<double>(slots);
    const auto missing = static_cast<double>(kept) - static_cast<double>(free) + static_cast<double>(promised);
    mean_ += (taken - mean_) * (mean_ == 0 ? 1 : mean_weight);
    const double burst = taken + std::max(missing, 0.0);
    slots_ = std::max(slots_ + mean_ * (burst > slots_ ? percentile : percentile - 1), 0.0);
  }
  [[nodiscard]] std::uint64_t slots() const { return static_cast<std::uint64_t>(slots_); }

 private:
  static constexpr double percentile = 0.995;
  static constexpr double mean_weight = 1.0 / 64;

  double slots_ = 0;
  double mean_ = 0;
};

/// Evicts copies in the background, before a request needs their slots. If a tier has fewer free slots than its low watermark,
/// its next victims are evicted in the same way as for a request. This continues until the free slots, and the slots that
/// evictions under way will free, reach the high watermark. On the device, at least the number of slots that bursts of requests
/// need is kept free (BurstReserve), up to a bound. The swap-outs go in the lane of transfers that no request waits for. They do
/// not delay a waiting request: the slots become free for it, too. Pinned copies stay; if all copies are pinned, the tier stays
/// below its watermark. A call evicts a bounded number of copies, because it runs on the engine's thread.
///
/// Threads: the manager's.
class WatermarkReclaimer : PoolPart {
 public:
  /// Reads the watermarks and the write policy of the configuration at each call.
  WatermarkReclaimer(const PoolPart& part, DeviceSlotAllocator& device_slots, HostSlotAllocator& host_slots)
      : PoolPart{part}, device_slots_{device_slots}, host_slots_{host_slots} {}

  /// A request will take `slots` device slots, now or as they become free.
  void on_request(std::uint64_t slots);
  /// Evicts what is due, at most `evictions_max` copies of each tier. Returns true if any eviction was begun.
  bool pump();
  /// Slots may have been taken. From now on pump() is due if a tier is below its low watermark.
  void on_slots_taken() { is_due_ |= device_below_low() || host_below_low(); }
  /// Evicts until so many slots of a tier (device or host) are free, or evictions under way will free them, or nothing more can
  /// be evicted. After the first evictions_max copies, pump() continues.
  void make_room(Tier tier, std::uint64_t slots);
  /// Returns true if a tier may need evictions that pump() has not tried yet.
  [[nodiscard]] bool is_due() const { return is_due_; }

 private:
  /// This many evictions to the host take some tens of microseconds.
  static constexpr std::uint64_t evictions_max = 128;

  /// Number of slots that are free, or that evictions under way will free, and that are not promised to requests.
  [[nodiscard]] std::uint64_t ahead_on_device() const;
  [[nodiscard]] std::uint64_t device_slots() const {
    const SlotAllocator& pool = residency_.slots_of(Tier::device);
    return pool.capacity() - pool.count(SlotState::null);
  }
  /// Eviction from the device copies blocks down.
  [[nodiscard]] bool device_copies_down() const {
    return residency_.host_blocks() > 0 || config_.stores_by(WritePolicy::write_back);
  }
  /// If the device has fewer free slots than device_low(), copies are evicted until it has device_high(). Each is the larger of
  /// the watermark and of what the reserve asks for.
  [[nodiscard]] std::uint64_t device_low() const;
  [[nodiscard]] std::uint64_t device_high() const;
  [[nodiscard]] bool device_below_low() const { return device_copies_down() && ahead_on_device() < device_low(); }
  [[nodiscard]] bool host_below_low() const;
  std::uint64_t pump_device();
  std::uint64_t pump_host();

  DeviceSlotAllocator& device_slots_;
  HostSlotAllocator& host_slots_;
  BurstReserve reserve_;
  std::uint64_t wanted_device_ = 0;  ///< slots of make_room() that pump() has not tried to free yet
  std::uint64_t wanted_host_ = 0;
  bool is_due_ = false;
  bool filling_device_ = false;  ///< pump() is evicting up to the high watermark, over several calls
  bool filling_host_ = false;
};

}  // namespace terrace
