#include "transfer/host/page_choice.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using std::chrono::milliseconds;

constexpr Duration fast = milliseconds{100};  // per GiB
constexpr Duration slow = std::chrono::seconds{10};

/// How many of the next GiB are touched in huge pages, if huge pages take `huge` and small pages take `small`.
int in_huge_pages(PageChoice& choice, int pieces, Duration huge, Duration small) {
  int count = 0;
  for (int i = 0; i < pieces; ++i) {
    const bool now = choice.next() == HugePages::yes;
    count += now ? 1 : 0;
    choice.touched(GiB, now ? huge : small);
  }
  return count;
}

TEST(PageChoice, is_huge_pages_where_they_come_fast) {
  PageChoice choice{HugePages::yes};
  EXPECT_EQ(in_huge_pages(choice, 100, fast, fast), 100);
}

TEST(PageChoice, is_what_was_wished_where_none_were) {
  PageChoice choice{HugePages::no};
  EXPECT_EQ(in_huge_pages(choice, 100, fast, slow), 0);
}

TEST(PageChoice, goes_over_to_small_pages_where_huge_ones_crawl) {
  PageChoice choice{HugePages::yes};
  // The first one is slow. After this trial sixteen are touched in small pages; then huge pages are tried again, each time half
  // as often.
  EXPECT_EQ(in_huge_pages(choice, 1 + 1 + 16, slow, fast), 1);
  EXPECT_EQ(in_huge_pages(choice, 1 + 32, slow, fast), 1);
  EXPECT_EQ(in_huge_pages(choice, 1 + 64, slow, fast), 1);
}

TEST(PageChoice, comes_back_when_huge_pages_are_to_be_had_again) {
  PageChoice choice{HugePages::yes};
  EXPECT_EQ(in_huge_pages(choice, 18, slow, fast), 1);
  EXPECT_EQ(in_huge_pages(choice, 50, fast, fast), 50);
  EXPECT_EQ(in_huge_pages(choice, 18, slow, fast), 1);  // and what it had learnt is forgotten
}

TEST(PageChoice, keeps_huge_pages_where_small_ones_are_as_slow) {
  PageChoice choice{HugePages::yes};
  EXPECT_EQ(in_huge_pages(choice, 100, slow, slow), 50);  // each trial costs one
}

}  // namespace
}  // namespace terrace
