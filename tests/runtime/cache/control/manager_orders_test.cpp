// The orders of the manager, and the call in which it gives each. The result of the order in storage or on the link does not
// matter here.

#include "runtime/cache/control/cache_manager.hpp"

#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"
#include "transfer/device/transfer.hpp"

#include <utility>
#include <vector>

namespace terrace::test {
namespace {

class ManagerOrders : public testing::Test {
 protected:
  static ManagerConfig config() {
    ManagerConfig made = with_storage(sizes(8), WritePolicy::write_through);
    made.pools[0].staging_blocks = 8;
    return made;
  }
  /// Returns the transfers of the last call.
  std::vector<Transfer> commit(const std::vector<BlockKey>& wanted) {
    manager.actions().clear();
    EXPECT_TRUE(manager.requests().commit(RequestId{1}, wanted, Fence{}).has_value());
    return std::exchange(manager.actions().transfers, {});
  }
  void arrive(const Transfer& transfer) {
    TransferEvent event;
    event.id = transfer.id;
    event.direction = transfer.direction;
    event.outcomes.assign(block_count(transfer.runs), BlockOutcome::done);
    manager.on_transfer(std::move(event));
    manager.settle();
  }
  [[nodiscard]] std::vector<BlockKey> written() {
    std::vector<BlockKey> ordered;
    for (const WriteOrder& order : manager.actions().writes) ordered.push_back(order.block.key);
    return ordered;
  }

  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
  CacheManager manager{config()};
};

TEST_F(ManagerOrders, of_a_commit_are_there_when_the_call_returns) {
  ASSERT_TRUE(manager.requests().acquire(request_for(1, keys)).has_value());
  const std::vector<Transfer> transfers = commit(keys);
  ASSERT_EQ(transfers.size(), 1U) << "nobody may call again for a while";
  EXPECT_EQ(block_count(transfers[0].runs), 4U);
}

TEST_F(ManagerOrders, hand_a_block_to_storage_after_its_parent_whatever_arrives_first) {
  ASSERT_TRUE(manager.requests().acquire(request_for(1, keys)).has_value());
  const std::vector<Transfer> parents = commit({keys.begin(), keys.begin() + 2});
  const std::vector<Transfer> children = commit(keys);
  ASSERT_EQ(parents.size(), 1U);
  ASSERT_EQ(children.size(), 1U);
  arrive(children[0]);
  EXPECT_TRUE(written().empty()) << "their parents are not with storage yet";
  arrive(parents[0]);
  EXPECT_EQ(written(), keys);
}

}  // namespace
}  // namespace terrace::test
