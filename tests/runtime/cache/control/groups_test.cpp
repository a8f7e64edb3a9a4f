// Requests of models with several KV cache groups, on the device.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace terrace {
namespace {

constexpr SlotId null_slot{0};

class Groups : public test::CacheFixture {
 protected:
  static GroupConfig group(GroupKind kind, std::uint32_t block_tokens, std::uint32_t span_tokens = 0, std::uint16_t pool = 0) {
    GroupConfig config;
    config.kind = kind;
    config.block_tokens = block_tokens;
    config.span_tokens = span_tokens;
    config.pool = PoolId{pool};
    return config;
  }
  /// One pool for each number. Each group names its pool.
  static ManagerConfig model(std::vector<GroupConfig> groups, const std::vector<std::uint32_t>& device_blocks) {
    ManagerConfig config;
    config.groups = std::move(groups);
    config.pools.clear();
    for (const std::uint32_t blocks : device_blocks) config.pools.push_back({.device_blocks = blocks, .null_block = true});
    return config;
  }
  [[nodiscard]] std::uint64_t free_in(std::uint16_t pool) const { return cache->manager().device_ledger(PoolId{pool}).free; }
  [[nodiscard]] std::uint32_t hits(std::uint64_t id) const {
    return static_cast<std::uint32_t>(cache->hit_sources(leases.at(id)).value().size());
  }
  static std::vector<BlockKey> prompt(std::uint32_t length, std::uint32_t name = 1) {
    return test::keys_of(std::vector<std::uint32_t>(length, name));
  }
  static std::string refusal(const ManagerConfig& config) {
    return test::refusal_of<std::invalid_argument>([&] { validate(config); });
  }
};

constexpr GroupId first{0};
constexpr GroupId second{1};

TEST(ModelGroups, that_are_const_show_pools_that_cannot_be_changed) {
  using Pool = std::remove_reference_t<decltype(*std::declval<const ModelGroups&>().pools().front())>;
  EXPECT_TRUE(std::is_const_v<Pool>);
}

TEST_F(Groups, have_a_table_each_of_blocks_of_their_own_size) {
  make(model({group(GroupKind::full, 16), group(GroupKind::full, 48, 0, 1)}, {20, 10}));
  ASSERT_TRUE(acquire(1, prompt(7)).has_value());
  EXPECT_EQ(cache->manager().unit_tokens(), 16U);
  EXPECT_EQ(table(1, first).size(), 7U);
  EXPECT_EQ(table(1, second).size(), 3U);  // the third block has one unit of three
  EXPECT_EQ(cache->blocks_for(std::uint64_t{7} * 16), 7U);
  EXPECT_EQ(cache->blocks_for(std::uint64_t{7} * 16, second), 3U);
  EXPECT_EQ(cache->blocks_for(0, second), 0U);
  EXPECT_THROW((void)cache->blocks_for(1, GroupId{2}), std::invalid_argument);
  EXPECT_EQ(cache->block_table(leases.at(1), GroupId{2}).error(), Errc::invalid_argument);
  ASSERT_TRUE(commit(1, prompt(7)).has_value());
  EXPECT_EQ(cache->manager().requests().committed_units(RequestId{1}).value(), 6U);  // the smallest of all groups
}

TEST_F(Groups, count_in_a_smaller_hash_unit_if_one_is_set) {
  ManagerConfig config = model({group(GroupKind::full, 32), group(GroupKind::sliding_window, 64, 128, 1)}, {20, 10});
  config.hash_unit_tokens = 8;
  make(config);
  EXPECT_EQ(cache->manager().unit_tokens(), 8U);
  ASSERT_TRUE(acquire(1, prompt(17)).has_value());
  EXPECT_EQ(table(1, first).size(), 5U) << "four full blocks of four units, and one for the last unit";
  EXPECT_EQ(table(1, second).size(), 3U);
  ASSERT_TRUE(commit(1, prompt(17)).has_value());
  release(1);
  EXPECT_EQ(cache->match(prompt(17)).total(), 16U);
  EXPECT_EQ(cache->match(prompt(15)).total(), 8U) << "a hit ends at a block of every group";
  config.hash_unit_tokens = 24;
  EXPECT_NE(refusal(config).find("does not divide"), std::string::npos);
  config = test::sizes(4);
  config.hash_unit_tokens = 8;
  EXPECT_EQ(refusal(config), "a hash unit is part of a group's block, but no group is given");
}

TEST_F(Groups, of_one_may_have_blocks_of_several_hash_units) {
  ManagerConfig config = model({group(GroupKind::full, 32)}, {20});
  config.hash_unit_tokens = 8;
  make(config);
  run(1, prompt(10));
  EXPECT_EQ(cache->match(prompt(10)).total(), 8U);
  EXPECT_EQ(cache->match(prompt(7)).total(), 4U);
  ASSERT_TRUE(acquire(2, prompt(10)).has_value());
  EXPECT_EQ(hits(2), 8U);
  EXPECT_EQ(table(2).size(), 3U);
}

TEST_F(Groups, tell_where_the_blocks_of_a_prefix_are_in_each) {
  make(model({group(GroupKind::full, 16), group(GroupKind::sliding_window, 32, 32, 1), group(GroupKind::cross, 1, 0, 2)},
             {20, 20, 5}));
  ASSERT_TRUE(acquire(1, prompt(7)).has_value());
  ASSERT_TRUE(commit(1, prompt(7)).has_value());
  const std::vector<BlockPlace> full = cache->find_blocks(prompt(9), first);
  ASSERT_EQ(full.size(), 9U);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(full[i].device, table(1, first)[i]) << i;
  EXPECT_FALSE(full[7].device || full[8].device || full[8].in_use);
  EXPECT_TRUE(full[6].in_use);
  const std::vector<BlockPlace> window = cache->find_blocks(prompt(7), second);
  ASSERT_EQ(window.size(), 3U) << "the last one has a unit of two";
  EXPECT_EQ(window[2].device, table(1, second)[2]);
  EXPECT_TRUE(cache->find_blocks(prompt(7), GroupId{2}).empty());
  EXPECT_TRUE(cache->find_blocks(prompt(7), GroupId{3}).empty());
}

TEST_F(Groups, in_two_pools_refuse_the_number_of_a_third) {
  make(model({group(GroupKind::full, 1), group(GroupKind::full, 1, 0, 1)}, {20, 20}));
  const PoolId third{2};
  EXPECT_EQ(cache->evict({}, third).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->set_quota(TenantId{1}, {}, third).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->remove_quota(TenantId{1}, third).error(), Errc::invalid_argument);
  for (const Tier tier : {Tier::device, Tier::host, Tier::storage}) {
    EXPECT_EQ(cache->resize(tier, 8, third).error(), Errc::invalid_argument);
  }
  EXPECT_FALSE(cache->tenant_blocks(TenantId{1}, Tier::device, third).has_value());
  EXPECT_THROW((void)cache->host_memory(third), std::invalid_argument);
  EXPECT_EQ(test::refusal_of<std::invalid_argument>([&] { (void)cache->tree_counts(third); }),
            "there is no pool 2: the number of pools is 2");
}

TEST_F(Groups, hit_what_all_of_them_can_serve_on_a_common_boundary) {
  make(model({group(GroupKind::full, 32), group(GroupKind::full, 48, 0, 1)}, {20, 20}));
  run(1, prompt(17));
  // Units have 16 tokens. Blocks of 32 and 48 tokens have a common boundary at every sixth unit.
  ASSERT_TRUE(acquire(2, prompt(17)).has_value());
  EXPECT_EQ(hits(2), 12U);
  EXPECT_EQ(cache->match(prompt(17)).total(), 12U);
  EXPECT_EQ(cache->match(prompt(11)).total(), 6U);
}

TEST_F(Groups, of_a_window_hit_its_last_blocks_and_null_blocks_stand_for_the_rest) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 3, 1)}, {20, 20}));
  run(1, prompt(6));
  ASSERT_TRUE(acquire(2, prompt(6), 1).has_value());
  EXPECT_EQ(hits(2), 6U);
  const auto window = table(2, second);
  ASSERT_EQ(window.size(), 7U);
  // The next token attends to itself and to two tokens before it.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(window[i], null_slot) << i;
  for (std::size_t i = 4; i < 7; ++i) EXPECT_NE(window[i], null_slot) << i;
}

