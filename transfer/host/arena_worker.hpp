#pragma once

#include "base/thread.hpp"
#include "transfer/host/work_queue.hpp"

#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace terrace {

/// Runs tasks that must not run on the control plane, one after another: mapping, touching, registering and unmapping memory.
class ArenaWorker {
 public:
  using Task = std::function<void()>;

  virtual ~ArenaWorker() = default;
  /// Adds a task. Tasks that have not begun when the worker is destroyed never run. Threads: one.
  virtual void run(Task task) = 0;
};

/// A worker with its own thread. The destructor waits for the task that is running.
class ThreadArenaWorker final : public ArenaWorker {
 public:
  /// Throws std::system_error if no thread can be started.
  ThreadArenaWorker()
      : thread_{start_thread<std::jthread>("terrace-arena", [this] {
          while (std::optional<Task> task = tasks_.pop()) (*task)();
        })} {}
  ~ThreadArenaWorker() override { tasks_.stop(); }
  ThreadArenaWorker(const ThreadArenaWorker&) = delete;
  ThreadArenaWorker& operator=(const ThreadArenaWorker&) = delete;

  void run(Task task) override { tasks_.push(std::move(task)); }

 private:
  WorkQueue<Task> tasks_;
  std::jthread thread_;
};

}  // namespace terrace
