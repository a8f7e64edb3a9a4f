#pragma once

#include "base/waker.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/device.hpp"
#include "terrace/system.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/engine/session.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::tools {

/// Serves the requests as a server with an event loop does: one coroutine for each request, on an AsyncCache. Requests begin in
/// their order. A request without space waits in the AsyncCache, also in order.
///
/// A request's life is the same as in ConfinedDriver, but there are no common steps and so no common token budget. Its prompt is
/// computed in chunks of `step_tokens`, and its output block by block; it waits for each part before it launches the next. A
/// request that cannot be extended preempts itself: it releases all its blocks and acquires them again, behind the requests that
/// wait already.
///
/// Threads: the session and this driver run on one strand, and the AsyncCache on its own. With more than one thread the two run
/// in parallel.
class LoopDriver {
 public:
  /// `interrupt` and the computation wake `waker`. `waker` must outlive the devices of `system`, and all arguments must outlive
  /// the driver.
  LoopDriver(Session& session, CacheSystem& system, EventFdWaker& waker, const Interrupt& interrupt);

  /// See ConfinedDriver::run().
  void run();

 private:
  /// A wait for a launch. The object lives in the coroutine that waits.
  struct Computing {
    std::uint64_t launch = 0;
    asio::steady_timer timer;  ///< never expires; it is cancelled when the launch is done
    bool done = false;
  };
  /// A request that is being served. The object lives in its coroutine.
  struct Life {
    explicit Life(Prepared prepared) : request{std::move(prepared)} {}

    Prepared request;
    TimePoint came;
    Grant grant;
    RequestStats stats;           ///< of the blocks that it got when it was first admitted
    std::uint64_t computed = 0;   ///< tokens, including those from the cache
    std::uint64_t furthest = 0;   ///< the highest value that `computed` ever had
    std::uint32_t committed = 0;  ///< the highest number of blocks that were ever committed
    std::uint64_t compared = 0;   ///< how many of the hits in `stats` were compared
    bool begun = false;           ///< some of its work has ever been launched
    bool has_new_hits = false;    ///< it has hits that no computation has read yet
    bool prompted = false;        ///< its whole prompt has been computed once
    bool preempted = false;       ///< it has been preempted at least once

    /// The number of computed tokens at which the request is complete.
    [[nodiscard]] std::uint64_t end() const;
    [[nodiscard]] bool is_aborted() const;
  };
  enum class Extended : bool { no, yes };

  asio::awaitable<void> serve_all();
  asio::awaitable<void> serve(Prepared request);
  /// Returns false if the request was rejected, or if the replay stops.
  asio::awaitable<bool> acquire(Life& life, std::uint64_t tokens);
  asio::awaitable<Extended> extend(Life& life, std::uint64_t tokens);
  asio::awaitable<void> compute(Life& life, std::uint64_t to);
  void preempt(Life& life);
  void end_lease(Life& life);
  asio::awaitable<bool> wait_until_due(double timestamp_ms);
  /// Completes when something that this driver waits for may have changed, or at `until`.
  asio::awaitable<void> wait_for_change(TimePoint until);
  /// Completes at once if the launch is done already.
  static asio::awaitable<void> wait_for_compute(Computing& computing);
  void watch_wakes();
  void ended(const std::exception_ptr& error);
  [[nodiscard]] bool stopping() const { return interrupt_.requested() || session_.failed(); }

  Session& session_;
  RankDevices& devices_;
  EventFdWaker& waker_;
  const Interrupt& interrupt_;

  asio::io_context context_;
  asio::strand<asio::any_io_executor> strand_;
  AsyncCache cache_;
  asio::posix::stream_descriptor wakes_;
  asio::steady_timer changed_;
  std::deque<Computing*> computing_;  ///< in the order of their launches
  std::uint32_t in_flight_ = 0;
  TimePoint began_{};
};

}  // namespace terrace::tools