TEST_F(Groups, are_vetoed_by_a_required_group_whose_block_is_gone) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 3, 1)}, {30, 7}));
  run(1, prompt(6));
  // Another prompt evicts the blocks of the window group, and no others.
  run(2, prompt(5, 2));
  EXPECT_EQ(cache->match(prompt(5, 2)).total(), 5U);
  EXPECT_LT(cache->match(prompt(6)).total(), 6U);
  EXPECT_EQ(cache->manager().residency().tree().find(prompt(6)).length, 6U);
}

TEST_F(Groups, that_are_optional_never_veto_and_say_that_they_cannot_serve) {
  GroupConfig draft = group(GroupKind::full, 1, 0, 1);
  draft.optional = true;
  make(model({group(GroupKind::full, 1), draft}, {30, 7}));
  run(1, prompt(6));
  run(2, prompt(5, 2));  // evicts the draft group's blocks of the first prompt
  ASSERT_TRUE(acquire(3, prompt(6), 1).has_value());
  EXPECT_EQ(hits(3), 6U);
  EXPECT_EQ(cache->group_state(leases.at(3), first), GroupState::serves);
  EXPECT_EQ(cache->group_state(leases.at(3), second), GroupState::does_not_serve);
  const auto tables = table(3, second);
  ASSERT_EQ(tables.size(), 7U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(tables[i], null_slot) << i;
  EXPECT_NE(tables[6], null_slot);
  // It computes on top of gaps, so its blocks are not shared.
  std::vector<BlockKey> longer = prompt(7);
  ASSERT_TRUE(commit(3, longer).has_value());
  release(3);
  ASSERT_TRUE(acquire(4, longer).has_value());
  EXPECT_EQ(hits(4), 7U);
  EXPECT_EQ(cache->group_state(leases.at(4), second), GroupState::does_not_serve);
  // For another request there is no gap: if nothing is hit, nothing is missing.
  release(4);
  ASSERT_TRUE(acquire(5, prompt(3, 9)).has_value());
  EXPECT_EQ(hits(5), 0U);
  EXPECT_EQ(cache->group_state(leases.at(5), second), GroupState::serves);
  ASSERT_TRUE(commit(5, prompt(3, 9)).has_value());
  release(5);
  ASSERT_TRUE(acquire(6, prompt(3, 9)).has_value());
  EXPECT_EQ(hits(6), 3U);
  EXPECT_EQ(cache->group_state(leases.at(6), second), GroupState::serves);
}

TEST_F(Groups, that_are_all_optional_never_hold_up_a_commit) {
  GroupConfig draft = group(GroupKind::full, 1);
  draft.optional = true;
  make(model({draft}, {20}));
  ASSERT_TRUE(acquire(1, prompt(3), 1).has_value());
  EXPECT_EQ(cache->committed_units(leases.at(1)).value(), HashUnits{4});
  ASSERT_TRUE(commit(1, prompt(3)).has_value());
  EXPECT_EQ(cache->committed_units(leases.at(1)).value(), HashUnits{4});
}

TEST_F(Groups, that_are_optional_serve_what_they_have) {
  GroupConfig draft = group(GroupKind::sliding_window, 1, 2, 1);
  draft.optional = true;
  make(model({group(GroupKind::full, 1), draft}, {30, 30}));
  run(1, prompt(6));
  ASSERT_TRUE(acquire(2, prompt(6)).has_value());
  EXPECT_EQ(cache->group_state(leases.at(2), second), GroupState::serves);
  const std::vector<SlotId> window = table(2, second);
  release(2);
  // Without the last block of the window there is no hit. After it has been computed again, there is.
  ASSERT_EQ(cache->evict(std::span{window}.last(1), PoolId{1}).value().evicted, 1U);
  ASSERT_TRUE(acquire(3, prompt(6)).has_value());
  EXPECT_EQ(hits(3), 6U);
  EXPECT_EQ(cache->group_state(leases.at(3), second), GroupState::does_not_serve);
  release(3);
  run(4, prompt(6, 2));
  ASSERT_TRUE(acquire(5, prompt(6, 2)).has_value());
  EXPECT_EQ(hits(5), 6U);
  EXPECT_EQ(cache->group_state(leases.at(5), second), GroupState::serves);
}

TEST_F(Groups, give_up_what_fell_out_of_the_window_before_more_is_asked_for) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 3, 1)}, {30, 6}));
  // The window group has five slots and the prompt needs seven. In chunks it fits.
  const auto keys = prompt(7);
  AcquireRequest wanted = request(1, keys);
  EXPECT_EQ(cache->acquire(wanted).error(), Errc::never_fits);
  wanted.new_units_max = 4;
  leases[1] = cache->acquire(wanted).value();
  ASSERT_TRUE(ready(1));
  ASSERT_EQ(table(1, second).size(), 4U);
  EXPECT_EQ(cache->extend(leases.at(1), 3).error(), Errc::no_room);
  EXPECT_EQ(cache->extend(leases.at(1), 4).error(), Errc::never_fits) << "the window needs two of its four blocks";
  EXPECT_EQ(table(1, second).size(), 4U);
  EXPECT_EQ(table(1, first).size(), 4U);
  ASSERT_TRUE(cache->advance(leases.at(1), 4, Fence{}).has_value());
  EXPECT_EQ(table(1, second)[0], null_slot);
  EXPECT_EQ(table(1, second)[1], null_slot);
  EXPECT_NE(table(1, second)[2], null_slot);
  EXPECT_EQ(free_in(1), 3U);
  ASSERT_TRUE(cache->extend(leases.at(1), 3).has_value());
  EXPECT_EQ(table(1, second).size(), 7U);
  EXPECT_EQ(free_in(1), 0U);
  EXPECT_EQ(cache->advance(leases.at(1), 8, Fence{}).error(), Errc::invalid_argument);
}

