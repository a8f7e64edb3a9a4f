// Settings that change while the cache serves.

#include "terrace/settings.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

class SettingsTest : public CacheFixture {
 protected:
  void change(const std::function<void(CacheSettings&)>& edit) {
    CacheSettings settings = cache->settings();
    edit(settings);
    ASSERT_TRUE(cache->change(settings).has_value());
    settle();
  }
  [[nodiscard]] std::uint64_t stored() const { return store->stat().blocks; }
};

TEST_F(SettingsTest, are_those_of_the_options_and_then_those_of_the_last_change) {
  ManagerConfig config = with_storage(sizes(8, 8), WritePolicy::write_through);
  config.selective_hits = 3;
  config.loads = LoadPolicy::always;
  config.device_reserve_max = 0.25;
  config.device_watermarks = {0.1, 0.2};
  config.host_watermarks = {0.3, 0.4};
  config.daily_write_bytes = KiB;
  make(config);
  CacheSettings settings = cache->settings();
  EXPECT_EQ(settings.policy, EvictionPolicyName::adaptive);
  EXPECT_EQ(settings.write_policy, WritePolicy::write_through);
  EXPECT_EQ(settings.selective_hits, 3U);
  EXPECT_EQ(settings.loads, LoadPolicy::always);
  EXPECT_EQ(settings.device_reserve_max, 0.25);
  EXPECT_EQ(settings.device_watermarks.high, 0.2);
  EXPECT_EQ(settings.host_watermarks.low, 0.3);
  EXPECT_EQ(settings.daily_write_bytes, KiB);
  settings = {.policy = EvictionPolicyName::lru,
              .write_policy = WritePolicy::selective,
              .selective_hits = 2,
              .loads = LoadPolicy::measured,
              .device_reserve_max = 0.5,
              .device_watermarks = {},
              .host_watermarks = {0.5, 0.5},
              .daily_write_bytes = MiB,
              .lane_rates = {BytesPerSecond{}, BytesPerSecond{5}}};
  ASSERT_TRUE(cache->change(settings).has_value());
  const CacheSettings now = cache->settings();
  EXPECT_EQ(now.policy, EvictionPolicyName::lru);
  EXPECT_EQ(now.write_policy, WritePolicy::selective);
  EXPECT_EQ(now.selective_hits, 2U);
  EXPECT_EQ(now.loads, LoadPolicy::measured);
  EXPECT_EQ(now.device_reserve_max, 0.5);
  EXPECT_EQ(now.device_watermarks.low + now.device_watermarks.high, 0);
  EXPECT_EQ(now.host_watermarks.high, 0.5);
  EXPECT_EQ(now.daily_write_bytes, MiB);
  EXPECT_EQ(now.lane_rates, settings.lane_rates);
  EXPECT_EQ(cache->daily_writes().limit, MiB);
}

TEST_F(SettingsTest, watermarks_free_slots_from_the_change_on) {
  make(sizes(10, 20));
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(free_on_device(), 0U);
  change([](CacheSettings& s) { s.device_watermarks = {0.3, 0.5}; });
  EXPECT_EQ(free_on_device(), 5U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})).total(), 10U);  // nothing is lost: the host has the others
  change([](CacheSettings& s) { s.device_watermarks = {}; });
  run(2, keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(free_on_device(), 0U);
}

