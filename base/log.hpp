#pragma once

#include "terrace/clock.hpp"
#include "terrace/log.hpp"

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

/// Passes messages to a sink on its own thread, so that a caller never waits for the sink. It is for rare changes of state. The
/// caller must detect such changes itself, at no cost while there are none.
///
/// Ownership: the sink must exist until end(), and the clock must outlive the log. Threads: write() from any.
class Log {
 public:
  /// `clock` must outlive the log.
  Log(const LogOptions& options, const Clock& clock);
  /// Calls end().
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Passes all waiting messages to the sink, and then ends the thread. Messages that are written later are dropped, and the sink
  /// is no longer used. Threads: not at the same time as another end().
  void end();
  [[nodiscard]] bool wants(LogLevel level) const { return options_.sink != nullptr && level >= options_.least; }
  /// Writes a message on a topic. `make()` returns its text. It is called at once, and only if the log writes this level. `topic`
  /// must have static storage duration.
  template <class Make>
  void write(LogLevel level, std::string_view topic, Make&& make) {
    if (wants(level)) post(level, topic, std::forward<Make>(make)());
  }

 private:
  struct Topic {
    std::string_view name;
    TimePoint period_begin;
    std::uint32_t said = 0;  ///< messages written in this period
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
  std::vector<Topic> topics_;  ///< protected by mutex_, as are waiting_ and end_
  std::deque<Waiting> waiting_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace terrace
