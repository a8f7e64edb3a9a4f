// Tests of the writes to a store that several machines share.

#include "runtime/cache/pool/shared_writer.hpp"
#include "tests/runtime/shared_fixture.hpp"
#include "tests/runtime/shared_groups_fixture.hpp"

#include <algorithm>
#include <chrono>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

TEST_F(SharedWrites, bring_what_is_committed_from_the_root_down) {
  make_writer(WritePolicy::write_through);
  const auto keys = keys_from(1, 20);
  serve(1, keys);
  EXPECT_TRUE(is_written(keys));
  ASSERT_EQ(store_of_others.written.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(store_of_others.written[i].key, keys[i]);
    EXPECT_EQ(store_of_others.written[i].depth, i);
    EXPECT_EQ(store_of_others.written[i].parent, i == 0 ? BlockKey{} : keys[i - 1]);
  }
  EXPECT_EQ(totals().written, 20U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(SharedWrites, take_the_bytes_from_host_copies_where_there_are_some) {
  ManagerConfig config = sizes(64, 64, InclusionPolicy::inclusive);
  config.pools[0].staging_blocks = 8;
  make_writer(WritePolicy::selective, config);
  const auto keys = keys_from(1, 6);
  serve(1, keys);
  const std::uint64_t copied = cache->moved().swap_out.blocks;
  expect_hit(2, keys);
  expect_hit(3, keys);
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(cache->moved().swap_out.blocks, copied);
}

TEST_F(SharedWrites, of_a_host_copy_that_is_evicted_meanwhile_keep_its_bytes) {
  ManagerConfig config = sizes(8, 4);
  config.pools[0].staging_blocks = 8;
  make_writer(WritePolicy::write_through, config);
  store_of_others.usable_now = false;
  const auto keys = keys_from(1, 4);
  serve(1, keys);
  serve(2, keys_from(11, 8));  // keys are in the host now
  ASSERT_EQ(resident(Tier::host), 4U);
  store_of_others.answers = false;
  store_of_others.usable_now = true;
  poll();
  store_of_others.answer_probes();
  poll();
  ASSERT_EQ(store_of_others.writes.size(), 4U);
  serve_here(3, keys_from(21, 8));  // the host evicts them
  EXPECT_EQ(cache->match(keys).total(), 0U);
  cache->manager().check_invariants();
  let_others_answer();
  EXPECT_TRUE(is_written(keys));
}

TEST_F(SharedWrites, share_a_host_copy_with_writes_to_storage) {
  ManagerConfig config = with_storage(sizes(8, 8, InclusionPolicy::inclusive), WritePolicy::selective);
  config.selective_hits = 1;
  config.pools[0].staging_blocks = 8;
  config.shared.selective_hits = 1;
  make_writer(WritePolicy::selective, config);
  const auto keys = keys_from(1, 4);
  serve(1, keys);
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(2, keys).has_value());  // both begin to write from the host copies
  cache->end_step();
  store_of_others.answer_probes();
  poll();
  ASSERT_EQ(store_of_others.writes.size(), 4U);
  cache->manager().check_invariants();
  settle();  // storage has ended, the shared store has not
  EXPECT_EQ(resident(Tier::storage), 4U);
  cache->manager().check_invariants();
  let_others_answer();
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
}

TEST_F(SharedWrites, do_not_send_what_is_there_but_renew_it) {
  make_writer(WritePolicy::write_through);
  const auto keys = keys_from(1, 6);
  put({keys.begin(), keys.begin() + 4});
  acquire_with(1, keys, [](AcquireRequest& wanted) { wanted.farthest_source = Source::device; });
  use(1, keys);
  settle();
  EXPECT_EQ(store_of_others.written.size(), 2U);
  EXPECT_TRUE(is_written(keys));
  ASSERT_EQ(store_of_others.renewed.size(), 4U);
  EXPECT_EQ(store_of_others.renewed[3].key, keys[3]);
  EXPECT_EQ(store_of_others.renewed[3].depth, 3U);
  EXPECT_EQ(totals().present, 4U);
}

TEST_F(SharedWrites, by_hits_begin_at_the_second_one) {
  make_writer(WritePolicy::selective);
  const auto keys = keys_from(1, 5);
  serve(1, keys);
  EXPECT_TRUE(store_of_others.written.empty());
  expect_hit(2, keys);
  EXPECT_TRUE(store_of_others.written.empty()) << "the first hit";
  expect_hit(3, keys);
  EXPECT_EQ(store_of_others.written.size(), 5U);
}

TEST_F(SharedWrites, renew_a_prefix_that_is_hit_often_once_a_minute) {
  make_writer(WritePolicy::write_through);
  const auto keys = keys_from(1, 5);
  serve(1, keys);
  for (std::uint64_t id = 2; id < 12; ++id) expect_hit(id, keys);
  EXPECT_TRUE(store_of_others.renewed.empty());
  wait(1min);
  for (std::uint64_t id = 12; id < 22; ++id) expect_hit(id, keys);
  EXPECT_EQ(store_of_others.renewed.size(), 5U);
  EXPECT_EQ(store_of_others.written.size(), 5U);
}

TEST_F(SharedWrites, of_a_growing_sequence_ask_only_for_what_is_new) {
  make_writer(WritePolicy::write_through);
  const auto keys = keys_from(1, 12);
  leases[1] = cache->acquire(request(1, {}, 12)).value();
  (void)compute(1, keys, 0);
  for (std::size_t blocks = 1; blocks <= keys.size(); ++blocks) {
    ASSERT_TRUE(commit(1, {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(blocks)}).has_value());
    settle();
  }
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(store_of_others.written.size(), 12U);
  EXPECT_EQ(totals().present, 0U) << "it knows what it has written";
}

TEST_F(SharedWrites, take_half_of_staging_at_most) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 6;
  make_writer(WritePolicy::write_through, config);
  store_of_others.answers = false;
  serve_here(1, keys_from(1, 10));
  store_of_others.answer_probes();
  settle();
  EXPECT_EQ(store_of_others.writes.size(), 3U);
  EXPECT_EQ(cache->manager().host_ledger().held, 3U);
  let_others_answer();
  EXPECT_EQ(store_of_others.written.size(), 10U);
  EXPECT_EQ(store_of_others.writes_max, 3U);
}

