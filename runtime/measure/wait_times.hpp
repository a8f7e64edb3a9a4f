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

/// Requests that waited for the same thing, and how long.
struct WaitTotal {
  std::uint64_t requests = 0;
  double seconds = 0;
  Histogram microseconds;  ///< of each wait

  friend WaitTotal operator-(const WaitTotal& now, const WaitTotal& before) {
    return {now.requests - before.requests, now.seconds - before.seconds, difference(now.microseconds, before.microseconds)};
  }
};

/// How long accepted requests waited until they were ready, by the slowest thing that they waited for: each counts once. (What
/// it waited for beside that, room say while blocks came from storage, is part of the same time.)
struct WaitTotals {
  std::uint64_t at_once = 0;  ///< waited for nothing
  WaitTotal room;             ///< for slots alone
  WaitTotal host;             ///< for blocks from the host, none from storage
  WaitTotal storage;          ///< for blocks from storage
  std::uint64_t failed = 0;   ///< ended their wait with an error

  friend WaitTotals operator-(const WaitTotals& now, const WaitTotals& before) {
    return {now.at_once - before.at_once, now.room - before.room, now.host - before.host, now.storage - before.storage,
            now.failed - before.failed};
  }
};

/// Measures these times, from acquire() to the poll() that tells of the end. Memory in proportion to the live requests.
/// Threads: the cache's.
class WaitTimes {
 public:
  void ready_at_once() { ++totals_.at_once; }
  void begin(RequestId id, TimePoint now);
  /// The wait is over. `found`: where the request's blocks were. Said twice, it counts once.
  void end(RequestId id, TimePoint now, const RequestStats& found);
  void fail(RequestId id, TimePoint now);
  /// The request is over.
  void forget(RequestId id) { waits_.erase(id); }

  /// How long this request has waited until `now`, or did: 0 where it was ready at once.
  [[nodiscard]] double seconds(RequestId id, TimePoint now) const;
  [[nodiscard]] const WaitTotals& totals() const { return totals_; }

 private:
  struct Span {
    TimePoint begun;
    TimePoint ended = never;  ///< `never`: it waits
  };

  [[nodiscard]] Span* waiting(RequestId id);

  WaitTotals totals_;
  boost::unordered_flat_map<RequestId, Span, std::hash<RequestId>> waits_;
};

}  // namespace terrace
