#include "runtime/system/pool_plan.hpp"

#include "base/random.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/system/system_config.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>
#include <string>

namespace terrace {
namespace {

SizedGroup group(GroupKind kind, std::uint32_t block_tokens, std::uint32_t span_tokens, Bytes block_bytes) {
  SizedGroup sized;
  sized.group.kind = kind;
  sized.group.block_tokens = block_tokens;
  sized.group.span_tokens = span_tokens;
  sized.block_bytes = block_bytes;
  return sized;
}

/// Nine groups with eight block sizes that have few common divisors.
std::vector<SizedGroup> nine_groups() {
  return {group(GroupKind::full, 16, 0, KiB * 40),
          group(GroupKind::full, 32, 0, KiB * 17),
          group(GroupKind::sliding_window, 16, 128, KiB * 100),
          group(GroupKind::sliding_window, 32, 512, KiB * 72),
          group(GroupKind::chunked_local, 16, 256, KiB * 48),
          group(GroupKind::recurrent, 64, 0, KiB * 700),
          group(GroupKind::recurrent, 32, 0, KiB * 333),
          group(GroupKind::cross, 16, 0, KiB * 40),
          group(GroupKind::full, 64, 0, KiB * 9)};
}

ManagerConfig config_of(const GroupPlan& plan) {
  CacheSystemOptions options;
  plan.apply_to(options);
  return manager_config(options);
}

std::string why_no_pools(std::span<const SizedGroup> groups, const TypicalSequence& typical, Bytes device) {
  try {
    (void)plan_pools(groups, typical, device, Bytes{});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(PoolPlan, leaves_less_than_the_smallest_block_over) {
  for (const Bytes device : {MiB * 300, MiB * 999, GiB * 7}) {
    const GroupPlan plan = plan_pools(nine_groups(), {2048, 512, 64}, device, device, 2);
    EXPECT_LE(plan.device_used, device);
    EXPECT_LT(count(device) - count(plan.device_used), count(KiB * 9));
    EXPECT_LE(plan.host_used, device);
    EXPECT_LT(count(device) - count(plan.host_used), count(KiB * 9));
  }
}

TEST(PoolPlan, says_how_much_would_do_where_there_is_too_little) {
  const std::vector<SizedGroup> groups{group(GroupKind::full, 16, 0, KiB * 64)};
  EXPECT_EQ(plan_pools(groups, {160, 0, 0}, KiB * 640, Bytes{}).sequences, 1U);
  EXPECT_NE(why_no_pools(groups, {161, 0, 0}, KiB * 640).find("704KiB"), std::string::npos);
  EXPECT_NE(why_no_pools({}, {16, 0, 0}, KiB).find("a group"), std::string::npos);
  const std::vector<SizedGroup> cross{group(GroupKind::cross, 16, 0, KiB)};
  EXPECT_NE(why_no_pools(cross, {16, 0, 0}, MiB).find("encoder tokens"), std::string::npos);
}

/// Allocates as many sequences as fit, of all lengths around the typical one.
TEST(PoolPlan, nine_mixed_groups_waste_under_a_twentieth_of_their_bytes_when_full) {
  const TypicalSequence typical{1024, 256, 64};
  const Bytes device = MiB * 512;
  const GroupPlan plan = plan_pools(nine_groups(), typical, device, Bytes{});
  CacheManager manager{config_of(plan)};
  const std::uint32_t unit = manager.unit_tokens();
  Random random{9};
  std::deque<RequestId> running;
  std::uint64_t next = 0;
  std::uint64_t refused = 0;
  for (int step = 0; step < 3000; ++step) {
    const auto units = static_cast<std::uint32_t>(random.between(typical.tokens / 2, typical.tokens * 3 / 2) / unit);
    const std::vector<std::uint32_t> names(units, static_cast<std::uint32_t>(next % 400));
    const std::vector<BlockKey> keys = test::keys_of(names);
    AcquireRequest request;
    request.id = RequestId{++next};
    request.keys = keys;
    request.units = HashUnits{units};
    const std::uint32_t chunk = typical.chunk_tokens / unit;
    request.new_units_max = HashUnits{chunk};
    request.encoder_tokens = typical.encoder_tokens;
    if (!manager.acquire(request)) {
      ++refused;
      ASSERT_FALSE(running.empty());
      ASSERT_TRUE(manager.requests().release(running.front(), Fence{}).has_value());
      manager.settle();
      running.pop_front();
      continue;
    }
    running.push_back(request.id);
    const auto hits = static_cast<std::uint32_t>(manager.requests().hit_sources(request.id)->size());
    bool room = true;
    for (std::uint32_t done = std::min(units, hits + chunk); room; done += chunk) {
      done = std::min(done, units);
      ASSERT_TRUE(manager.requests().commit(request.id, std::span{keys}.first(done), Fence{}).has_value());
      manager.settle();
      ASSERT_TRUE(manager.requests().advance(request.id, std::uint64_t{done} * unit, Fence{}).has_value());
      manager.settle();
      if (done == units) break;
      room = manager.requests().extend(request.id, std::min(chunk, units - done)).has_value();
      manager.settle();
    }
    if (step % 100 == 0) manager.check_invariants();
  }
  EXPECT_GT(refused, 100U);  // the pools were full
  std::uint64_t used = 0;
  for (std::size_t pool = 0; pool < plan.pools.size(); ++pool) {
    const Ledger ledger = manager.device_ledger(PoolId{static_cast<std::uint16_t>(pool)});
    used += (ledger.held + ledger.ready) * count(plan.pools[pool].block_bytes);
  }
  EXPECT_GE(used, count(device) * 95 / 100) << "of " << count(device);
  for (const RequestId id : running) ASSERT_TRUE(manager.requests().release(id, Fence{}).has_value());
}

}  // namespace
}  // namespace terrace
