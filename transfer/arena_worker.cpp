#include "transfer/arena_worker.hpp"

#include <optional>
#include <utility>

namespace terrace {

ThreadArenaWorker::ThreadArenaWorker()
    : thread_{[this] {
        while (std::optional<Job> job = jobs_.pop()) (*job)();
      }} {}

ThreadArenaWorker::~ThreadArenaWorker() { jobs_.stop(); }

bool SteppedArenaWorker::step() {
  if (jobs_.empty()) return false;
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  job();
  return true;
}

}  // namespace terrace
