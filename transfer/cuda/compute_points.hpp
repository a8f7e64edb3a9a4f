#pragma once

#include "base/strong_id.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/device/device.hpp"
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

/// The compute timeline of a CUDA device: points in the order they were given out, each of them work for the compute thread or an
/// event on a stream of the caller's. A point is reached when it and all before it are done.
///
/// Threads: add_* from compute's side, run() is the compute thread, wait_for() from the copies' threads, the rest from any.
class ComputePoints {
 public:
  using Event = EventPool::Event;

  Fence add_work(ComputeWork work);
  /// `event` has been recorded.
  Fence add_event(Event event);
  /// Whether the point has been given out.
  [[nodiscard]] bool exists(Fence point) const { return point.value() <= added_.load(std::memory_order_relaxed); }
  [[nodiscard]] Fence reached() const { return timeline_.reached(); }
  /// The next point that will be given out.
  [[nodiscard]] Fence next() const { return Fence{added_.load(std::memory_order_relaxed) + 1}; }

  /// Whether all work that was added is done; events may still be open.
  [[nodiscard]] bool work_done();

  /// Waits until no work up to the point is left; then only events stand between the caller and the point, and those that may not
  /// have happened yet are in `open`. A stream that waits for them all comes after the point. False: stopped before.
  [[nodiscard]] bool wait_for(Fence point, std::vector<Event>& open);

  /// Does the points one by one until stopped: the work by `work`, and for an event `wait`, which returns when it has happened.
  void run(const std::function<void(ComputeWork&)>& work, const std::function<void(const Event&)>& wait);
  /// What has not begun never does.
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
  std::deque<Point> open_;  ///< not yet done, oldest first; the first is the one under way
  bool stopped_ = false;
};

}  // namespace terrace
