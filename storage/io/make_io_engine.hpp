#pragma once

#include "storage/io/io_engine.hpp"
#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_io.hpp"
#include "terrace/block_store.hpp"

#include <memory>

namespace terrace {

struct IoOptions {
  IoChoice choice = IoChoice::automatic;
  ThreadedIo::Config threads;
  UringIo::Config uring;
};

/// Makes the engine. `waker` must outlive it. Only ThreadedIo supports a bandwidth limit (`threads.bandwidth`), so `automatic`
/// chooses ThreadedIo if a limit is set. Throws what the constructors of the engines throw; std::invalid_argument if `uring` is
/// chosen together with a bandwidth limit; std::runtime_error, with the reason in one sentence, if `uring` is chosen and io_uring
/// is not available.
[[nodiscard]] std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options, Waker& waker,
                                                       UringCalls& calls = UringCalls::system());

}  // namespace terrace
