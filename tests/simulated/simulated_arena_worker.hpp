#pragma once

#include "transfer/host/arena_worker.hpp"

#include <cstddef>
#include <deque>
#include <utility>

namespace terrace {

/// A worker that works only when a test or the simulation calls step(). Threads: one.
class SimulatedArenaWorker final : public ArenaWorker {
 public:
  void run(Task task) override { tasks_.push_back(std::move(task)); }
  [[nodiscard]] std::size_t queued() const { return tasks_.size(); }
  /// Carries out the next task at once. Returns false if there is none.
  bool step() {
    if (tasks_.empty()) return false;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace terrace
