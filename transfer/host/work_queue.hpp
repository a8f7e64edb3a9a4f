#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace terrace {

/// A queue of items for one thread, which sleeps while there are none. The queue has no bound: its owner limits the number of
/// items in flight. Threads: push() and stop() from any, pop() from one.
template <class T>
class WorkQueue {
 public:
  void push(T item) {
    {
      const std::lock_guard lock{mutex_};
      items_.push_back(std::move(item));
    }
    changed_.notify_one();
  }

  /// Waits for an item. Returns nothing after stop(); items that are still queued are destroyed with the queue.
  [[nodiscard]] std::optional<T> pop() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return stopped_ || !items_.empty(); });
    if (stopped_) return std::nullopt;
    std::optional<T> item{std::move(items_.front())};
    items_.pop_front();
    return item;
  }

  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
  bool stopped_ = false;
};

}  // namespace terrace
