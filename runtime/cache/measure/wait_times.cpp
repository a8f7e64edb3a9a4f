#include "runtime/cache/measure/wait_times.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <ranges>

namespace terrace {
namespace {

double between(TimePoint begin, TimePoint end) { return std::chrono::duration<double>(end - begin).count(); }

/// The slowest source from which a block came to the device.
std::optional<Source> farthest_of(const RequestStats& stats) {
  for (const Source source : all_sources | std::views::reverse) {
    if (source != Source::device && stats.found[source] > 0) return source;
  }
  return std::nullopt;
}

constexpr Duration half_a_minute = std::chrono::seconds{30};

}  // namespace

void WaitTimes::begin(RequestId id, TimePoint now) {
  forget(id);
  waits_.emplace(id, Span{now, never});
  ++waiting_;
}

void WaitTimes::forget(RequestId id) {
  const auto found = waits_.find(id);
  if (found == waits_.end()) return;
  if (found->second.ended == never) --waiting_;
  waits_.erase(found);
}

/// Ends the wait of the request. Returns null if it does not wait.
WaitTimes::Span* WaitTimes::end_of(RequestId id, TimePoint now) {
  const auto found = waits_.find(id);
  if (found == waits_.end() || found->second.ended != never) return nullptr;
  found->second.ended = now;
  --waiting_;
  return &found->second;
}

void WaitTimes::note_slow(const SlowRequest& request) {
  const std::int64_t half = request.ended.time_since_epoch() / half_a_minute;
  const auto place = static_cast<std::size_t>(half % static_cast<std::int64_t>(slow_.size()));
  std::vector<SlowRequest>& slow = slow_[place];
  if (slow_half_[place] != half) slow.clear();
  slow_half_[place] = half;
  if (slow.size() < slowest_max) {
    slow.push_back(request);
    return;
  }
  const auto fastest = std::ranges::min_element(slow, {}, &SlowRequest::seconds);
  if (fastest->seconds < request.seconds) *fastest = request;
}

std::vector<SlowRequest> WaitTimes::slowest(TimePoint now) const {
  std::vector<SlowRequest> all;
  for (const std::vector<SlowRequest>& half : slow_) {
    std::ranges::copy_if(half, std::back_inserter(all),
                         [&](const SlowRequest& each) { return now - each.ended <= std::chrono::minutes{1}; });
  }
  std::ranges::sort(all, std::ranges::greater{}, &SlowRequest::seconds);
  all.resize(std::min(all.size(), slowest_max));
  return all;
}

void WaitTimes::end(RequestId id, TimePoint now, const RequestStats& stats) { end(id, now, farthest_of(stats), stats.looked); }

void WaitTimes::end_load(RequestId id, TimePoint now, Source farthest) {
  end(id, now, farthest, false);
  forget(id);
}

void WaitTimes::end(RequestId id, TimePoint now, std::optional<Source> farthest, bool looked) {
  const Span* const span = end_of(id, now);
  if (span == nullptr) return;
  note_slow({id, between(span->begun, now), farthest, !farthest && looked, now});
  count(farthest ? totals_.loads[*farthest] : looked ? totals_.looking : totals_.room, now - span->begun);
}

void WaitTimes::count(WaitTotal& total, Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  ++total.requests;
  total.seconds += seconds;
  total.microseconds.add(static_cast<std::uint64_t>(seconds * 1e6));
}

WaitsNow WaitTimes::waiting(TimePoint now) const {
  WaitsNow waits{.requests = waiting_};
  if (waiting_ == 0) return waits;
  for (const auto& [id, span] : waits_) {
    if (span.ended == never) waits.oldest_seconds = std::max(waits.oldest_seconds, between(span.begun, now));
  }
  return waits;
}

void WaitTimes::fail(RequestId id, TimePoint now) {
  if (end_of(id, now) != nullptr) ++totals_.failed;
}

double WaitTimes::seconds(RequestId id, TimePoint now) const {
  const auto found = waits_.find(id);
  if (found == waits_.end()) return 0;
  return between(found->second.begun, std::min(found->second.ended, now));
}

}  // namespace terrace