TEST_F(SharedWrites, are_bounded_in_bytes_under_way) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 32;
  config.shared.writing_bytes_max = Bytes{block_bytes * 2};
  make_writer(WritePolicy::write_through, config);
  serve(1, keys_from(1, 10));
  EXPECT_EQ(store_of_others.written.size(), 10U);
  EXPECT_EQ(store_of_others.writes_max, 2U);
}

TEST_F(SharedWrites, keep_their_rate) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 32;
  config.shared.write_rate = per_second(Bytes{block_bytes * 10});
  make_writer(WritePolicy::write_through, config);
  serve(1, keys_from(1, 10));
  std::size_t before = store_of_others.written.size();
  EXPECT_LE(before, 2U);
  EXPECT_NE(cache->next_deadline(), never);
  for (int tenth = 0; tenth < 20 && before < 10; ++tenth) {
    wait(100ms);
    const std::size_t now = store_of_others.written.size();
    EXPECT_LE(now - before, 1U) << "ten a second";
    before = now;
  }
  EXPECT_EQ(before, 10U);
}

TEST_F(SharedWrites, keep_the_budget_of_the_day) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 32;
  config.shared.daily_write_bytes = Bytes{block_bytes * 7};
  make_writer(WritePolicy::write_through, config);
  serve(1, keys_from(1, 10));
  EXPECT_EQ(store_of_others.written.size(), 7U);
  EXPECT_EQ(totals().drop_budget, 3U);
  wait(24h);
  serve(2, keys_from(101, 5));
  EXPECT_EQ(store_of_others.written.size(), 12U);
}

TEST_F(SharedWrites, what_was_wished_is_what_was_done_what_was_not_and_what_waits) {
  make_writer(WritePolicy::write_through);
  const auto waiting = [&] { return cache->manager().shared_waiting_blocks(); };
  store_of_others.usable_now = false;
  serve(1, keys_from(1, 20));
  EXPECT_EQ(totals().wished, 20U);
  EXPECT_EQ(waiting(), 20U);
  store_of_others.answers = false;
  store_of_others.usable_now = true;
  poll();
  store_of_others.answer_probes();
  settle();
  ASSERT_GT(store_of_others.writes.size(), 0U);
  EXPECT_EQ(waiting(), 20U) << "those that are being written count";
  store_of_others.write_error = Errc::io_failed;
  let_others_answer();
  EXPECT_EQ(waiting(), 0U);
  EXPECT_EQ(totals().wished, totals().written + totals().drop_failed);
  cache->manager().check_invariants();
}

