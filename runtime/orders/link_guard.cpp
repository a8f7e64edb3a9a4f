#include "runtime/orders/link_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace terrace {
namespace {

CopyTotals& totals_of(Direction direction, ManagerStats& stats) {
  return direction == Direction::swap_out ? stats.swap_outs : stats.swap_ins;
}

/// One block that has arrived shows that the link works. A transfer that was cancelled shows nothing.
CircuitBreaker::Outcome shown_by(const TransferEvent& event) {
  using Outcome = CircuitBreaker::Outcome;
  const auto any = [&](BlockOutcome outcome) { return std::ranges::find(event.outcomes, outcome) != event.outcomes.end(); };
  if (any(BlockOutcome::done)) return Outcome::succeeded;
  // While a rank is lost, transfers are refused with `stopped`.
  const bool failed = any(BlockOutcome::failed) || any(BlockOutcome::unconfirmed) || event.error == Errc::stopped;
  return failed ? Outcome::failed : Outcome::unclear;
}

}  // namespace

void LinkGuard::on_ordered(const Transfer& transfer, ManagerStats& stats) {
  totals_of(transfer.direction, stats).ordered += block_count(transfer.runs);
  if (breaker_.state() == BreakerState::closed) return;
  if (breaker_.admit(now_) == CircuitBreaker::Admission::probe) probe_ = transfer.id;
}

void LinkGuard::on_ended(const TransferEvent& event, ManagerStats& stats) {
  if (event.kind != TransferEvent::Kind::finished) return;
  CopyTotals& totals = totals_of(event.direction, stats);
  for (const BlockOutcome outcome : event.outcomes) {
    switch (outcome) {
      case BlockOutcome::done: ++totals.done; break;
      case BlockOutcome::failed: ++totals.failed; break;
      case BlockOutcome::cancelled: ++(event.error == Errc::stopped ? totals.failed : totals.cancelled); break;
      case BlockOutcome::unconfirmed: ++totals.late; break;
    }
  }
  const bool is_probe = probe_ == event.id;
  if (is_probe) probe_.reset();
  breaker_.ended(is_probe ? CircuitBreaker::Admission::probe : CircuitBreaker::Admission::passed, shown_by(event), now_);
}

LinkHealth LinkGuard::health() const {
  LinkHealth health{.in_use = breaker_.state() == BreakerState::closed, .stopped = breaker_.opened()};
  if (health.in_use) return health;
  const Duration left = std::max(breaker_.next_probe() - now_, Duration::zero());
  health.reason = fmt::format(
      "copies between device and host fail, so blocks are evicted without a copy, and hits below the device are computed; "
      "{} transfers failed in a row, and {} later tries; the next try may begin in {} ms",
      breaker_.failures_in_row(), breaker_.failed_probes(), std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
  return health;
}

}  // namespace terrace
