#include "runtime/measure/wait_times.hpp"

#include <algorithm>
#include <chrono>
#include <ranges>

namespace terrace {
namespace {

double between(TimePoint begin, TimePoint end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

void WaitTimes::begin(RequestId id, TimePoint now) { waits_.insert_or_assign(id, Span{now, never}); }

WaitTimes::Span* WaitTimes::waiting(RequestId id) {
  const auto found = waits_.find(id);
  return found == waits_.end() || found->second.ended != never ? nullptr : &found->second;
}

WaitTotal& WaitTimes::waited_for(const RequestStats& stats) {
  for (const Source source : all_sources | std::views::reverse) {
    if (source != Source::device && stats.found[source] > 0) return totals_.loads[source];
  }
  return totals_.room;
}

void WaitTimes::end(RequestId id, TimePoint now, const RequestStats& stats) {
  Span* const span = waiting(id);
  if (span == nullptr) return;
  span->ended = now;
  WaitTotal& total = waited_for(stats);
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
