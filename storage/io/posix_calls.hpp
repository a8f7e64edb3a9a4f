#pragma once

#include <cstddef>
#include <sys/types.h>

namespace terrace {

/// The system calls that fail in interesting ways, so that a test can make them. Each as its namesake: -1 and errno.
/// Threads: any.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual ssize_t pread(int fd, void* into, std::size_t bytes, off_t offset);
  virtual ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t offset);
  virtual int fdatasync(int fd);
  virtual int fallocate(int fd, off_t offset, off_t bytes);  ///< growing the file where it ends before that
  virtual int punch_hole(int fd, off_t offset, off_t bytes);

  /// The real ones.
  [[nodiscard]] static PosixCalls& system();
};

}  // namespace terrace
