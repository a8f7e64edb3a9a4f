#pragma once

#include "terrace/clock.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace terrace {

/// Measures the wait of each request, from acquire() to the poll() that reports its end: of an OffloadCache that of each load,
/// and of a TierStore that of each get. Its memory is proportional to the number of live requests. Threads: the thread of the
/// cache.
class WaitTimes {
 public:
  void ready_at_once() { ++totals_.at_once; }
  void begin(RequestId id, TimePoint now);
  /// The wait is over. `stats`: where the blocks of the request were found. A second call for the same request has no effect.
  void end(RequestId id, TimePoint now, const RequestStats& stats);
  /// The wait of a load or a get is over, and its number is free. `farthest`: the source under which it counts.
  void end_load(RequestId id, TimePoint now, Source farthest);
  /// Counts a wait for the answer of a shared store.
  void looked(Duration time) { count(totals_.looking, time); }
  void fail(RequestId id, TimePoint now);
  /// The request has ended.
  void forget(RequestId id);
  /// Returns true if a request waits.
  [[nodiscard]] bool any() const { return waiting_ > 0; }
  [[nodiscard]] WaitsNow waiting(TimePoint now) const;

  /// Seconds that this request has waited until `now` or until it was ready; 0 if it was ready at once.
  [[nodiscard]] double seconds(RequestId id, TimePoint now) const;
  [[nodiscard]] const WaitTotals& totals() const { return totals_; }
  /// Of the requests that ended their wait in the last minute before `now`, the `slowest_max` slowest ones, the slowest first.
  [[nodiscard]] std::vector<SlowRequest> slowest(TimePoint now) const;

 private:
  struct Span {
    TimePoint begun;
    TimePoint ended = never;  ///< `never`: still waiting
  };

  static constexpr std::size_t slowest_max = 5;

  [[nodiscard]] Span* end_of(RequestId id, TimePoint now);
  void end(RequestId id, TimePoint now, std::optional<Source> farthest, bool looked);
  static void count(WaitTotal& total, Duration time);
  void note_slow(const SlowRequest& request);

  WaitTotals totals_;
  /// The slowest requests of each half minute. So a slow request does not hide later ones for longer than a minute.
  std::array<std::vector<SlowRequest>, 3> slow_;
  std::array<std::int64_t, 3> slow_half_{};  ///< which half of a minute, counted from the clock's epoch
  boost::unordered_flat_map<RequestId, Span, std::hash<RequestId>> waits_;
  std::size_t waiting_ = 0;  ///< entries that have not ended
};

}  // namespace terrace
