#pragma once

#include "base/waker.hpp"

#include <chrono>

namespace terrace::tools {

/// Turns SIGINT and SIGTERM into a flag and a wake-up for as long as it lives. The process ends by itself some time after, even
/// if whoever was told hangs, with status 130; a second signal ends it at once. One at a time.
class Interrupt {
 public:
  /// `waker` outlives it, and is woken by the signal. `work_left`: what whoever is told has still to do may take so long.
  explicit Interrupt(Waker& waker, std::chrono::seconds work_left = {});
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Threads: any.
  [[nodiscard]] bool requested() const;
};

}  // namespace terrace::tools
