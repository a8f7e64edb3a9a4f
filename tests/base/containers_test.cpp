#include "base/slab.hpp"

#include "base/fifo.hpp"
#include "base/vector_pool.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

namespace terrace {
namespace {

TEST(Slab, keeps_things_under_numbers_that_are_used_again) {
  Slab<std::string> slab;
  const auto a = slab.add("a");
  const auto b = slab.add("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(slab.take(a), "a");
  EXPECT_EQ(slab.find(a), nullptr);
  EXPECT_EQ(*slab.find(b), "b");
  EXPECT_EQ(slab.add("c"), a);
  slab.at(a) = "d";
  EXPECT_EQ(*slab.find(a), "d");
  EXPECT_EQ(slab.size(), 2U);
  EXPECT_EQ(slab.find(2), nullptr);
  EXPECT_EQ(slab.find(~0ULL), nullptr);
}

TEST(SlabDeathTest, has_nothing_under_a_number_that_was_taken) {
  Slab<int> slab;
  const auto number = slab.add(1);
  (void)slab.take(number);
  EXPECT_DEATH((void)slab.take(number), "broken invariant");
}

TEST(VectorPool, gives_out_the_memory_it_was_given) {
  VectorPool<int> spares;
  EXPECT_EQ(spares.take().capacity(), 0U);
  std::vector<int> vector(100, 7);
  const int* const memory = vector.data();
  spares.give(std::move(vector));
  std::vector<int> again = spares.take();
  EXPECT_TRUE(again.empty());
  again.resize(100);
  EXPECT_EQ(again.data(), memory);
  spares.give({});
  EXPECT_EQ(spares.take().capacity(), 0U);
}

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
