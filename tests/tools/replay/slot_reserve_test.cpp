#include "tools/replay/engine/slot_reserve.hpp"

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace terrace::tools {
namespace {

using test::keys_of;

constexpr std::uint32_t reserved = 4;

/// A device and a host of two blocks each; no block is in both tiers.
class SlotReserveTest : public testing::Test {
 protected:
  static CacheSystemOptions options() {
    CacheSystemOptions options;
    options.ranks[0].device = InstantGpu{};
    options.pools = {{.block_bytes = Bytes{64}, .device_blocks = 2, .device_blocks_max = Blocks{2} + Blocks{reserved}, .host_blocks = 2}};
    options.inclusion = InclusionPolicy::exclusive;
    options.policy = lru_policy;
    return options;
  }

  /// Acquires with slots of the reserve, which then frees slots again.
  Lease acquire(std::uint64_t id, const std::vector<BlockKey>& keys) {
    AcquireRequest wanted = test::request_for(id, keys);
    reserve_.give();
    Lease lease = cache_.acquire(wanted).value();
    EXPECT_TRUE(cache_.wait(lease).has_value());
    EXPECT_TRUE(reserve_.take());
    return lease;
  }
  void serve(std::uint64_t id, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(id, keys);
    ASSERT_TRUE(cache_.commit(lease, keys, Fence{}).has_value());
    cache_.release(std::move(lease), no_longer_used);
    cache_.drain();
  }
  [[nodiscard]] std::uint64_t cached(Tier tier) const { return cache_.manager().residency().tree().resident(tier); }

  CacheSystem stack_{options()};
  Cache& cache_ = stack_.cache();
  SlotReserve reserve_{cache_, reserved};
};

TEST_F(SlotReserveTest, leaves_the_cache_what_it_was_configured_with) {
  EXPECT_EQ(cache_.manager().device_ledger().free, 2U);
  serve(1, keys_of({1, 2}));
  serve(2, keys_of({3, 4}));
  EXPECT_EQ(cached(Tier::device), 2U);
  EXPECT_EQ(cached(Tier::host), 2U);
  EXPECT_EQ(cache_.manager().device_ledger().free, 0U);
  EXPECT_EQ(reserve_.requests(), 3U);
}

/// Without the reserve, each evicted block would take the place of a host block before the hits have left their slots.
TEST_F(SlotReserveTest, has_hits_leave_the_host_before_others_go_there) {
  serve(1, keys_of({1, 2}));
  serve(2, keys_of({3, 4}));
  for (std::uint64_t id = 3; id < 9; ++id) {
    const std::vector<BlockKey> keys = id % 2 == 0 ? keys_of({3, 4}) : keys_of({1, 2});
    EXPECT_EQ(cache_.match(keys).found[Source::host], 2U);
    serve(id, keys);
    EXPECT_EQ(cache_.match(keys).found[Source::device], 2U);
    EXPECT_EQ(cached(Tier::host), 2U);
  }
  EXPECT_EQ(cache_.stats().evicted_host, 0U);
}

TEST_F(SlotReserveTest, takes_its_slots_when_an_operator_resumes_the_cache) {
  serve(1, keys_of({1, 2}));
  reserve_.give();
  cache_.clear({.wait = true});
  EXPECT_FALSE(reserve_.take());
  reserve_.give();
  cache_.drain();
  ASSERT_TRUE(cache_.resume().has_value());
  EXPECT_TRUE(reserve_.take());
  EXPECT_EQ(cache_.manager().device_ledger().free, 2U);
  EXPECT_EQ(reserve_.requests(), 3U) << "those that were refused are not counted";
}

TEST_F(SlotReserveTest, holds_on_to_what_the_request_hit) {
  serve(1, keys_of({1, 2}));
  Lease held = acquire(2, keys_of({1, 2}));
  EXPECT_EQ(cache_.match(keys_of({1, 2})).found[Source::device], 2U);
  cache_.release(std::move(held), no_longer_used);
}

}  // namespace
}  // namespace terrace::tools
