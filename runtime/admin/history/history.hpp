#pragma once

#include "terrace/clock.hpp"

#include <boost/json/fwd.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::admin {

/// The part of a snapshot that the history follows. Amounts are totals since the start; names are those of `/v1/status`.
struct Moment {
  struct Waits {
    std::string_view what;  ///< requests waited for; has static storage duration
    std::uint64_t requests = 0;
    double seconds = 0;
  };
  struct Slow {
    std::uint64_t id = 0;
    double seconds = 0;
    std::string_view what;  ///< the request waited for; has static storage duration
    TimePoint ended{};
  };
  struct Total {
    std::string name;
    std::uint64_t amount = 0;
  };
  struct Value {
    std::string name;
    std::string value;
  };

  std::uint64_t ready_at_once = 0;  ///< requests that did not wait
  std::vector<Waits> waits{};
  std::vector<Slow> slowest{};
  std::uint64_t waiting = 0;   ///< requests that wait now
  double waiting_seconds = 0;  ///< the longest of them so far
  std::uint64_t queued_blocks = 0;
  double queued_seconds = 0;           ///< wait of the oldest request in the queue
  std::vector<Total> moved_bytes{};    ///< by kind of transfer
  std::vector<Total> troubles{};       ///< counts whose growth is an event
  std::vector<Value> values{};         ///< values whose change is an event: settings, sizes, jobs
  std::vector<std::string> reasons{};  ///< reasons why the cache or store is not healthy (Health)
};

/// Records for each minute of the last hour what requests waited for, and what else happened: the slowest waits, the longest
/// queue, the bytes that moved, and events. It is computed from snapshots, and keeps at most 61 minutes, each with at most 5
/// waits and 64 events of 300 characters: 1.2 MiB.
///
/// Threads: the thread of the endpoint. It reads no clock.
class History {
 public:
  using WallTime = std::chrono::system_clock::time_point;

  static constexpr std::size_t minutes_max = 61;
  static constexpr std::size_t slowest_max = 5;
  static constexpr std::size_t events_max = 64;
  static constexpr std::size_t text_max = 300;

  /// Compares the moment with the one before it, and records the differences. The first call only sets the base. `now` and `wall`
  /// are the same time, on the clock of the snapshot and on the clock of the machine.
  void look(Moment moment, TimePoint now, WallTime wall);
  /// Notes an event. Several equal ones in a minute are one event.
  void note(std::string text, WallTime wall, std::uint64_t times = 1);

  /// The minutes from two before `at` to two after it, the oldest first; without `at`, all minutes.
  [[nodiscard]] boost::json::array to_json(std::optional<WallTime> at = {}) const;

 private:
  struct Event {
    WallTime at;
    std::string text;
    std::uint64_t times = 1;
  };
  struct Slow {
    Moment::Slow wait;
    WallTime ended;
  };
  struct Minute {
    std::chrono::sys_time<std::chrono::minutes> begin;
    std::uint64_t ready_at_once = 0;
    std::vector<Moment::Waits> waits{};
    std::vector<Slow> slowest{};  ///< the slowest first
    std::uint64_t waiting = 0;
    double waiting_seconds = 0;
    std::uint64_t queued_blocks = 0;
    double queued_seconds = 0;
    std::map<std::string, std::uint64_t> moved_bytes{};
    std::vector<Event> events{};
    std::uint64_t events_left_out = 0;
  };

  /// The minute of this time, which is added if it is new. If the clock of the machine was set back, the last minute.
  Minute& minute_of(WallTime wall);
  void add_totals(const Moment& moment, Minute& minute) const;
  void add_slowest(const Moment& moment, TimePoint now, WallTime wall);
  void add_events(const Moment& moment, WallTime wall);

  std::deque<Minute> minutes_;
  std::optional<Moment> before_;
};

}  // namespace terrace::admin
