#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "storage/io/io_engine.hpp"

#include <cstddef>
#include <vector>

namespace terrace {

/// The owner's side of an engine whose threads push completions into a lock-free queue: all members of IoEngine that need only
/// this queue. The threads must have ended before this part of the engine is destroyed. Threads: as for IoEngine; completions()
/// is for the producers.
class QueuedEngine : public IoEngine {
 public:
  std::size_t poll(std::vector<IoCompletion>& out) final {
    completions_.drain(collected_);
    const std::size_t count = collected_.size();
    out.insert(out.end(), collected_.begin(), collected_.end());
    collected_.clear();
    in_flight_ -= count;
    return count;
  }
  void wait() final {
    while (collected_.empty() && in_flight_ > 0) {
      waker_.own.acknowledge();
      if (completions_.drain(collected_) == 0) waker_.own.wait(-1);
    }
  }
  [[nodiscard]] std::size_t in_flight() const final { return in_flight_; }
  [[nodiscard]] Waker& waker() final { return waker_.owner; }

 protected:
  /// The size of the queues. If more operations are under way, the queues allocate memory; there is no other effect.
  static constexpr std::size_t in_flight_max = 4096;

  /// `owner` must outlive the engine. `producers` is the number of the threads.
  QueuedEngine(std::size_t producers, Waker& owner) : waker_{owner}, completions_{in_flight_max, producers, waker_} {}

  [[nodiscard]] CompletionQueue<IoCompletion>& completions() { return completions_; }
  /// Counts operations that were submitted.
  void begun(std::size_t operations) { in_flight_ += operations; }

 private:
  /// Wakes two waiters when a thread has pushed a completion: the owner of the engine, and wait().
  struct BothWaker final : Waker {
    explicit BothWaker(Waker& owners) : owner{owners} {}
    void wake() noexcept override {
      own.wake();
      owner.wake();
    }
    Waker& owner;
    EventFdWaker own;
  };

  BothWaker waker_;
  CompletionQueue<IoCompletion> completions_;
  std::vector<IoCompletion> collected_;  ///< completions that wait() has collected for the next poll()
  std::size_t in_flight_ = 0;
};

}  // namespace terrace
