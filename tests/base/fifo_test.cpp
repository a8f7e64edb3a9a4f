#include "base/fifo.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace terrace {
namespace {

TEST(Fifo, gives_back_in_order_while_it_grows_and_comes_round) {
  Fifo<int> fifo;
  std::deque<int> expected;
  int next = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 7 + 1; ++i) {
      fifo.push_back(next);
      expected.push_back(next++);
    }
    for (int i = 0; i < round % 5 && !expected.empty(); ++i) {
      ASSERT_EQ(fifo.front(), expected.front());
      fifo.pop_front();
      expected.pop_front();
    }
    ASSERT_EQ(fifo.size(), expected.size());
    ASSERT_EQ(fifo.empty(), expected.empty());
  }
  EXPECT_GT(fifo.size(), 100U);
}

}  // namespace
}  // namespace terrace
