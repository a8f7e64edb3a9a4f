#include "runtime/cache/orders/link_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

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
  ++under_way_;
  if (look_at_ == never) look_at_ = now_ + silent_after;
  if (breaker_.state() == BreakerState::closed) return;
  if (breaker_.admit(now_) == CircuitBreaker::Admission::probe) probe_ = transfer.id;
}

void LinkGuard::on_ended(const TransferEvent& event, ManagerStats& stats) {
  if (event.kind == TransferEvent::Kind::confirmed) ended_one();
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
  // If some blocks are unconfirmed, the transfer is still under way.
  if (std::ranges::find(event.outcomes, BlockOutcome::unconfirmed) == event.outcomes.end()) ended_one();
  const bool is_probe = probe_ == event.id;
  if (is_probe) probe_.reset();
  breaker_.ended(is_probe ? CircuitBreaker::Admission::probe : CircuitBreaker::Admission::passed, shown_by(event), now_);
  note_use();
}

/// No copy of a transfer is under way any more.
void LinkGuard::ended_one() {
  --under_way_;
  if (silent_since_) look_at_ = now_;
  else if (under_way_ == 0) look_at_ = never;
}

void LinkGuard::on_look(TimePoint oldest) {
  const bool silent = oldest != never && now_ - oldest >= silent_after;
  if (silent && !silent_since_) ++silent_;
  silent_since_ = silent ? std::optional{oldest} : std::nullopt;
  if (silent) look_at_ = now_ + look_again_after;
  else if (under_way_ == 0) look_at_ = never;
  else look_at_ = (oldest == never ? now_ : oldest) + silent_after;
  note_use();
}

void LinkGuard::note_use() {
  const bool was_in_use = std::exchange(in_use_, breaker_.state() == BreakerState::closed && !silent_since_);
  if (was_in_use && !in_use_) ++stopped_;
}

LinkHealth LinkGuard::health() const {
  LinkHealth health{.in_use = in_use_, .stopped = stopped_, .silent = silent_};
  if (health.in_use) return health;
  if (silent_since_) {
    health.reason = fmt::format("a copy between device and host does not end, so none is begun until it does: blocks are evicted "
                                "without a copy, and hits "
                                "below the device are computed; it began {} s ago",
                                std::chrono::duration_cast<std::chrono::seconds>(now_ - *silent_since_).count());
    return health;
  }
  const Duration left = std::max(breaker_.next_probe() - now_, Duration::zero());
  health.reason = fmt::format(
      "copies between device and host fail, so blocks are evicted without a copy, and hits below the device are computed; "
      "{} transfers failed in a row, and {} later tries; the next try may begin in {} ms",
      breaker_.failures_in_row(), breaker_.failed_probes(), std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
  return health;
}

}  // namespace terrace
