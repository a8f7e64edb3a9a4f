// Blocks that an OffloadCache gets from a store that several machines share, and writes there.

#include "tests/runtime/offload/offload_fixture.hpp"
#include "tests/runtime/shared_fixture.hpp"

#include <chrono>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class OffloadShared : public Offload {
 protected:
  void make_shared(KeyOrder order, WritePolicy writes = WritePolicy::none, std::uint32_t host_blocks = 8, bool storage = false) {
    ManagerConfig config = with_shared(sizes(host_blocks, order, storage), writes);
    config.pools.front().staging_blocks = 8;
    make_shared(config);
  }
  void make_shared(const ManagerConfig& config) {
    shared = &others;
    make(config);
    poll();  // notices that the store can be used
  }
  /// The shared store has these blocks. The bytes of block i are byte + i.
  void put_shared(const std::vector<BlockKey>& keys, int byte) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      others.blocks[keys[i]] = std::vector<std::byte>(block_bytes, std::byte(byte + static_cast<int>(i)));
    }
  }
  /// Asks until the answer is there.
  std::uint32_t found(const std::vector<BlockKey>& keys) {
    for (int i = 0; i < 5; ++i) {
      const OffloadFound now = offload->find(keys);
      if (!now.looking) return now.blocks;
      poll();
      poll();
    }
    ADD_FAILURE() << "no answer";
    return 0;
  }
  Result<void> load(std::uint64_t id, const std::vector<BlockKey>& keys, const std::vector<SlotId>& to) {
    OffloadOrder wanted = order(id, keys, to);
    wanted.shared = true;
    return offload->load(wanted);
  }
  [[nodiscard]] SharedTotals totals() const { return cache->shared_totals(); }
  void pass(Duration time) {
    clock.advance(time);
    poll();
  }

  HandSharedStore others;
};

constexpr std::array both_orders{KeyOrder::prefix, KeyOrder::flat};

TEST_F(OffloadShared, finds_and_loads_what_no_tier_has) {
  for (const KeyOrder key_order : both_orders) {
    events.clear();
    others = {};
    make_shared(key_order);
    const auto keys = names({1, 2, 3, 4, 5});
    put(1, names({1, 2}), 0, 10);
    put_shared(names({3, 4}), 50);
    EXPECT_EQ(offload->leading(keys), 2U);
    EXPECT_EQ(offload->find(keys), (OffloadFound{2, true}));
    EXPECT_EQ(others.calls, 0U) << "find() calls the store";
    poll();
    poll();
    EXPECT_EQ(offload->find(keys), (OffloadFound{4, false}));
    ASSERT_TRUE(load(2, names({1, 2, 3, 4}), slots({4, 5, 6, 7})).has_value());
    settle();
    EXPECT_TRUE(ended(2));
    for (const auto& [block, error] : results(2)) EXPECT_FALSE(error) << block;
    EXPECT_EQ(read(SlotId{4}), 10);
    EXPECT_EQ(read(SlotId{6}), 50);
    EXPECT_EQ(read(SlotId{7}), 51);
    EXPECT_EQ(offload->totals().loaded_host, 2U);
    EXPECT_EQ(offload->totals().loaded_shared, 2U);
    EXPECT_EQ(std::ranges::count(events, Source::shared, &OffloadEvent::source), 2);
    // They have copies in the host tier from now on.
    EXPECT_EQ(offload->leading(keys), 4U);
    EXPECT_TRUE(others.written.empty() && others.renewed.empty()) << "the write policy is none";
    EXPECT_FALSE(offload->has_pending_work());
    cache->manager().check_invariants();
  }
}

TEST_F(OffloadShared, is_read_through_staging_if_the_host_tier_has_no_room) {
  make_shared(KeyOrder::prefix, WritePolicy::none, 0);
  const auto keys = names({1, 2, 3});
  put_shared(keys, 20);
  EXPECT_EQ(found(keys), 3U);
  ASSERT_TRUE(load(1, keys, slots({0, 1, 2})).has_value());
  settle();
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(results(1)[i]);
    EXPECT_EQ(read(SlotId{i}), 20 + static_cast<int>(i));
  }
  EXPECT_EQ(offload->leading(keys), 0U);
}

TEST_F(OffloadShared, brings_blocks_to_the_host_tier_alone) {
  make_shared(KeyOrder::flat);
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  ASSERT_TRUE(load(1, keys, {}).has_value());
  settle();
  EXPECT_TRUE(ended(1));
  EXPECT_EQ(offload->leading(keys), 2U);
}

