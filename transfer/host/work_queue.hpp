#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace terrace {

/// Items for one thread that sleeps while there are none. Not bounded: what is in it is in flight by its owner's credits.
/// Threads: push and stop from any, pop from one.
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

  /// Waits for an item. Nothing: stopped, and what was queued stays there until the queue is destroyed.
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
