#include "runtime/measure/wait_times.hpp"

#include <algorithm>
#include <chrono>

namespace terrace {
namespace {

double between(TimePoint begin, TimePoint end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

void WaitTimes::begin(RequestId id, TimePoint now) { waits_.insert_or_assign(id, Span{now, never}); }

WaitTimes::Span* WaitTimes::waiting(RequestId id) {
  const auto found = waits_.find(id);
  return found == waits_.end() || found->second.ended != never ? nullptr : &found->second;
}

void WaitTimes::end(RequestId id, TimePoint now, const RequestStats& found) {
  Span* const span = waiting(id);
  if (span == nullptr) return;
  span->ended = now;
  WaitTotal& total = found.storage > 0 ? totals_.storage : found.host > 0 ? totals_.host : totals_.room;
  const double seconds = between(span->begun, now);
  ++total.requests;
  total.seconds += seconds;
  total.microseconds.add(static_cast<std::uint64_t>(seconds * 1e6));
}

void WaitTimes::fail(RequestId id, TimePoint now) {
  Span* const span = waiting(id);
  if (span == nullptr) return;
  span->ended = now;
  ++totals_.failed;
}

double WaitTimes::seconds(RequestId id, TimePoint now) const {
  const auto found = waits_.find(id);
  if (found == waits_.end()) return 0;
  return between(found->second.begun, std::min(found->second.ended, now));
}

}  // namespace terrace
