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
  /// One per block of the prompt, the partly filled last one's optional. An id names the block and everything before it.
  std::vector<std::uint64_t> hash_ids;
  /// Of the full blocks that follow when the answer is written, where it is known that later prompts begin with it.
  std::vector<std::uint64_t> output_ids;

  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

/// Where requests come from, in order of arrival. Threads: one.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// Nothing at the end.
  [[nodiscard]] virtual std::optional<TraceRequest> next() = 0;
};

}  // namespace terrace::tools
