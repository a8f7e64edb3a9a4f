#pragma once

#include "runtime/cache/async_cache.hpp"
#include "runtime/system/cache_system.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/engine/session.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::tools {

/// Serves the requests as a server on an event loop does: a coroutine for each, over an AsyncCache. Requests begin in order;
/// those that find no room wait in the AsyncCache, in order.
///
/// A request's life is that of ConfinedDriver's, but there are no steps that requests share, so that no budget either: its
/// prompt is computed in chunks of `step_tokens`, its output a block at a time, each waited for before the next. One that cannot
/// be extended preempts itself: it gives everything back and acquires it again, behind those that wait already.
///
/// Threads: the session and everything here lives on one strand; the AsyncCache has its own. With more threads than one the two
/// run beside each other.
class LoopDriver {
 public:
  /// `waker` is woken by `interrupt`, and by compute; it outlives the stack's device, and all outlive the driver.
  LoopDriver(Session& session, CacheSystem& stack, EventFdWaker& waker, const Interrupt& interrupt);

  /// As ConfinedDriver::run().
  void run();

 private:
  /// Waits for a launch. Lives in its coroutine.
  struct Computing {
    std::uint64_t launch = 0;
    asio::steady_timer timer;  ///< never expires; cancelled when compute is through
    bool done = false;
  };
  /// A request that is served. Lives in its coroutine.
  struct Life {
    explicit Life(Prepared prepared) : request{std::move(prepared)} {}

    Prepared request;
    TimePoint came;
    Grant grant;
    RequestStats stats;           ///< of the blocks it was given first
    std::uint64_t computed = 0;   ///< tokens, cached ones included
    std::uint64_t furthest = 0;   ///< that `computed` ever was
    std::uint32_t committed = 0;  ///< blocks that ever were
    std::uint64_t compared = 0;   ///< of the hits that `stats` tells of
    bool begun = false;           ///< something of it has been launched, ever
    bool has_new_hits = false;    ///< given to it, and not yet read by compute
    bool prompted = false;        ///< its prompt has been computed, once
    bool preempted = false;       ///< once

    /// Tokens computed when it is through.
    [[nodiscard]] std::uint64_t end() const;
    [[nodiscard]] bool is_aborted() const;
  };
  enum class Extended : bool { no, yes };

  asio::awaitable<void> serve_all();
  asio::awaitable<void> serve(Prepared request);
  /// False: it was rejected, or the replay stops.
  asio::awaitable<bool> acquire(Life& life, std::uint64_t tokens);
  asio::awaitable<Extended> extend(Life& life, std::uint64_t tokens);
  asio::awaitable<void> compute(Life& life, std::uint64_t to);
  void preempt(Life& life);
  void end_lease(Life& life);
  asio::awaitable<bool> wait_until_due(double timestamp_ms);
  /// Completes, with nothing, when something this driver waits for may have changed, or at `until`.
  asio::awaitable<void> wait_for_change(TimePoint until);
  /// At once where compute is done already.
  static asio::awaitable<void> wait_for_compute(Computing& computing);
  void watch_wakes();
  void ended(std::exception_ptr error);
  [[nodiscard]] bool stopping() const { return interrupt_.requested() || session_.failed(); }

  Session& session_;
  RankDevices& devices_;
  EventFdWaker& waker_;
  const Interrupt& interrupt_;

  asio::io_context context_;
  asio::strand<asio::any_io_executor> strand_;
  AsyncCache runtime_;
  asio::posix::stream_descriptor wakes_;
  asio::steady_timer changed_;
  std::deque<Computing*> computing_;  ///< in order of their launches
  std::uint32_t in_flight_ = 0;
  TimePoint began_{};
};

}  // namespace terrace::tools
