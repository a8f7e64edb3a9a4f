#pragma once

#include "runtime/runtime.hpp"
#include "runtime/stack.hpp"
#include "tools/replay/interrupt.hpp"
#include "tools/replay/session.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>

namespace terrace::tools {

/// Serves the requests as a server on an event loop does: a coroutine for each, over a Runtime. Requests begin in order; those
/// that find no room wait in the runtime, in order.
///
/// Threads: the session and everything here lives on one strand; the runtime has its own. With more threads than one the two
/// run beside each other.
class LoopDriver {
 public:
  /// `waker` is woken by `interrupt`, and by compute; it outlives the stack's device, and all outlive the driver.
  LoopDriver(Session& session, Stack& stack, EventFdWaker& waker, const Interrupt& interrupt);

  /// As ConfinedDriver::run().
  void run();

 private:
  /// A request whose work is on the device. Lives in its coroutine.
  struct Computing {
    Fence fence;
    asio::steady_timer timer;  ///< never expires; cancelled when compute has reached the fence
    bool reached = false;
  };

  asio::awaitable<void> serve_all();
  asio::awaitable<void> serve(Prepared request);
  asio::awaitable<bool> wait_until_due(double timestamp_ms);
  /// Completes, with nothing, when something this driver waits for may have changed, or at `until`.
  asio::awaitable<void> wait_for_change(TimePoint until);
  /// At once where compute is done already.
  static asio::awaitable<void> wait_for_compute(Computing& computing);
  void watch_wakes();
  void ended(std::exception_ptr error);
  [[nodiscard]] bool stopping() const { return interrupt_.requested() || session_.failed(); }

  Session& session_;
  Device& device_;
  EventFdWaker& waker_;
  const Interrupt& interrupt_;

  asio::io_context context_;
  asio::strand<asio::any_io_executor> strand_;
  Runtime runtime_;
  asio::posix::stream_descriptor wakes_;
  asio::steady_timer changed_;
  std::deque<Computing*> computing_;  ///< in order of their fences
  std::uint32_t in_flight_ = 0;
  std::optional<double> first_timestamp_ms_;
  TimePoint began_{};
};

}  // namespace terrace::tools
