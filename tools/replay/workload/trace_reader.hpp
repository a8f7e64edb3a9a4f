#pragma once

#include "tools/replay/workload/request_source.hpp"
#include "tools/replay/workload/trace_file.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace terrace::tools {

/// Reads a trace in Mooncake's form, one JSON object a line, as text or compressed by gzip (told by content, not by name):
///
///     {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 2353]}
///
/// `hash_ids` holds one id per block of `block_tokens` tokens; that of a partly filled last block may be missing. Further
/// members are ignored, as are empty lines and a byte order mark. Lines are read as they are asked for, so that a file may be of
/// any length.
///
/// Every failure is a UsageError of one line: `FILE:LINE: what is wrong`; or Interrupted.
class TraceReader final : public RequestSource {
 public:
  TraceReader(const TraceFile& file, std::uint32_t block_tokens, TraceLimits limits = {});
  ~TraceReader() override;

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  class Lines;

  std::string name_;
  std::uint32_t block_tokens_;
  std::unique_ptr<Lines> lines_;
};

/// What can be known of a trace by reading it once; that it is well-formed to the end, above all.
struct TraceSummary {
  std::uint64_t requests = 0;
  std::uint32_t full_blocks_max = 0;  ///< of one request
};

/// Looks at the first `requests_max` requests. Throws UsageError, Interrupted.
[[nodiscard]] TraceSummary scan_trace(const TraceFile& file, std::uint32_t block_tokens, std::uint64_t requests_max,
                                      const TraceLimits& limits = {});

}  // namespace terrace::tools
