#pragma once

#include "storage/io/io_engine.hpp"
#include "storage/io/posix_calls.hpp"
#include "storage/io/uring_calls.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace terrace {

/// Does I/O with io_uring. The kernel takes operations in batches, so that a few threads can keep many operations under way.
/// Files are registered with the kernel, and so is memory if the kernel allows it (register_memory). A stalled operation takes
/// one of the ring's entries, and blocks no thread.
///
/// Each ring has one thread. It submits operations, collects completions and computes checksums, about 10 GB/s for each ring. The
/// owner's calls never wait for this thread, because operations and completions pass through lock-free queues. In a build without
/// liburing, unavailable() returns the reason.
///
/// register_memory() blocks until the ring's thread and the kernel have registered the memory. The kernel looks up every page,
/// which takes about 10 ms for 1 GiB of small pages. The memory may have at most 1 GiB.
struct UringIo {
  struct Config {
    /// The number of rings. 0: one for every four processors, at least one and at most four.
    unsigned rings = 0;
    /// The largest number of operations under way in each ring. Further operations wait.
    unsigned depth = 256;
  };

  /// Makes the engine, whose destructor finishes the operations under way. `waker` and the calls must outlive it. Throws
  /// std::runtime_error, with the reason in one sentence, if no ring can be made; std::system_error if a descriptor or a thread
  /// cannot be created.
  [[nodiscard]] static std::unique_ptr<IoEngine> make(const Config& config, Waker& waker,
                                                      UringCalls& calls = UringCalls::system(),
                                                      PosixCalls& posix_calls = PosixCalls::system());
  /// The reason, in one sentence, why io_uring cannot be used here. Returns nothing if it can be used.
  [[nodiscard]] static std::optional<std::string> unavailable(UringCalls& calls = UringCalls::system());
};

}  // namespace terrace
