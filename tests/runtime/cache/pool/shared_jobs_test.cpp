// Write-back jobs to a store that several machines share, and the events of its copies.

#include "tests/runtime/shared_fixture.hpp"

#include <chrono>
#include <set>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using enum WriteBackOutcome;
using Scope = WriteBackOrder::Scope;

class SharedJobs : public SharedWrites {
 protected:
  static WriteBackOrder to_shared(Scope scope) {
    WriteBackOrder made;
    made.target = WriteBackOrder::Target::shared;
    made.scope = scope;
    return made;
  }
  static WriteBackOrder prefix(const std::vector<BlockKey>& keys) {
    WriteBackOrder made = to_shared(Scope::prefix);
    made.keys = keys;
    return made;
  }
  WriteBackId start(const WriteBackOrder& order) {
    const Result<WriteBackId> id = cache->start_write_back(order);
    EXPECT_TRUE(id.has_value()) << id.error().message();
    return id ? *id : WriteBackId{};
  }
  std::uint64_t of(WriteBackId id, WriteBackOutcome outcome) { return progress(id).of(outcome); }
  /// Starts a job over the prefix, which has been probed and is being written.
  WriteBackId start_writes(const std::vector<BlockKey>& keys) {
    store_of_others.answers = false;
    const WriteBackId id = start(prefix(keys));
    cache->end_step();
    store_of_others.answer_probes();
    settle();
    return id;
  }
  std::vector<KvEvent> events_of_shared() {
    std::vector<KvEvent> all;
    cache->take_events(all);
    std::erase_if(all,
                  [](const KvEvent& event) { return event.kind != KvEvent::Kind::cleared && event.source != Source::shared; });
    return all;
  }
};

TEST_F(SharedJobs, bring_a_prefix_and_say_so_of_each_block_whatever_the_policy) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 40);
  serve(1, keys);
  ASSERT_TRUE(store_of_others.blocks.empty());
  put({keys.begin(), keys.begin() + 3});
  const WriteBackId id = start(prefix(keys));
  EXPECT_EQ(progress(id).under_way, 40U);
  EXPECT_EQ(progress(id).target, WriteBackOrder::Target::shared);
  settle();
  const WriteBackProgress ended = progress(id);
  EXPECT_EQ(ended.state, WriteBackState::done);
  EXPECT_EQ(ended.of(already_there), 3U);
  EXPECT_EQ(ended.of(stored), 37U);
  EXPECT_EQ(ended.written, Bytes{37 * block_bytes});
  EXPECT_EQ(ended.durable, Bytes{});
  EXPECT_TRUE(is_written(keys));
  const auto results = cache->take_write_back_results(id).value();
  ASSERT_EQ(results.size(), 40U);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(results[i].key, keys[i]);
  const WriteBackId again = start(prefix(keys));
  settle();
  EXPECT_EQ(of(again, already_there), 40U);
  EXPECT_EQ(store_of_others.written.size(), 37U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(SharedJobs, over_everything_bring_each_branch) {
  make_writer(WritePolicy::none);
  std::vector<BlockKey> all;
  for (std::uint32_t branch = 0; branch < 5; ++branch) {
    std::vector<std::uint32_t> names = {1, 2, 3, 100 + branch, 200 + branch};
    const auto keys = keys_of(names);
    serve(branch + 1, keys);
    all.insert(all.end(), keys.begin(), keys.end());
  }
  const WriteBackId id = start(to_shared(Scope::all));
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(progress(id).looked_at, 1.0);
  EXPECT_EQ(of(id, stored), 13U) << "the first three are the same blocks";
  EXPECT_TRUE(is_written(all));
  EXPECT_EQ(store_of_others.written.size(), 13U);
  std::set<BlockKey> told;
  for (const WriteBackResult& result : cache->take_write_back_results(id).value()) EXPECT_TRUE(told.insert(result.key).second);
  EXPECT_EQ(told.size(), 13U);
}

TEST_F(SharedJobs, over_what_is_idle_bring_the_end_of_a_path_and_its_ancestors) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 6);
  serve(1, keys);
  wait(2s);  // the clock of uses has notes a second apart
  wait(10s);
  serve(2, {keys.begin(), keys.begin() + 2});  // uses the first two again
  WriteBackOrder order = to_shared(Scope::idle);
  order.unused_for = 5s;
  const WriteBackId id = start(order);
  settle();
  EXPECT_EQ(of(id, stored), 4U);
  EXPECT_TRUE(is_written(keys)) << "a block is of no use without those before it";
}

