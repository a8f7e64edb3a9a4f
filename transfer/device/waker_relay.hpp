#pragma once

#include "base/waker.hpp"

#include <mutex>

namespace terrace {

/// Wakes whom set() named last: what stands between a device's threads and a waker that may be replaced. With a lock, so that the
/// former waker may die once set() has returned. Threads: any.
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
