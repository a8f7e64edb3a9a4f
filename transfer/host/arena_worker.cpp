#include "transfer/host/arena_worker.hpp"

#include <optional>
#include <utility>

namespace terrace {

ThreadArenaWorker::ThreadArenaWorker()
    : thread_{[this] {
        while (std::optional<Job> job = jobs_.pop()) (*job)();
      }} {}

ThreadArenaWorker::~ThreadArenaWorker() { jobs_.stop(); }

}  // namespace terrace
