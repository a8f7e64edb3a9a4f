// A decode instance: what it computes is written to storage and not cached.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/keys.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace terrace {
namespace {

using test::keys_of;
using test::sizes;
using test::with_storage;

class Uncached : public test::CacheFixture {
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
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::request;
  order.request = RequestId{1};
  const WriteBackId id = cache->start_write_back(order).value();
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
  settle();
  ASSERT_TRUE(ready(2));
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
    try {
      validate(config);
    } catch (const std::invalid_argument& error) {
      return std::string{error.what()};
    }
    return std::string{};
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

}  // namespace
}  // namespace terrace