TEST_F(SharedJobs, of_a_request_or_a_tenant_bring_nothing_of_others) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 3);
  acquire_with(1, keys, [](AcquireRequest& wanted) { wanted.tenant = TenantId{7}; });
  settle();
  ASSERT_TRUE(cache->commit(leases.at(1), keys, compute(1, keys, 0)).has_value());
  serve(2, keys_from(11, 2));
  WriteBackOrder of_tenant = to_shared(Scope::tenant);
  of_tenant.tenant = TenantId{7};
  const WriteBackId first = start(of_tenant);
  settle();
  EXPECT_EQ(of(first, stored), 3U);
  EXPECT_EQ(store_of_others.written.size(), 3U);
  WriteBackOrder of_request = to_shared(Scope::request);
  of_request.request = RequestId{1};
  const WriteBackId second = start(of_request);
  settle();
  EXPECT_EQ(of(second, already_there), 3U);
  of_request.request = RequestId{99};
  EXPECT_EQ(cache->start_write_back(of_request).error(), Errc::unknown_request);
  end(1, {});
}

TEST_F(SharedJobs, end_when_ancestors_are_there_too) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 16;
  make_writer(WritePolicy::none, config);
  serve(1, keys_from(1, 6));
  wait(2s);
  wait(10s);
  serve(2, keys_from(1, 4));
  WriteBackOrder order = to_shared(Scope::idle);
  order.unused_for = 5s;
  store_of_others.answers = false;
  const WriteBackId id = start(order);
  cache->end_step();
  store_of_others.answer_probes();
  settle();
  ASSERT_EQ(store_of_others.writes.size(), 6U);
  std::ranges::reverse(store_of_others.writes);
  store_of_others.answer_write();
  store_of_others.answer_write();
  poll();
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(progress(id).state, WriteBackState::running);
  let_others_answer();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(of(id, stored), 2U);
}

TEST_F(SharedJobs, keep_to_their_budget_from_the_root_on) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 6);
  serve(1, keys);
  WriteBackOrder order = prefix(keys);
  order.budget = Bytes{4 * block_bytes};
  const WriteBackId id = start(order);
  settle();
  EXPECT_EQ(of(id, stored), 4U);
  EXPECT_EQ(of(id, over_budget), 2U);
  EXPECT_TRUE(is_written({keys.begin(), keys.begin() + 4}));
  EXPECT_FALSE(store_of_others.blocks.contains(keys[4]));
}

TEST_F(SharedJobs, say_what_had_no_room_what_failed_and_what_is_gone) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 4);
  serve(1, keys);
  store_of_others.write_error = Errc::full;
  const WriteBackId no_room = start(prefix(keys));
  settle();
  EXPECT_EQ(of(no_room, dropped_full), 4U);
  wait(2s);
  store_of_others.write_error = {};
  store_of_others.probe_error = Errc::io_failed;
  const WriteBackId broken = start(prefix(keys));
  settle();
  EXPECT_EQ(of(broken, failed), 4U);
  EXPECT_EQ(cache->take_write_back_results(broken).value().front().error, Errc::io_failed);
  wait(2s);
  store_of_others.probe_error = {};
  const WriteBackId longer = start(prefix(keys_from(1, 6)));
  settle();
  EXPECT_EQ(of(longer, stored), 4U);
  EXPECT_EQ(of(longer, dropped_gone), 2U);
  EXPECT_EQ(progress(longer).state, WriteBackState::done);
}

TEST_F(SharedJobs, fail_while_the_store_cannot_be_used) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 40);
  serve(1, keys);
  serve(2, keys_from(101, 2));
  const WriteBackId under_way = start_writes(keys);
  ASSERT_GT(store_of_others.writes.size(), 0U);
  const WriteBackId waiting = start(prefix(keys_from(101, 2)));
  store_of_others.usable_now = false;
  poll();
  EXPECT_EQ(of(waiting, failed), 0U) << "it has been asked for";
  let_others_answer();
  EXPECT_EQ(of(under_way, stored) + of(under_way, failed), 40U);
  EXPECT_GT(of(under_way, failed), 0U);
  const WriteBackId later = start(to_shared(Scope::all));
  settle();
  EXPECT_EQ(of(later, failed), 42U);
  EXPECT_EQ(cache->take_write_back_results(later).value().front().error, Errc::refused);
  EXPECT_EQ(progress(later).state, WriteBackState::done);
  store_of_others.usable_now = true;
  poll();
  const WriteBackId again = start(to_shared(Scope::all));
  settle();
  EXPECT_EQ(of(again, stored) + of(again, already_there), 42U);
}

TEST_F(SharedJobs, go_on_when_the_store_has_had_its_rest) {
  make_writer(WritePolicy::none);
  serve(1, keys_from(1, 4));
  serve(2, keys_from(11, 4));
  store_of_others.write_error = Errc::full;
  const WriteBackId first = start(prefix(keys_from(1, 4)));
  settle();
  EXPECT_EQ(of(first, dropped_full), 4U);
  store_of_others.write_error = {};
  const WriteBackId second = start(prefix(keys_from(11, 4)));
  poll();
  EXPECT_EQ(progress(second).state, WriteBackState::running);
  EXPECT_TRUE(cache->has_pending_work());
  wait(2s);
  EXPECT_EQ(of(second, stored), 4U);
}

