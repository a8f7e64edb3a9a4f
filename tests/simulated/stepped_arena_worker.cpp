#include "tests/simulated/stepped_arena_worker.hpp"

#include <utility>

namespace terrace {

bool SteppedArenaWorker::step() {
  if (jobs_.empty()) return false;
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  job();
  return true;
}

}  // namespace terrace
