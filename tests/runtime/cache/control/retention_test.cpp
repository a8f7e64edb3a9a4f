// Priorities and quotas: which block is evicted first when age alone would decide otherwise.

#include "lab/policies/policies.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

namespace terrace {
namespace {

class CacheRetention : public test::CacheFixture {
 protected:
  static std::vector<BlockKey> prefix(std::uint32_t name, std::uint32_t length) {
    return test::keys_of(std::vector<std::uint32_t>(length, name));
  }
  [[nodiscard]] std::uint32_t cached(const std::vector<BlockKey>& keys) const { return cache->match(keys).total(); }
  static ManagerConfig lru(std::uint32_t device_blocks, std::uint32_t host_blocks = 0) {
    ManagerConfig config = test::sizes(device_blocks, host_blocks);
    config.policy = lru_policy;
    return config;
  }
};

TEST_F(CacheRetention, what_has_a_higher_priority_outlives_what_is_newer) {
  make(lru(8));
  run(1, prefix(1, 4));
  const RetentionId kept = cache->retain(prefix(1, 4), usual_priority + 1).value();
  EXPECT_EQ(cache->manager().administration().retained_blocks(), 4U);
  run(2, prefix(2, 4));
  run(3, prefix(3, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 4U);
  EXPECT_EQ(cached(prefix(2, 4)), 0U);
  // When it ends, age counts again.
  ASSERT_TRUE(cache->end_retention(kept).has_value());
  EXPECT_EQ(cache->end_retention(kept).error(), Errc::not_found);
  EXPECT_EQ(cache->manager().administration().retained_blocks(), 0U);
  run(4, prefix(4, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 0U);
  EXPECT_EQ(cached(prefix(3, 4)), 4U);
}

TEST_F(CacheRetention, what_has_a_lower_priority_goes_before_what_is_older) {
  make(lru(8));
  run(1, prefix(1, 4));
  run(2, prefix(2, 4));
  ASSERT_TRUE(cache->retain(prefix(2, 4), 0).has_value());
  run(3, prefix(3, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 4U);
  EXPECT_EQ(cached(prefix(2, 4)), 0U);
}

TEST_F(CacheRetention, takes_at_most_half_of_the_tier) {
  make(lru(8));
  run(1, prefix(1, 4));
  run(2, prefix(2, 4));
  ASSERT_TRUE(cache->retain(prefix(1, 4), usual_priority + 1).has_value());
  EXPECT_EQ(cache->retain(prefix(2, 4), usual_priority + 1).error(), Errc::no_room);
}

TEST_F(CacheRetention, pins_of_a_tenant_keep_no_more_than_its_quota) {
  make(lru(12));
  run(1, prefix(1, 3));
  run(2, prefix(2, 3));
  const TenantId tenant{0};  // of these requests
  ASSERT_TRUE(cache->set_quota(tenant, {4, 0}).has_value());
  const PinId pin = cache->pin(prefix(1, 3)).value();
  EXPECT_EQ(cache->pin(prefix(2, 3)).error(), Errc::no_room);
  EXPECT_TRUE(cache->pin(prefix(2, 1)).has_value());
  ASSERT_TRUE(cache->unpin(pin).has_value());
  EXPECT_TRUE(cache->pin(prefix(2, 3)).has_value());
}

TEST_F(CacheRetention, ends_with_its_time) {
  make(lru(8));
  run(1, prefix(1, 4));
  const TimePoint end = clock.now() + std::chrono::seconds{1};
  ASSERT_TRUE(cache->retain(prefix(1, 4), highest_priority, end).has_value());
  EXPECT_EQ(cache->next_deadline(), end);
  clock.advance(std::chrono::seconds{1});
  poll();
  EXPECT_EQ(cache->manager().administration().retained_blocks(), 0U);
  run(2, prefix(2, 4));
  run(3, prefix(3, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 0U);
}

TEST_F(CacheRetention, holds_nothing_back_from_who_needs_the_room) {
  ManagerConfig config = lru(8);
  config.retained_units_max = 8;
  make(config);
  run(1, prefix(1, 8));
  ASSERT_TRUE(cache->retain(prefix(1, 8), highest_priority).has_value());
  run(2, prefix(2, 8));
  EXPECT_EQ(cached(prefix(2, 8)), 8U);
  EXPECT_EQ(cached(prefix(1, 8)), 0U);
  // A block that comes back has no retention any more.
  run(3, prefix(1, 8));
  run(4, prefix(2, 4));
  EXPECT_EQ(cached(prefix(2, 4)), 4U);
}

TEST_F(CacheRetention, is_bounded_and_refused_where_it_means_nothing) {
  ManagerConfig config = lru(8);
  config.retained_units_max = 4;
  make(config);
  run(1, prefix(1, 4));
  run(2, prefix(2, 4));
  EXPECT_EQ(cache->retain(prefix(3, 4), 9).error(), Errc::not_found);
  EXPECT_EQ(cache->retain(prefix(1, 4), highest_priority + 1).error(), Errc::invalid_argument);
  ASSERT_TRUE(cache->retain(prefix(1, 3), 9).has_value());
  EXPECT_EQ(cache->retain(prefix(2, 2), 9).error(), Errc::no_room);
  cache->clear({});
  EXPECT_EQ(cache->manager().administration().retained_blocks(), 0U);
}

TEST_F(CacheRetention, wants_a_policy_that_ranks) {
  ManagerConfig config = lru(8);
  config.policy = tools::policy_factory(tools::PolicyKind::s3_fifo);
  make(config);
  run(1, prefix(1, 4));
  EXPECT_EQ(cache->retain(prefix(1, 4), 9).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->set_quota(TenantId{1}, {4, 4}).error(), Errc::invalid_argument);
}

/// A caller's own policy needs no change of the cache: the configuration makes one for each tier.
TEST(OwnPolicy, is_made_for_each_tier_with_the_blocks_that_it_plans_for) {
  const auto sizes_of = [](InclusionPolicy inclusion) {
    std::vector<std::uint32_t> sizes;
    ManagerConfig config = test::sizes(8, 4, inclusion);
    config.policy = [&](std::uint32_t capacity) {
      sizes.push_back(capacity);
      return lru_policy(capacity);
    };
    const CacheManager manager{config};
    return sizes;
  };
  EXPECT_EQ(sizes_of(InclusionPolicy::non_inclusive), (std::vector<std::uint32_t>{8, 4}));
  EXPECT_EQ(sizes_of(InclusionPolicy::inclusive), (std::vector<std::uint32_t>{8, 4}));
  EXPECT_EQ(sizes_of(InclusionPolicy::exclusive), (std::vector<std::uint32_t>{8, 12}));
  EXPECT_EQ(sizes_of(InclusionPolicy::lazy_exclusive), (std::vector<std::uint32_t>{8, 12}));
}

TEST(OwnPolicy, has_to_be_there) {
  ManagerConfig config = test::sizes(8);
  config.policy = nullptr;
  EXPECT_THROW(CacheManager{config}, std::invalid_argument);
  config.policy = [](std::uint32_t) { return nullptr; };
  EXPECT_THROW(CacheManager{config}, std::invalid_argument);
}

TEST_F(CacheRetention, speaks_for_every_group) {
  ManagerConfig config = lru(9);
  GroupConfig window;
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 3;
  window.pool = PoolId{1};
  config.groups = {GroupConfig{}, window};
  config.pools[0].null_block = true;
  config.pools.push_back(config.pools.front());
  make(config);
  run(1, prefix(1, 4));
  const RetentionId kept = cache->retain(prefix(1, 4), 9).value();
  run(2, prefix(2, 4));
  run(3, prefix(3, 4));
  run(4, prefix(4, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 4U);
  ASSERT_TRUE(cache->end_retention(kept).has_value());
  run(5, prefix(5, 4));
  run(6, prefix(6, 4));
  EXPECT_EQ(cached(prefix(1, 4)), 0U);
  for (const BlockKey& key : prefix(1, 4)) {
    const BlockKey in_window = key_in_group(key, GroupId{1});
    EXPECT_EQ(cache->manager().residency(PoolId{1}).tree().find(std::span{&in_window, 1}).length, 0U);
  }
}

/// The prompts of different tenants differ, because of the salt in their root keys.
class TenantQuotas : public CacheRetention {
 protected:
  static std::vector<BlockKey> of(std::uint64_t tenant, std::uint32_t name, std::uint32_t length) {
    std::vector<std::uint32_t> names(length, name);
    names.front() = static_cast<std::uint32_t>(1000 * tenant + name);
    return test::keys_of(names);
  }
  void serve(std::uint64_t tenant, std::uint32_t name, std::uint32_t length) {
    const auto keys = of(tenant, name, length);
    AcquireRequest wanted = request(++last_id, keys);
    wanted.tenant = TenantId{tenant};
    leases[last_id] = cache->acquire(wanted).value();
    ASSERT_TRUE(ready_when_settled(last_id));
    ASSERT_TRUE(commit(last_id, keys).has_value());
    release(last_id);
    settle();
  }
  std::uint64_t last_id = 100;
};

TEST_F(TenantQuotas, over_its_own_a_tenant_evicts_nobody_elses) {
  make(lru(12));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {4, 0}).has_value());
  serve(1, 1, 4);  // the oldest of all
  serve(2, 1, 4);
  EXPECT_EQ(cache->tenant_blocks(TenantId{2}, Tier::device), 4U);
  EXPECT_EQ(cache->tenant_blocks(TenantId{1}, Tier::device), std::nullopt);
  serve(1, 2, 4);
  for (std::uint32_t scan = 2; scan < 12; ++scan) serve(2, scan, 4);
  EXPECT_EQ(cached(of(1, 1, 4)), 4U);
  EXPECT_EQ(cached(of(1, 2, 4)), 4U);
  EXPECT_EQ(cached(of(2, 11, 4)), 4U);
  EXPECT_EQ(cache->tenant_blocks(TenantId{2}, Tier::device), 4U);
}

TEST_F(TenantQuotas, what_is_over_goes_first_when_others_want_room) {
  make(lru(12));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {4, 0}).has_value());
  serve(1, 1, 4);
  serve(2, 1, 4);
  serve(2, 2, 4);  // takes free slots
  EXPECT_EQ(cache->tenant_blocks(TenantId{2}, Tier::device), 8U);
  serve(3, 1, 4);
  EXPECT_EQ(cached(of(1, 1, 4)), 4U);
  EXPECT_EQ(cached(of(2, 1, 4)), 0U);
  EXPECT_EQ(cached(of(2, 2, 4)), 4U);
  serve(3, 2, 4);  // nobody is over the quota now: evicts the oldest
  EXPECT_EQ(cached(of(1, 1, 4)), 0U);
}

TEST_F(TenantQuotas, as_large_as_the_tier_change_nothing) {
  make(lru(8));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {8, 0}).has_value());
  ASSERT_TRUE(cache->set_quota(TenantId{1}, {9, 0}).has_value());
  serve(1, 1, 4);
  serve(2, 1, 4);
  serve(2, 2, 4);
  EXPECT_EQ(cached(of(1, 1, 4)), 0U);
  EXPECT_EQ(cached(of(2, 1, 4)), 4U);
}

TEST_F(TenantQuotas, are_never_a_reason_to_refuse) {
  make(lru(8));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {0, 0}).has_value());
  serve(1, 1, 4);
  serve(2, 1, 8);  // it has no blocks of its own to evict, so it evicts those of others
  EXPECT_EQ(cached(of(2, 1, 8)), 8U);
}

