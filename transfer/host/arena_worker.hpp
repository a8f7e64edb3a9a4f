#pragma once

#include "transfer/host/work_queue.hpp"

#include <functional>
#include <thread>

namespace terrace {

/// Who does what must not happen on the control plane: mapping, touching, registering and unmapping memory, in order.
class ArenaWorker {
 public:
  using Task = std::function<void()>;

  virtual ~ArenaWorker() = default;
  /// From one thread. Tasks that have not begun when the worker ends never do.
  virtual void run(Task task) = 0;
};

/// A thread of its own, which ends with the task it is at.
class ThreadArenaWorker final : public ArenaWorker {
 public:
  /// Throws std::system_error where there is no thread to be had.
  ThreadArenaWorker();
  ~ThreadArenaWorker() override;
  ThreadArenaWorker(const ThreadArenaWorker&) = delete;
  ThreadArenaWorker& operator=(const ThreadArenaWorker&) = delete;

  void run(Task task) override { tasks_.push(std::move(task)); }

 private:
  WorkQueue<Task> tasks_;
  std::jthread thread_;
};

}  // namespace terrace
