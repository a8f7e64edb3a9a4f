#pragma once

#include "transfer/host/arena_worker.hpp"

#include <cstddef>
#include <deque>
#include <utility>

namespace terrace {

/// Whoever owns it says when: for tests and the simulation. Threads: one.
class SimulatedArenaWorker final : public ArenaWorker {
 public:
  void run(Task task) override { tasks_.push_back(std::move(task)); }
  [[nodiscard]] std::size_t queued() const { return tasks_.size(); }
  /// The next task, there and then. False where there is none.
  bool step();

 private:
  std::deque<Task> tasks_;
};

}  // namespace terrace
