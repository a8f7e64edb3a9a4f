#include "transfer/cuda/compute_points.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

Fence ComputePoints::add_work(ComputeWork work) { return add(std::move(work), nullptr); }

Fence ComputePoints::add_event(Event event) { return add(nullptr, std::move(event)); }

Fence ComputePoints::add(ComputeWork work, Event event) {
  Fence number;
  {
    const std::lock_guard lock{mutex_};
    number = Fence{added_.load(std::memory_order_relaxed) + 1};
    open_.push_back({number, std::move(work), std::move(event)});
    added_.store(number.value(), std::memory_order_relaxed);
  }
  changed_.notify_one();
  return number;
}

bool ComputePoints::work_done() {
  const std::lock_guard lock{mutex_};
  // Points that are done may still be in the list.
  const Fence done = timeline_.reached();
  return std::ranges::none_of(open_, [done](const Point& each) { return each.work && each.number > done; });
}

bool ComputePoints::wait_for(Fence point, std::vector<Event>& open) {
  if (timeline_.reached() >= point) return true;
  Fence last_work;
  {
    const std::lock_guard lock{mutex_};
    for (const Point& each : open_) {
      if (each.number > point) break;
      if (each.work) last_work = each.number;
    }
  }
  if (!timeline_.wait_for(last_work)) return false;
  const std::lock_guard lock{mutex_};
  for (const Point& each : open_) {
    if (each.number > point) break;
    if (each.event) open.push_back(each.event);
  }
  return true;
}

void ComputePoints::run(const std::function<void(ComputeWork&)>& work, const std::function<void(const Event&)>& wait) {
  for (;;) {
    Point* first = nullptr;
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return stopped_ || !open_.empty(); });
      if (stopped_) return;
      // The point stays in the list, so that wait_for() sees it. Adding items at the end of a deque does not move the others.
      first = &open_.front();
    }
    if (first->work) {
      work(first->work);
    } else {
      wait(first->event);
    }
    const Fence number = first->number;
    // Mark the point as reached before it leaves the list. In between, wait_for() may see it as both open and reached, but never
    // as neither.
    timeline_.reach(number);
    Point done;
    {
      const std::lock_guard lock{mutex_};
      done = std::move(open_.front());
      open_.pop_front();
    }
  }
}

void ComputePoints::stop() {
  timeline_.stop();
  {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace terrace