TEST_F(OffloadShared, is_not_read_by_a_load_that_does_not_ask_for_it) {
  make_shared(KeyOrder::prefix);
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  ASSERT_TRUE(offload->load(order(1, keys, slots({0, 1}))).has_value());
  settle();
  EXPECT_EQ(results(1)[0], Errc::not_found);
  EXPECT_EQ(others.calls, 0U);
}

TEST_F(OffloadShared, is_asked_once_for_equal_questions_and_an_answer_is_believed_for_a_second) {
  for (const KeyOrder key_order : both_orders) {
    others = {};
    make_shared(key_order);
    others.answers = false;
    const auto keys = names({1, 2, 3});
    put_shared(names({1, 2}), 20);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(offload->find(keys).looking);
    EXPECT_TRUE(offload->find(names({1, 2})).looking) << "another question, which the first one covers";
    poll();
    EXPECT_EQ(others.probed, 1U);
    others.answers = true;
    pass(5ms);
    EXPECT_EQ(offload->find(keys), (OffloadFound{2, false}));
    EXPECT_EQ(offload->find(keys), (OffloadFound{2, false}));
    EXPECT_EQ(cache->wait_totals().looking.requests, 1U);
    EXPECT_DOUBLE_EQ(cache->wait_totals().looking.seconds, 0.005);
    EXPECT_EQ(offload->find(names({1, 2})), (OffloadFound{2, false}));
    EXPECT_EQ(others.probed, 1U);
    pass(1001ms);
    EXPECT_TRUE(offload->find(keys).looking);
    EXPECT_EQ(found(keys), 2U);
    EXPECT_EQ(others.probed, 2U);
  }
}

TEST_F(OffloadShared, joins_a_question_that_covers_its_own) {
  make_shared(KeyOrder::prefix);
  others.answers = false;
  put_shared(names({1, 2, 3}), 20);
  EXPECT_TRUE(offload->find(names({1, 2, 3, 4})).looking);
  EXPECT_TRUE(offload->find(names({1, 2, 3, 4})).looking);
  put(1, names({1}), 0, 10);
  // It has the first block by now, and asks for the others.
  EXPECT_TRUE(offload->find(names({1, 2, 3})).looking);
  poll();
  EXPECT_EQ(others.probed, 1U);
  EXPECT_EQ(totals().look_ups_joined, 1U);
  others.answers = true;
  poll();
  EXPECT_EQ(offload->find(names({1, 2, 3})), (OffloadFound{3, false}));
  EXPECT_EQ(offload->find(names({1, 2, 3, 4})), (OffloadFound{3, false}));
}

TEST_F(OffloadShared, does_not_take_keys_of_another_list_for_its_own) {
  make_shared(KeyOrder::flat);
  others.answers = false;
  put_shared(names({1, 9}), 20);
  EXPECT_TRUE(offload->find(names({1, 9})).looking);
  EXPECT_TRUE(offload->find(names({2, 9})).looking);  // the last key is the same, at the same place
  poll();
  EXPECT_EQ(others.probed, 2U);
  others.answers = true;
  poll();
  EXPECT_EQ(offload->find(names({1, 9})).blocks, 2U);
  EXPECT_EQ(offload->find(names({2, 9})).blocks, 0U);
}

TEST_F(OffloadShared, remembers_a_block_that_is_not_there_for_a_short_time) {
  make_shared(KeyOrder::prefix);
  EXPECT_EQ(found(names({1, 2})), 0U);
  EXPECT_EQ(offload->find(names({1, 3})), (OffloadFound{0, false})) << "another question for the same block";
  EXPECT_EQ(others.probed, 1U);
  EXPECT_EQ(totals().look_ups_skipped, 1U);
  put_shared(names({1, 3}), 20);
  pass(1001ms);
  EXPECT_EQ(found(names({1, 3})), 2U);
}

TEST_F(OffloadShared, goes_on_without_an_answer_at_the_deadline) {
  make_shared(KeyOrder::prefix);
  others.answers = false;
  const auto keys = names({1, 2});
  EXPECT_TRUE(offload->find(keys).looking);
  poll();
  EXPECT_EQ(offload->next_deadline() - clock.now(), 20ms);
  pass(19ms);
  EXPECT_TRUE(offload->find(keys).looking);
  pass(2ms);
  EXPECT_EQ(offload->find(keys), (OffloadFound{0, false}));
  EXPECT_EQ(others.cancelled.size(), 1U);
  EXPECT_EQ(totals().look_ups_late, 1U);
  poll();
  EXPECT_FALSE(offload->has_pending_work());
}

