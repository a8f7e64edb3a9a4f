// A model with several KV cache groups over a store that several machines share.

#include "runtime/cache/control/shared_questions.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/shared_groups_fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

constexpr GroupId second_group{1};

struct Model {
  const char* name;
  std::vector<GroupConfig> groups;
  std::uint64_t blocks;      ///< that a hit of ten units has, in all groups
  std::uint32_t units = 10;  ///< of this hit, that some group needs; the others count under the device
};

std::vector<Model> models() {
  return {{"full and window", {full_of_two, window_of_three}, 5 + 2},
          {"full and state", {full_of_one, state_of_two}, 10 + 1},
          {"full and chunk", {full_of_one, chunk_of_four}, 10 + 1},
          {"window alone", {window_of_three}, 2, 2},
          {"state and window", {state_of_two, window_of_three}, 1 + 2, 2},
          {"full twice, window and state", {full_of_one, full_of_two, window_of_three, state_of_two}, 10 + 5 + 2 + 1}};
}

TEST(SharedGroupsInstances, serve_every_block_that_another_wrote) {
  for (const Model& model : models()) {
    for (const std::uint32_t host_blocks : {0U, 24U}) {
      SCOPED_TRACE(std::string{model.name} + ", host blocks: " + std::to_string(host_blocks));
      const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
      GroupsInstance writer{engine, model_of(model.groups, 24, host_blocks), WritePolicy::write_through};
      GroupsInstance reader{engine, model_of(model.groups, 24, host_blocks), WritePolicy::none};
      std::uint64_t id = 0;
      for (std::uint32_t first = 100; first < 1000; first += 100) EXPECT_EQ(writer.serve(++id, keys_from(first, 10)).miss, 10U);
      for (std::uint32_t first = 100; first < 1000; first += 100) {
        const RequestStats found = reader.serve(++id, keys_from(first, 10));
        EXPECT_EQ(found.found[Source::shared], model.units);
        EXPECT_EQ(found.miss, 0U);
        EXPECT_TRUE(found.looked);
      }
      EXPECT_EQ(reader.mismatches, 0U);
      EXPECT_EQ(reader.compared, 9 * model.blocks);
      EXPECT_EQ(reader.cache->moved().shared_reads.blocks, 9 * model.blocks) << "nothing is read that the hit does not need";
      // A copy in memory of its own is nearer.
      const RequestStats again = reader.serve(++id, keys_from(900, 10));
      EXPECT_EQ(again.found[Source::device], 10U);
      EXPECT_FALSE(again.looked);
    }
  }
}

TEST(SharedGroupsInstances, find_where_a_state_was_kept_within_a_longer_prompt) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  GroupsInstance writer{engine, model_of({full_of_one, state_of_two}, 32, 32), WritePolicy::write_through};
  GroupsInstance reader{engine, model_of({full_of_one, state_of_two}, 32, 32), WritePolicy::none};
  const auto keys = keys_from(100, 10);
  (void)writer.serve(1, {keys.begin(), keys.begin() + 4});
  (void)writer.serve(2, keys);
  // States are there after 4 and after 10 units.
  EXPECT_EQ(reader.serve(3, {keys.begin(), keys.begin() + 7}).found[Source::shared], 4U);
  EXPECT_EQ(reader.mismatches, 0U);
  auto longer = keys_from(100, 16);
  GroupsInstance other{engine, model_of({full_of_one, state_of_two}, 32, 32), WritePolicy::none};
  const RequestStats found = other.serve(4, longer);
  EXPECT_EQ(found.found[Source::shared], 10U);
  EXPECT_EQ(found.miss, 6U);
}

TEST(SharedGroupsInstances, read_behind_what_their_own_tiers_have) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  const ManagerConfig config = model_of({full_of_two, window_of_three}, 32, 32);
  const auto keys = keys_from(100, 12);
  GroupsInstance writer{engine, config, WritePolicy::write_through};
  GroupsInstance has_half{engine, config, WritePolicy::none};
  GroupsInstance has_most{engine, config, WritePolicy::none};  // more than it lacks
  (void)has_half.serve(1, {keys.begin(), keys.begin() + 6});
  (void)has_most.serve(1, {keys.begin(), keys.begin() + 10});
  (void)writer.serve(1, keys);
  const RequestStats half = has_half.serve(2, keys);
  EXPECT_EQ(half.found[Source::device], 6U);
  EXPECT_EQ(half.found[Source::shared], 6U);
  EXPECT_EQ(has_half.cache->moved().shared_reads.blocks, 3U + 2U);
  const RequestStats most = has_most.serve(2, keys);
  EXPECT_EQ(most.found[Source::device], 10U);
  EXPECT_EQ(most.found[Source::shared], 2U);
  EXPECT_EQ(has_most.cache->moved().shared_reads.blocks, 1U + 2U);
}

