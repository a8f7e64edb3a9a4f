#pragma once

#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <sys/uio.h>

struct io_uring;
struct io_uring_params;

namespace terrace {

/// What the kernel may refuse or do by halves, so that a test can make it. Each returns what the kernel would: a negative errno
/// is a failure. Threads: a ring's own, and the one that makes it.
class UringCalls {
 public:
  virtual ~UringCalls() = default;
  virtual int setup(unsigned entries, io_uring& ring, io_uring_params& params);
  /// Puts the memory into this place of the table; memory of no bytes empties the place.
  virtual int register_buffer(io_uring& ring, unsigned place, const iovec& memory);
  /// The kernel's result of one request, of at most `asked` bytes; what is returned counts instead.
  virtual int ended(const IoOperation& operation, int fd, std::uint64_t asked, int result);

  /// The real ones.
  [[nodiscard]] static UringCalls& system();
};

}  // namespace terrace
