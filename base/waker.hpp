#pragma once

#include <atomic>

namespace terrace {

/// The seam for "there is something to collect": producers call wake() after they pushed.
class Waker {
 public:
  virtual ~Waker() = default;
  /// From any thread; never blocks.
  virtual void wake() noexcept = 0;
};

/// Nobody sleeps: what a single-threaded owner that polls uses.
class NullWaker final : public Waker {
 public:
  void wake() noexcept override {}
};

/// Wakes a thread or an event loop that waits for a file descriptor to become readable. While a wake-up is pending, further
/// ones cost no system call.
class EventFdWaker final : public Waker {
 public:
  /// Throws std::system_error where no descriptor is to be had.
  EventFdWaker();
  ~EventFdWaker() override;
  EventFdWaker(const EventFdWaker&) = delete;
  EventFdWaker& operator=(const EventFdWaker&) = delete;

  void wake() noexcept override;

  /// Readable while a wake-up is pending. Owned by this object.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Takes back the pending wake-up. Call it before collecting, so that a push after the collection wakes again.
  void acknowledge() noexcept;
  /// Blocks until woken or until `timeout_ms` passed (negative: for ever). Does not acknowledge.
  void wait(int timeout_ms) const noexcept;

 private:
  int fd_;
  std::atomic<bool> pending_{false};
};

}  // namespace terrace