TEST_F(Groups, keep_what_fell_out_of_the_window_cached_while_there_is_room) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 2, 1)}, {30, 20}));
  ASSERT_TRUE(acquire(1, prompt(6)).has_value());
  ASSERT_TRUE(commit(1, prompt(6)).has_value());
  ASSERT_TRUE(cache->advance(leases.at(1), 6, Fence{}).has_value());
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(table(1, second)[i], null_slot);
  // A shorter prompt needs an earlier window, which is still cached although the first request has given it up.
  EXPECT_EQ(cache->match(prompt(3)).total(), 3U);
  EXPECT_EQ(cache->manager().usage(Tier::device, PoolId{1}).evictable, 5U);
}

TEST_F(Groups, of_a_state_need_the_last_block_and_compute_one) {
  make(model({group(GroupKind::full, 1), group(GroupKind::recurrent, 2, 0, 1)}, {30, 20}));
  ASSERT_TRUE(acquire(1, prompt(6)).has_value());
  const auto states = table(1, second);
  ASSERT_EQ(states.size(), 3U);
  EXPECT_EQ(states[0], null_slot);
  EXPECT_EQ(states[1], null_slot);
  EXPECT_NE(states[2], null_slot);
  ASSERT_TRUE(commit(1, prompt(6)).has_value());
  release(1);
  // Only boundaries at which a state was kept can be hit.
  EXPECT_EQ(cache->match(prompt(6)).total(), 6U);
  EXPECT_EQ(cache->match(prompt(5)).total(), 0U);
  ASSERT_TRUE(acquire(2, prompt(8)).has_value());
  EXPECT_EQ(hits(2), 6U);
  ASSERT_EQ(table(2, second).size(), 4U);
  EXPECT_EQ(table(2, second)[2], states[2]);  // the state to start from
  EXPECT_NE(table(2, second)[3], null_slot);  // the slot for the final state
  ASSERT_TRUE(cache->advance(leases.at(2), 8, Fence{}).has_value());
  EXPECT_EQ(table(2, second)[2], null_slot);
}

