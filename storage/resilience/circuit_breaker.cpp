#include "storage/resilience/circuit_breaker.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace terrace {

CircuitBreaker::CircuitBreaker(const BreakerOptions& options)
    : options_{options}, failed_at_(options.failures_max), wait_{options.probe_first} {
  if (options.failures_max == 0) throw std::invalid_argument{"a breaker opens after at least one failure"};
  if (options.window <= Duration::zero() || options.probe_first <= Duration::zero()) {
    throw std::invalid_argument{"a breaker's window and its first probe's wait must be positive"};
  }
  if (options.probe_max < options.probe_first) {
    throw std::invalid_argument{"a breaker's longest wait for a probe is less than its first"};
  }
}

CircuitBreaker::Admission CircuitBreaker::admit(TimePoint now) {
  if (state_ == State::closed) return Admission::passed;
  if (probing_ || now < probe_at_) {
    ++declined_;
    return Admission::declined;
  }
  state_ = State::half_open;
  probing_ = true;
  return Admission::probe;
}

void CircuitBreaker::ended(Admission admission, Outcome outcome, TimePoint now, Duration spent) {
  TERRACE_CHECK(admission != Admission::declined);
  if (admission == Admission::probe) {
    TERRACE_CHECK(state_ == State::half_open && probing_);
    probing_ = false;
    if (outcome == Outcome::succeeded) return close();
    if (outcome == Outcome::unclear) return;
    if (failed_probes_ < std::numeric_limits<std::uint32_t>::max()) ++failed_probes_;
    wait_ = wait_ > options_.probe_max / 2 ? options_.probe_max : 2 * wait_;
    return open(now);
  }
  if (state_ != State::closed) return;
  if (outcome == Outcome::succeeded) forget_failures();
  if (outcome != Outcome::failed) return;
  if (failures_in_row_ > 0) spent = std::min(spent, now - failed_at_[(failures_in_row_ - 1) % failed_at_.size()]);
  failing_for_ += spent;
  failed_at_[failures_in_row_ % failed_at_.size()] = now;
  ++failures_in_row_;
  if (failing_for_ >= options_.window) return open(now);
  if (failures_in_row_ < options_.failures_max) return;
  const TimePoint first = failed_at_[failures_in_row_ % failed_at_.size()];  // the first of the last failures_max failures
  if (now - first <= options_.window) return open(now);
  // keeps the number bounded, and keeps its position in the ring
  failures_in_row_ = options_.failures_max + failures_in_row_ % options_.failures_max;
}

void CircuitBreaker::stands_still(TimePoint now) {
  if (state_ == State::closed) open(now);
}

void CircuitBreaker::forget_failures() {
  failures_in_row_ = 0;
  failing_for_ = {};
}

void CircuitBreaker::open(TimePoint now) {
  state_ = State::open;
  probe_at_ = now + wait_;
  ++opened_;
}

void CircuitBreaker::close() {
  state_ = State::closed;
  forget_failures();
  failed_probes_ = 0;
  wait_ = options_.probe_first;
  probe_at_ = never;
}

std::string CircuitBreaker::describe(TimePoint now) const {
  using Milliseconds = std::chrono::milliseconds;
  switch (state_) {
    case State::closed:
      if (failures_in_row_ == 0) return "the tier is in use";
      return fmt::format("the tier is in use; its last {} operations failed", failures_in_row_);
    case State::open: {
      const auto left = std::chrono::duration_cast<Milliseconds>(std::max(probe_at_ - now, Duration::zero())).count();
      if (failed_probes_ == 0) {
        return fmt::format("the tier is not used after {} failures in a row; it is tried again in {} ms", failures_in_row_, left);
      }
      return fmt::format("the tier is not used, and {} probes of it failed; it is tried again in {} ms", failed_probes_, left);
    }
    case State::half_open: return "the tier is not used; one operation tries whether it works again";
  }
  return "?";
}

void CircuitBreaker::check_invariants() const {
  TERRACE_CHECK(failed_at_.size() == options_.failures_max);
  TERRACE_CHECK(probing_ ? state_ == State::half_open : true);
  TERRACE_CHECK((state_ == State::closed) == (probe_at_ == never));
  TERRACE_CHECK(state_ != State::closed || (failed_probes_ == 0 && failing_for_ < options_.window));
  TERRACE_CHECK(wait_ >= options_.probe_first && wait_ <= options_.probe_max);
}

const char* to_string(CircuitBreaker::State state) noexcept {
  switch (state) {
    case CircuitBreaker::State::closed: return "closed";
    case CircuitBreaker::State::open: return "open";
    case CircuitBreaker::State::half_open: return "half-open";
  }
  return "?";
}

}  // namespace terrace