TEST_F(OffloadShared, is_not_asked_while_it_cannot_be_used) {
  make_shared(KeyOrder::prefix);
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  EXPECT_TRUE(offload->find(keys).looking);
  others.usable_now = false;
  EXPECT_EQ(offload->find(keys), (OffloadFound{0, false}));
  ASSERT_TRUE(load(1, keys, slots({0, 1})).has_value());
  settle();
  EXPECT_EQ(results(1)[0], Errc::not_found);
  EXPECT_TRUE(others.reads.empty());
}

TEST_F(OffloadShared, tells_which_blocks_did_not_arrive) {
  for (const KeyOrder key_order : both_orders) {
    events.clear();
    others = {};
    make_shared(key_order);
    const auto keys = names({1, 2, 3, 4, 5});
    put_shared(keys, 20);
    EXPECT_EQ(found(keys), 5U);
    others.blocks.erase(keys[1]);
    others.read_errors[keys[2]] = Errc::corrupt;
    others.read_errors[keys[3]] = Errc::io_failed;
    ASSERT_TRUE(load(1, keys, slots({0, 1, 2, 3, 4})).has_value());
    settle();
    auto ends = results(1);
    ASSERT_EQ(ends.size(), 5U);
    EXPECT_FALSE(ends[0]);
    EXPECT_EQ(ends[1], Errc::not_found);
    EXPECT_EQ(ends[2], Errc::corrupt);
    EXPECT_EQ(ends[3], Errc::io_failed);
    EXPECT_FALSE(ends[4]);
    EXPECT_EQ(read(SlotId{0}), 20);
    EXPECT_EQ(read(SlotId{4}), 24);
    EXPECT_EQ(totals().read_gone, 1U);
    EXPECT_EQ(totals().read_corrupt, 1U);
    EXPECT_EQ(totals().read_failed, 1U);
    EXPECT_FALSE(offload->has_pending_work());
    cache->manager().check_invariants();
  }
}

TEST_F(OffloadShared, read_that_is_late_is_the_result_of_its_block) {
  make_shared(KeyOrder::prefix);
  others.answers = false;
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  ASSERT_TRUE(load(1, keys, slots({0, 1})).has_value());
  ASSERT_EQ(others.reads.size(), 2U);
  EXPECT_EQ(others.reads[0].deadline - clock.now(), 1s) << "SharedConfig::read_timeout";
  others.answer_read();
  others.answer_read(Errc::deadline_exceeded);
  settle();
  EXPECT_FALSE(results(1)[0]);
  EXPECT_EQ(results(1)[1], Errc::deadline_exceeded);
  EXPECT_EQ(totals().read_late, 1U);
}

TEST_F(OffloadShared, the_deadline_of_a_job_ends_its_reads) {
  make_shared(KeyOrder::prefix);
  others.answers = false;
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  OffloadOrder wanted = order(1, keys, slots({0, 1}));
  wanted.shared = true;
  wanted.deadline = clock.now() + 50ms;
  ASSERT_TRUE(offload->load(wanted).has_value());
  EXPECT_EQ(others.reads.at(0).deadline, wanted.deadline);
  pass(51ms);
  EXPECT_TRUE(ended(1));
  EXPECT_EQ(results(1)[0], Errc::deadline_exceeded);
  EXPECT_EQ(others.cancelled.size(), 2U);
  settle();
  EXPECT_FALSE(offload->has_pending_work());
  cache->manager().check_invariants();
}

TEST_F(OffloadShared, a_cancelled_job_ends_at_once_and_its_slots_are_used_again_when_the_reads_have_ended) {
  make_shared(KeyOrder::prefix);
  others.answers = false;
  others.keeps_cancelled = true;
  const auto keys = names({1, 2});
  put_shared(keys, 20);
  ASSERT_TRUE(load(1, keys, slots({0, 1})).has_value());
  ASSERT_TRUE(offload->cancel(OffloadJobId{1}).has_value());
  poll();
  EXPECT_TRUE(ended(1));
  EXPECT_EQ(results(1)[1], Errc::cancelled);
  EXPECT_EQ(others.cancelled.size(), 2U);
  EXPECT_TRUE(offload->has_pending_work());
  EXPECT_EQ(cache->manager().usage(Tier::host).free, 6U);
  others.answers = true;
  settle();
  EXPECT_FALSE(offload->has_pending_work());
  EXPECT_EQ(offload->leading(keys), 2U) << "a block that arrives all the same stays in the host tier";
  cache->manager().check_invariants();
}

