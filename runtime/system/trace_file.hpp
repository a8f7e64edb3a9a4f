#pragma once

#include "base/descriptor.hpp"
#include "base/log.hpp"
#include "runtime/cache/measure/trace_span.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/result.hpp"

#include <filesystem>
#include <string>

namespace terrace {

/// Writes the spans of a cache to a file, from its start to its end (TraceJson). The file can be read at any time, also after a
/// crash; then the last spans are missing. If a write fails, this is logged, and the trace ends; the cache continues.
///
/// Threads: the thread of the cache, which makes the writes. So it is a tool for tests and replays. A process that serves is
/// traced by its admin endpoint.
class TraceFile final : public CacheWatch {
 public:
  /// Replaces a file of this name. Throws std::system_error if it cannot be made.
  TraceFile(const std::filesystem::path& file, TimePoint origin, Log& log);
  ~TraceFile() override;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Writes the rest; the destructor does so, too. Nothing is recorded afterwards. Fails: the error of the write that failed.
  [[nodiscard]] Result<void> end();

  void on_polled(TimePoint /*now*/) override {}
  [[nodiscard]] bool wants_spans() const override { return file_.is_open(); }
  void on_span(const TraceSpan& span) override;

 private:
  void write();
  void fail(int error);

  std::filesystem::path name_;
  Log& log_;
  TraceJson json_;
  Descriptor file_;  ///< not open after the end, and after a write has failed
  ErrorCode error_;
  std::string text_;
};

}  // namespace terrace
