#include "storage/io/posix_calls.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace terrace {

int PosixCalls::open(const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); }

ssize_t PosixCalls::pread(int fd, void* into, std::size_t bytes, off_t offset) { return ::pread(fd, into, bytes, offset); }

ssize_t PosixCalls::pwrite(int fd, const void* from, std::size_t bytes, off_t offset) {
  return ::pwrite(fd, from, bytes, offset);
}

int PosixCalls::fdatasync(int fd) { return ::fdatasync(fd); }

int PosixCalls::fallocate(int fd, off_t offset, off_t bytes) { return ::fallocate(fd, 0, offset, bytes); }

int PosixCalls::punch_hole(int fd, off_t offset, off_t bytes) {
  return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

PosixCalls& PosixCalls::system() {
  static PosixCalls calls;
  return calls;
}

}  // namespace terrace