TEST(SharedGroupsInstances, write_what_is_hit_again_so_that_the_same_hit_is_found) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  const ManagerConfig config = model_of({full_of_two, window_of_three}, 32, 32);
  GroupsInstance writer{engine, config, WritePolicy::selective};
  const auto keys = keys_from(100, 10);
  (void)writer.serve(1, keys);
  (void)writer.serve(2, keys);
  EXPECT_EQ(writer.cache->shared_totals().written, 0U);
  (void)writer.serve(3, keys);
  EXPECT_EQ(writer.cache->shared_totals().written, 5U + 2U) << "of the window, the blocks of the hit";
  GroupsInstance reader{engine, config, WritePolicy::none};
  EXPECT_EQ(reader.serve(4, keys).found[Source::shared], 10U);
}

TEST(SharedGroupsInstances, read_what_one_that_caches_nothing_has_computed) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  ManagerConfig decodes = model_of({full_of_two, window_of_three, state_of_two}, 32, 16);
  GroupsInstance prefill{engine, decodes, WritePolicy::none};
  decodes.caching = false;
  decodes.store_uncached = true;
  GroupsInstance decoder{engine, decodes, WritePolicy::write_through};
  const auto keys = keys_from(100, 10);
  EXPECT_EQ(decoder.serve(1, keys).miss, keys.size());
  EXPECT_EQ(decoder.cache->shared_totals().written, 5U + 10U + 1U);
  for (std::uint16_t pool = 0; pool < 3; ++pool) {
    EXPECT_EQ(decoder.cache->manager().residency(PoolId{pool}).tree().blocks(), 0U) << "nothing stays in pool " << pool;
  }
  EXPECT_EQ(prefill.serve(1, keys).found[Source::shared], keys.size());
  EXPECT_EQ(prefill.compared, 5U + 2U + 1U);
}

TEST(SharedGroupsInstances, bring_what_another_wrote_to_the_host_ahead_of_a_request) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  const ManagerConfig config = model_of({full_of_two, window_of_three, state_of_two}, 32, 32);
  GroupsInstance writer{engine, config, WritePolicy::write_through};
  GroupsInstance reader{engine, config, WritePolicy::none};
  const auto keys = keys_from(100, 10);
  (void)writer.serve(1, keys);
  PrefetchOrder order;
  order.keys = keys;
  order.farthest_source = Source::shared;
  ASSERT_TRUE(reader.cache->prefetch(order).has_value());
  // A request that comes meanwhile waits for it, and uses its answer.
  ASSERT_TRUE(reader.acquire(1, keys).has_value());
  reader.settle();
  EXPECT_EQ(reader.cache->prefetch_totals().from_shared, 5U + 2U + 1U);
  EXPECT_EQ(reader.cache->prefetch_totals().joined, 1U);
  EXPECT_EQ(reader.cache->shared_totals().look_ups, 1U);
  reader.leases.erase(1);
  const RequestStats found = reader.serve(2, keys);
  EXPECT_EQ(found.miss, 0U);
  EXPECT_EQ(reader.cache->moved().shared_reads.blocks, 5U + 2U + 1U);
}

class SharedGroups : public SharedGroupsByHand {
 protected:
  void make_model(WritePolicy writes = WritePolicy::none) {
    make_groups(model_of({full_of_one, window_of_three}, 32, 32), store_of_others, writes);
  }
  /// The store has all blocks of a prompt of ten units.
  void put_all(const std::vector<BlockKey>& keys) {
    put(0, keys, 0, 10);
    put(1, keys, 0, 10);
  }
};

TEST_F(SharedGroups, ask_once_for_all_groups_and_hold_nothing_meanwhile) {
  make_model();
  const auto keys = keys_from(1, 10);
  put_all(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, keys).has_value());
  poll();
  ASSERT_EQ(store_of_others.probes.size(), 1U);
  const HandSharedStore::Probe& probe = store_of_others.probes.front();
  ASSERT_EQ(probe.keys.size(), 10U + 10U);
  EXPECT_EQ(probe.groups.front(), GroupId{0});
  EXPECT_EQ(probe.groups.back(), second_group);
  EXPECT_EQ(probe.keys.back(), key_of(1, keys, 9));
  EXPECT_EQ(probe.there.size(), probe.keys.size());
  EXPECT_EQ(cache->manager().device_ledger().held, 0U);
  EXPECT_EQ(cache->manager().device_ledger(PoolId{1}).held, 0U);
  store_of_others.answers = true;
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::shared], 10U);
  use(1, keys);
}

