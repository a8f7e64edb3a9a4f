#pragma once

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/strong_id.hpp"
#include "runtime/measure/residency_sample.hpp"
#include "runtime/types/request.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>

namespace terrace {

/// Waits of one kind: how many requests waited, and how long.
struct WaitTotal {
  std::uint64_t requests = 0;
  double seconds = 0;
  Histogram microseconds;  ///< of each wait

  friend WaitTotal operator-(const WaitTotal& now, const WaitTotal& before) {
    return {now.requests - before.requests, now.seconds - before.seconds, difference(now.microseconds, before.microseconds)};
  }
};

/// How long accepted requests waited until they were ready. Each request counts once, under the slowest thing that it waited for.
/// (Its other waits, for example for a slot while blocks came from storage, are part of the same time.)
struct WaitTotals {
  std::uint64_t at_once = 0;  ///< did not wait
  WaitTotal room;             ///< waited only for slots
  WaitTotal host;             ///< waited for blocks from the host, and for none from storage
  WaitTotal storage;          ///< waited for blocks from storage
  std::uint64_t failed = 0;   ///< ended their wait with an error

  friend WaitTotals operator-(const WaitTotals& now, const WaitTotals& before) {
    return {now.at_once - before.at_once, now.room - before.room, now.host - before.host, now.storage - before.storage,
            now.failed - before.failed};
  }
};

/// Measures the wait of each request, from acquire() to the poll() that reports its end. Its memory is proportional to the number
/// of live requests. Threads: the thread of the cache.
class WaitTimes {
 public:
  void ready_at_once() { ++totals_.at_once; }
  void begin(RequestId id, TimePoint now);
  /// The wait is over. `found`: where the blocks of the request were found. A second call for the same request has no effect.
  void end(RequestId id, TimePoint now, const RequestStats& found);
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

  WaitTotals totals_;
  boost::unordered_flat_map<RequestId, Span, std::hash<RequestId>> waits_;
};

}  // namespace terrace
