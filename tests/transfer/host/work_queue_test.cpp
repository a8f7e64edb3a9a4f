#include "transfer/host/work_queue.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace terrace {
namespace {

TEST(WorkQueue, gives_in_order) {
  WorkQueue<int> queue;
  queue.push(1);
  queue.push(2);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
}

TEST(WorkQueue, gives_nothing_once_stopped) {
  WorkQueue<int> queue;
  queue.push(1);
  queue.stop();
  EXPECT_EQ(queue.pop(), std::nullopt);
}

}  // namespace
}  // namespace terrace
