#pragma once

#include "storage/io/io_engine.hpp"
#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_io.hpp"

#include <memory>
#include <optional>
#include <string_view>

namespace terrace {

/// Which engine does the I/O of files.
enum class IoChoice : unsigned char {
  automatic,  ///< io_uring where there is any, else threads
  uring,
  threads,
};
[[nodiscard]] std::string_view to_string(IoChoice choice);
/// The inverse; nothing where the word names none.
[[nodiscard]] std::optional<IoChoice> parse_io_choice(std::string_view word);

struct IoOptions {
  IoChoice choice = IoChoice::automatic;
  ThreadedIo::Config threads;
  UringIo::Config uring;
};

/// Makes the engine; `waker` outlives it. A pace (`threads.bandwidth`) is that of the worker threads, which is what it gets under
/// `automatic`. Throws as the engines do; std::invalid_argument where io_uring is to have a pace; std::runtime_error, with one
/// sentence why, where io_uring is asked for and there is none.
[[nodiscard]] std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options, Waker& waker);
/// The same, asking `calls` whether there is io_uring.
[[nodiscard]] std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options, Waker& waker, UringCalls& calls);

}  // namespace terrace
