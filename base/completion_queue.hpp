#pragma once

#include "base/check.hpp"
#include "base/waker.hpp"

#include <concurrentqueue.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace terrace {

/// A queue that carries results from worker threads to the one thread that collects them. It consists of moodycamel's lock-free
/// queue and a waker. Items of one producer keep their order; there is no order between producers. `T` must be
/// default-constructible and movable.
///
/// Ownership: producers must be destroyed before the queue, and the waker must outlive the queue. Each producing thread owns a
/// Producer. (A queue with preallocated memory that is used without producer tokens refuses all other producers once one producer
/// has filled it.)
///
/// Threads: push() from the producer's thread, drain() from one thread. Bound: the owner limits the number of items in flight.
/// push() allocates memory only if more than `in_flight_max` items are in the queue.
template <class T>
class CompletionQueue {
 public:
  class Producer {
   public:
    explicit Producer(CompletionQueue& queue) : queue_{&queue}, token_{queue.queue_} {}

    void push(T item) {
      push_quietly(std::move(item));
      wake();
    }
    /// Adds an item without waking the consumer. Call wake() after the last of several items.
    void push_quietly(T item) { TERRACE_CHECK(queue_->queue_.enqueue(token_, std::move(item))); }
    void wake() { queue_->waker_->wake(); }

   private:
    CompletionQueue* queue_;
    moodycamel::ProducerToken token_;
  };

  /// `waker` must outlive the queue.
  CompletionQueue(std::size_t in_flight_max, std::size_t producers, Waker& waker)
      : queue_{in_flight_max, producers, 0}, consumer_{queue_}, waker_{&waker} {}

  /// Appends all items that have arrived to `out`, and returns their number.
  std::size_t drain(std::vector<T>& out) {
    std::size_t total = 0;
    T item;
    while (queue_.try_dequeue(consumer_, item)) {
      out.push_back(std::move(item));
      ++total;
    }
    return total;
  }

 private:
  moodycamel::ConcurrentQueue<T> queue_;
  moodycamel::ConsumerToken consumer_;
  Waker* waker_;
};

}  // namespace terrace
