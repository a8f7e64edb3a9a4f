#pragma once

#include "runtime/cache/measure/trace_span.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace {

/// Writes spans as trace events in JSON ("Trace Event Format", Chromium project), which Perfetto (ui.perfetto.dev) and
/// chrome://tracing show: the calls of the engine on a track of their own, and tracks for requests, for transfers in each
/// direction, and for reads and writes of storage. Times are in microseconds from `origin`.
///
/// The text is begin(), any number of spans, and end(). Viewers also read a text without the end.
class TraceJson {
 public:
  explicit TraceJson(TimePoint origin) : origin_{origin} {}

  [[nodiscard]] static std::string_view begin();
  void append(std::string& text, const TraceSpan& span);
  /// `truncated`: spans are missing, because there were too many.
  [[nodiscard]] static std::string_view end(bool truncated = false);

 private:
  TimePoint origin_;
  std::uint64_t spans_ = 0;
};

}  // namespace terrace