TEST_F(TenantQuotas, count_for_what_is_generated_as_well) {
  make(lru(8));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {4, 0}).has_value());
  serve(1, 1, 2);
  serve(2, 1, 4);
  const auto keys = of(2, 2, 2);
  AcquireRequest wanted = request(1, keys);
  wanted.tenant = TenantId{2};
  leases[1] = cache->acquire(wanted).value();
  ASSERT_TRUE(ready(1));
  ASSERT_TRUE(cache->extend(leases.at(1), 2).has_value());
  EXPECT_EQ(cached(of(1, 1, 2)), 2U);
  EXPECT_EQ(cached(of(2, 1, 4)), 2U);
}

TEST_F(TenantQuotas, hold_in_the_host_tier_too) {
  make(lru(4, 8));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {4, 4}).has_value());
  serve(1, 1, 4);
  for (std::uint32_t scan = 1; scan < 8; ++scan) serve(2, scan, 4);
  EXPECT_EQ(cached(of(1, 1, 4)), 4U);  // they were swapped out at the first request of the scan, and stayed
  EXPECT_EQ(cache->tenant_blocks(TenantId{2}, Tier::host), 4U);
}

TEST_F(TenantQuotas, end_when_they_are_removed) {
  make(lru(8));
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {4, 0}).has_value());
  ASSERT_TRUE(cache->set_quota(TenantId{2}, {2, 0}).has_value());  // another tenant
  serve(1, 1, 4);
  serve(2, 1, 4);
  ASSERT_TRUE(cache->remove_quota(TenantId{2}).has_value());
  EXPECT_EQ(cache->remove_quota(TenantId{2}).error(), Errc::not_found);
  serve(2, 2, 4);
  EXPECT_EQ(cached(of(1, 1, 4)), 0U);
}

}  // namespace
}  // namespace terrace
