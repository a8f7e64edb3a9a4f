#pragma once

#include <cstdint>

/// A process may fork. The child has the parent's memory and none of its threads, so it cannot use the parent's objects;
/// and descriptors that it kept would keep the locks and sockets of a parent that has ended. docs/design/threads.md says
/// what that means for programs.
namespace terrace {

/// Remembers the process in which an object was made. Threads: any.
class HomeProcess {
 public:
  HomeProcess() noexcept;
  /// False in a child that has been forked since (not by a bare system call, and not by vfork).
  [[nodiscard]] bool is_here() const noexcept;

 private:
  std::uint32_t forks_;
};

/// A child that is forked from now on closes the descriptor at once. Returns `fd`; a negative one is ignored. A fork between the
/// call that made the descriptor and this one leaves it open in the child. Threads: any.
int close_in_children(int fd) noexcept;
/// Ends that. Call it before the descriptor is closed, because another thread may get its number at once.
void leave_to_children(int fd) noexcept;

}  // namespace terrace
