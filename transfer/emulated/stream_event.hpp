#pragma once

#include <atomic>

namespace terrace {

/// A point on an EmulatedStream. It happens once. Threads: any.
class StreamEvent {
 public:
  void happen() noexcept {
    happened_.test_and_set(std::memory_order_release);
    happened_.notify_all();
  }
  [[nodiscard]] bool happened() const noexcept { return happened_.test(std::memory_order_acquire); }
  void wait() const noexcept { happened_.wait(false, std::memory_order_acquire); }

 private:
  std::atomic_flag happened_;
};

}  // namespace terrace
