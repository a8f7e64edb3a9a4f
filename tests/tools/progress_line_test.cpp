#include "tools/output.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

TEST(ProgressText, has_share_text_time_and_what_is_left) {
  EXPECT_EQ(progress_text({25, 100, "250 requests"}, 20, 100),
            "[#######.......................]  25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text({0, 100, "none yet"}, 5, 60), "[..............................]   0.0 %  none yet  5 s");
  EXPECT_EQ(progress_text({0, 0, "reading the trace"}, 3700, 80), "reading the trace  1:01:40");
}

TEST(ProgressText, gives_up_the_bar_first_and_then_the_time_that_has_passed) {
  const ProgressState state{25, 100, "250 requests"};
  EXPECT_EQ(progress_text(state, 20, 55), "[###..........]  25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text(state, 20, 45), " 25.0 %  250 requests  20 s  1:00 left");
  EXPECT_EQ(progress_text(state, 20, 34), " 25.0 %  250 requests  1:00 left");
}

TEST(ProgressText, is_never_wider_than_the_terminal) {
  for (std::size_t columns = 0; columns < 120; ++columns) {
    for (const std::uint64_t done : {0U, 1U, 50U, 100U, 200U}) {
      for (const std::uint64_t total : {0U, 100U}) {
        const std::string line = progress_text({done, total, "some text of a usual length"}, 1e9, columns);
        EXPECT_LE(line.size(), columns > 0 ? columns - 1 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace terrace::tools
