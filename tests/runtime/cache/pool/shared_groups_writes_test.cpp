// How a model with several KV cache groups writes to a store that several machines share: by policy, and by write-back jobs.

#include "tests/runtime/shared_groups_fixture.hpp"

#include <algorithm>
#include <array>

namespace terrace::test {
namespace {

class SharedGroupsWrites : public SharedGroupsByHand {
 protected:
  void make_model(WritePolicy writes, std::uint32_t device_blocks = 32, std::uint32_t host_blocks = 32) {
    make_groups(model_of({full_of_two, window_of_three}, device_blocks, host_blocks), store_of_others, writes);
  }
  [[nodiscard]] bool is_written(std::size_t group, const std::vector<BlockKey>& keys, std::uint32_t block) const {
    const BlockKey key = key_of(group, keys, block);
    const auto found = store_of_others.blocks.find(key);
    return found != store_of_others.blocks.end() && found->second.size() == block_bytes_of(model[group].pool) &&
           holds(found->second, key.prefix64());
  }
  [[nodiscard]] WriteBackProgress progress(WriteBackId id) const { return *cache->write_back(id); }
  [[nodiscard]] std::uint64_t ended(WriteBackId id, WriteBackOutcome outcome) const { return progress(id).of(outcome); }
};

TEST_F(SharedGroupsWrites, bring_what_is_committed_in_every_pool_under_the_name_of_its_group) {
  make_model(WritePolicy::write_through);
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  for (std::uint32_t block = 0; block < 5; ++block) EXPECT_TRUE(is_written(0, keys, block));
  for (std::uint32_t block = 0; block < 10; ++block) EXPECT_TRUE(is_written(1, keys, block));
  for (const StoredBlock& block : store_of_others.written) {
    const bool is_window = block.group == GroupId{1};
    EXPECT_EQ(block.depth == 0, is_window || block.key == key_of(0, keys, 0)) << "a block of the window has no block before it";
    EXPECT_EQ(block.parent == BlockKey{}, block.depth == 0);
  }
  EXPECT_EQ(totals().wishes, 2U) << "one for each group, and not one for each block of the window";
}

TEST_F(SharedGroupsWrites, pass_over_blocks_of_a_window_that_have_no_copy_any_more) {
  make_model(WritePolicy::write_through, 12, 0);
  store_of_others.usable_now = false;
  poll();
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  EXPECT_EQ(totals().wishes, 2U);
  // Others take the slots of the first blocks of the window.
  const auto others = prompt_of(100, 4);
  ASSERT_TRUE(acquire(2, others).has_value());
  settle();
  ASSERT_TRUE(ready(2));
  release(2);
  settle();
  std::uint32_t left = 0;
  for (std::uint32_t block = 0; block < 10; ++block) {
    const BlockKey key = key_of(1, keys, block);
    left += cache->manager().residency(PoolId{1}).tree().find({&key, 1}).length;
  }
  ASSERT_LT(left, 10U);
  ASSERT_GT(left, 0U);
  store_of_others.usable_now = true;
  settle();
  const auto of_window = std::ranges::count(store_of_others.written, GroupId{1}, &StoredBlock::group);
  EXPECT_EQ(static_cast<std::uint32_t>(of_window), left);
  EXPECT_EQ(totals().drop_gone, 10U - left);
}

TEST_F(SharedGroupsWrites, of_all_pools_together_keep_to_the_bytes_that_may_be_written_at_a_time) {
  ManagerConfig config = model_of({full_of_two, window_of_three}, 32, 32);
  config.shared.writing_bytes_max = Bytes{3 * block_bytes};  // one block of each pool
  make_groups(std::move(config), store_of_others, WritePolicy::write_through);
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  EXPECT_EQ(totals().written, 15U);
  EXPECT_LE(store_of_others.writes_max, 3U) << "3 small blocks, or one of each size";
  cache->manager().check_invariants();
}

TEST_F(SharedGroupsWrites, of_all_pools_together_keep_to_the_bytes_of_a_day) {
  ManagerConfig config = model_of({full_of_two, window_of_three}, 32, 32);
  config.shared.daily_write_bytes = Bytes{9 * block_bytes};
  make_groups(std::move(config), store_of_others, WritePolicy::write_through);
  (void)serve(1, prompt_of(1, 10));
  std::uint64_t bytes = 0;
  for (const auto& [key, block] : store_of_others.blocks) bytes += block.size();
  EXPECT_LE(bytes, 9 * block_bytes);
  EXPECT_GT(bytes, 7 * block_bytes);
  EXPECT_EQ(totals().drop_budget + totals().written, 15U);
}

TEST_F(SharedGroupsWrites, by_a_job_give_each_block_of_each_group_a_result) {
  make_model(WritePolicy::none);
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  store_of_others.put({key_of(1, keys, 9)}, block_bytes_of(PoolId{1}));
  WriteBackOrder order;
  order.target = WriteBackOrder::Target::shared;
  order.scope = WriteBackOrder::Scope::prefix;
  order.keys = keys;
  const WriteBackId id = cache->start_write_back(order).value();
  EXPECT_EQ(progress(id).under_way, 15U);
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(ended(id, WriteBackOutcome::stored), 14U);
  EXPECT_EQ(ended(id, WriteBackOutcome::already_there), 1U);
  for (std::uint32_t block = 0; block < 5; ++block) EXPECT_TRUE(is_written(0, keys, block));
  for (std::uint32_t block = 0; block < 10; ++block) EXPECT_TRUE(is_written(1, keys, block));
}

TEST_F(SharedGroupsWrites, by_a_job_over_the_tree_bring_all_there_is) {
  make_model(WritePolicy::none);
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  WriteBackOrder order;
  order.target = WriteBackOrder::Target::shared;
  order.scope = WriteBackOrder::Scope::all;
  const WriteBackId id = cache->start_write_back(order).value();
  settle();
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(ended(id, WriteBackOutcome::stored), 15U);
}

TEST_F(SharedGroupsWrites, by_a_job_end_with_their_budget_and_when_they_are_cancelled) {
  make_model(WritePolicy::none);
  const auto keys = prompt_of(1, 10);
  (void)serve(1, keys);
  WriteBackOrder order;
  order.target = WriteBackOrder::Target::shared;
  order.scope = WriteBackOrder::Scope::prefix;
  order.keys = keys;
  order.budget = Bytes{9 * block_bytes};
  const WriteBackId first = cache->start_write_back(order).value();
  settle();
  EXPECT_EQ(progress(first).state, WriteBackState::done);
  EXPECT_EQ(progress(first).written, Bytes{9 * block_bytes}) << "five blocks of the first pool, and two of the second";
  EXPECT_EQ(ended(first, WriteBackOutcome::over_budget), 8U);

  order.budget = {};
  store_of_others.answers = false;
  const WriteBackId second = cache->start_write_back(order).value();
  poll();
  ASSERT_TRUE(cache->cancel_write_back(second).has_value());
  EXPECT_EQ(progress(second).state, WriteBackState::cancelled);
  std::uint64_t all = 0;
  for (const std::uint64_t blocks : progress(second).blocks) all += blocks;
  EXPECT_EQ(all, 15U) << "each has a result";
  store_of_others.answers = true;
}

}  // namespace
}  // namespace terrace::test
