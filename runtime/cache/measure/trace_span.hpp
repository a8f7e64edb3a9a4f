#pragma once

#include "terrace/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace {

/// Something in a cache that took time.
struct TraceSpan {
  enum class Kind : std::uint8_t {
    acquire,  ///< a call of the engine
    extend,
    commit,
    release,
    load,  ///< a call of an OffloadCache, like `store`
    store,
    poll,
    wait,      ///< wait of a request, from acquire() until it is ready or has failed
    hold,      ///< time of a request from then until its lease ends
    load_job,  ///< a load job of an OffloadCache, from its order to its last event
    store_job,
    swap_out,  ///< a transfer, from its order to its end
    swap_in,
    storage_read,  ///< a read of one block, from its order to its end
    storage_write,
    shared_probe,  ///< a question to the shared store, from its order to its end; `blocks`: number of blocks that it has
    shared_read,   ///< the same as for storage
    shared_write,
  };

  Kind kind = Kind::poll;
  std::uint64_t id = 0;  ///< number of the request, job or transfer; 0 for calls and storage
  TimePoint begin{};
  TimePoint end{};
  std::uint32_t blocks = 0;
  bool failed = false;
};

[[nodiscard]] constexpr std::string_view to_string(TraceSpan::Kind kind) {
  constexpr std::array<std::string_view, 18> names{"acquire",      "extend",      "commit",      "release",      "load",
                                                   "store",        "poll",        "wait",        "hold",         "load_job",
                                                   "store_job",    "swap_out",    "swap_in",     "storage_read", "storage_write",
                                                   "shared_probe", "shared_read", "shared_write"};
  static_assert(names.size() == static_cast<std::size_t>(TraceSpan::Kind::shared_write) + 1);
  return names[static_cast<std::size_t>(kind)];
}

/// Takes spans. Threads: the thread of the cache.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void on_span(const TraceSpan& span) = 0;
};

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
