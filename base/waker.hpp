#pragma once

#include "terrace/waker.hpp"

#include <atomic>
#include <mutex>

namespace terrace {

/// Wakes a thread or an event loop that waits for a file descriptor to become readable. While a wake-up is pending, further calls
/// of wake() cost no system call. Threads: wake() from any, the other members from the consumer's.
class EventFdWaker final : public Waker {
 public:
  /// Throws std::system_error if the kernel has no file descriptor left.
  EventFdWaker();
  ~EventFdWaker() override;
  EventFdWaker(const EventFdWaker&) = delete;
  EventFdWaker& operator=(const EventFdWaker&) = delete;

  void wake() noexcept override;

  /// Returns the file descriptor, which is readable while a wake-up is pending. This object owns it.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Clears the pending wake-up. Call it before collecting, so that a push after the collection wakes the consumer again.
  /// Returns true if there was one: then there may be something to collect.
  bool acknowledge() noexcept;
  /// Blocks until there is a wake-up or `timeout_ms` milliseconds have passed (negative: no limit). Does not clear the wake-up.
  void wait(int timeout_ms) const noexcept;

 private:
  int fd_;
  std::atomic<bool> pending_{false};
};

/// Forwards wake-ups to the waker of the last set(). Threads whose waker may be replaced use it. A lock
/// ensures that the former waker may be destroyed once set() has returned. Threads: any.
class WakerRelay final : public Waker {
 public:
  void wake() noexcept override {
    const std::lock_guard lock{mutex_};
    if (target_ != nullptr) target_->wake();
  }

  /// Null: none.
  void set(Waker* target) noexcept {
    const std::lock_guard lock{mutex_};
    target_ = target;
  }

 private:
  std::mutex mutex_;
  Waker* target_ = nullptr;
};

}  // namespace terrace