TEST_F(SharedWrites, rest_after_the_store_was_full) {
  make_writer(WritePolicy::write_through);
  store_of_others.write_error = Errc::full;
  serve(1, keys_from(1, 3));
  EXPECT_EQ(totals().drop_full, 3U);
  const std::size_t tried = store_of_others.written.size();
  const std::size_t probed = store_of_others.probed;
  serve(2, keys_from(101, 3));
  EXPECT_EQ(store_of_others.written.size(), tried);
  store_of_others.write_error = {};
  EXPECT_GT(store_of_others.probed, probed) << "requests still look";
  wait(1s);
  EXPECT_TRUE(is_written(keys_from(101, 3)));
}

TEST_F(SharedWrites, rest_after_a_probe_had_no_answer) {
  make_writer(WritePolicy::write_through);
  serve(1, keys_from(101, 1));
  store_of_others.probe_error = Errc::deadline_exceeded;
  serve(2, keys_from(1, 3));
  EXPECT_EQ(totals().drop_failed, 3U);
  store_of_others.probe_error = {};
  serve(3, keys_from(11, 3));
  EXPECT_FALSE(is_written(keys_from(11, 3)));
  wait(1s);
  EXPECT_TRUE(is_written(keys_from(11, 3)));
}

TEST_F(SharedWrites, that_have_no_turn_yet_are_dropped_from_the_oldest_on) {
  make_writer(WritePolicy::write_through);
  store_of_others.usable_now = false;
  const auto wishes = static_cast<std::uint32_t>(SharedWriter::wishes_max);
  for (std::uint32_t n = 0; n < wishes + 10; ++n) serve(n + 1, keys_from(1000 + n * 10, 1));
  EXPECT_EQ(totals().drop_bound, 10U);
  EXPECT_FALSE(cache->has_pending_work()) << "nobody waits for a store that is down";
  store_of_others.usable_now = true;
  settle();
  for (int i = 0; i < 20 && cache->has_pending_work(); ++i) settle();  // a few wishes go on at a time
  EXPECT_FALSE(cache->has_pending_work());
  EXPECT_TRUE(is_written(keys_from(1000 + (wishes + 9) * 10, 1)));
  EXPECT_FALSE(is_written(keys_from(1000, 1)));
}

TEST_F(SharedWrites, end_where_a_block_has_no_copy_any_more) {
  make_writer(WritePolicy::write_through, sizes(4));
  store_of_others.usable_now = false;
  const auto keys = keys_from(1, 4);
  serve(1, keys);
  ASSERT_TRUE(acquire(2, keys_from(11, 2)).has_value());  // evicts the last two
  store_of_others.usable_now = true;
  settle();
  EXPECT_EQ(store_of_others.blocks.contains(keys[1]), true);
  EXPECT_EQ(store_of_others.blocks.contains(keys[2]), false);
  EXPECT_GT(totals().drop_gone, 0U);
}

TEST_F(SharedWrites, of_cleared_blocks_are_not_begun) {
  make_writer(WritePolicy::write_through);
  store_of_others.answers = false;
  const auto keys = keys_from(1, 3);
  serve_here(1, keys);
  store_of_others.answer_probes();
  device->stuck(Direction::swap_out, true);
  poll();  // they are being copied to staging
  cache->clear({});
  device->stuck(Direction::swap_out, false);
  let_others_answer();
  EXPECT_TRUE(store_of_others.written.empty());
  EXPECT_EQ(totals().drop_off, 3U);
  EXPECT_FALSE(cache->has_pending_work());
  serve(2, keys_from(11, 3));
  EXPECT_TRUE(store_of_others.written.empty());
}