TEST_F(SettingsTest, the_reserve_is_bounded_from_the_change_on) {
  make(sizes(10, 20));
  // It keeps nothing, but the requests teach the cache what they need.
  run(1, keys_of({1, 2, 3, 4, 5, 6}));
  run(2, keys_of({11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(free_on_device(), 0U);
  change([](CacheSettings& s) { s.device_reserve_max = 0.3; });
  EXPECT_EQ(free_on_device(), 3U);
  change([](CacheSettings& s) { s.device_reserve_max = 0; });
  run(3, keys_of({21, 22, 23}));
  EXPECT_EQ(free_on_device(), 0U);
}

TEST_F(SettingsTest, host_watermarks_free_host_slots_from_the_change_on) {
  make(sizes(4, 10, InclusionPolicy::inclusive));
  for (unsigned n = 0; n < 5; ++n) run(n + 1, keys_of({10 * n + 1, 10 * n + 2}));
  EXPECT_EQ(cache->usage(Tier::host).free, 0U);
  change([](CacheSettings& s) { s.host_watermarks = {0.3, 0.4}; });
  EXPECT_GE(cache->usage(Tier::host).free, 4U);
}

TEST_F(SettingsTest, a_new_write_policy_acts_on_blocks_from_then_on) {
  make(with_storage(sizes(4, 0), WritePolicy::none));
  run(1, keys_of({1, 2}));
  EXPECT_EQ(stored(), 0U);
  change([](CacheSettings& s) { s.write_policy = WritePolicy::write_through; });
  run(2, keys_of({3, 4}));
  EXPECT_EQ(stored(), 2U);
  change([](CacheSettings& s) { s.write_policy = WritePolicy::write_back; });
  run(3, keys_of({5, 6}));  // evicts two blocks: 1 and 2 are stored now, 3 and 4 are already
  EXPECT_EQ(stored(), 4U);
  change([](CacheSettings& s) { s.write_policy = WritePolicy::none; });
  run(4, keys_of({7, 8, 9, 10}));
  EXPECT_EQ(stored(), 4U);
}

TEST_F(SettingsTest, selective_can_begin_and_change_its_number_of_hits) {
  make(with_storage(sizes(8), WritePolicy::none));
  run(1, keys_of({1}));
  change([](CacheSettings& s) {
    s.write_policy = WritePolicy::selective;
    s.selective_hits = 3;
  });
  run(2, keys_of({1}));
  run(3, keys_of({1}));
  EXPECT_EQ(stored(), 0U);
  change([](CacheSettings& s) { s.selective_hits = 4; });
  run(4, keys_of({1}));
  EXPECT_EQ(stored(), 0U);
  run(5, keys_of({1}));  // the fourth hit: hits before the change count
  EXPECT_EQ(stored(), 1U);
}

TEST_F(SettingsTest, bytes_that_were_written_before_count_for_a_new_daily_limit) {
  make(with_storage(sizes(8), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  EXPECT_EQ(stored(), 2U);
  change([](CacheSettings& s) { s.daily_write_bytes = Bytes{3 * block_bytes}; });
  run(2, keys_of({3, 4}));
  EXPECT_EQ(stored(), 3U);
  EXPECT_EQ(cache->daily_writes().written, Bytes{3 * block_bytes});
}

TEST_F(SettingsTest, a_limit_of_a_lane_holds_its_transfers_back_until_it_is_lifted) {
  scheduler_config.pieces.bytes = Bytes{block_bytes};  // the first piece goes at once
  make(with_storage(sizes(8), WritePolicy::write_through));
  change([](CacheSettings& s) { s.lane_rates[static_cast<std::size_t>(Urgency::store)] = BytesPerSecond{1}; });
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4})).has_value());
  settle();
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3, 4})).has_value());
  release(1);
  settle();
  EXPECT_LT(stored(), 4U);
  change([](CacheSettings& s) { s.lane_rates = {}; });
  EXPECT_EQ(stored(), 4U);
}

/// Evicts the most recently used block first, and knows no tenants.
class MruPolicy final : public EvictionPolicy {
 public:
  explicit MruPolicy(int* caught_up = nullptr) : caught_up_{caught_up} {}

