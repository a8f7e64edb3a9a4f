#pragma once

#include "runtime/cache/measure/reuse_curve.hpp"
#include "runtime/cache/measure/trace_span.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::admin {

/// The kinds of captures: an operator can have them recorded for some time.
enum class CaptureKind : std::uint8_t {
  trace,   ///< spans of requests, calls, transfers, reads and writes
  record,  ///< the requests themselves, for `terrace replay`
};
inline constexpr std::size_t capture_kinds = 2;

/// The time that is captured.
struct Capture {
  std::uint64_t number = 0;  ///< 0: nothing was captured yet; the next capture of this kind has the next number
  TimePoint begin{};
  TimePoint end{};
};

/// A request that has ended, or that was under way when the capture ended.
struct RecordedRequest {
  TimePoint at{};
  std::vector<std::uint64_t> prompt{};  ///< its blocks, by BlockKey::prefix64
  std::uint32_t output_blocks = 0;      ///< shared after the prompt
};

/// A portion of what the thread of a cache has observed, for the endpoint.
struct Observed {
  TimePoint made{};
  bool gap = false;  ///< portions before this one were lost
  std::vector<ReuseSample> samples{};
  std::vector<std::uint32_t> ends{};              ///< the requests in `samples`: each ends where the next one begins
  std::array<Capture, capture_kinds> captures{};  ///< by CaptureKind
  std::vector<TraceSpan> spans{};                 ///< spans of the trace capture
  std::vector<RecordedRequest> requests{};
};

}  // namespace terrace::admin