TEST_F(OffloadShared, a_block_that_another_job_brings_is_read_once) {
  for (const KeyOrder key_order : both_orders) {
    events.clear();
    others = {};
    make_shared(key_order);
    others.answers = false;
    const auto keys = names({1, 2});
    put_shared(keys, 20);
    ASSERT_TRUE(load(1, keys, slots({0, 1})).has_value());
    EXPECT_EQ(offload->look_up(keys[0]), OffloadHit::pending);
    ASSERT_TRUE(load(2, keys, slots({2, 3})).has_value());
    EXPECT_EQ(others.reads.size(), 2U);
    EXPECT_EQ(offload->totals().joined, 2U);
    others.answer_read();
    others.answer_read(Errc::io_failed);
    others.answers = true;
    settle();
    EXPECT_FALSE(results(2)[0]);
    EXPECT_FALSE(results(2)[1]) << "the second job reads it itself";
    EXPECT_EQ(results(1)[1], Errc::io_failed);
    EXPECT_EQ(read(SlotId{2}), 20);
    EXPECT_EQ(read(SlotId{3}), 21);
  }
}

TEST_F(OffloadShared, is_off_after_a_clear_until_it_is_resumed) {
  for (const KeyOrder key_order : both_orders) {
    events.clear();
    others = {};
    make_shared(key_order);
    const auto keys = names({1, 2});
    put_shared(keys, 20);
    others.answers = false;
    EXPECT_TRUE(offload->find(keys).looking);
    poll();
    cache->clear({});
    EXPECT_EQ(offload->find(keys), (OffloadFound{0, false}));
    ASSERT_TRUE(load(1, keys, slots({0, 1})).has_value());
    settle();
    EXPECT_EQ(results(1)[0], Errc::not_found);
    EXPECT_TRUE(others.reads.empty());
    ASSERT_TRUE(cache->resume_shared().has_value());
    poll();
    // The question of before the clear is not the answer to the one of now.
    EXPECT_TRUE(offload->find(keys).looking);
    poll();
    EXPECT_EQ(others.probed, 2U);
    others.answers = true;
    poll();
    EXPECT_EQ(offload->find(keys), (OffloadFound{2, false}));
    ASSERT_TRUE(load(2, keys, slots({0, 1})).has_value());
    settle();
    EXPECT_FALSE(results(2)[1]);
  }
}

TEST_F(OffloadShared, a_read_that_waits_during_a_clear_is_not_begun_after_it) {
  ManagerConfig config = with_shared(sizes(0, KeyOrder::prefix));
  config.pools.front().staging_blocks = 2;
  make_shared(config);
  const auto keys = names({1, 2, 3});
  put_shared(keys, 20);
  others.answers = false;
  ASSERT_TRUE(load(1, keys, slots({0, 1, 2})).has_value());
  EXPECT_EQ(others.reads.size(), 2U);
  cache->clear({});
  ASSERT_TRUE(cache->resume_shared().has_value());
  others.answers = true;
  settle();
  EXPECT_TRUE(ended(1));
  EXPECT_EQ(results(1)[2], Errc::cleared);
  EXPECT_FALSE(offload->has_pending_work());
  cache->manager().check_invariants();
}

TEST_F(OffloadShared, gets_what_is_stored_if_the_policy_writes_through) {
  for (const KeyOrder key_order : both_orders) {
    events.clear();
    others = {};
    make_shared(key_order, WritePolicy::write_through);
    const auto keys = names({1, 2, 3});
    put_shared(names({1}), 10);
    put(1, keys, 0, 10);
    settle();
    ASSERT_EQ(others.written.size(), 2U) << "the first one was there";
    EXPECT_EQ(others.renewed.size(), 1U);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(others.blocks.contains(keys[i]));
      EXPECT_EQ(others.blocks[keys[i]].front(), std::byte(10 + i));
    }
    const bool prefix = key_order == KeyOrder::prefix;
    EXPECT_EQ(others.written[1].depth, prefix ? 2U : 0U);
    EXPECT_EQ(others.written[1].parent, prefix ? keys[1] : BlockKey{});
    EXPECT_FALSE(offload->has_pending_work());
    // Another cache finds and verifies them.
    others.written.clear();
    make_shared(key_order);
    EXPECT_EQ(found(keys), 3U);
    ASSERT_TRUE(load(2, keys, slots({4, 5, 6})).has_value());
    settle();
    EXPECT_EQ(read(SlotId{6}), 12);
  }
}

