#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::tools {

/// One line of a trace, or one turn of a built-in workload.
struct TraceRequest {
  double timestamp_ms = 0;  ///< arrival, from the start of the trace
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  /// One for each block of the prompt; for a partly filled last block it is optional. An id names the block and everything before
  /// it.
  std::vector<std::uint64_t> hash_ids;
  /// Ids of the full blocks that the answer adds, if later prompts are known to begin with them.
  std::vector<std::uint64_t> output_ids;

  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

/// A source of requests, in order of arrival. Threads: one.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// Returns nothing at the end.
  [[nodiscard]] virtual std::optional<TraceRequest> next() = 0;
};

}  // namespace terrace::tools
