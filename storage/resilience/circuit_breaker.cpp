#include "storage/resilience/circuit_breaker.hpp"

#include "base/check.hpp"

#include <boost/system/generic_category.hpp>
#include <boost/system/system_category.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>

namespace terrace {
namespace {

ErrorClass class_of(Errc error) noexcept {
  switch (error) {
    case Errc::ok: return ErrorClass::none;
    case Errc::not_found:
    case Errc::parent_missing: return ErrorClass::missing;
    case Errc::corrupt: return ErrorClass::corrupt;
    case Errc::io_failed:
    case Errc::load_failed:
    case Errc::deadline_exceeded: return ErrorClass::transient;
    case Errc::full:
    case Errc::no_room: return ErrorClass::full;
    case Errc::invalid_argument:
    case Errc::never_fits:
    case Errc::unknown_request:
    case Errc::duplicate_request:
    case Errc::not_ready:
    case Errc::refused:
    case Errc::cancelled:
    case Errc::incompatible:
    case Errc::in_use:
    case Errc::paused:
    case Errc::cleared:
    case Errc::stopped: return ErrorClass::refused;
  }
  return ErrorClass::refused;
}

ErrorClass class_of_errno(int error) noexcept {
  switch (error) {
    case 0: return ErrorClass::none;
    case ENOENT: return ErrorClass::missing;
    case EBADMSG:
    case EILSEQ: return ErrorClass::corrupt;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorClass::full;
    case EIO:
    case EREMOTEIO:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ETIMEDOUT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENODEV:
    case ENXIO:
    case ESTALE: return ErrorClass::transient;
    default: return ErrorClass::refused;
  }
}

}  // namespace

ErrorClass class_of(const ErrorCode& error) noexcept {
  if (error.category() == terrace_category()) return class_of(static_cast<Errc>(error.value()));
  const bool is_errno =
      error.category() == boost::system::generic_category() || error.category() == boost::system::system_category();
  if (is_errno) return class_of_errno(error.value());
  return error ? ErrorClass::refused : ErrorClass::none;
}

const char* to_string(ErrorClass error_class) noexcept {
  switch (error_class) {
    case ErrorClass::none: return "none";
    case ErrorClass::missing: return "missing";
    case ErrorClass::corrupt: return "corrupt";
    case ErrorClass::transient: return "transient";
    case ErrorClass::refused: return "refused";
    case ErrorClass::full: return "full";
  }
  return "?";
}

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
  if (probing_ || now < probe_at_) return Admission::declined;
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
