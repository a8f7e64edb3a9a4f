// A decode instance: what it computes is written to storage and not cached.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/keys.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/shared_fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class Uncached : public CacheFixture {
 protected:
  void make_decoder(WritePolicy policy = WritePolicy::write_through, std::uint32_t device_blocks = 8) {
    ManagerConfig config = with_storage(sizes(device_blocks, 4), policy);
    config.caching = false;
    config.store_uncached = true;
    make(config);
  }
  /// Acquires and commits, and lets no copy move.
  void decode(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready(id)) << "nothing is looked up";
    EXPECT_EQ(stats(id).miss, keys.size());
    ASSERT_TRUE(commit(id, keys).has_value());
  }
};

TEST_F(Uncached, blocks_are_stored_and_nothing_of_them_stays_above) {
  make_decoder();
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device) + resident(Tier::host), 0U);
  EXPECT_EQ(cache->manager().stats().dropped_uncached, 3U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).total(), 0U);
  // Nothing is written a second time.
  run(2, keys_of({1, 2, 3, 4}));
  EXPECT_EQ(store->stat().writes, 4U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(Uncached, blocks_keep_their_slots_until_their_bytes_have_left) {
  make_decoder();
  decode(1, keys_of({1, 2, 3}));
  poll();
  release(1);
  poll();
  EXPECT_EQ(free_on_device(), 5U) << "the copies have not moved";
  EXPECT_TRUE(cache->has_pending_work());
  settle();
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(store->stat().blocks, 3U);
}

TEST_F(Uncached, blocks_cannot_be_pinned) {
  make_decoder();
  decode(1, keys_of({1, 2, 3}));
  EXPECT_EQ(cache->pin(keys_of({1, 2})).error(), Errc::not_found);
  release(1);
  settle();
  EXPECT_EQ(resident(Tier::device), 0U);
}

TEST_F(Uncached, blocks_that_go_nowhere_go_at_once) {
  make_decoder(WritePolicy::none);
  decode(1, keys_of({1, 2, 3}));
  release(1);
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device), 0U);
  settle();
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(Uncached, blocks_go_by_order_with_a_result_each) {
  make_decoder(WritePolicy::none);
  decode(1, keys_of({1, 2, 3}));
  const WriteBackId id = cache->start_write_back({.scope = WriteBackOrder::Scope::request, .request = RequestId{1}}).value();
  release(1);
  settle();
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::stored), 3U);
  EXPECT_EQ(cache->write_back(id)->state, WriteBackState::done);
  EXPECT_EQ(cache->take_write_back_results(id)->size(), 3U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(Uncached, blocks_that_several_requests_share_go_with_the_last) {
  make_decoder(WritePolicy::write_through, 12);
  decode(1, keys_of({1, 2, 3}));
  decode(2, keys_of({1, 2, 9}));
  decode(3, keys_of({1, 5}));
  settle();
  release(1);
  settle();
  EXPECT_EQ(resident(Tier::device), 4U) << "the others' beginning, and their ends";
  release(3);
  settle();
  release(2);
  settle();
  EXPECT_EQ(resident(Tier::device), 0U);
  EXPECT_EQ(free_on_device(), 12U);
  EXPECT_EQ(store->stat().blocks, 5U);
}

TEST_F(Uncached, blocks_that_a_shorter_request_holds_stay_with_it) {
  make_decoder();
  decode(1, keys_of({1, 2, 3}));
  decode(2, keys_of({1, 2}));
  settle();
  release(1);
  settle();
  EXPECT_EQ(resident(Tier::device), 2U);
  release(2);
  settle();
  EXPECT_EQ(resident(Tier::device), 0U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(Uncached, blocks_are_hits_of_who_reads_the_store_next_by_keys_made_of_tokens_alone) {
  const BlockKey root = root_key({.model_digest = {}, .fingerprint = {}, .adapter = {}, .tenant_salt = {}, .weight_epoch = 1});
  std::vector<TokenId> tokens;
  for (std::uint32_t token = 0; token < 12; ++token) tokens.push_back(token * 7);
  const auto keys_of_tokens = [&] {
    KeyChain chain{root, 4};
    chain.append(tokens);
    return std::vector<BlockKey>{chain.keys().begin(), chain.keys().end()};
  };
  make_decoder();
  const auto keys = keys_of_tokens();
  ASSERT_EQ(keys.size(), 3U);
  ASSERT_TRUE(acquire(1, keys).has_value());
  const Fence written = device->launch([slots = table(1)](BlockAccess& access) {
    std::vector<std::byte> scratch(block_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto block = access.write_target(slots[i], scratch);
      std::memset(block.data(), static_cast<int>(i + 1), block.size());
      access.written(slots[i], scratch);
    }
  });
  ASSERT_TRUE(cache->commit(leases.at(1), keys, written).has_value());
  release(1);
  settle();
  ASSERT_EQ(store->stat().blocks, 3U);

  ManagerConfig prefill = cache->manager().config();
  prefill.caching = true;
  prefill.store_uncached = false;
  cache = std::make_unique<Cache>(prefill, CacheParts{*transfers, {{arena.get(), store.get()}}, clock});
  ASSERT_TRUE(acquire(2, keys_of_tokens()).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::storage], 3U);
  std::vector<std::byte> first(3);
  device->launch([&first, slots = table(2)](BlockAccess& access) {
    std::vector<std::byte> scratch(block_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) first[i] = access.read(slots[i], scratch)[block_bytes - 1];
  });
  settle();
  EXPECT_EQ(first, (std::vector{std::byte{1}, std::byte{2}, std::byte{3}}));
}

TEST(UncachedConfig, that_makes_no_sense_is_refused_and_it_says_why) {
  const auto refused = [](auto change) {
    ManagerConfig config = with_storage(sizes(8, 4), WritePolicy::write_through);
    config.pools[0].staging_blocks = 4;
    config.caching = false;
    config.store_uncached = true;
    change(config);
    return refusal_of<std::invalid_argument>([&] { validate(config); });
  };
  EXPECT_EQ(refused([](ManagerConfig&) {}), "");
  EXPECT_NE(refused([](ManagerConfig& config) { config.caching = true; }).find("caching must be off"), std::string::npos);
  EXPECT_NE(refused([](ManagerConfig& config) { config.storage = false; }).find("needs storage or a shared"), std::string::npos);
  EXPECT_EQ(refused([](ManagerConfig& config) {
              config.storage = false;
              config.shared.on = true;
            }),
            "");
  EXPECT_NE(refused([](ManagerConfig& config) { config.inclusion = InclusionPolicy::inclusive; }).find("inclusive"),
            std::string::npos);
}

// ---- a decode instance with a store that several machines share: what it computes is written there and not cached

class UncachedShared : public SharedWrites {
 protected:
  void make_decoder(WritePolicy policy = WritePolicy::selective, ManagerConfig config = sizes(8)) {
    config.caching = false;
    config.store_uncached = true;
    make_writer(policy, std::move(config));
  }
  /// Computes and ends a request. Nothing has been copied yet.
  void decode(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready(id)) << "nothing is looked up";
    use(id, keys);
    poll();
  }
};

class UncachedSharedPolicies : public UncachedShared, public ::testing::WithParamInterface<WritePolicy> {};

TEST_P(UncachedSharedPolicies, write_all_blocks_and_nothing_of_them_stays) {
  make_decoder(GetParam());
  const auto keys = keys_from(1, 3);
  decode(1, keys);
  settle();
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device), 0U);
  EXPECT_EQ(cache->match(keys).total(), 0U);
  EXPECT_FALSE(cache->has_pending_work());
  // The next turn writes only its new blocks.
  decode(2, keys_from(1, 5));
  settle();
  EXPECT_TRUE(is_written(keys_from(1, 5)));
  EXPECT_EQ(store_of_others.written.size(), 5U);
  EXPECT_EQ(free_on_device(), 8U);
}
INSTANTIATE_TEST_SUITE_P(All, UncachedSharedPolicies, ::testing::Values(WritePolicy::selective, WritePolicy::write_through));

