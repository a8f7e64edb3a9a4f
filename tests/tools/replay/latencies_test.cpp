#include "tools/replay/engine/latencies.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

using std::chrono::microseconds;

TEST(Latencies, are_zero_where_nothing_was_measured) {
  const Percentiles p = Latencies{}.microseconds();
  EXPECT_EQ(p.p50, 0);
  EXPECT_EQ(p.max, 0);
}

TEST(Latencies, are_exact_by_nearest_rank_in_any_order) {
  Latencies latencies;
  for (int i = 200; i > 0; --i) latencies.add(microseconds{i});
  const Percentiles p = latencies.microseconds();
  EXPECT_DOUBLE_EQ(p.p50, 100);
  EXPECT_DOUBLE_EQ(p.p99, 198);
  EXPECT_DOUBLE_EQ(p.max, 200);
}

TEST(Latencies, of_a_coarser_unit_reach_further) {
  Latencies fine;
  Latencies coarse{microseconds{1}};
  for (Latencies* const latencies : {&fine, &coarse}) latencies->add(std::chrono::seconds{100});
  EXPECT_LT(fine.microseconds().max, 4.3e6);
  EXPECT_DOUBLE_EQ(coarse.microseconds().max, 100e6);
}

}  // namespace
}  // namespace terrace::tools
