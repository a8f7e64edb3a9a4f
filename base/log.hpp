#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {

/// Ordered: a log takes its least level and those above.
enum class LogLevel : unsigned char {
  info,     ///< how things are set up; something is well again
  warning,  ///< something works less well than was asked for
  error,    ///< something that was asked for is not done
};
[[nodiscard]] std::string_view to_string(LogLevel level);

/// The seam to the embedder's log. It outlives the Log that it is given to.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// One sentence, without a line end; names in it are as they were given, whatever their bytes. Called by one thread, the log's
  /// own; may block, and must not throw.
  virtual void write(LogLevel level, std::string_view sentence) = 0;
};

struct LogOptions {
  LogSink* sink = nullptr;  ///< null: no log, no thread, and no sentence is made
  LogLevel least = LogLevel::warning;
  /// Sentences on one topic within `period`; further ones are counted, and the next one says how many were left out.
  std::uint32_t per_period = 5;
  Duration period = std::chrono::seconds{10};
  /// Sentences that wait for a slow sink. Further ones are left out, and counted as above.
  std::size_t waiting_max = 64;
};

/// Hands sentences on to a sink by a thread of its own, so that whoever has something to say never waits for where it goes.
/// It is for changes of state, which are rare: finding them is the caller's work, and must cost nothing while there are none.
///
/// Threads: write() from any.
class Log {
 public:
  /// `clock` outlives the log. A topic's name has static storage.
  Log(const LogOptions& options, const Clock& clock);
  /// Hands the waiting messages to the sink first.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  [[nodiscard]] bool wants(LogLevel level) const { return options_.sink != nullptr && level >= options_.least; }
  /// `make()` returns the sentence; it is called only where the log wants the level, and at once.
  template <class Make>
  void write(LogLevel level, std::string_view topic, Make&& make) {
    if (wants(level)) post(level, topic, std::forward<Make>(make)());
  }

 private:
  struct Topic {
    std::string_view name;
    TimePoint period_begin;
    std::uint32_t said = 0;  ///< within the period
    std::uint64_t left_out = 0;
  };
  struct Waiting {
    LogLevel level;
    std::string sentence;
  };

  void post(LogLevel level, std::string_view topic, std::string sentence);
  [[nodiscard]] Topic& topic_of(std::string_view name, TimePoint now);
  void hand_on();

  const LogOptions options_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Topic> topics_;  ///< under mutex_, as are the rest
  std::deque<Waiting> waiting_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace terrace
