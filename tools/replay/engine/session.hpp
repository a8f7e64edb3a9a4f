#pragma once

#include "base/waker.hpp"
#include "runtime/cache/control/use_pace.hpp"
#include "terrace/device.hpp"
#include "terrace/request.hpp"
#include "terrace/system.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "tools/replay/engine/scheduler.hpp"
#include "tools/replay/engine/tokens.hpp"
#include "tools/replay/engine/verifier.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

[[nodiscard]] inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

/// A request with its keys, as a driver serves it.
struct Prepared {
  std::uint64_t number = 0;  ///< its number in the trace, from 1; also its RequestId
  double timestamp_ms = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;  ///< how many to write
  std::uint64_t output_length = 0;  ///< how many the trace says, which the cache is told
  std::vector<BlockKey> keys;       ///< of all blocks that will become full: first those of the prompt, then those of the output
  std::uint32_t prompt_blocks = 0;  ///< the number of keys that belong to the prompt
  std::uint32_t shared_blocks = 0;  ///< how many of `keys` are cached: all, or those of the prompt
  /// full blocks of the prompt, for the counts; includes those beyond the device, which --reference cuts off
  std::uint32_t full_blocks = 0;
  std::optional<AbortPoint> abort;
};

/// A request that a driver serves, and how far it has come.
struct Served {
  Prepared request;
  TimePoint came;
  RequestStats stats;          ///< of the blocks that it got when it was first admitted
  std::uint64_t compared = 0;  ///< how many of the hits in `stats` were compared
  bool begun = false;          ///< some of its work has ever been launched
  bool has_new_hits = false;   ///< it has hits that no computation has read yet
  bool prompted = false;       ///< its whole prompt has been launched once; in loop mode: computed once
  bool preempted = false;      ///< it has been preempted at least once
};

/// The served blocks, counted by the source in which each block was found when its request was first admitted. Only finished
/// requests count.
struct Counts {
  std::uint64_t requests = 0;  ///< finished requests
  std::uint64_t rejected = 0;  ///< requests that are larger than the device
  std::uint64_t total = 0;
  SourceCounts found{};
  std::uint64_t miss = 0;
  std::uint64_t joined = 0;  ///< those of `found` that another request was already loading

  [[nodiscard]] std::uint64_t hits() const { return found.sum(); }
};

/// A value for each call of the cache.
template <class T>
struct Calls {
  T match;
  T acquire;
  T extend;
  T commit;
  T release;
  T prefetch;
};
/// Latencies of the calls. In loop mode, `match` and `commit` end with their completion, and `acquire` and `release` when the
/// call returns. All of them include the way over the strand.
using CallLatencies = Calls<Latencies>;

/// Work that was put on the device's compute timeline.
struct Launched {
  std::uint64_t number = 0;  ///< the number of the launch, from 1
  Fence fence;
};

/// Shared by both drivers: the source of requests, the pace, the counts, and the computation. Threads: the driver's, one at a
/// time; each verifier is used by the compute thread of its rank's device.
class Session {
 public:
  /// All arguments must outlive the session, and `waker` must outlive `devices`. `oracle`: null if there are no hints. The pace
  /// begins now.
  Session(const ReplayOptions& options, RequestSource& source, const Oracle* oracle, RankDevices& devices, Waker& waker,
          const Interrupt& interrupt);

  [[nodiscard]] const ReplayOptions& options() const { return options_; }
  /// Tells the cache what it may know at the end of a request. Call it when the request has written its last token.
  void tell(const Prepared& request, Lease& lease) const;

  /// Returns the next request of the trace, or nothing at its end or after --requests requests.
  [[nodiscard]] std::optional<Prepared> next();
  /// When the request comes. With --speed its distance from the first request of the trace counts; otherwise it is due at once.
  [[nodiscard]] TimePoint due(const Prepared& request);
  /// Returns the acquire request for the request's first `tokens` tokens. It is valid as long as `request`.
  [[nodiscard]] AcquireRequest acquire_request(const Prepared& request, std::uint64_t tokens) const;
  /// The keys of the blocks that may be shared when this many tokens are computed.
  [[nodiscard]] std::span<const BlockKey> to_share(const Prepared& request, std::uint64_t tokens) const;
  /// Puts work on the compute timeline of every rank. Wakes the waker when it is done.
  Launched launch(std::shared_ptr<ComputeBatch> batch);
  /// The number of the last launch that is done on all ranks. The results in its batch can be read. Threads: any.
  [[nodiscard]] std::uint64_t launches_done() const;

