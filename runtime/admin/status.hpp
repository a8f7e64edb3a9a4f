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

/// The state of a cache or store, as a person or a load balancer needs it.
enum class HealthState : unsigned char {
  ok,
  degraded,  ///< serves, but less well than configured
  idle,      ///< nobody has polled for some time, and nothing was under way
  stalled,   ///< nobody has polled for some time, although work is under way or commands wait
};
[[nodiscard]] std::string_view to_string(HealthState state);
/// The names in replies and metrics.
[[nodiscard]] std::string_view to_string(CacheStatus status);
[[nodiscard]] std::string_view to_string(Direction direction);
[[nodiscard]] std::string_view to_string(Urgency urgency);
/// "room", "looking", or the name of the source.
[[nodiscard]] std::string_view waited_for(const SlowRequest& request);
/// The sentence about a pool, which is named if there are several.
[[nodiscard]] std::string of_pool(const AdminSnapshot& snapshot, std::size_t pool, std::string_view sentence);
/// A text for people as such a name: "dropped: full" becomes "dropped_full".
[[nodiscard]] std::string name_of(std::string_view text);

struct Health {
  HealthState state = HealthState::ok;
  std::vector<std::string> reasons{};  ///< sentences for people
};

/// `age` is the time since the snapshot was made. A snapshot older than three intervals and two seconds is idle or stalled.
[[nodiscard]] Health health_of(const AdminSnapshot& snapshot, Duration age, Duration interval, bool commands_wait);

/// The gain that storage has brought since the start.
struct StorageGain {
  std::uint64_t found = 0;  ///< tokens or blocks that came from there: what `stats.requests` counts; or blocks of an OffloadCache
  double waited_seconds = 0;                ///< of requests that waited for them
  std::optional<double> prefill_seconds{};  ///< for computing them; none: the prefill speed is neither stated nor learned
  Bytes written{};
  Bytes written_per_day{};  ///< at the rate of this day; 0: nothing was written today, or it is younger than a minute
};
[[nodiscard]] StorageGain storage_gain(const AdminSnapshot& snapshot);

/// All that the snapshot knows, for `/v1/status`.
[[nodiscard]] boost::json::object to_json(const AdminSnapshot& snapshot);
[[nodiscard]] boost::json::object to_json(const WriteBackProgress& job);
[[nodiscard]] boost::json::array to_json(std::span<const WriteBackResult> results);

}  // namespace terrace::admin