  void on_evictable(const Leaf& leaf) override { last_uses_[leaf.block.node] = leaf.last_use; }
  void on_unevictable(NodeId node) override { last_uses_.erase(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    const auto latest = std::ranges::max_element(last_uses_, {}, &std::pair<const NodeId, std::uint64_t>::second);
    return latest == last_uses_.end() ? std::nullopt : std::optional{latest->first};
  }
  void catch_up() override {
    if (caught_up_ != nullptr) ++*caught_up_;
  }
  [[nodiscard]] std::size_t candidates() const override { return last_uses_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return 0; }
  void check_invariants() const override {}

 private:
  int* caught_up_;
  std::map<NodeId, std::uint64_t> last_uses_;
};

class PolicySettingTest : public SettingsTest {
 protected:
  /// Three blocks fit. They come in the order 1, 2, 3, and the first is used again before a fourth comes. Returns which one had
  /// to go for it.
  [[nodiscard]] unsigned evicted(EvictionPolicyName policy) {
    for (unsigned n = 1; n <= 3; ++n) run(next_++, keys_of({n}));
    run(next_++, keys_of({1}));
    change([policy](CacheSettings& s) { s.policy = policy; });
    EXPECT_EQ(cache->settings().policy, policy);
    cache->manager().check_invariants();
    run(next_++, keys_of({4}));
    for (unsigned n = 1; n <= 3; ++n) {
      if (cache->match(keys_of({n})).total() == 0) return n;
    }
    return 0;
  }

  int caught_up_ = 0;  ///< calls of MruPolicy::catch_up

