#include "tests/transfer/engine/write_count.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace terrace::test {
namespace {

thread_local std::uint64_t writes_so_far = 0;

}  // namespace

std::uint64_t writes_of_this_thread() { return writes_so_far; }

}  // namespace terrace::test

/// Replaces write() of the C library.
extern "C" ssize_t write(int file, const void* from, std::size_t bytes) {
  ++terrace::test::writes_so_far;
  return syscall(SYS_write, file, from, bytes);
}