TEST_F(SharedGroups, pin_their_hits_in_every_group_until_the_answer_comes) {
  make_model();
  const auto keys = keys_from(1, 10);
  (void)serve(1, {keys.begin(), keys.begin() + 6});
  store_of_others.answers = false;
  const std::uint64_t unpinned = cache->manager().usage(Tier::device, PoolId{1}).evictable;
  ASSERT_TRUE(acquire(2, keys).has_value());
  poll();
  EXPECT_EQ(cache->manager().usage(Tier::device, PoolId{0}).evictable, 0U);
  EXPECT_EQ(cache->manager().usage(Tier::device, PoolId{1}).evictable, unpinned - 2);
  // It gives up: nothing stays pinned.
  release(2);
  EXPECT_EQ(cache->manager().usage(Tier::device, PoolId{1}).evictable, unpinned);
  EXPECT_EQ(store_of_others.probes.size(), 1U);
  store_of_others.answers = true;
}

TEST_F(SharedGroups, end_a_hit_where_a_window_is_not_complete) {
  make_model();
  const auto keys = keys_from(1, 10);
  put(0, keys, 0, 10);
  put(1, keys, 3, 5);  // the window of a hit of five units
  put(1, keys, 8, 9);
  EXPECT_EQ(serve(1, keys).found[Source::shared], 5U);
  EXPECT_EQ(compared, 5U + 2U);
}

TEST_F(SharedGroups, make_a_window_of_blocks_of_their_own_and_of_others) {
  make_model();
  const auto keys = keys_from(1, 10);
  (void)serve(1, {keys.begin(), keys.begin() + 6});
  put(0, keys, 6, 7);
  put(1, keys, 6, 7);  // the window of a hit of seven units has the sixth block, too
  const RequestStats found = serve(2, keys);
  EXPECT_EQ(found.found[Source::device], 6U);
  EXPECT_EQ(found.found[Source::shared], 1U);
}

/// A cache of its own for each case of a test.
class OneCase final : public SharedGroupsByHand {
 public:
  ~OneCase() override { TearDown(); }
  void TestBody() override {}

  /// A block of the group does not arrive.
  void lose_a_block(std::size_t group, Errc why) {
    make_groups(model_of({full_of_one, window_of_three}, 32, 32), store_of_others);
    const auto keys = keys_from(1, 10);
    put(0, keys, 0, 10);
    put(1, keys, 0, 10);
    store_of_others.read_errors[key_of(group, keys, group == 0 ? 7 : 9)] = why;
    const RequestStats found = serve(1, keys);
    EXPECT_TRUE(found.looked);
    EXPECT_EQ(found.found[Source::shared], 0U) << "no window before the missing block has been read";
    EXPECT_EQ(totals().read_gone + totals().read_corrupt + totals().read_failed, 1U);
    EXPECT_EQ(totals().look_ups, 1U) << "it does not ask again";
    EXPECT_EQ(cache->manager().stats().replans, 1U);
    cache->manager().check_invariants();
  }
};

TEST(SharedGroupsFaults, cost_a_hit_and_no_request) {
  for (const std::size_t group : {0U, 1U}) {
    for (const Errc why : {Errc::not_found, Errc::corrupt, Errc::io_failed}) {
      SCOPED_TRACE("group " + std::to_string(group) + ": " + make_error_code(why).message());
      OneCase{}.lose_a_block(group, why);
    }
  }
}

TEST_F(SharedGroups, are_planned_without_an_answer_that_is_late) {
  make_model();
  const auto keys = keys_from(1, 10);
  put_all(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, keys).has_value());
  poll();
  EXPECT_FALSE(ready(1));
  clock.advance(20ms);
  poll();
  ASSERT_TRUE(ready(1));
  EXPECT_EQ(stats(1).miss, 10U);
  EXPECT_EQ(totals().look_ups_late, 1U);
  EXPECT_EQ(store_of_others.cancelled.size(), 1U);
  store_of_others.answers = true;
  use(1, keys);
}

TEST_F(SharedGroups, do_not_ask_for_a_second_after_a_block_of_full_attention_was_missing) {
  make_model();
  const auto keys = keys_from(1, 10);
  put(1, keys, 0, 10);
  EXPECT_EQ(serve(1, keys).miss, 10U);
  ASSERT_TRUE(cache->drop(keys).has_value());
  auto other = keys;
  other.resize(4);
  (void)serve(2, other);
  EXPECT_EQ(totals().look_ups, 1U);
  EXPECT_EQ(totals().look_ups_skipped, 1U);
  clock.advance(1s);
  ASSERT_TRUE(cache->drop(other).has_value());
  (void)serve(3, other);
  EXPECT_EQ(totals().look_ups, 2U);
}

