#pragma once

#include "terrace/clock.hpp"
#include "terrace/request.hpp"
#include "terrace/settings.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <boost/json/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The commands of the admin endpoint, and how they are read from JSON. Nothing here has an effect.
namespace terrace::admin {

/// The body of a request is wrong. The sentence names the field, what is wrong, and what would be right.
class BadBody : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The kinds of captures: an operator can have them recorded for some time.
enum class CaptureKind : std::uint8_t {
  trace,   ///< spans of requests, calls, transfers, reads and writes
  record,  ///< the requests themselves, for `terrace replay`
};
inline constexpr std::size_t capture_kinds = 2;

struct Resize {
  Tier tier = Tier::host;
  PoolId pool{};
  /// Exactly one of `blocks` and `bytes` is set.
  std::optional<std::uint64_t> blocks{};
  std::optional<Bytes> bytes{};
};
struct Clear {
  ClearOptions options{};
};
/// The weights have changed: clears the cache, and uses the shared store again under the revision of the new weights.
struct Update {
  bool wait = false;  ///< the same as ClearOptions::wait
  std::string weights_revision{};
};
/// Ends a clear that waits.
struct Resume {};
/// Pauses transfers, or resumes them.
struct Pause {
  bool pause = true;
};
/// Options that can change while a cache serves, by name, as words.
struct Change {
  std::vector<std::pair<std::string, std::string>> values{};
};
struct StartJob {
  WriteBackOrder order{};  ///< without `keys` and `deadline`
  std::vector<BlockKey> keys{};
  std::optional<Duration> deadline{};  ///< counted from the start of the job
};
struct ChangeJob {
  enum class Action : unsigned char { pause, resume, cancel, take_results };
  Action action = Action::pause;
  WriteBackId id{};
};
/// Captures for `length` from now on; length 0 ends a capture that is under way.
struct StartCapture {
  CaptureKind kind = CaptureKind::trace;
  Duration length{};
};
using Command = std::variant<Resize, Clear, Update, Resume, Pause, Change, StartJob, ChangeJob, StartCapture>;

// Each reads the body of one command; an empty body is an empty object. Throws BadBody.

/// {"tier": "host", "pool": 0, "blocks": 1000}, or "bytes": "8GiB" in place of "blocks".
[[nodiscard]] Resize read_resize(std::string_view body);
/// {"wait": false, "keep-storage": false, "keep-shared": false, "release-host": false}
[[nodiscard]] Clear read_clear(std::string_view body);
/// {"weights-revision": "2026-11-01", "wait": false}
[[nodiscard]] Update read_update(std::string_view body);
/// {"write-policy": "write-back", "host.low-watermark": 0.1}
[[nodiscard]] Change read_change(std::string_view body);
/// {"scope": "all" | "request" | "prefix" | "tenant" | "idle", "request": 7, "keys": ["64 hexadecimal digits"], "tenant": 7,
///  "unused-for": "10min", "deadline": "30s", "durable": true, "budget": "1GiB"}
[[nodiscard]] StartJob read_start_job(std::string_view body);
/// {"time": "30s"}: up to an hour; without a time, 10 s.
[[nodiscard]] StartCapture read_capture(CaptureKind kind, std::string_view body);
/// Accepts only an empty body or {}.
void read_nothing(std::string_view body);

/// Returns the settings with the values of `change`, which are named by their options. Throws BadBody: there is no such option,
/// it cannot change while a cache serves, or the value is wrong.
[[nodiscard]] CacheSettings changed(const CacheSettings& now, const Change& change);
/// The settings by the names of their options, as words.
[[nodiscard]] boost::json::object to_json(const CacheSettings& settings);

/// The answer of a process with a TierStore to a request that is for a cache.
inline constexpr std::string_view store_only = "this process has a store only, and no cache: questions are /healthz, /metrics, "
                                               "/v1/status, /v1/config, /v1/history; commands "
                                               "are POST to /v1/clear and /v1/update";

/// {"error": "SENTENCE"}
[[nodiscard]] std::string error_body(std::string_view sentence);

}  // namespace terrace::admin