TEST_F(SharedJobs, that_are_paused_while_they_write_begin_no_more_writes) {
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 4;  // two writes at a time
  make_writer(WritePolicy::none, config);
  const auto keys = keys_from(1, 6);
  serve(1, keys);
  const WriteBackId id = start_writes(keys);
  ASSERT_EQ(store_of_others.writes.size(), 2U);
  ASSERT_TRUE(cache->pause_write_back(id).has_value());
  let_others_answer();
  EXPECT_EQ(of(id, stored), 2U);
  EXPECT_EQ(progress(id).under_way, 4U);
  ASSERT_TRUE(cache->resume_write_back(id).has_value());
  settle();
  EXPECT_EQ(of(id, stored), 6U);
}

class EndedSharedJobs : public SharedJobs, public ::testing::WithParamInterface<bool> {};

TEST_P(EndedSharedJobs, give_up_what_is_not_there_when_they_are_late_or_cancelled) {
  const bool late = GetParam();
  ManagerConfig config = sizes(64);
  config.pools[0].staging_blocks = 4;
  make_writer(WritePolicy::none, config);
  const auto keys = keys_from(1, 6);
  serve(1, keys);
  store_of_others.answers = false;
  WriteBackOrder order = prefix(keys);
  if (late) order.deadline = clock.now() + 1s;
  const WriteBackId id = start(order);
  cache->end_step();
  store_of_others.answer_probes();
  settle();
  ASSERT_EQ(store_of_others.writes.size(), 2U);
  store_of_others.answer_write();
  poll();
  if (late) wait(2s);
  else ASSERT_TRUE(cache->cancel_write_back(id).has_value());
  EXPECT_EQ(progress(id).state, late ? WriteBackState::deadline_exceeded : WriteBackState::cancelled);
  EXPECT_EQ(of(id, stored), 1U);
  EXPECT_EQ(of(id, cancelled), 5U);
  EXPECT_EQ(cache->take_write_back_results(id).value().size(), 6U);
  let_others_answer();
  EXPECT_EQ(of(id, stored), 1U) << "it has ended";
  EXPECT_FALSE(cache->has_pending_work());
  cache->manager().check_invariants();
}

INSTANTIATE_TEST_SUITE_P(LateOrCancelled, EndedSharedJobs, ::testing::Bool());

TEST_F(SharedJobs, of_cleared_blocks_end) {
  make_writer(WritePolicy::none);
  const auto keys = keys_from(1, 4);
  serve(1, keys);
  store_of_others.answers = false;
  const WriteBackId id = start(prefix(keys));
  cache->clear({});
  let_others_answer();
  EXPECT_EQ(of(id, dropped_gone), 4U);
  EXPECT_EQ(progress(id).state, WriteBackState::done);
}

TEST_F(SharedJobs, are_not_dropped_for_wishes_of_the_policy) {
  make_writer(WritePolicy::write_through, sizes(2048));
  const auto keys = keys_from(1, 3);
  serve(1, keys);
  store_of_others.blocks.clear();
  store_of_others.write_error = Errc::full;  // the writer rests
  serve(2, keys_from(11, 1));
  store_of_others.write_error = {};
  const WriteBackId id = start(prefix(keys));
  const auto wishes = static_cast<std::uint32_t>(SharedWriter::wishes_max);
  for (std::uint32_t i = 0; i < wishes + 20; ++i) serve_here(i + 3, keys_from(100 + 10 * i, 2));
  EXPECT_GT(totals().drop_bound, 0U);
  wait(2s);
  EXPECT_EQ(of(id, stored), 3U);
}

TEST_F(SharedJobs, are_refused_without_a_shared_store) {
  make(sizes(8));
  serve(1, keys_from(1, 2));
  EXPECT_EQ(cache->start_write_back(to_shared(Scope::all)).error(), Errc::invalid_argument);
}

TEST_F(SharedJobs, and_policies_tell_watchers_of_copies_that_expire) {
  ManagerConfig config = sizes(64);
  config.shared.kept_for = 12h;
  make_writer(WritePolicy::write_through, config);
  cache->record_events();
  const auto keys = keys_from(1, 3);
  put({keys[0]});
  acquire_with(1, keys, [](AcquireRequest& wanted) { wanted.farthest_source = Source::device; });
  use(1, keys);
  settle();
  const std::vector<KvEvent> told = events_of_shared();
  ASSERT_EQ(told.size(), 3U) << "one was there";
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i].kind, KvEvent::Kind::stored);
    EXPECT_EQ(told[i].key, keys[i]);
    EXPECT_EQ(told[i].depth, i);
    EXPECT_EQ(told[i].parent, i == 0 ? std::nullopt : std::optional{keys[i - 1]});
    EXPECT_EQ(told[i].expires_after, Duration{12h});
  }
  // A write that ends after a clear is of blocks that mean nothing any more.
  store_of_others.answers = false;
  serve_here(2, keys_from(11, 2));
  store_of_others.answer_probes();
  settle();
  ASSERT_EQ(store_of_others.writes.size(), 2U);
  cache->clear({});
  let_others_answer();
  const std::vector<KvEvent> after = events_of_shared();
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].kind, KvEvent::Kind::cleared);
}

}  // namespace
}  // namespace terrace::test