TEST_F(SharedGroups, share_the_probe_of_another_request_for_the_same_blocks) {
  make_model();
  const auto keys = keys_from(1, 10);
  put_all(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(acquire(2, keys).has_value());
  ASSERT_TRUE(acquire(3, keys_from(1, 8)).has_value());
  poll();
  EXPECT_EQ(store_of_others.probed, 2U) << "only the same question is the same";
  EXPECT_EQ(totals().look_ups_joined, 1U);
  let_others_answer();
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    ASSERT_TRUE(ready(id));
    EXPECT_EQ(stats(id).miss, 0U);
  }
  use(1, keys);
  use(2, keys);
  use(3, keys_from(1, 8));
}

TEST_F(SharedGroups, use_an_optional_group_if_the_store_has_its_blocks_and_do_without_if_not) {
  GroupConfig draft = full_of_one;
  draft.optional = true;
  make_groups(model_of({full_of_one, draft}, 32, 32), store_of_others);
  const auto keys = keys_from(1, 6);
  put(0, keys, 0, 6);
  put(1, keys, 0, 4);
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::shared], 6U) << "it has no veto";
  EXPECT_EQ(cache->group_state(leases.at(1), second_group), GroupState::does_not_serve);
  release(1);
  settle();
  const auto others = keys_from(50, 6);
  put(0, others, 0, 6);
  put(1, others, 0, 6);
  ASSERT_TRUE(acquire(2, others).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(cache->group_state(leases.at(2), second_group), GroupState::serves);
  use(2, others);
}

TEST(SharedGroupsConfig, says_which_combinations_it_refuses) {
  const auto refused = [](const ManagerConfig& config) { return refusal_of<std::invalid_argument>([&] { validate(config); }); };
  ManagerConfig config = with_shared(model_of({full_of_one, window_of_three}, 32, 32));
  EXPECT_EQ(refused(config), "");
  config.pools[1].staging_blocks = 1;
  EXPECT_NE(refused(config).find("pool 1: a shared store needs at least 2 staging blocks"), std::string::npos) << refused(config);
  config.pools[1].staging_blocks = 2;
  for (PoolSizes& pool : config.pools) {
    pool.engine_blocks = pool.device_blocks;
    pool.device_blocks = 0;
    pool.null_block = false;
  }
  EXPECT_NE(refused(config).find("offload cache needs one pool"), std::string::npos) << refused(config);
}

class Questions : public testing::Test {
 protected:
  static ManagerConfig config() {
    ManagerConfig made = sizes(8, 8);
    made.pools[0].staging_blocks = 2;
    made.shared.on = true;
    return made;
  }
  static SharedQuestions::Asker request(std::uint64_t number) { return {SharedQuestions::Asker::Kind::request, number}; }
  void ask(std::uint64_t number, const std::vector<BlockKey>& keys, std::uint32_t from, TimePoint deadline = never) {
    questions.ask(request(number), {.keys = std::span{keys}.subspan(from), .from = from}, deadline);
    questions.check_invariants();
  }
  void on_probed(std::size_t probe, ErrorCode error, std::uint32_t leading, TimePoint at) {
    state.now = at;
    questions.on_probed(actions.probes[probe].token, error, leading);
  }
  void on_time(TimePoint at) {
    state.now = at;
    questions.on_time();
  }
  std::vector<SharedQuestions::Answer> answers() {
    std::vector<SharedQuestions::Answer> taken;
    questions.take_answers(taken);
    questions.check_invariants();
    return taken;
  }

  const TimePoint now{1s};
  ManagerState state{config()};
  HitPlanner planner{state};
  SharedActions& actions = state.groups.at({}).actions().shared;
  SharedTotals& totals = state.shared;
  SharedQuestions questions{state, planner};

  void SetUp() override { state.now = now; }
};

TEST_F(Questions, answer_with_the_end_of_what_is_there) {
  ask(7, keys_of({1, 2, 3, 4, 5}), 2);
  ASSERT_EQ(actions.probes.size(), 1U);
  EXPECT_EQ(actions.probes[0].keys.size(), 3U);
  EXPECT_EQ(actions.probes[0].deadline, now + 20ms);
  on_probed(0, {}, 2, now + 1ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(7));
  EXPECT_EQ(taken[0].end, 4U);
  EXPECT_EQ(questions.probes(), 0U);
  EXPECT_NEAR(questions.round_trip_seconds(), 0.001, 1e-9);
  EXPECT_EQ(totals.asked, 3U);
  EXPECT_EQ(totals.there, 2U);
}

