#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

struct BreakerOptions {
  std::uint32_t failures_max = 5;                         ///< so many in a row open it, at least 1
  Duration window = std::chrono::seconds{10};             ///< where the first and the last of them are no further apart
  Duration probe_first = std::chrono::milliseconds{500};  ///< from opening to the first probe; doubled by each that fails
  Duration probe_max = std::chrono::seconds{30};
};

/// Whether a tier is worth asking. A pure state machine: no I/O and no clock, time enters as an argument and never goes back.
///
///     closed --failures_max in a row, within the window--> open --the time of the probe has come, and one asks--> half_open
///       ^                                                   ^                                                        |
///       |                                                   +------------------the probe failed, twice the wait------+
///       +----------------------------------------------------------------------------the probe succeeded-------------+
///
/// (The circuit breaker of M. Nygard, "Release It!".) Whoever wants to do an operation asks with admit(), and reports what
/// became of it with ended(), with the admission it had. Only the probe's outcome counts while the breaker is not closed: what
/// was admitted before and ends late says nothing about now. An outcome that tells nothing of the device (a miss, a
/// refusal) is `unclear`: the next one asks in its place.
///
/// Threads: one. Allocates nothing after construction but for describe().
class CircuitBreaker {
 public:
  enum class State : unsigned char { closed, open, half_open };
  enum class Admission : unsigned char { declined, passed, probe };
  enum class Outcome : unsigned char { succeeded, failed, unclear };

  /// Throws std::invalid_argument where a number or a time is not positive, or probe_max is less than probe_first.
  explicit CircuitBreaker(const BreakerOptions& options);

  [[nodiscard]] Admission admit(TimePoint now);
  /// Of an admission that was not declined; every one ends once.
  void ended(Admission admission, Outcome outcome, TimePoint now);

  [[nodiscard]] State state() const { return state_; }
  /// `never` where it is closed; where a probe is under way, its time, which is past.
  [[nodiscard]] TimePoint next_probe() const { return state_ == State::closed ? never : probe_at_; }
  [[nodiscard]] std::uint32_t failures_in_row() const { return failures_in_row_; }
  /// Probes that failed since it was closed last.
  [[nodiscard]] std::uint32_t failed_probes() const { return failed_probes_; }
  [[nodiscard]] std::uint64_t opened() const { return opened_; }      ///< times, since construction
  [[nodiscard]] std::uint64_t declined() const { return declined_; }  ///< the same
  /// One sentence for people.
  [[nodiscard]] std::string describe(TimePoint now) const;

  void check_invariants() const;

 private:
  void open(TimePoint now);
  void close();

  BreakerOptions options_;
  State state_ = State::closed;
  bool probing_ = false;
  std::vector<TimePoint> failed_at_;  ///< of the last failures in a row: a ring, by their count modulo its size
  std::uint32_t failures_in_row_ = 0;
  std::uint32_t failed_probes_ = 0;
  Duration wait_;
  TimePoint probe_at_ = never;
  std::uint64_t opened_ = 0;
  std::uint64_t declined_ = 0;
};

[[nodiscard]] const char* to_string(CircuitBreaker::State state) noexcept;

}  // namespace terrace