TEST_F(Groups, of_chunks_need_nothing_at_the_beginning_of_one) {
  make(model({group(GroupKind::full, 1), group(GroupKind::chunked_local, 1, 4, 1)}, {30, 20}));
  run(1, prompt(8));
  ASSERT_TRUE(acquire(2, prompt(8), 1).has_value());
  EXPECT_EQ(hits(2), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(table(2, second)[i], null_slot);
  EXPECT_NE(table(2, second)[8], null_slot);
  ASSERT_TRUE(acquire(3, prompt(7)).has_value());
  EXPECT_EQ(hits(3), 7U);
  EXPECT_EQ(table(3, second)[3], null_slot);
  EXPECT_NE(table(3, second)[4], null_slot);
}

TEST_F(Groups, with_cross_attention_hold_the_encoders_blocks_and_share_nothing) {
  make(model({group(GroupKind::full, 1), group(GroupKind::cross, 4, 0, 1)}, {30, 6}));
  const auto keys = prompt(3);
  AcquireRequest wanted = request(1, keys);
  wanted.encoder_tokens = 9;
  leases[1] = cache->acquire(wanted).value();
  EXPECT_EQ(table(1, second).size(), 3U);
  EXPECT_EQ(cache->blocks_for(9, second), 3U);
  ASSERT_TRUE(commit(1, prompt(3)).has_value());
  wanted.id = RequestId{2};
  EXPECT_EQ(cache->acquire(wanted).error(), Errc::no_room);  // two slots are left
  ASSERT_TRUE(cache->extend(leases.at(1), 2).has_value());
  EXPECT_EQ(table(1, second).size(), 3U);
  release(1);
  EXPECT_EQ(free_in(1), 5U);
  wanted.encoder_tokens = 21;
  EXPECT_EQ(cache->acquire(wanted).error(), Errc::never_fits);
  wanted.encoder_tokens = 20;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(hits(2), 3U);
}

TEST_F(Groups, without_full_attention_are_served_too) {
  make(model({group(GroupKind::sliding_window, 1, 3)}, {20}));
  run(1, prompt(6));
  ASSERT_TRUE(acquire(2, prompt(6)).has_value());
  EXPECT_EQ(hits(2), 6U);
  EXPECT_EQ(stats(2).found[Source::device], 6U);
  EXPECT_EQ(cache->common_prefix(), 0U);
}

TEST_F(Groups, share_a_prefix_in_blocks_of_their_own_size) {
  make(model({group(GroupKind::full, 16), group(GroupKind::full, 32, 0, 1)}, {20, 20}));
  run(1, test::keys_of({1, 1, 1, 1, 2, 2}));
  run(2, test::keys_of({1, 1, 1, 1, 3, 3}));
  ASSERT_TRUE(acquire(3, test::keys_of({1, 1, 1, 1, 2, 2})).has_value());
  ASSERT_TRUE(acquire(4, test::keys_of({1, 1, 1, 1, 3, 3})).has_value());
  EXPECT_EQ(cache->common_prefix(first), 4U);
  EXPECT_EQ(cache->common_prefix(second), 2U) << "blocks of twice as many tokens";
}

TEST_F(Groups, with_blocks_of_one_size_share_its_pool) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 2)}, {9}));
  run(1, prompt(4));  // all eight slots are cached now
  EXPECT_EQ(free_in(0), 0U);
  run(2, prompt(3, 2));  // evicts six of them, from any prompt
  EXPECT_EQ(cache->match(prompt(3, 2)).total(), 3U);
  EXPECT_EQ(free_in(0), 1U) << "a seventh went with them: no hit could end after it any more";
}

