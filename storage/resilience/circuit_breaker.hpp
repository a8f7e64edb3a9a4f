#pragma once

#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// Returns the class of an Errc, or of an errno in the generic or system category. An unknown error is `refused`: it is not
/// retried, and it does not count as a failure of the device. Threads: any. Allocates nothing.
[[nodiscard]] ErrorClass class_of(const ErrorCode& error) noexcept;
[[nodiscard]] const char* to_string(ErrorClass error_class) noexcept;

/// Decides whether a device may be used (the circuit breaker of M. Nygard, "Release It!"). It is a state machine without I/O and
/// without a clock: the caller passes the time, which never goes back.
///
///     closed --failures_max in a row, within the window--> open --admit() when the time of the probe has come--> half_open
///       ^                                                   ^                                                     |
///       |                                                   +----------the probe failed: the wait doubles---------+
///       +---------------------------------------------------------------------the probe succeeded-----------------+
///
/// It also opens when failures in a row have taken as much time as the window. A count alone would not be enough: if each
/// operation fails only after 5 s, there are never five failures within 10 s.
///
/// Before each operation the caller asks admit(). If it is admitted, the caller reports the outcome to ended(), with the same
/// admission. While the breaker is not closed, only the outcome of the probe counts, because an operation that was admitted
/// earlier and ends late gives no information about the current state. An outcome that gives no information about the device (a
/// miss, a refusal) is `unclear`; after an unclear probe the next operation becomes the probe.
///
/// Threads: one. Allocates nothing after construction, except in describe().
class CircuitBreaker {
 public:
  using State = BreakerState;
  enum class Admission : unsigned char { declined, passed, probe };
  enum class Outcome : unsigned char { succeeded, failed, unclear };

  /// Throws std::invalid_argument if a number or a time is not positive, or if probe_max is less than probe_first.
  explicit CircuitBreaker(const BreakerOptions& options);

  [[nodiscard]] Admission admit(TimePoint now);
  /// Reports the outcome of an admitted operation. Call it exactly once for each admission other than `declined`. `spent` is the
  /// time that the device had for it. Time that several operations spent together counts once.
  void ended(Admission admission, Outcome outcome, TimePoint now, Duration spent = {});
  /// Reports that the device is stalled. A closed breaker opens at once, independently of the number of failures.
  void stands_still(TimePoint now);

  [[nodiscard]] State state() const { return state_; }
  /// Returns the time of the next probe; `never` if the breaker is closed. While a probe is under way, returns the time of that
  /// probe, which is in the past.
  [[nodiscard]] TimePoint next_probe() const { return state_ == State::closed ? never : probe_at_; }
  [[nodiscard]] std::uint32_t failures_in_row() const { return failures_in_row_; }
  /// Probes that failed since the breaker was last closed.
  [[nodiscard]] std::uint32_t failed_probes() const { return failed_probes_; }
  [[nodiscard]] std::uint64_t opened() const { return opened_; }  ///< how often it opened since construction
  /// Returns one sentence for people.
  [[nodiscard]] std::string describe(TimePoint now) const;

  void check_invariants() const;

 private:
  void forget_failures();
  void open(TimePoint now);
  void close();

  BreakerOptions options_;
  State state_ = State::closed;
  bool probing_ = false;
  /// times of the last failures in a row; a ring buffer, indexed by their count modulo its size
  std::vector<TimePoint> failed_at_;
  std::uint32_t failures_in_row_ = 0;
  Duration failing_for_{};  ///< the time that these failures took
  std::uint32_t failed_probes_ = 0;
  Duration wait_;
  TimePoint probe_at_ = never;
  std::uint64_t opened_ = 0;
};

}  // namespace terrace
