#pragma once

#include "runtime/measure/residency_sample.hpp"
#include "terrace/clock.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>

namespace terrace {

/// Measures the wait of each request, from acquire() to the poll() that reports its end. Its memory is proportional to the number
/// of live requests. Threads: the thread of the cache.
class WaitTimes {
 public:
  void ready_at_once() { ++totals_.at_once; }
  void begin(RequestId id, TimePoint now);
  /// The wait is over. `stats`: where the blocks of the request were found. A second call for the same request has no effect.
  void end(RequestId id, TimePoint now, const RequestStats& stats);
  void fail(RequestId id, TimePoint now);
  /// The request has ended.
  void forget(RequestId id) { waits_.erase(id); }

  /// Seconds that this request has waited until `now` or until it was ready; 0 if it was ready at once.
  [[nodiscard]] double seconds(RequestId id, TimePoint now) const;
  [[nodiscard]] const WaitTotals& totals() const { return totals_; }

 private:
  struct Span {
    TimePoint begun;
    TimePoint ended = never;  ///< `never`: still waiting
  };

  [[nodiscard]] Span* waiting(RequestId id);
  [[nodiscard]] WaitTotal& waited_for(const RequestStats& stats);

  WaitTotals totals_;
  boost::unordered_flat_map<RequestId, Span, std::hash<RequestId>> waits_;
};

}  // namespace terrace