TEST_F(SharedWrites, of_cleared_blocks_are_not_begun_though_their_wish_had_to_end_anyway) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 32;
  config.shared.daily_write_bytes = Bytes{block_bytes * 2};
  make_writer(WritePolicy::write_through, config);
  store_of_others.answers = false;
  serve_here(1, keys_from(1, 3));
  store_of_others.answer_probes();
  device->stuck(Direction::swap_out, true);
  poll();  // two are being copied to staging, and the budget ends the wish at the third
  ASSERT_EQ(totals().drop_budget, 0U) << "it has not ended yet";
  cache->clear({});
  ASSERT_TRUE(cache->resume_shared(SharedStore::Fingerprint{}).has_value());
  device->stuck(Direction::swap_out, false);
  let_others_answer();
  EXPECT_TRUE(store_of_others.written.empty()) << "they are for the weights of before";
}

TEST_F(SharedWrites, that_stand_still_delay_no_request) {
  ManagerConfig config = sizes(8, 8);
  config.pools[0].staging_blocks = 4;
  make_writer(WritePolicy::write_through, config);
  store_of_others.answers = false;
  for (std::uint64_t id = 1; id < 30; ++id) {
    AcquireRequest wanted = request(id, {});
    const auto keys = keys_from(static_cast<std::uint32_t>(10 * id), 6);
    wanted.keys = keys;
    wanted.farthest_source = Source::storage;
    leases[id] = cache->acquire(wanted).value();
    store_of_others.answer_probes();  // but not the writes
    ASSERT_TRUE(ready_when_settled(id));
    use(id, keys);
    settle();
  }
  EXPECT_GT(store_of_others.writes.size(), 0U);
  let_others_answer();
}

// ---- how a model with several KV cache groups writes to a store that several machines share: by policy, and by write-back jobs

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
  [[nodiscard]] std::uint64_t ended(WriteBackId id, WriteBackOutcome outcome) const { return progress(id).of(outcome); }
};

TEST_F(SharedGroupsWrites, bring_what_is_committed_in_every_pool_under_the_name_of_its_group) {
  make_model(WritePolicy::write_through);
  const auto keys = keys_from(1, 10);
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
  const auto keys = keys_from(1, 10);
  (void)serve(1, keys);
  EXPECT_EQ(totals().wishes, 2U);
  // Others take the slots of the first blocks of the window.
  const auto others = keys_from(100, 4);
  ASSERT_TRUE(acquire(2, others).has_value());
  ASSERT_TRUE(ready_when_settled(2));
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
  const auto keys = keys_from(1, 10);
  (void)serve(1, keys);
  EXPECT_EQ(totals().written, 15U);
  EXPECT_LE(store_of_others.writes_max, 3U) << "3 small blocks, or one of each size";
  cache->manager().check_invariants();
}

TEST_F(SharedGroupsWrites, of_all_pools_together_keep_to_the_bytes_of_a_day) {
  ManagerConfig config = model_of({full_of_two, window_of_three}, 32, 32);
  config.shared.daily_write_bytes = Bytes{9 * block_bytes};
  make_groups(std::move(config), store_of_others, WritePolicy::write_through);
  (void)serve(1, keys_from(1, 10));
  std::uint64_t bytes = 0;
  for (const auto& [key, block] : store_of_others.blocks) bytes += block.size();
  EXPECT_LE(bytes, 9 * block_bytes);
  EXPECT_GT(bytes, 7 * block_bytes);
  EXPECT_EQ(totals().drop_budget + totals().written, 15U);
}

TEST_F(SharedGroupsWrites, by_a_job_give_each_block_of_each_group_a_result) {
  make_model(WritePolicy::none);
  const auto keys = keys_from(1, 10);
  (void)serve(1, keys);
  store_of_others.put({key_of(1, keys, 9)}, block_bytes_of(PoolId{1}));
  const WriteBackId id =
      cache->start_write_back({.target = WriteBackOrder::Target::shared, .scope = WriteBackOrder::Scope::prefix, .keys = keys})
          .value();
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
  const auto keys = keys_from(1, 10);
  (void)serve(1, keys);
  const WriteBackId id =
      cache->start_write_back({.target = WriteBackOrder::Target::shared, .scope = WriteBackOrder::Scope::all}).value();
  settle();
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(ended(id, WriteBackOutcome::stored), 15U);
}

TEST_F(SharedGroupsWrites, by_a_job_end_with_their_budget_and_when_they_are_cancelled) {
  make_model(WritePolicy::none);
  const auto keys = keys_from(1, 10);
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
