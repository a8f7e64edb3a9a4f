#include "transfer/host/arena_worker.hpp"

#include "base/thread.hpp"

#include <optional>
#include <utility>

namespace terrace {

ThreadArenaWorker::ThreadArenaWorker()
    : thread_{start_thread<std::jthread>("terrace-arena", [this] {
        while (std::optional<Task> task = tasks_.pop()) (*task)();
      })} {}

ThreadArenaWorker::~ThreadArenaWorker() { tasks_.stop(); }

}  // namespace terrace