TEST_F(Groups, refused_for_want_of_room_in_one_pool_take_none_in_another) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 4, 1)}, {30, 6}));
  ASSERT_TRUE(acquire(1, prompt(4)).has_value());
  const std::uint64_t free_before = free_in(0);
  EXPECT_EQ(acquire(2, prompt(3, 2)).error(), Errc::no_room);
  EXPECT_EQ(free_in(0), free_before);
  EXPECT_EQ(free_in(1), 1U);
  EXPECT_EQ(cache->manager().stats().refused_no_room, 1U);
}

TEST_F(Groups, hand_back_what_was_computed_twice_in_each) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 4, 1)}, {30, 30}));
  ASSERT_TRUE(acquire(1, prompt(2)).has_value());
  ASSERT_TRUE(acquire(2, prompt(2)).has_value());
  ASSERT_TRUE(commit(1, prompt(2)).has_value());
  const auto duplicates = commit(2, prompt(2)).value();
  ASSERT_EQ(duplicates.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const Duplicate& duplicate = duplicates[i];
    EXPECT_EQ(duplicate.group, i < 2 ? first : second);
    EXPECT_EQ(duplicate.block, i % 2);
    EXPECT_EQ(duplicate.own, table(2, duplicate.group)[i % 2]);
    EXPECT_EQ(duplicate.shared, table(1, duplicate.group)[i % 2]);
  }
  release(2);
  EXPECT_EQ(free_in(1), 27U);
}

