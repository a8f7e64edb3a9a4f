// Runs of blocks that leave the device together, and the runs of host copies that make room for them.

#include "base/random.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/policies.hpp"
#include "tests/runtime/fixture.hpp"

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

namespace terrace {
namespace {

using test::keys_of;
using test::sizes;
using test::with_storage;

/// An LRU policy that counts how often it is asked for a victim.
class CountedPolicy final : public EvictionPolicy {
 public:
  CountedPolicy(std::uint32_t capacity, std::uint64_t& asked) : policy_{lru_policy(capacity)}, asked_{asked} {}

  [[nodiscard]] bool keeps_pinned() const override { return policy_->keeps_pinned(); }
  void on_evictable(const Leaf& leaf) override { policy_->on_evictable(leaf); }
  void on_unevictable(NodeId node) override { policy_->on_unevictable(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    ++asked_;
    return policy_->victim();
  }
  [[nodiscard]] std::uint32_t alike_from(NodeId node, std::uint32_t depth) const override {
    return policy_->alike_from(node, depth);
  }
  [[nodiscard]] std::size_t candidates() const override { return policy_->candidates(); }
  [[nodiscard]] std::size_t bytes_held() const override { return policy_->bytes_held(); }
  void check_invariants() const override { policy_->check_invariants(); }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  std::uint64_t& asked_;
};

class SwapOutRuns : public test::CacheFixture {
 protected:
  static std::vector<BlockKey> long_prompt(std::uint32_t first_name, std::uint32_t blocks) {
    std::vector<std::uint32_t> names(blocks);
    std::iota(names.begin(), names.end(), first_name);
    return keys_of(names);
  }
};

TEST_F(SwapOutRuns, the_host_chooses_victims_for_a_run_and_not_for_each_of_its_blocks) {
  std::uint64_t asked = 0;
  ManagerConfig config = sizes(100, 150);
  config.policy = [&](std::uint32_t capacity) { return std::make_unique<CountedPolicy>(capacity, asked); };
  make(config);
  for (std::uint64_t id = 1; id <= 3; ++id) run(id, long_prompt(1000 * static_cast<std::uint32_t>(id), 100));
  EXPECT_EQ(totals().evicted_host, 50U);
  asked = 0;
  run(4, long_prompt(4000, 100));
  EXPECT_EQ(totals().evicted_host, 150U);
  EXPECT_LT(asked, 50U);
  // The begin of the second prompt is left: a prefix goes from its end.
  EXPECT_EQ(cache->match(long_prompt(1000, 100)).total(), 0U);
  EXPECT_EQ(cache->match(long_prompt(2000, 100)).found[Source::host], 50U);
  EXPECT_EQ(cache->match(long_prompt(3000, 100)).found[Source::host], 100U);
}

TEST_F(SwapOutRuns, blocks_that_leave_together_go_where_they_would_go_one_by_one) {
  // Conversations that share their first blocks and grow, in a host that is always full.
  const auto serve = [&](std::uint32_t evictions_in_flight_max, std::vector<std::uint64_t>& found) {
    ManagerConfig config = sizes(40, 60);
    config.evictions_in_flight_max = evictions_in_flight_max;
    cache.reset();
    transfers.reset();
    device.reset();
    make(config);
    Random random{7};
    std::vector<std::vector<std::uint32_t>> conversations(12);
    for (std::uint32_t i = 0; i < 300; ++i) {
      std::vector<std::uint32_t>& names = conversations[random.below(conversations.size())];
      if (names.size() > 20) names.clear();
      if (names.empty()) names.assign(random.between(0, 3), 7);
      names.resize(names.size() + random.between(1, 8), 10 + i);
      const std::vector<BlockKey> keys = keys_of(names);
      const MatchResult match = cache->match(keys);
      found.push_back(match.found[Source::device]);
      found.push_back(match.found[Source::host]);
      EXPECT_TRUE(acquire(i, keys).has_value());
      while (!ready(i)) settle();
      EXPECT_TRUE(commit(i, keys).has_value());
      release(i);
      settle();
    }
    return totals();
  };
  std::vector<std::uint64_t> found_one_by_one;
  const ManagerStats one_by_one = serve(1, found_one_by_one);
  std::vector<std::uint64_t> found_together;
  const ManagerStats together = serve(0, found_together);
  EXPECT_EQ(found_together, found_one_by_one);
  EXPECT_EQ(together.evicted_device, one_by_one.evicted_device);
  EXPECT_EQ(together.evicted_host, one_by_one.evicted_host);
  EXPECT_EQ(together.dropped_clean, one_by_one.dropped_clean);
  EXPECT_EQ(together.dropped_lost, one_by_one.dropped_lost);
  EXPECT_GT(together.evicted_host, 300U);
}

TEST_F(SwapOutRuns, host_copies_that_are_being_stored_become_staging_when_they_go_in_a_run) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_back);
  config.pools[0].staging_blocks = 8;
  make(config);
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  // The last block of the first prefix is stored, and before it those that it follows. Their host copies go meanwhile.
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13, 14})).has_value());
  EXPECT_EQ(totals().evicted_host, 4U);
  EXPECT_EQ(totals().dropped_lost, 0U);
  EXPECT_EQ(cache->manager().host_ledger().held, 4U);
  settle();
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::storage], 4U);
  EXPECT_EQ(cache->match(keys_of({5, 6, 7, 8})).found[Source::host], 4U);
}

TEST_F(SwapOutRuns, a_run_of_host_copies_that_nothing_else_has_is_stored_before_it_goes) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_back);
  config.pools[0].staging_blocks = 1;
  make(config);
  for (std::uint32_t id = 1; id <= 6; ++id) run(id, keys_of({10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3}));
  const ManagerStats& stats = totals();
  EXPECT_EQ(stats.dropped_lost, stats.store_no_room);
  EXPECT_GT(stats.dropped_clean, 0U);
}

}  // namespace
}  // namespace terrace
