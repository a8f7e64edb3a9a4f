#pragma once

#include "transfer/host/arena_worker.hpp"

#include <cstddef>
#include <deque>
#include <utility>

namespace terrace {

/// Whoever owns it says when: for tests and the simulation. Threads: one.
class SteppedArenaWorker final : public ArenaWorker {
 public:
  void run(Job job) override { jobs_.push_back(std::move(job)); }
  [[nodiscard]] std::size_t queued() const { return jobs_.size(); }
  /// The next job, there and then. False where there is none.
  bool step();

 private:
  std::deque<Job> jobs_;
};

}  // namespace terrace
