#pragma once

#include "base/waker.hpp"

#include <chrono>

namespace terrace::tools {

/// Turns SIGINT and SIGTERM into a flag and a wake-up while it exists. If the process does not end within some time after that,
/// it ends itself with status 130. A second signal ends it at once. There may be one object at a time. Threads: requested() from
/// any.
class Interrupt {
 public:
  /// The signal wakes `waker`, which must outlive this object; null: it wakes nobody. `work_left` is added to the time in which
  /// the process must end.
  explicit Interrupt(Waker* waker = nullptr, std::chrono::seconds work_left = {});
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] bool requested() const;
};

}  // namespace terrace::tools
