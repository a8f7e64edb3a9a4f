#include "runtime/cache/orders/transfer_table.hpp"

#include <gtest/gtest.h>

namespace terrace {
namespace {

TEST(LayersBrought, set_says_whether_all_transfers_have_brought_more) {
  const TransferId first{1};
  const TransferId second{2};
  LayersBrought brought;
  brought.add(first);
  brought.add(second);
  EXPECT_FALSE(brought.set(first, 3)) << "the second transfer has brought none";
  EXPECT_TRUE(brought.set(second, 2));
  EXPECT_EQ(brought.least(), 2U);
  EXPECT_FALSE(brought.set(second, 2)) << "as many as before";
  EXPECT_FALSE(brought.set(first, LayersBrought::all_layers));
  EXPECT_TRUE(brought.set(second, LayersBrought::all_layers));
  EXPECT_EQ(brought.least(), LayersBrought::all_layers);
}

}  // namespace
}  // namespace terrace
