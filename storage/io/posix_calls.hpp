#pragma once

#include <cstddef>
#include <sys/types.h>

namespace terrace {

/// System calls that tests can make fail. Each behaves like the function of the same name: on failure it returns -1 and sets
/// errno. Threads: any.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual ssize_t pread(int fd, void* into, std::size_t bytes, off_t offset);
  virtual ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t offset);
  virtual int fdatasync(int fd);
  virtual int fallocate(int fd, off_t offset, off_t bytes);  ///< extends the file if the range ends beyond it
  virtual int punch_hole(int fd, off_t offset, off_t bytes);

  /// The calls of the operating system itself.
  [[nodiscard]] static PosixCalls& system();
};

}  // namespace terrace