  /// Counts a finished request. `compared` says how many of the hits in `stats` were compared.
  void finish(const Prepared& request, const RequestStats& stats, std::uint64_t compared);
  void reject() { ++counts_.rejected; }
  /// Stops the replay. Only the first reason is kept.
  void fail(std::string reason);
  /// The same for a call that failed: "request 7: extend failed: no room".
  void fail(const Prepared& request, std::string_view what, const ErrorCode& error);
  [[nodiscard]] bool failed() const { return failure_.has_value(); }
  /// Whether the replay must end early: it has failed, or the user has interrupted it.
  [[nodiscard]] bool stopping() const { return failed() || interrupt_.requested(); }

  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// For a ProgressLine. `requests_total`: how many requests there will be. Threads: any.
  [[nodiscard]] ProgressState progress(std::uint64_t requests_total) const;
  /// How many hits of finished requests were compared.
  [[nodiscard]] std::uint64_t checked() const { return checked_; }
  [[nodiscard]] EngineCounts& engine() { return engine_; }
  [[nodiscard]] CallLatencies& latencies() { return latencies_; }
  /// Times from a request's arrival (with --speed: from when it was due) until its prompt was computed.
  [[nodiscard]] Latencies& first_tokens() { return first_tokens_; }
  /// By rank.
  [[nodiscard]] const std::deque<Verifier>& verifiers() const { return verifiers_; }
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  /// Seconds spent on making keys.
  [[nodiscard]] double key_seconds() const { return key_seconds_; }

 private:
  [[nodiscard]] std::uint64_t output_room(std::uint64_t prompt_tokens) const;
  void make_keys(Prepared& request, const TraceRequest& traced);

  const ReplayOptions& options_;
  RequestSource& source_;
  RankDevices& devices_;
  Waker& waker_;
  const Interrupt& interrupt_;
  const TimePoint began_ = steady_now();
  const std::uint32_t device_units_;  ///< the most hash units of one request
  KeyMaker keys_;
  std::deque<Verifier> verifiers_;  ///< by rank
  Aborts aborts_;
  Counts counts_;
  // From counts_, for progress().
  std::atomic<std::uint64_t> requests_shown_{0};
  std::atomic<std::uint64_t> hits_shown_{0};
  std::atomic<std::uint64_t> blocks_shown_{0};
  std::uint64_t checked_ = 0;
  EngineCounts engine_;
  CallLatencies latencies_;
  Latencies first_tokens_{std::chrono::microseconds{1}};
  std::optional<double> first_timestamp_ms_;
  const Oracle* oracle_;
  UsePace pace_;  ///< of requests
  std::uint64_t given_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t launches_ = 0;
  /// By rank, written by the compute threads. After this write, the work of a launch uses nothing of the session.
  std::deque<std::atomic<std::uint64_t>> launches_done_;
  double key_seconds_ = 0;
  std::optional<std::string> failure_;
};

/// Identifies the replay's model and geometry in storage and in keys: block size, tokens in a block, and the form of content.
[[nodiscard]] BlockKey replay_fingerprint(const ReplayOptions& options);

// Each driver serves all requests of the session. It returns when every request has ended. After an interruption or a failure it
// returns when all launched work is computed and all other requests have been dropped. Then no lease is left. `waker` is the
// session's.

/// Serves the requests as an inference engine does: one thread polls the cache, asks the scheduler what to run in each step,
/// launches it, and sleeps while there is nothing to do.
///
/// With --reference it serves one request at a time, each to its end, and waits for each copy before the next thing happens. With
/// `exclusive` copies the results are then those of the policy only if there is a SlotReserve.
///
/// A request by layer is told of layers that have arrived while it waits. A launch of its own then compares these layers of its
/// hits.
///
/// A step is launched in parts, because blocks are shared when the work that writes them is launched. The first part is the work
/// of the running requests, so that a request that is admitted in the same step finds their blocks. Then each admitted request is
/// a part of its own. The next step is decided while the last part is still computed.
///
/// `reserved_slots` is the size of the SlotReserve; 0: there is none. Returns SlotReserve::requests(). Threads: one.
std::uint64_t run_confined(Session& session, CacheSystem& system, EventFdWaker& waker, std::uint32_t reserved_slots);

/// Serves the requests as a server with an event loop does: one coroutine for each request, on an AsyncCache. Requests begin in
/// their order. A request without space waits in the AsyncCache, also in order.
///
/// A request's life is the same as in run_confined(), but there are no common steps and so no common token budget. Its prompt is
/// computed in chunks of `step_tokens`, and its output block by block; it waits for each part before it launches the next. A
/// request that cannot be extended preempts itself: it releases all its blocks and acquires them again, behind the requests that
/// wait already.
///
/// Threads: the session and this driver run on one strand, and the AsyncCache on its own. With more than one thread the two run
/// in parallel.
void run_loop(Session& session, CacheSystem& system, EventFdWaker& waker);

}  // namespace terrace::tools