TEST_F(Groups, are_pinned_dropped_and_cleared_together) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 1, 3, 1)}, {30, 8}));
  run(1, prompt(5));
  const PinId pin = cache->pin(prompt(5)).value();
  EXPECT_EQ(cache->manager().administration().pinned_blocks(PoolId{0}), 5U);
  EXPECT_EQ(cache->manager().administration().pinned_blocks(PoolId{1}), 2U);  // as many as a hit of all blocks needs
  run(2, prompt(5, 2));
  EXPECT_EQ(cache->match(prompt(5)).total(), 5U);
  EXPECT_EQ(cache->drop(prompt(5)).error(), Errc::in_use);
  ASSERT_TRUE(cache->unpin(pin).has_value());
  EXPECT_EQ(cache->drop(prompt(5)).value(), 7U);
  EXPECT_EQ(cache->match(prompt(5)).total(), 0U);
  EXPECT_EQ(cache->drop(prompt(5)).error(), Errc::not_found);
  cache->clear({});
  EXPECT_EQ(free_in(0), 29U);
  EXPECT_EQ(free_in(1), 7U);
}

TEST_F(Groups, are_told_apart_by_events_which_name_the_keys_that_the_engine_knows) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 2, 3)}, {20}));
  cache->record_events();
  run(1, prompt(4));
  std::vector<KvEvent> told;
  cache->take_events(told);
  ASSERT_EQ(told.size(), 6U);
  const auto keys = prompt(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(told[i].group, first);
    EXPECT_EQ(told[i].key, keys[i]);
    EXPECT_EQ(told[i].depth, i);
  }
  EXPECT_EQ(told[4].group, second);
  EXPECT_EQ(told[4].key, keys[1]);
  EXPECT_EQ(told[5].key, keys[3]);
  EXPECT_EQ(told[5].parent, std::nullopt);
}

TEST_F(Groups, count_what_somebody_else_computes_apart) {
  make(model({group(GroupKind::full, 1), group(GroupKind::recurrent, 1, 0, 1)}, {20, 20}));
  run(1, prompt(2));
  const auto keys = prompt(6);
  AcquireRequest wanted = request(2, keys);
  wanted.external_units = 3;
  leases[2] = cache->acquire(wanted).value();
  const RequestStats counts = stats(2);
  EXPECT_EQ(counts.found[Source::device], 2U);
  EXPECT_EQ(counts.external, 3U);
  EXPECT_EQ(counts.miss, 1U);
  // When it has arrived, it is shared like blocks that the request computes.
  ASSERT_TRUE(commit(2, prompt(5)).has_value());
  release(2);
  EXPECT_EQ(cache->manager().residency().tree().find(prompt(5)).length, 5U);
}

TEST_F(Groups, take_a_speculated_block_back_on_the_common_boundary) {
  make(model({group(GroupKind::full, 1), group(GroupKind::sliding_window, 2, 3, 1)}, {20, 20}));
  run(1, prompt(6));
  const auto keys = prompt(6);
  AcquireRequest wanted = request(2, keys);
  wanted.drop_last_hit = true;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(hits(2), 4U);
}

TEST_F(Groups, that_do_not_fit_their_pools_are_refused_with_what_would) {
  EXPECT_NE(refusal(model({group(GroupKind::full, 1, 0, 2)}, {9, 9})).find("uses pool 2, but there are 2 pools"),
            std::string::npos);
  EXPECT_NE(refusal(model({group(GroupKind::full, 1)}, {9, 9})).find("pool 1 is used by no group"), std::string::npos);
  EXPECT_NE(refusal(model({group(GroupKind::full, 1)}, {1})).find("at least one block in addition to the null block"),
            std::string::npos);
  EXPECT_NE(refusal(model({}, {9, 9})).find("several groups"), std::string::npos);
  ManagerConfig without_null = model({group(GroupKind::recurrent, 1)}, {9});
  without_null.pools[0].null_block = false;
  EXPECT_NE(refusal(without_null).find("needs a null block"), std::string::npos);
  ManagerConfig unstaged = model({group(GroupKind::full, 1)}, {9});
  unstaged.storage = true;
  EXPECT_NE(refusal(unstaged).find("staging"), std::string::npos);
  EXPECT_EQ(refusal(model({group(GroupKind::full, 1), group(GroupKind::cross, 3)}, {9})), "");
}

}  // namespace
}  // namespace terrace
