#pragma once

#include "base/waker.hpp"
#include "runtime/engine/idle/turns.hpp"
#include "terrace/clock.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace terrace {

/// Continues the work of an object while its owner does not call it, so that commands, write-backs and resizes do not wait for
/// the next call of an idle engine. When the owner has made no call for `idle_after`, a thread of this class takes over: it works
/// in slices whenever the object is woken or has a deadline, until the owner calls again. While the owner works, the thread
/// checks ten times a second whether it still does.
///
/// Ownership: `owner`, the clock, and everything that the functions use must exist until stop(). Threads: wake() from any thread;
/// the other members are for the thread of the owner.
class IdleService final : public Waker {
 public:
  static constexpr std::chrono::milliseconds idle_after{100};
  /// Length of a slice after which the owner may take its turn, if the work can be divided.
  static constexpr std::chrono::microseconds slice_max{50};

  struct Work {
    /// Does the work that is due. Returns true if there is more to do at once. It must return soon after `until`, or when
    /// Turns::wanted() is true.
    std::function<bool(TimePoint until)> slice{};
    std::function<TimePoint()> next_deadline{};
  };

  IdleService(const Clock& clock, Waker& owner) : clock_{clock}, owner_{owner}, turns_{clock} {}
  /// Calls stop().
  ~IdleService() override { stop(); }
  IdleService(const IdleService&) = delete;
  IdleService& operator=(const IdleService&) = delete;

  [[nodiscard]] Turns& turns() { return turns_; }
  /// Call it in a turn or in a slice.
  [[nodiscard]] IdleTotals totals() const { return {turns_.slices(), turns_.waits()}; }
  /// Wakes the owner and the service. Code that would wake the owner's waker calls this instead.
  void wake() noexcept override {
    owner_.wake();
    waker_.wake();
  }

  /// Throws std::system_error if no thread can be started.
  void start(Work work);
  /// Waits for the end of a slice. No slice begins afterwards. May be called in a turn.
  void stop();

 private:
  void run(const std::stop_token& stop);
  void serve(std::uint64_t seen, const std::stop_token& stop);

  const Clock& clock_;
  Waker& owner_;
  Turns turns_;
  EventFdWaker waker_;
  Work work_;
  std::mutex mutex_;  ///< protects only `stopped_`
  std::condition_variable_any stopped_;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace terrace