TEST_F(OffloadShared, gets_what_the_engine_has_brought_itself) {
  for (const KeyOrder key_order : both_orders) {
    others = {};
    make_shared(key_order, WritePolicy::write_through);
    const auto keys = names({1, 2});
    std::vector<SlotId> rows(2);
    ASSERT_TRUE(offload->reserve(order(1, keys, {}), rows).has_value());
    settle();
    EXPECT_TRUE(others.written.empty()) << "nobody has filled them";
    for (const SlotId row : rows) std::ranges::fill(arena->block(row), std::byte{7});
    ASSERT_TRUE(offload->publish(OffloadJobId{1}, true).has_value());
    settle();
    ASSERT_EQ(others.written.size(), 2U);
    EXPECT_EQ(others.blocks[keys[1]].front(), std::byte{7});
  }
}

TEST_F(OffloadShared, gets_what_is_used_for_the_second_time_if_the_policy_is_selective) {
  for (const KeyOrder key_order : both_orders) {
    for (const bool by_load : {true, false}) {
      others = {};
      events.clear();
      make_shared(key_order, WritePolicy::selective);
      const auto keys = names({1, 2, 3});
      put(1, keys, 0, 10);
      settle();
      const auto use = [&](std::uint64_t id) {
        std::vector<SlotId> rows(3);
        const bool used = by_load ? offload->load(order(id, keys, slots({4, 5, 6}))).has_value()
                                  : offload->pin(OffloadJobId{id}, keys, {}, rows).has_value();
        EXPECT_TRUE(used);
        settle();
        EXPECT_TRUE(by_load || offload->unpin(OffloadJobId{id}).has_value());
        settle();
      };
      use(2);
      EXPECT_TRUE(others.written.empty());
      use(3);
      ASSERT_EQ(others.written.size(), 3U);
      EXPECT_EQ(others.blocks[keys[2]].front(), std::byte{12});
      use(4);
      EXPECT_EQ(others.written.size(), 3U);
    }
  }
}

TEST_F(OffloadShared, gets_blocks_that_a_load_has_brought_from_storage) {
  ManagerConfig config = with_shared(sizes(8, KeyOrder::prefix, true), WritePolicy::write_through);
  config.pools.front().staging_blocks = 8;
  config.write_policy = WritePolicy::write_through;
  make_shared(config);
  others.usable_now = false;
  const auto keys = names({1, 2});
  put(1, keys, 0, 10);
  cache->prepare_drain();  // drops the wish
  put(2, names({11, 12, 13, 14, 15, 16, 17, 18}), 0, 30);
  cache->prepare_drain();
  ASSERT_EQ(offload->look_up(keys[0]), OffloadHit::storage);
  others.usable_now = true;
  pass(61s);
  ASSERT_TRUE(offload->load(order(3, keys, slots({10, 11}))).has_value());
  settle();
  EXPECT_FALSE(results(3)[1]);
  EXPECT_TRUE(others.blocks.contains(keys[0]) && others.blocks.contains(keys[1]));
}

TEST_F(OffloadShared, makes_no_job_wait_for_a_write) {
  make_shared(KeyOrder::prefix, WritePolicy::write_through, 2);
  others.answers = false;
  put(1, names({1, 2}), 0, 10);
  EXPECT_TRUE(ended(1));
  others.answer_probes();
  settle();
  EXPECT_EQ(others.writes.size(), 2U);
  // The host tier is full, and both copies are being written.
  put(2, names({3}), 0, 30);
  EXPECT_TRUE(ended(2));
  EXPECT_FALSE(results(2)[0]);
  EXPECT_EQ(others.writes.size(), 2U);
  EXPECT_TRUE(offload->has_pending_work());
  others.answers = true;
  offload->drain();
  EXPECT_FALSE(offload->has_pending_work());
  EXPECT_EQ(others.written.size(), 3U);
  EXPECT_EQ(others.blocks[names({1})[0]].front(), std::byte{10});
}

TEST_F(OffloadShared, a_drain_does_not_wait_for_a_store_that_cannot_be_used) {
  make_shared(KeyOrder::flat, WritePolicy::write_through);
  others.usable_now = false;
  poll();
  put(1, names({1, 2}), 0, 10);
  offload->drain();
  EXPECT_FALSE(offload->has_pending_work());
}

}  // namespace
}  // namespace terrace::test
