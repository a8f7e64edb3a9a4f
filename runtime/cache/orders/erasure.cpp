#include "runtime/cache/orders/erasure.hpp"

#include <chrono>

namespace terrace {
namespace {

/// Time between a failed flush of an erasure and the next try.
constexpr Duration retry_interval = std::chrono::seconds{1};

}  // namespace

void Erasure::on_time(TimePoint now, bool removed) {
  if (state_ == State::flushing && flushes_.ended(round_)) {
    state_ = flushes_.error() ? State::failed : State::none;
    retry_at_ = now + retry_interval;
  }
  const bool begins = state_ == State::removing ? removed : state_ == State::failed && now >= retry_at_;
  if (!begins) return;
  state_ = State::flushing;
  round_ = flushes_.ask();
}

}  // namespace terrace