 private:
  std::uint64_t next_ = 1;
};

TEST_F(PolicySettingTest, a_new_eviction_policy_chooses_from_the_change_on) {
  ManagerConfig config = sizes(3, 0);
  std::vector<std::uint32_t> planned_for;
  config.policy = [&planned_for](std::uint32_t capacity) {
    planned_for.push_back(capacity);
    return std::make_unique<MruPolicy>();
  };
  make(config);
  EXPECT_EQ(cache->settings().policy, EvictionPolicyName::own);
  EXPECT_EQ(evicted(EvictionPolicyName::lru), 2U);
  cache->clear({});
  EXPECT_EQ(evicted(EvictionPolicyName::adaptive), 2U);
  cache->clear({});
  EXPECT_EQ(evicted(EvictionPolicyName::own), 1U);
  EXPECT_EQ(planned_for, (std::vector<std::uint32_t>{3, 3}));
}

TEST_F(PolicySettingTest, policies_catch_up_in_poll_and_not_while_a_request_waits) {
  ManagerConfig config = sizes(3, 3);
  config.policy = [this](std::uint32_t) { return std::make_unique<MruPolicy>(&caught_up_); };
  make(config);
  caught_up_ = 0;
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  release(1);
  EXPECT_EQ(caught_up_, 0);
  (void)cache->poll();
  EXPECT_EQ(caught_up_, 2);  // one policy for each tier
  ASSERT_TRUE(acquire(2, keys_of({1, 2})).has_value());
  ASSERT_TRUE(commit(2, keys_of({1, 2})).has_value());
  release(2);
  (void)cache->poll();
  EXPECT_EQ(caught_up_, 4) << "this poll has nothing else to do";
}

TEST_F(PolicySettingTest, a_policy_is_planned_for_the_size_that_the_tier_has_now) {
  ManagerConfig config = sizes(8, 6, InclusionPolicy::exclusive);
  std::vector<std::uint32_t> planned_for;
  config.policy = [&planned_for](std::uint32_t capacity) {
    planned_for.push_back(capacity);
    return lru_policy(capacity);
  };
  make(config);
  EXPECT_EQ(planned_for, (std::vector<std::uint32_t>{8, 14}));
  ASSERT_TRUE(cache->resize(Tier::device, Blocks{5}).has_value());
  ASSERT_TRUE(cache->resize(Tier::host, Blocks{4}).has_value());
  settle();
  change([](CacheSettings& s) { s.policy = EvictionPolicyName::lru; });
  planned_for.clear();
  change([](CacheSettings& s) { s.policy = EvictionPolicyName::own; });
  EXPECT_EQ(planned_for, (std::vector<std::uint32_t>{5, 9}));
}

TEST_F(PolicySettingTest, is_refused_where_quotas_or_retentions_need_more_than_it_knows) {
  ManagerConfig config = sizes(4, 0);
  config.policy = [](std::uint32_t) { return std::make_unique<MruPolicy>(); };
  make(config);
  change([](CacheSettings& s) { s.policy = EvictionPolicyName::lru; });
  const auto to_own = [this] {
    CacheSettings settings = cache->settings();
    settings.policy = EvictionPolicyName::own;
    return cache->change(settings);
  };
  ASSERT_TRUE(cache->set_quota(TenantId{7}, {}).has_value());
  EXPECT_EQ(to_own().error(), Errc::in_use);
  ASSERT_TRUE(cache->remove_quota(TenantId{7}).has_value());
  run(1, keys_of({1}));
  const Result<RetentionId> retention = cache->retain(keys_of({1}), highest_priority);
  ASSERT_TRUE(retention.has_value());
  EXPECT_EQ(to_own().error(), Errc::in_use);
  EXPECT_EQ(cache->settings().policy, EvictionPolicyName::lru);
  ASSERT_TRUE(cache->end_retention(*retention).has_value());
  EXPECT_TRUE(to_own().has_value());
}

TEST_F(PolicySettingTest, its_own_policy_may_fail_to_be_made) {
  ManagerConfig config = sizes(4, 0);
  bool memory = true;
  bool made = true;
  config.policy = [&](std::uint32_t capacity) {
    if (!memory) throw std::bad_alloc{};
    return made ? lru_policy(capacity) : nullptr;
  };
  make(config);
  change([](CacheSettings& s) { s.policy = EvictionPolicyName::lru; });
  CacheSettings settings = cache->settings();
  settings.policy = EvictionPolicyName::own;
  settings.selective_hits = 9;
  memory = false;
  EXPECT_EQ(cache->change(settings).error(), Errc::no_room);
  memory = true;
  made = false;
  EXPECT_EQ(cache->change(settings).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->settings().policy, EvictionPolicyName::lru);
  EXPECT_EQ(cache->settings().selective_hits, 1U);
}

TEST_F(SettingsTest, a_wrong_value_changes_nothing) {
  ManagerConfig config = sizes(8, 8);
  config.device_watermarks = {0.1, 0.2};
  make(config);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(CacheSettings&)>>> wrong{
      {"low over high",
       [](CacheSettings& s) {
         s.device_watermarks = {0.5, 0.4};
       }},
      {"high is 1",
       [](CacheSettings& s) {
         s.host_watermarks = {0.5, 1};
       }},
      {"negative",
       [](CacheSettings& s) {
         s.host_watermarks = {-0.1, 0.5};
       }},
      {"no reserve", [nan](CacheSettings& s) { s.device_reserve_max = nan; }},
      {"all reserved", [](CacheSettings& s) { s.device_reserve_max = 1; }},
      {"not a number",
       [nan](CacheSettings& s) {
         s.device_watermarks = {nan, nan};
       }},
      {"no hits", [](CacheSettings& s) { s.selective_hits = 0; }},
      {"too many hits", [](CacheSettings& s) { s.selective_hits = 256; }},
      {"no storage", [](CacheSettings& s) { s.write_policy = WritePolicy::write_through; }},
      {"no policy of its own", [](CacheSettings& s) { s.policy = EvictionPolicyName::own; }},
      {"requests wait", [](CacheSettings& s) { s.lane_rates[0] = BytesPerSecond{1}; }},
  };
  for (const auto& [what, edit] : wrong) {
    SCOPED_TRACE(what);
    CacheSettings settings = cache->settings();
    settings.daily_write_bytes = KiB;
    edit(settings);
    const Result<void> changed = cache->change(settings);
    ASSERT_FALSE(changed.has_value());
    EXPECT_EQ(changed.error(), Errc::invalid_argument);
    EXPECT_EQ(cache->settings().daily_write_bytes, Bytes{});
    EXPECT_EQ(cache->settings().device_watermarks.low, 0.1);
  }
}

}  // namespace
}  // namespace terrace::test
