#include "base/fork.hpp"

#include "base/descriptor.hpp"
#include "base/waker.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace terrace {
namespace {

/// Returns what `check` returns in a child process.
bool in_child(const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(HomeProcess, is_not_here_in_a_child) {
  const HomeProcess home;
  EXPECT_TRUE(home.is_here());
  EXPECT_TRUE(in_child([&home] { return !home.is_here() && HomeProcess{}.is_here(); }));
  EXPECT_TRUE(home.is_here());
}

TEST(Fork, closes_in_the_child_what_was_named_and_nothing_else) {
  const Descriptor named{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const Descriptor other{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const Descriptor left{close_in_children(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  EXPECT_EQ(close_in_children(named.get()), named.get());
  EXPECT_EQ(close_in_children(-1), -1);
  leave_to_children(left.get());
  leave_to_children(-1);
  EXPECT_TRUE(in_child([&] { return !is_open(named.get()) && is_open(other.get()) && is_open(left.get()); }));
  EXPECT_TRUE(is_open(named.get()));
  leave_to_children(named.get());
  EXPECT_TRUE(in_child([&] { return is_open(named.get()); }));
}

TEST(Fork, leaves_the_descriptors_of_a_child_to_its_own_children) {
  const Descriptor named{close_in_children(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  EXPECT_TRUE(in_child([&] {
    // The child may use the number again, for a file that its children need.
    const Descriptor again{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    return again.get() == named.get() && in_child([&] { return is_open(again.get()); });
  }));
  leave_to_children(named.get());
}

TEST(Fork, closes_a_waker_in_the_child) {
  const EventFdWaker waker;
  EXPECT_TRUE(in_child([&] { return !is_open(waker.fd()); }));
  EXPECT_TRUE(is_open(waker.fd()));
}

}  // namespace
}  // namespace terrace
