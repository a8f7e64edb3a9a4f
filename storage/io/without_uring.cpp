// This file replaces uring_*.cpp if liburing is not installed or not wanted.

#include "base/check.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"

#include <cerrno>
#include <stdexcept>

namespace terrace {
namespace {

constexpr const char* absent = "io_uring: this build is without it (liburing was not installed, or TERRACE_WITH_URING is off)";

/// Cannot be reached, because no object of the class can exist.
[[noreturn]] void not_here() { check_failed(absent, __FILE__, __LINE__); }

}  // namespace

int UringCalls::setup(unsigned, io_uring&, io_uring_params&) { return -ENOSYS; }
int UringCalls::register_buffer(io_uring&, unsigned, const iovec&) { return -ENOSYS; }
int UringCalls::ended(const IoOperation&, int, std::uint64_t, int result) { return result; }
UringCalls& UringCalls::system() {
  static UringCalls calls;
  return calls;
}

struct UringIo::Parts {};

std::optional<std::string> UringIo::unavailable() { return absent; }
std::optional<std::string> UringIo::unavailable(UringCalls&) { return absent; }

UringIo::UringIo(Config, Waker&) { throw std::runtime_error{absent}; }
UringIo::UringIo(Config, Waker&, UringCalls&, PosixCalls&) { throw std::runtime_error{absent}; }
UringIo::~UringIo() = default;

FileSystem& UringIo::files() { not_here(); }
void UringIo::submit(std::span<const IoOperation>) { not_here(); }
std::size_t UringIo::poll(std::vector<IoCompletion>&) { not_here(); }
void UringIo::wait() { not_here(); }
std::size_t UringIo::in_flight() const { not_here(); }
Waker& UringIo::waker() { not_here(); }
void UringIo::register_memory(std::span<std::byte>) { not_here(); }
void UringIo::forget_memory(std::span<std::byte>) { not_here(); }
std::string UringIo::describe() const { not_here(); }

}  // namespace terrace
