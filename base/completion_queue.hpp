#pragma once

#include "base/check.hpp"
#include "base/waker.hpp"

#include <concurrentqueue.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace terrace {

/// Results on their way from worker threads to the one thread that collects them: moodycamel's lock-free queue and a waker.
/// Order holds per producer; none is promised across producers. `T` can be default-constructed and moved.
///
/// Each producing thread owns a Producer, because a pre-sized queue without tokens refuses every other producer once one
/// has filled it. Bound: what is in flight, by the owner's credits; `push` grows the queue only if those are exceeded.
/// Lifetime: producers end before the queue. Threads: push from the producer's, drain from one.
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
    /// To be followed by a wake(), once for several.
    void push_quietly(T item) { TERRACE_CHECK(queue_->queue_.enqueue(token_, std::move(item))); }
    void wake() { queue_->waker_->wake(); }

   private:
    CompletionQueue* queue_;
    moodycamel::ProducerToken token_;
  };

  /// `waker` outlives the queue.
  CompletionQueue(std::size_t in_flight_max, std::size_t producers, Waker& waker)
      : queue_{in_flight_max, producers, 0}, consumer_{queue_}, waker_{&waker} {}

  /// Appends everything that has arrived to `out`; returns how many.
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
