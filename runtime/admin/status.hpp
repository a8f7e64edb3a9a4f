#pragma once

#include "runtime/admin/snapshot.hpp"
#include "terrace/clock.hpp"

#include <boost/json/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The answers of the admin endpoint as JSON.
namespace terrace::admin {

/// The health of a cache or store, for people and load balancers.
enum class HealthState : unsigned char {
  ok,
  degraded,  ///< serves, but less well than configured
  idle,      ///< there was no poll for some time, and nothing was under way
  stalled,   ///< there was no poll for some time, although work is under way or commands wait
};
[[nodiscard]] std::string_view to_string(HealthState state);
/// The names in replies and metrics.
[[nodiscard]] std::string_view to_string(CacheStatus status);
[[nodiscard]] std::string_view to_string(Direction direction);
[[nodiscard]] std::string_view to_string(Urgency urgency);
/// The things whose waits the process tells of: "requests"; of an engine that tells of no requests, "loads" or "gets".
[[nodiscard]] std::string_view waiting_things(const AdminSnapshot& snapshot);
/// "room", "looking", or the name of the source.
[[nodiscard]] std::string_view waited_for(const SlowRequest& request);
/// The sentence with the name of the pool, if there are several pools.
[[nodiscard]] std::string of_pool(const AdminSnapshot& snapshot, std::size_t pool, std::string_view sentence);
/// A text for people as a name: "dropped: full" becomes "dropped_full".
[[nodiscard]] std::string name_of(std::string_view text);

struct Health {
  HealthState state = HealthState::ok;
  std::vector<std::string> reasons{};  ///< sentences for people
};

/// `age` is the time since the snapshot was made. A snapshot older than three intervals and two seconds is idle or stalled.
[[nodiscard]] Health health_of(const AdminSnapshot& snapshot, Duration age, Duration interval, bool commands_wait);

/// The gain by storage since the start.
struct StorageGain {
  /// Number of tokens or blocks from storage, in the unit of `stats.requests`; or blocks of an OffloadCache.
  std::uint64_t found = 0;
  double waited_seconds = 0;                ///< total wait of the requests for them
  std::optional<double> prefill_seconds{};  ///< time for computing them; none: the prefill speed is neither stated nor learned
  Bytes written{};
  Bytes written_per_day{};  ///< at the rate of this day; 0: nothing was written today, or it is younger than ten minutes
};
[[nodiscard]] StorageGain storage_gain(const AdminSnapshot& snapshot);

/// The whole snapshot, for `/v1/status`.
[[nodiscard]] boost::json::object to_json(const AdminSnapshot& snapshot);
[[nodiscard]] boost::json::object to_json(const WriteBackProgress& job);
[[nodiscard]] boost::json::array to_json(std::span<const WriteBackResult> results);

}  // namespace terrace::admin
