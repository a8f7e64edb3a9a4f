#pragma once

#include "base/waker.hpp"

#include <mutex>

namespace terrace {

/// Forwards wake-ups to the waker of the last set(). The threads of a device use it because their waker may be replaced. A lock
/// ensures that the former waker may be destroyed once set() has returned. Threads: any.
class WakerRelay final : public Waker {
 public:
  void wake() noexcept override {
    const std::lock_guard lock{mutex_};
    if (target_ != nullptr) target_->wake();
  }

  void set(Waker& target) noexcept {
    const std::lock_guard lock{mutex_};
    target_ = &target;
  }

 private:
  std::mutex mutex_;
  Waker* target_ = nullptr;
};

}  // namespace terrace
