#pragma once

#include "base/clock.hpp"
#include "runtime/stack.hpp"
#include "tools/replay/interrupt.hpp"
#include "tools/replay/session.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

namespace terrace::tools {

/// Serves the requests as an engine's scheduler does: one thread that polls the cache, admits in order, launches what is ready,
/// and sleeps while there is nothing to do. With --reference one request after the other, each to its end.
class ConfinedDriver {
 public:
  /// `waker` is woken by `interrupt`, and by compute; it outlives the stack's device, and all outlive the driver.
  ConfinedDriver(Session& session, Stack& stack, EventFdWaker& waker, const Interrupt& interrupt);

  /// Returns when every request has ended; after an interruption or a failure when those in flight have. Afterwards no lease
  /// is left.
  void run();

 private:
  struct Flight {
    Prepared request;
    Lease lease;
    RequestStats stats;
    std::shared_ptr<const ComputeJob> job;
    Fence computed;
    bool matched = false;
  };
  enum class Admission : bool { later, decided };

  /// Each says whether anything happened, so that what depends on it is looked at again before sleeping.
  [[nodiscard]] bool collect();
  [[nodiscard]] bool reap();
  [[nodiscard]] bool admit();

  [[nodiscard]] Admission try_admit(std::unique_ptr<Flight>& flight);
  void start(std::unique_ptr<Flight> flight);
  void commit(const Flight& flight);
  void end_lease(Flight& flight);
  void give_up_pending();
  void sleep();
  [[nodiscard]] std::size_t in_flight() const { return pending_.size() + computing_.size(); }
  [[nodiscard]] bool stopping() const { return interrupt_.requested() || session_.failed(); }
  [[nodiscard]] TimePoint due(const Prepared& request);

  Session& session_;
  Cache& cache_;
  Device& device_;
  EventFdWaker& waker_;
  const Interrupt& interrupt_;

  std::unique_ptr<Flight> next_;                                          ///< the first that is not admitted yet
  std::deque<std::unique_ptr<Flight>> again_;                             ///< lost what they counted on: go before the next
  std::unordered_map<std::uint64_t, std::unique_ptr<Flight>> pending_;    ///< by number
  std::deque<std::unique_ptr<Flight>> computing_;                         ///< in order of their fences
  std::optional<double> first_timestamp_ms_;
  TimePoint began_{};
  std::optional<TimePoint> stop_waiting_at_;
};

}  // namespace terrace::tools
