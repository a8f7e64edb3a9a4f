// An engine tells when a prefix is used next: the eviction policies get it as a number of uses, by the pace of requests.

#include "runtime/cache/control/use_pace.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/watching_lru.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

TEST(UsePaceTest, tells_how_many_uses_come_in_a_time) {
  UsePace pace;
  TimePoint now{1h};
  pace.note(TimePoint{}, 1);
  EXPECT_EQ(pace.expected(0, no_use)->at, ExpectedUse::never);
  EXPECT_FALSE(pace.expected(0, 1s)) << "no pace is known yet";
  EXPECT_FALSE(pace.time_of(10));
  for (std::uint64_t use = 1; use <= 100; ++use) pace.note(now += 100ms, use);
  EXPECT_EQ(pace.expected(100, 2s)->at, 121U);
  EXPECT_EQ(pace.expected(100, 2s)->until, 152U);
  EXPECT_EQ(pace.expected(100, 0s)->at, 101U);
  EXPECT_EQ(pace.expected(100, -5s)->at, 101U);
  EXPECT_GT(pace.expected(100, std::chrono::years{200})->at, 1'000'000'000U);
  EXPECT_EQ(pace.time_of(20), 2s);
  for (std::uint64_t use = 101; use <= 400; ++use) pace.note(now += 10ms, use);
  EXPECT_NEAR(static_cast<double>(pace.expected(400, 2s)->at), 601, 15) << "it follows a new pace";
  EXPECT_GT(*pace.time_of(1e300), std::chrono::years{1});
}

/// LRU that notes what is expected. The list must outlive it.
class NotingPolicy final : public WatchingLru {
 public:
  struct Noted {
    std::size_t blocks = 0;
    std::uint64_t at = 0;
    std::uint64_t until = ExpectedUse::never;
    friend bool operator==(const Noted&, const Noted&) = default;
  };

  explicit NotingPolicy(std::vector<Noted>& noted) : noted_{noted} {}

  void on_expected(const BlockRun& blocks, const ExpectedUse& use) override {
    noted_.push_back({blocks.keys.size(), use.at, use.until});
  }

 private:
  std::vector<Noted>& noted_;
};

class EngineExpectedUses : public CacheFixture {
 protected:
  using Noted = NotingPolicy::Noted;

  void SetUp() override {
    cache_waker.emplace();
    ManagerConfig config = sizes(8);
    config.policy = [this](std::uint32_t) { return std::make_unique<NotingPolicy>(noted); };
    make(config);
    for (std::uint64_t id = 1; id <= 40; ++id) {
      clock.advance(1s);
      run(id, keys_of({1}));
    }
  }

  std::vector<Noted> noted;
};

constexpr std::uint64_t never_again = ExpectedUse::never;

using GroupExpectedUses = CacheFixture;

TEST_F(GroupExpectedUses, a_lease_tells_the_blocks_of_every_group) {
  std::vector<NotingPolicy::Noted> noted;
  ManagerConfig config;
  config.policy = [&](std::uint32_t) { return std::make_unique<NotingPolicy>(noted); };
  config.groups.resize(2);
  config.groups[1].block_tokens = 2;
  config.groups[1].pool = PoolId{1};
  config.pools = {{.device_blocks = 8}, {.device_blocks = 8}};
  make(config);
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3, 4})).has_value());
  leases[1].expect_use(no_use);
  release(1);
  EXPECT_EQ(noted, (std::vector<NotingPolicy::Noted>{{4, never_again}, {2, never_again}}));
}

TEST_F(EngineExpectedUses, a_lease_tells_it_at_its_end) {
  ASSERT_TRUE(acquire(50, keys_of({5, 6})).has_value());
  ASSERT_TRUE(commit(50, keys_of({5, 6})).has_value());
  leases[50].expect_use(3s);
  leases[50].expect_use(10s);  // the last one counts
  EXPECT_TRUE(noted.empty());
  release(50);
  EXPECT_EQ(noted, (std::vector<Noted>{{2, 41 + 11, 41 + 27}}));
  ASSERT_TRUE(acquire(51, keys_of({5, 6, 7})).has_value());
  ASSERT_TRUE(commit(51, keys_of({5, 6, 7})).has_value());
  leases[51].expect_use(no_use);
  release(51);
  EXPECT_EQ(noted.back().at, never_again);
  EXPECT_EQ(cache->manager().stats().uses_expected, 1U);
  EXPECT_EQ(cache->manager().stats().sessions_ended, 1U);
  EXPECT_EQ(cache->manager().stats().expected_ignored, 0U);
  Lease none;
  none.expect_use(1s);
}

TEST_F(EngineExpectedUses, a_lease_tells_it_however_it_ends) {
  ASSERT_TRUE(acquire(50, keys_of({5})).has_value());
  ASSERT_TRUE(commit(50, keys_of({5})).has_value());
  leases[50].expect_use(no_use);
  (void)table(50);
  leases.erase(50);  // compute may know its slots: it is in quarantine until all work is done
  settle();
  EXPECT_EQ(noted, (std::vector<Noted>{{1, never_again}}));
}

TEST_F(EngineExpectedUses, a_prefix_without_a_lease_can_be_told_of) {
  run(50, keys_of({5, 6}));
  ASSERT_TRUE(cache->expect_use(keys_of({5, 6}), no_use).has_value());
  EXPECT_EQ(noted, (std::vector<Noted>{{2, never_again}}));
  EXPECT_EQ(cache->expect_use(keys_of({77}), no_use).error(), Errc::not_found);
  run(51, keys_of({5, 7}));
  noted.clear();
  ASSERT_TRUE(cache->expect_use(keys_of({5}), no_use).has_value());
  EXPECT_TRUE(noted.empty()) << "both other prefixes need block 5";
  EXPECT_EQ(cache->manager().stats().expected_ignored, 1U);
  cache->clear({.wait = true});
  EXPECT_EQ(cache->expect_use(keys_of({5, 6}), 1s).error(), Errc::paused);
}

}  // namespace
}  // namespace terrace::test
