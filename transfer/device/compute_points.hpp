#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace terrace {

/// The compute timeline of a device: the points in the order in which they were given out. Each point is either work for the
/// compute thread or an event on a stream of the caller. A point is reached when it and all points before it are done. `Event` is
/// a pointer that is shared; null is no event.
///
/// Threads: add_work() and add_event() from the compute side, run() on the compute thread, wait_for() from the issuing threads,
/// the rest from any. All waits end early when the device stops.
template <class Event>
class ComputePoints {
 public:
  /// Adds a point for work that the compute thread does.
  Fence add_work(ComputeWork work) { return add(std::move(work), nullptr); }
  /// Adds a point for an event, which must have been recorded.
  Fence add_event(Event event) { return add(nullptr, std::move(event)); }
  /// Adds a point that is reached already. No other point may be open.
  Fence add_reached() {
    const Fence point = next();
    added_.store(point.value(), std::memory_order_relaxed);
    reached_.store(point.value(), std::memory_order_release);
    return point;
  }
  /// Returns true if the point has been given out.
  [[nodiscard]] bool exists(Fence point) const { return point.value() <= added_.load(std::memory_order_relaxed); }
  [[nodiscard]] Fence reached() const { return Fence{reached_.load(std::memory_order_acquire)}; }
  /// Returns the next point that will be given out.
  [[nodiscard]] Fence next() const { return Fence{added_.load(std::memory_order_relaxed) + 1}; }

  /// Returns true if all added work is done. Events may still be open.
  [[nodiscard]] bool work_done() {
    const std::lock_guard lock{mutex_};
    return std::ranges::none_of(open_, [](const Point& each) { return static_cast<bool>(each.work); });
  }

  /// Waits until all work up to the point is done. Then adds the events up to the point that may not have happened yet to `open`.
  /// A stream that waits for all of them continues after the point. Returns false if stop() was called first.
  [[nodiscard]] bool wait_for(Fence point, std::vector<Event>& open) {
    if (reached() >= point) return true;
    std::unique_lock lock{mutex_};
    if (!await_reached(last_work(point), lock)) return false;
    add_open(point, open);
    return true;
  }
  /// Does the same if work up to the point is done. Otherwise returns false, and does not wait.
  [[nodiscard]] bool try_wait_for(Fence point, std::vector<Event>& open) {
    if (reached() >= point) return true;
    const std::lock_guard lock{mutex_};
    if (reached() < last_work(point)) return false;
    add_open(point, open);
    return true;
  }

  /// Waits until the point is reached. Returns false if stop() was called first.
  [[nodiscard]] bool await_reached(Fence point) {
    std::unique_lock lock{mutex_};
    return await_reached(point, lock);
  }
  /// Waits until this time. Returns false if stop() was called first.
  [[nodiscard]] bool wait_until(TimePoint time) {
    std::unique_lock lock{mutex_};
    return !reached_changed_.wait_until(lock, time, [this] { return stopped_; });
  }

  /// Processes the points one by one until stopped: calls `work` for work, and `wait` for an event. `wait` must return when the
  /// event has happened. If `work` returns false, the work was not done because of stop(), and run() ends.
  void run(const std::function<bool(ComputeWork&)>& work, const std::function<void(const Event&)>& wait) {
    for (;;) {
      Point* first = nullptr;
      {
        std::unique_lock lock{mutex_};
        added_changed_.wait(lock, [this] { return stopped_ || !open_.empty(); });
        if (stopped_) return;
        // The point stays in the list, so that wait_for() sees it. Adding items at the end of a deque does not move the others.
        first = &open_.front();
      }
      if (!first->work) wait(first->event);
      else if (!work(first->work)) return;
      Point done;
      {
        const std::lock_guard lock{mutex_};
        done = std::move(open_.front());
        open_.pop_front();
        reached_.store(done.number.value(), std::memory_order_release);
      }
      reached_changed_.notify_all();
    }
  }
  /// Ends run() and all waits. Work that has not begun is never done.
  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    added_changed_.notify_all();
    reached_changed_.notify_all();
  }

 private:
  struct Point {
    Fence number;
    ComputeWork work;  ///< empty: an event
    Event event;
  };

  Fence add(ComputeWork work, Event event) {
    Fence number;
    {
      const std::lock_guard lock{mutex_};
      number = next();
      open_.push_back({number, std::move(work), std::move(event)});
      added_.store(number.value(), std::memory_order_relaxed);
    }
    added_changed_.notify_one();
    return number;
  }
  [[nodiscard]] bool await_reached(Fence point, std::unique_lock<std::mutex>& lock) {
    reached_changed_.wait(lock, [&] { return stopped_ || reached() >= point; });
    return reached() >= point;
  }
  /// Returns the last work up to the point that may not be done yet. The caller holds the mutex.
  [[nodiscard]] Fence last_work(Fence point) const {
    Fence last;
    for (const Point& each : open_) {
      if (each.number > point) break;
      if (each.work) last = each.number;
    }
    return last;
  }
  void add_open(Fence point, std::vector<Event>& open) const {
    for (const Point& each : open_) {
      if (each.number > point) break;
      if (each.event) open.push_back(each.event);
    }
  }

  std::atomic<std::uint64_t> added_{0};
  std::atomic<std::uint64_t> reached_{0};
  std::mutex mutex_;
  std::condition_variable added_changed_;
  std::condition_variable reached_changed_;
  std::deque<Point> open_;  ///< points that are not done, oldest first; the first one is under way
  bool stopped_ = false;
};

}  // namespace terrace
