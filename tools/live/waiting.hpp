#pragma once

#include "base/waker.hpp"
#include "tools/interrupted.hpp"
#include "tools/replay/engine/interrupt.hpp"

#include <chrono>

namespace terrace::tools {

/// Sleeps that a signal ends. There may be one object at a time. Threads: one.
class Waiting {
 public:
  /// Throws Interrupted if the user has asked to stop.
  void sleep(std::chrono::milliseconds time) const {
    if (!interrupt_.requested()) waker_.wait(static_cast<int>(time.count()));
    if (interrupt_.requested()) throw Interrupted{};
  }

 private:
  EventFdWaker waker_;
  Interrupt interrupt_{waker_};
};

}  // namespace terrace::tools
