#include "storage/io/make_io_engine.hpp"

#include <stdexcept>

namespace terrace {

std::string_view to_string(IoChoice choice) {
  switch (choice) {
    case IoChoice::automatic: return "auto";
    case IoChoice::uring: return "uring";
    case IoChoice::threads: return "threads";
  }
  return "?";
}

std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options, Waker& waker, UringCalls& calls) {
  const bool paced = options.threads.bandwidth != BytesPerSecond{};
  if (options.choice == IoChoice::uring && paced)
    throw std::invalid_argument{"I/O with a bandwidth limit needs threads, not io_uring"};
  bool use_uring = options.choice == IoChoice::uring;
  if (options.choice == IoChoice::automatic && !paced) use_uring = !UringIo::unavailable(calls);
  if (use_uring) return UringIo::make(options.uring, waker, calls);
  return std::make_unique<ThreadedIo>(options.threads, waker);
}

}  // namespace terrace
