#pragma once

#include "base/waker.hpp"
#include "runtime/types/request.hpp"
#include "tools/replay/engine/aborts.hpp"
#include "tools/replay/engine/compute_batch.hpp"
#include "tools/replay/engine/engine_counts.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "tools/replay/engine/progress.hpp"
#include "tools/replay/engine/verifier.hpp"
#include "tools/replay/options/options.hpp"
#include "tools/replay/workload/request_source.hpp"
#include "transfer/device/device.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::tools {

/// A request with its keys made: what a driver serves.
struct Prepared {
  std::uint64_t number = 0;  ///< in the trace, from 1; also its RequestId
  double timestamp_ms = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;  ///< to be written
  std::vector<BlockKey> keys;       ///< of all blocks that will be full, those of the output behind those of the prompt
  std::uint32_t prompt_blocks = 0;  ///< of them
  std::uint32_t shared_blocks = 0;  ///< of `keys`, those that are cached: all, or the prompt's
  std::uint32_t full_blocks = 0;    ///< what counts: the prompt's, also those beyond the device that --reference cuts off
  std::optional<AbortPoint> abort;
};

/// What was served, in blocks by where they were found when their request was first given its blocks. Of requests that were
/// finished.
struct Counts {
  std::uint64_t requests = 0;  ///< finished
  std::uint64_t rejected = 0;  ///< larger than the device
  std::uint64_t total = 0;
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::uint64_t storage = 0;
  std::uint64_t miss = 0;
  std::uint64_t joined = 0;  ///< of host and storage

  [[nodiscard]] std::uint64_t hits() const { return device + host + storage; }
};

/// Of the calls. In loop mode `match` and `commit` last until their completion, `acquire` and `release` until the call has
/// handed over; all of it includes the way over the strand.
struct CallLatencies {
  Latencies match;
  Latencies acquire;
  Latencies extend;
  Latencies commit;
  Latencies release;
};

/// Work on the device's compute timeline.
struct Launched {
  std::uint64_t number = 0;  ///< of the launch, from 1
  Fence fence;
};

/// What both drivers have in common: where requests come from, how they are counted, what computes them. Threads: the
/// driver's, one at a time; a verifier is its rank's device's.
class Session {
 public:
  /// All outlive the session.
  Session(const ReplayOptions& options, RequestSource& source, Progress& progress);

  [[nodiscard]] const ReplayOptions& options() const { return options_; }

  /// The next request of the trace; nothing at its end, or when enough have been given.
  [[nodiscard]] std::optional<Prepared> next();
  /// With --speed: how long after the first request of all this one comes.
  [[nodiscard]] Duration due_after(double timestamp_ms);
  /// For the request's first `tokens` tokens. Valid while `request` is.
  [[nodiscard]] AcquireRequest acquire_request(const Prepared& request, std::uint64_t tokens) const;
  /// The keys of the blocks that may be shared once so many tokens are computed.
  [[nodiscard]] std::span<const BlockKey> to_share(const Prepared& request, std::uint64_t tokens) const;
  /// Puts work on the compute timeline of every rank; wakes `waker`, which outlives the devices, when it is done.
  Launched launch(RankDevices& devices, Waker& waker, std::shared_ptr<ComputeBatch> batch);
  /// The last launch that is done on all ranks: what it wrote into its batch can be read. Threads: any.
  [[nodiscard]] std::uint64_t launches_done() const;

  /// `compared`: of the hits that `stats` tells of.
  void finish(const Prepared& request, const RequestStats& stats, std::uint64_t compared);
  void reject() { ++counts_.rejected; }
  /// The replay cannot go on; the first reason is kept.
  void fail(std::string reason);
  [[nodiscard]] bool failed() const { return failure_.has_value(); }

  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Hits of finished requests that were compared.
  [[nodiscard]] std::uint64_t checked() const { return checked_; }
  [[nodiscard]] EngineCounts& engine() { return engine_; }
  [[nodiscard]] CallLatencies& latencies() { return latencies_; }
  /// From when a request came (with --speed: was due) until its prompt was computed.
  [[nodiscard]] Latencies& first_tokens() { return first_tokens_; }
  /// By rank.
  [[nodiscard]] const std::deque<Verifier>& verifiers() const { return verifiers_; }
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  /// Time spent making keys.
  [[nodiscard]] double key_seconds() const { return key_seconds_; }

 private:
  [[nodiscard]] std::uint64_t output_room(std::uint64_t prompt_tokens) const;
  void make_keys(Prepared& request, const TraceRequest& traced);

  const ReplayOptions& options_;
  RequestSource& source_;
  Progress& progress_;
  KeyMaker keys_;
  std::deque<Verifier> verifiers_;  ///< by rank
  Aborts aborts_;
  Counts counts_;
  std::uint64_t checked_ = 0;
  EngineCounts engine_;
  CallLatencies latencies_;
  Latencies first_tokens_{std::chrono::microseconds{1}};
  std::optional<double> first_timestamp_ms_;
  std::uint64_t given_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t launches_ = 0;
  /// By rank, compute's; what follows in its work touches nothing of the session.
  std::deque<std::atomic<std::uint64_t>> launches_done_;
  double key_seconds_ = 0;
  std::optional<std::string> failure_;
};

/// Identifies the replay's model and geometry, to storage and in keys: block size, tokens a block, and the form of content.
[[nodiscard]] BlockKey replay_fingerprint(const ReplayOptions& options);

}  // namespace terrace::tools
