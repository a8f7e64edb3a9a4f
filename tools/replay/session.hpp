#pragma once

#include "runtime/request.hpp"
#include "tools/replay/key_maker.hpp"
#include "tools/replay/latencies.hpp"
#include "tools/replay/options.hpp"
#include "tools/replay/progress.hpp"
#include "tools/replay/request_source.hpp"
#include "tools/replay/verifier.hpp"
#include "transfer/device.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// A request with its keys made: what a driver serves.
struct Prepared {
  std::uint64_t number = 0;  ///< in the trace, from 1; also its RequestId
  double timestamp_ms = 0;
  std::vector<BlockKey> keys;
  std::uint32_t full_blocks = 0;     ///< what is counted: keys, and those cut off since they exceed the device (--reference)
  std::uint32_t blocks = 0;          ///< what it asks for: keys, and a partly filled last block
  std::uint32_t hit_blocks_max = 0;  ///< leaves a token to compute
};

/// What was served, in blocks by where they were found.
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
  Latencies commit;
  Latencies release;
};

/// What both drivers have in common: where requests come from, how they are counted, what computes them. Threads: the
/// driver's, one at a time; the verifier is the device's.
class Session {
 public:
  /// All outlive the session.
  Session(const ReplayOptions& options, RequestSource& source, Progress& progress);

  [[nodiscard]] const ReplayOptions& options() const { return options_; }

  /// The next request of the trace; nothing at its end, or when enough have been given.
  [[nodiscard]] std::optional<Prepared> next();
  /// Valid while `request` is.
  [[nodiscard]] AcquireRequest acquire_request(const Prepared& request) const;
  /// Puts the request's work on the device's compute timeline.
  Fence launch(Device& device, std::shared_ptr<const ComputeJob> job);

  void finish(const Prepared& request, const RequestStats& stats);
  void reject() { ++counts_.rejected; }
  /// The replay cannot go on; the first reason is kept.
  void fail(std::string reason);
  [[nodiscard]] bool failed() const { return failure_.has_value(); }

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] CallLatencies& latencies() { return latencies_; }
  [[nodiscard]] const Verifier& verifier() const { return verifier_; }
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  /// Time spent making keys.
  [[nodiscard]] double key_seconds() const { return key_seconds_; }

 private:
  const ReplayOptions& options_;
  RequestSource& source_;
  Progress& progress_;
  KeyMaker keys_;
  Verifier verifier_;
  Counts counts_;
  CallLatencies latencies_;
  std::uint64_t given_ = 0;
  double key_seconds_ = 0;
  std::optional<std::string> failure_;
};

/// Identifies the replay's model and geometry, to storage and in keys: block size, tokens a block, and the form of content.
[[nodiscard]] BlockKey replay_fingerprint(const ReplayOptions& options);

}  // namespace terrace::tools
