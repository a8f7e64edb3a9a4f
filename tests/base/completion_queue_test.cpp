#include "base/completion_queue.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

namespace terrace {
namespace {

class CountingWaker final : public Waker {
 public:
  void wake() noexcept override { wakes.fetch_add(1, std::memory_order_relaxed); }
  std::atomic<int> wakes{0};
};

struct Item {
  unsigned producer = 0;
  unsigned number = 0;
};

TEST(CompletionQueue, gives_what_was_pushed_in_order_and_appends_it) {
  NullWaker waker;
  CompletionQueue<int> queue{8, 1, waker};
  CompletionQueue<int>::Producer producer{queue};
  std::vector<int> out{-1};
  EXPECT_EQ(queue.drain(out), 0U);
  for (int i = 0; i < 5; ++i) producer.push(i);
  EXPECT_EQ(queue.drain(out), 5U);
  EXPECT_EQ(out, (std::vector{-1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(queue.drain(out), 0U);
}

TEST(CompletionQueue, wakes_after_every_push) {
  CountingWaker waker;
  CompletionQueue<int> queue{8, 1, waker};
  CompletionQueue<int>::Producer producer{queue};
  EXPECT_EQ(waker.wakes, 0);
  producer.push(1);
  EXPECT_EQ(waker.wakes, 1);
  producer.push(2);
  EXPECT_EQ(waker.wakes, 2);
  std::vector<int> out;
  queue.drain(out);
  EXPECT_EQ(waker.wakes, 2);
}

TEST(CompletionQueue, has_the_item_when_it_wakes) {
  struct Draining final : Waker {
    void wake() noexcept override { queue->drain(out); }
    CompletionQueue<int>* queue = nullptr;
    std::vector<int> out;
  } waker;
  CompletionQueue<int> queue{8, 1, waker};
  waker.queue = &queue;
  CompletionQueue<int>::Producer producer{queue};
  producer.push(7);
  EXPECT_EQ(waker.out, std::vector{7});
}

TEST(CompletionQueue, takes_more_than_it_was_made_for) {
  NullWaker waker;
  CompletionQueue<int> queue{4, 2, waker};
  CompletionQueue<int>::Producer greedy{queue};
  CompletionQueue<int>::Producer other{queue};
  for (int i = 0; i < 1000; ++i) greedy.push(i);
  other.push(1000);  // a producer that has filled the queue must not block the others
  std::vector<int> out;
  EXPECT_EQ(queue.drain(out), 1001U);
}

TEST(CompletionQueue, moves_what_cannot_be_copied) {
  NullWaker waker;
  CompletionQueue<std::unique_ptr<int>> queue{4, 1, waker};
  CompletionQueue<std::unique_ptr<int>>::Producer producer{queue};
  producer.push(std::make_unique<int>(42));
  std::vector<std::unique_ptr<int>> out;
  ASSERT_EQ(queue.drain(out), 1U);
  EXPECT_EQ(*out[0], 42);
}

TEST(CompletionQueue, brings_every_item_of_every_thread_once_and_each_threads_in_order) {
  constexpr unsigned producers = 4;
  constexpr unsigned items = 20'000;
  EventFdWaker waker;
  CompletionQueue<Item> queue{64, producers, waker};
  std::barrier start{producers};
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      CompletionQueue<Item>::Producer producer{queue};
      start.arrive_and_wait();
      for (unsigned i = 0; i < items; ++i) producer.push({p, i});
    });
  }

  // The collector sleeps whenever the queue is empty. So a lost wake-up would end the loop too early.
  std::vector<unsigned> next(producers, 0);
  std::vector<Item> out;
  std::size_t received = 0;
  bool in_order = true;
  while (received < std::size_t{producers} * items) {
    pollfd entry{waker.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 60'000) != 1) break;
    waker.acknowledge();
    out.clear();
    received += queue.drain(out);
    for (const Item& item : out) in_order &= item.number == next[item.producer]++;
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(received, std::size_t{producers} * items);
  EXPECT_TRUE(in_order);
  EXPECT_EQ(next, std::vector<unsigned>(producers, items));
  out.clear();
  EXPECT_EQ(queue.drain(out), 0U);
}

}  // namespace
}  // namespace terrace
