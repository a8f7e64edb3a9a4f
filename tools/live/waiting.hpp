#pragma once

#include "base/waker.hpp"
#include "tools/interrupted.hpp"
#include "tools/progress_line.hpp"
#include "tools/replay/engine/interrupt.hpp"

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace terrace::tools {

/// Sleeps that a signal ends. There may be one object at a time. Threads: one.
class Waiting {
 public:
  /// Throws Interrupted if the user has asked to stop.
  void sleep(std::chrono::milliseconds time) const {
    if (!interrupt_.requested()) waker_.wait(static_cast<int>(time.count()));
    if (interrupt_.requested()) throw Interrupted{};
  }
  /// Calls `look` five times a second and shows what it returns, until it returns nothing. Throws Interrupted.
  void show_until_done(const std::function<std::optional<ProgressState>()>& look) const {
    std::optional<ProgressState> shown = look();
    if (!shown) return;
    std::mutex mutex;
    const ProgressLine line{[&] {
      const std::lock_guard lock{mutex};
      return *shown;
    }};
    for (;;) {
      sleep(std::chrono::milliseconds{200});
      std::optional<ProgressState> now = look();
      if (!now) return;
      const std::lock_guard lock{mutex};
      shown = std::move(now);
    }
  }

 private:
  EventFdWaker waker_;
  Interrupt interrupt_{waker_};
};

}  // namespace terrace::tools
