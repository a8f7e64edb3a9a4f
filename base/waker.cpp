#include "base/waker.hpp"

#include "base/fork.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace terrace {

EventFdWaker::EventFdWaker() : fd_{close_in_children(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))} {
  if (fd_ < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
}

EventFdWaker::~EventFdWaker() {
  leave_to_children(fd_);
  ::close(fd_);
}

void EventFdWaker::wake() noexcept {
  if (pending_.exchange(true, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  // The write cannot fail: the descriptor is valid, and the counter stays small.
  [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
}

bool EventFdWaker::acknowledge() noexcept {
  // A wake() after this sets `pending_` and writes, so items that were pushed before it are not missed.
  if (!pending_.load(std::memory_order_acquire)) return false;
  std::uint64_t counter = 0;
  // If there is nothing to read yet, a concurrent wake() is between its two lines. Its write will follow, and a later call clears
  // it.
  if (::read(fd_, &counter, sizeof counter) < 0) return true;
  // This must follow the read. A wake() between the two finds `pending_` still set and does not write. No item is missed: the
  // caller collects directly after this call, and finds the items that were pushed before that wake().
  pending_.exchange(false, std::memory_order_acq_rel);
  return true;
}

void EventFdWaker::wait(int timeout_ms) const noexcept {
  pollfd entry{fd_, POLLIN, 0};
  ::poll(&entry, 1, timeout_ms);
}

}  // namespace terrace
