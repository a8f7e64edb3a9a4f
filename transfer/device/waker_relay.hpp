#pragma once

#include "base/waker.hpp"

#include <mutex>

namespace terrace {

/// Passes wake-ups on to the waker that set() has named last. It stands between the threads of a device and a waker that may be
/// replaced. It has a lock, so that the former waker may be destroyed once set() has returned. Threads: any.
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
