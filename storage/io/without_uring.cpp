// This file replaces uring_*.cpp if liburing is not installed or not wanted.

#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"

#include <cerrno>
#include <stdexcept>

namespace terrace {
namespace {

constexpr const char* absent = "io_uring: this build is without it (liburing was not installed, or TERRACE_WITH_URING is off)";

}  // namespace

int UringCalls::setup(unsigned, io_uring&, io_uring_params&) { return -ENOSYS; }
int UringCalls::register_buffer(io_uring&, unsigned, const iovec&) { return -ENOSYS; }
int UringCalls::ended(const IoOperation&, int, std::uint64_t, int result) { return result; }
UringCalls& UringCalls::system() {
  static UringCalls calls;
  return calls;
}

std::optional<std::string> UringIo::unavailable(UringCalls&) { return absent; }
std::unique_ptr<IoEngine> UringIo::make(const Config&, Waker&, UringCalls&, PosixCalls&) { throw std::runtime_error{absent}; }

}  // namespace terrace
