#pragma once

#include <cstdint>

/// Support for processes that fork. The child has the parent's memory but none of its threads, so it cannot use the parent's
/// objects. If it kept the parent's descriptors open, locks and sockets would stay in use after the parent has ended.
/// docs/design/threads.md describes the consequences for programs.
namespace terrace {

/// Remembers the process in which an object was made. Threads: any.
class HomeProcess {
 public:
  HomeProcess() noexcept;
  /// Returns false in a child that was forked after the construction (not by a raw system call, and not by vfork).
  [[nodiscard]] bool is_here() const noexcept;

 private:
  std::uint32_t forks_;
};

/// Makes children that are forked from now on close the descriptor at once. Returns `fd`; a negative `fd` is ignored. A fork
/// between the creation of the descriptor and this call leaves it open in the child. Threads: any.
int close_in_children(int fd) noexcept;
/// Ends the effect of close_in_children(). Call it before the descriptor is closed, because another thread may get its number at
/// once.
void leave_to_children(int fd) noexcept;

}  // namespace terrace
