#include "storage/file/directory_health.hpp"

#include <gtest/gtest.h>

namespace terrace::test {
namespace {

constexpr std::uint32_t failures = DirectoryHealth::stripes_max;

/// Reports failures in this many stripes, from `first` on. Returns true if one of them made the directory count as lost.
bool fails_in(DirectoryHealth& health, std::uint32_t directory, std::uint32_t stripes, std::uint64_t first = 0) {
  bool lost = false;
  for (std::uint64_t stripe = first; stripe < first + stripes; ++stripe) lost |= health.failed(directory, stripe);
  return lost;
}

TEST(DirectoryHealth, is_lost_after_failures_in_a_row_in_different_stripes_while_others_do_well) {
  DirectoryHealth health{3};
  EXPECT_FALSE(fails_in(health, 1, failures - 1));
  health.succeeded(2);
  EXPECT_FALSE(health.lost(1));
  EXPECT_TRUE(health.failed(1, 99));
  EXPECT_TRUE(health.lost(1));
  EXPECT_EQ(health.lost(), 1U);
  EXPECT_FALSE(health.failed(1, 100)) << "once";
}

TEST(DirectoryHealth, a_success_in_it_begins_the_row_anew) {
  DirectoryHealth health{2};
  EXPECT_FALSE(fails_in(health, 0, failures - 1));
  health.succeeded(1);
  health.succeeded(0);
  EXPECT_FALSE(fails_in(health, 0, failures - 1));
  EXPECT_FALSE(health.failed(0, 50)) << "nothing has succeeded elsewhere in this row";
  health.succeeded(1);
  EXPECT_TRUE(health.failed(0, 51));
}

TEST(DirectoryHealth, a_bad_piece_of_a_medium_is_not_the_device) {
  DirectoryHealth health{2};
  for (int n = 0; n < 100; ++n) {
    health.succeeded(1);
    EXPECT_FALSE(health.failed(0, n % 3)) << "three stripes, however often";
  }
}

TEST(DirectoryHealth, what_fails_everywhere_is_nobodys_doing) {
  DirectoryHealth health{2};
  for (std::uint64_t n = 0; n < 100; ++n) {
    EXPECT_FALSE(health.failed(0, n));
    EXPECT_FALSE(health.failed(1, n));
  }
}

TEST(DirectoryHealth, the_last_one_is_never_lost) {
  DirectoryHealth health{2};
  EXPECT_TRUE(health.lose(0));
  EXPECT_FALSE(health.lose(0));
  EXPECT_FALSE(health.lose(1));
  EXPECT_FALSE(fails_in(health, 1, 100));
  EXPECT_EQ(health.lost(), 1U);
}

}  // namespace
}  // namespace terrace::test