TEST_F(Questions, join_a_probe_that_covers_their_blocks) {
  ask(1, keys_of({1, 2, 3, 4}), 0);
  ask(2, keys_of({1, 2, 3}), 1);        // a part of it
  ask(3, keys_of({1, 2, 3, 4, 5}), 0);  // more
  ask(4, keys_of({1, 2, 9}), 1);        // other blocks
  ASSERT_EQ(actions.probes.size(), 3U);
  EXPECT_EQ(totals.look_ups_joined, 1U);
  on_probed(0, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].end, 2U);
  EXPECT_EQ(taken[1].end, 2U) << "of its blocks 1 and 2, only block 1 is there";
  EXPECT_EQ(questions.asking(), 2U);
}

TEST_F(Questions, of_joined_askers_whose_first_block_is_not_there_are_answered_with_nothing) {
  ask(1, keys_of({1, 2, 3, 4}), 0);
  ask(2, keys_of({1, 2, 3}), 2);
  on_probed(0, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].end, 0U);
}

TEST_F(Questions, end_at_the_deadline_and_cancel_the_probe) {
  ask(1, keys_of({1, 2}), 0);
  ask(2, keys_of({3, 4}), 0, now + 5ms);
  EXPECT_EQ(questions.next_deadline(), now + 5ms);
  on_time(now + 5ms);
  auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(2));
  EXPECT_EQ(taken[0].end, 0U);
  ASSERT_EQ(actions.cancelled_probes.size(), 1U);
  EXPECT_EQ(actions.cancelled_probes[0], actions.probes[1].token);
  EXPECT_EQ(questions.next_deadline(), now + 20ms);
  on_time(now + 20ms - 1ns);
  EXPECT_FALSE(questions.has_answers());
  on_time(now + 20ms);
  EXPECT_EQ(answers().size(), 1U);
  EXPECT_EQ(questions.next_deadline(), never);
  EXPECT_EQ(questions.probes(), 2U) << "their events come";
  EXPECT_EQ(totals.look_ups_late, 2U);
  for (std::size_t probe = 0; probe < actions.probes.size(); ++probe) on_probed(probe, Errc::cancelled, 0, now + 21ms);
  EXPECT_FALSE(questions.has_answers());
  EXPECT_EQ(questions.probes(), 0U);
}

TEST_F(Questions, cancel_a_probe_when_the_last_asker_leaves) {
  ask(1, keys_of({1, 2}), 0);
  ask(2, keys_of({1, 2}), 0);
  questions.leave(request(1));
  EXPECT_TRUE(actions.cancelled_probes.empty());
  questions.leave(request(2));
  EXPECT_EQ(actions.cancelled_probes.size(), 1U);
  ask(3, keys_of({1, 2}), 0);
  EXPECT_EQ(actions.probes.size(), 2U) << "nobody joins a cancelled probe";
  on_probed(0, {}, 2, now);
  EXPECT_FALSE(questions.has_answers());
  on_probed(1, {}, 2, now);
  EXPECT_EQ(answers().size(), 1U);
}

TEST_F(Questions, whose_asker_leaves_before_it_has_taken_the_answer_have_none) {
  ask(1, keys_of({1}), 0);
  on_probed(0, {}, 1, now);
  questions.leave(request(1));
  EXPECT_FALSE(questions.has_answers());
}

TEST_F(Questions, remember_for_a_short_time_what_is_missing) {
  const auto keys = keys_of({1, 2, 3});
  ask(1, keys, 0);
  on_probed(0, {}, 1, now);
  EXPECT_FALSE(questions.is_missing(keys[0]));
  EXPECT_TRUE(questions.is_missing(keys[1]));
  EXPECT_FALSE(questions.is_missing(keys[2])) << "nobody knows";
  state.now = now + 1s - 1ns;
  EXPECT_TRUE(questions.is_missing(keys[1]));
  state.now = now + 1s;
  EXPECT_FALSE(questions.is_missing(keys[1]));
  questions.forget();
  state.now = now;
  EXPECT_FALSE(questions.is_missing(keys[1]));
}

TEST_F(Questions, that_fail_say_what_is_known_and_remember_nothing_as_missing) {
  const auto keys = keys_of({1, 2, 3});
  ask(1, keys, 0);
  on_probed(0, Errc::deadline_exceeded, 2, now + 20ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].end, 2U);
  state.now = now + 20ms;
  EXPECT_FALSE(questions.is_missing(keys[2]));
  EXPECT_EQ(questions.round_trip_seconds(), 0);
}

}  // namespace
}  // namespace terrace::test
