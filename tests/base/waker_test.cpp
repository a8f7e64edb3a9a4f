#include "base/waker.hpp"

#include "tests/base/read_hook.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace terrace {
namespace {

bool readable(const EventFdWaker& waker, int timeout_ms = 0) {
  pollfd entry{waker.fd(), POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST(EventFdWaker, is_not_readable_until_woken) {
  EventFdWaker waker;
  EXPECT_FALSE(readable(waker));
  waker.wait(0);  // returns at once
  waker.wake();
  EXPECT_TRUE(readable(waker));
}

TEST(EventFdWaker, remembers_a_wake_that_came_before_the_wait) {
  EventFdWaker waker;
  waker.wake();
  waker.wait(-1);  // returns at once; otherwise the test does not end
  EXPECT_TRUE(readable(waker)) << "waiting does not acknowledge";
}

TEST(EventFdWaker, makes_one_of_many_wakes) {
  EventFdWaker waker;
  for (int i = 0; i < 100; ++i) waker.wake();
  // Several wakes are merged before the kernel: the descriptor counts one.
  std::uint64_t counter = 0;
  ASSERT_EQ(::read(waker.fd(), &counter, sizeof counter), static_cast<ssize_t>(sizeof counter));
  EXPECT_EQ(counter, 1U);
}

TEST(EventFdWaker, is_quiet_after_acknowledge_and_wakes_again) {
  EventFdWaker waker;
  for (int i = 0; i < 3; ++i) {
    waker.wake();
    waker.wake();
    EXPECT_TRUE(readable(waker));
    waker.acknowledge();
    EXPECT_FALSE(readable(waker));
  }
  waker.acknowledge();  // with nothing to acknowledge: it neither blocks nor fails
  waker.wake();
  EXPECT_TRUE(readable(waker));
}

TEST(EventFdWaker, wakes_again_whenever_it_was_woken_while_it_acknowledged) {
  EventFdWaker waker;
  const auto wake = [&] { waker.wake(); };
  for (const bool before : {true, false}) {
    waker.wake();
    {
      const test::ReadHook other_thread{before ? wake : std::function<void()>{}, before ? std::function<void()>{} : wake};
      waker.acknowledge();
    }
    // The owner collects here, and sees everything that both wakes announced. A later push wakes it again.
    waker.wake();
    EXPECT_TRUE(readable(waker)) << (before ? "woken before the read" : "woken after it");
    waker.acknowledge();
  }
}

TEST(EventFdWaker, makes_no_system_call_if_there_is_nothing_to_acknowledge) {
  EventFdWaker waker;
  int reads = 0;
  const test::ReadHook hook{[&] { ++reads; }, {}};
  waker.acknowledge();
  EXPECT_EQ(reads, 0);
  waker.wake();
  waker.acknowledge();
  waker.acknowledge();
  EXPECT_EQ(reads, 1);
}

TEST(EventFdWaker, is_acknowledged_later_if_the_other_thread_has_not_written_yet) {
  EventFdWaker waker;
  // A wake() whose write is late: as if it had not happened, although the flag is set.
  waker.wake();
  std::uint64_t counter = 0;
  ASSERT_EQ(::read(waker.fd(), &counter, sizeof counter), static_cast<ssize_t>(sizeof counter));
  waker.acknowledge();
  ASSERT_EQ(::write(waker.fd(), &counter, sizeof counter), static_cast<ssize_t>(sizeof counter));
  EXPECT_TRUE(readable(waker));
  waker.acknowledge();
  EXPECT_FALSE(readable(waker)) << "otherwise its owner would never sleep again";
  waker.wake();
  EXPECT_TRUE(readable(waker));
}

TEST(EventFdWaker, ends_the_wait_of_another_thread) {
  EventFdWaker waker;
  std::thread sleeper{[&] { waker.wait(-1); }};
  waker.wake();
  sleeper.join();
  EXPECT_TRUE(readable(waker));
}

TEST(EventFdWaker, loses_no_push_that_its_owner_has_not_seen) {
  // The contract between producers (push, then wake) and the owner (wait, acknowledge, then collect): no item is left in the
  // queue while the owner sleeps.
  constexpr int producers = 3;
  constexpr int pushes = 20'000;
  EventFdWaker waker;
  std::atomic<int> pushed{0};
  std::barrier start{producers};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int i = 0; i < pushes; ++i) {
        pushed.fetch_add(1, std::memory_order_release);
        waker.wake();
      }
    });
  }
  int seen = 0;
  while (seen < producers * pushes && readable(waker, 20'000)) {
    waker.acknowledge();
    seen = pushed.load(std::memory_order_acquire);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, producers * pushes);
}

TEST(NullWaker, does_nothing) {
  NullWaker waker;
  waker.wake();
}

}  // namespace
}  // namespace terrace
