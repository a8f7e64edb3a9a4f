#pragma once

#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <sys/uio.h>

struct io_uring;
struct io_uring_params;

namespace terrace {

/// Kernel calls of io_uring for which tests can produce failures and partial results. Each returns the kernel's result: a
/// negative errno is a failure. Threads: the thread of a ring, and the thread that makes the ring.
class UringCalls {
 public:
  virtual ~UringCalls() = default;
  virtual int setup(unsigned entries, io_uring& ring, io_uring_params& params);
  /// Puts the memory into this entry of the table of buffers. Memory of zero bytes clears the entry.
  virtual int register_buffer(io_uring& ring, unsigned place, const iovec& memory);
  /// Receives the kernel's result of one request for at most `asked` bytes. The ring uses the value that this function returns.
  virtual int ended(const IoOperation& operation, int fd, std::uint64_t asked, int result);

  /// The calls of the kernel itself.
  [[nodiscard]] static UringCalls& system();
};

}  // namespace terrace
