#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace {

/// The levels of messages, in ascending order. A log writes the messages of its least level and of all higher levels.
enum class LogLevel : unsigned char {
  info,     ///< how the cache is set up, or that something works again
  warning,  ///< something works, but not as well as requested
  error,    ///< something that was requested is not done
};
[[nodiscard]] TERRACE_API std::string_view to_string(LogLevel level);

/// The interface to the application's own log. A sink must exist until the Log that uses it has ended.
class TERRACE_API LogSink {
 public:
  virtual ~LogSink() = default;
  /// Writes one message: a sentence without a line end. Names in it may contain any bytes. Only the log's own thread calls this.
  /// It may block. It must not throw.
  virtual void write(LogLevel level, std::string_view sentence) = 0;
};

struct LogOptions {
  LogSink* sink = nullptr;  ///< null: the log is off, has no thread and builds no message
  LogLevel least = LogLevel::warning;
  /// The most messages on one topic within one `period`. Further messages are dropped and counted. The next message on the topic
  /// gives their number.
  std::uint32_t per_period = 5;
  Duration period = std::chrono::seconds{10};
  /// The most messages that may wait for a slow sink. Further messages are dropped and counted in the same way.
  std::size_t waiting_max = 64;
};

}  // namespace terrace
