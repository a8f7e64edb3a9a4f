#include "tests/simulated/simulated_io.hpp"

#include "base/check.hpp"

#include <utility>

namespace terrace {

void SimulatedIo::submit(std::span<const IoOperation> batch) {
  for (const IoOperation& operation : batch) {
    const IoFault fault = files_.number_next();
    queue_.push_back({operation, fault, operation.kind == IoOperation::Kind::sync ? files_.changes(operation.file) : 0});
  }
}

std::size_t SimulatedIo::poll(std::vector<IoCompletion>& out) {
  const std::size_t count = completed_.size();
  out.insert(out.end(), completed_.begin(), completed_.end());
  completed_.clear();
  return count;
}

void SimulatedIo::wait() {
  while (completed_.empty()) {
    if (queue_.empty()) release_stalled();
    if (queue_.empty()) return;
    step(0);
  }
}

void SimulatedIo::step(std::size_t i) {
  TERRACE_CHECK(i < queue_.size());
  Queued next = std::move(queue_[i]);
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
  if (next.fault.stall) {
    stalled_.push_back(std::move(next));
    return;
  }
  completed_.push_back(files_.perform(next.operation, next.fault, next.changes));
}

void SimulatedIo::release_stalled() {
  for (Queued& released : stalled_) {
    released.fault.stall = false;
    queue_.push_back(std::move(released));
  }
  stalled_.clear();
}

}  // namespace terrace