TEST_F(UncachedShared, blocks_keep_their_slots_until_their_bytes_are_staged_and_no_longer) {
  make_decoder();
  store_of_others.answers = false;
  const auto keys = keys_from(1, 3);
  decode(1, keys);
  settle();
  EXPECT_EQ(free_on_device(), 5U) << "the store has not said what it has";
  device->stuck(Direction::swap_out, true);
  store_of_others.answer_probes();
  settle();
  EXPECT_EQ(free_on_device(), 5U) << "the copies have not moved";
  device->stuck(Direction::swap_out, false);
  settle();
  EXPECT_EQ(store_of_others.writes.size(), 3U);
  EXPECT_TRUE(store_of_others.written.empty());
  EXPECT_EQ(free_on_device(), 8U);
  let_others_answer();
  EXPECT_TRUE(is_written(keys));
}

TEST_F(UncachedShared, blocks_leave_when_the_store_has_them_already) {
  make_decoder();
  const auto keys = keys_from(1, 3);
  put({keys.begin(), keys.begin() + 2});
  decode(1, keys);
  settle();
  EXPECT_EQ(store_of_others.written.size(), 1U);
  EXPECT_EQ(totals().renewed, 2U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(UncachedShared, blocks_go_to_storage_and_to_the_store_of_all) {
  make_decoder(WritePolicy::selective, with_storage(sizes(8, 4), WritePolicy::write_through));
  store_of_others.answers = false;
  const auto keys = keys_from(1, 3);
  decode(1, keys);
  settle();
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(free_on_device(), 5U) << "the shared store has not got them";
  let_others_answer();
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device) + resident(Tier::host), 0U);
}

