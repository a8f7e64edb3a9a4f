#include "tests/simulated/simulated_arena_worker.hpp"

#include <utility>

namespace terrace {

bool SimulatedArenaWorker::step() {
  if (tasks_.empty()) return false;
  const Task task = std::move(tasks_.front());
  tasks_.pop_front();
  task();
  return true;
}

}  // namespace terrace
