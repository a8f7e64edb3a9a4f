#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace terrace {

/// The point that compute has reached. Other threads can wait for a point. All waits end early when the device stops. Threads:
/// any; reach() only from the compute thread.
class Timeline {
 public:
  [[nodiscard]] Fence reached() const { return Fence{reached_.load(std::memory_order_acquire)}; }

  void reach(Fence point) {
    {
      const std::lock_guard lock{mutex_};
      reached_.store(point.value(), std::memory_order_release);
    }
    changed_.notify_all();
  }

  /// Waits until compute has reached the point. Returns false if the device was stopped before.
  [[nodiscard]] bool wait_for(Fence point) {
    if (reached() >= point) return true;
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return stopped_ || reached() >= point; });
    return reached() >= point;
  }

  /// Waits until this time. Returns false if the device was stopped before.
  [[nodiscard]] bool wait_until(TimePoint time) {
    std::unique_lock lock{mutex_};
    return !changed_.wait_until(lock, time, [this] { return stopped_; });
  }

  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint64_t> reached_{0};
  bool stopped_ = false;
};

}  // namespace terrace