TEST_F(UncachedShared, blocks_that_grow_one_by_one_and_those_of_several_requests_all_leave) {
  make_decoder(WritePolicy::selective, sizes(16));
  const auto long_keys = keys_of({1, 2, 3, 4, 5});
  const auto other_keys = keys_of({1, 2, 9});
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, long_keys).has_value());
  const Fence written = compute(1, long_keys, 0);
  for (std::ptrdiff_t blocks = 1; blocks <= 5; ++blocks) {
    ASSERT_TRUE(cache->commit(leases.at(1), std::vector(long_keys.begin(), long_keys.begin() + blocks), written).has_value());
    settle();
  }
  decode(2, other_keys);
  release(1);
  settle();
  EXPECT_EQ(resident(Tier::device), 6U);
  let_others_answer();
  EXPECT_TRUE(is_written(long_keys));
  EXPECT_TRUE(is_written(other_keys));
  EXPECT_EQ(free_on_device(), 16U);
}

TEST_F(UncachedShared, blocks_that_wait_for_their_turn_delay_no_request) {
  make_decoder();
  store_of_others.answers = false;
  for (std::uint32_t id = 1; id < 30; ++id) {
    decode(id, keys_from(100 * id, 6));
    settle();
  }
  EXPECT_GT(totals().drop_gone + store_of_others.probes.size(), 0U);
  let_others_answer();
  wait(5s);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(UncachedShared, blocks_that_no_policy_writes_leave_at_once) {
  make_decoder(WritePolicy::none);
  decode(1, keys_from(1, 3));
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(UncachedShared, blocks_do_not_wait_for_a_store_that_cannot_be_used) {
  make_decoder();
  store_of_others.usable_now = false;
  poll();
  decode(1, keys_from(1, 3));
  EXPECT_EQ(free_on_device(), 8U) << "the store cannot be used";
  EXPECT_EQ(totals().drop_off, 3U);
  store_of_others.usable_now = true;
  store_of_others.answers = false;
  poll();
  for (std::uint32_t id = 2; id < 8; ++id) decode(id, keys_from(100 * id, 1));
  settle();
  ASSERT_EQ(free_on_device(), 2U);
  store_of_others.usable_now = false;
  poll();
  EXPECT_EQ(free_on_device(), 4U) << "only those are left whose probe is under way";
  let_others_answer();
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_TRUE(store_of_others.written.empty());
}

TEST_F(UncachedShared, blocks_that_the_store_refuses_leave) {
  make_decoder();
  store_of_others.write_error = Errc::full;
  decode(1, keys_from(1, 5));
  settle();
  EXPECT_EQ(totals().drop_full + totals().drop_off, 5U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(UncachedShared, blocks_of_before_a_clear_are_not_written_after_it) {
  make_decoder();
  store_of_others.answers = false;
  const auto keys = keys_from(1, 3);
  ASSERT_TRUE(acquire(2, keys_from(11, 2)).has_value());
  decode(1, keys);
  store_of_others.answer_probes();
  device->stuck(Direction::swap_out, true);
  poll();  // they are being copied to staging
  ClearOptions options;
  options.keep_shared = true;
  cache->clear(options);
  use(2, keys_from(11, 2));  // it was acquired before
  device->stuck(Direction::swap_out, false);
  let_others_answer();
  EXPECT_TRUE(store_of_others.written.empty());
  EXPECT_EQ(free_on_device(), 8U);
  decode(3, keys);
  settle();
  EXPECT_TRUE(is_written(keys));
}

TEST_F(UncachedShared, blocks_go_by_order_with_a_result_each) {
  make_decoder(WritePolicy::none);
  const auto keys = keys_from(1, 3);
  ASSERT_TRUE(acquire(1, keys).has_value());
  const Fence written = compute(1, keys, 0);
  ASSERT_TRUE(cache->commit(leases.at(1), keys, written).has_value());
  const WriteBackId id =
      cache
          ->start_write_back(
              {.target = WriteBackOrder::Target::shared, .scope = WriteBackOrder::Scope::request, .request = RequestId{1}})
          .value();
  release(1);
  settle();
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::stored), 3U);
  EXPECT_TRUE(is_written(keys));
  EXPECT_EQ(free_on_device(), 8U);
}

}  // namespace
}  // namespace terrace::test
