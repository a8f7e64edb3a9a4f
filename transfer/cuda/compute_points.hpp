#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/device/timeline.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace terrace {

/// The compute timeline of a CUDA device: the points in the order in which they were given out. Each point is either work for the
/// compute thread or an event on a stream of the caller. A point is reached when it and all points before it are done.
///
/// Threads: add_work() and add_event() from the compute side, run() on the compute thread, wait_for() from the issuing threads,
/// the rest from any.
class ComputePoints {
 public:
  using Event = EventPool::Event;

  /// Adds a point for work that the compute thread does.
  Fence add_work(ComputeWork work);
  /// Adds a point for an event, which must have been recorded.
  Fence add_event(Event event);
  /// Returns true if the point has been given out.
  [[nodiscard]] bool exists(Fence point) const { return point.value() <= added_.load(std::memory_order_relaxed); }
  [[nodiscard]] Fence reached() const { return timeline_.reached(); }
  /// Returns the next point that will be given out.
  [[nodiscard]] Fence next() const { return Fence{added_.load(std::memory_order_relaxed) + 1}; }

  /// Returns true if all work that was added is done. Events may still be open.
  [[nodiscard]] bool work_done();

  /// Waits until all work up to the point is done. Then adds to `open` the events up to the point that may not have happened yet.
  /// A stream that waits for all of them comes after the point. Returns false if stopped before.
  [[nodiscard]] bool wait_for(Fence point, std::vector<Event>& open);

  /// Processes the points one by one until stopped: calls `work` for work, and `wait` for an event. `wait` must return when the
  /// event has happened.
  void run(const std::function<void(ComputeWork&)>& work, const std::function<void(const Event&)>& wait);
  /// Ends run() and all waits. Work that has not begun is never done.
  void stop();

 private:
  struct Point {
    Fence number;
    ComputeWork work;  ///< empty: an event
    Event event;
  };

  Fence add(ComputeWork work, Event event);

  Timeline timeline_;
  std::atomic<std::uint64_t> added_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Point> open_;  ///< points that are not done, oldest first; the first one is under way
  bool stopped_ = false;
};

}  // namespace terrace
