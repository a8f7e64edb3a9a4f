// Callers tell when a prefix is used next: these tests say for which blocks that counts, and how the adaptive policy decides.

#include "radix/eviction/adaptive_policy.hpp"
#include "tests/radix/cheap_keys.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace terrace {
namespace {

using Ids = std::vector<std::uint64_t>;

/// A tier of 12 blocks, and requests of 3.
class ExpectedUseTest : public testing::Test {
 protected:
  static constexpr std::uint32_t capacity = 12;

  void serve(const Ids& request) {
    cache_.serve(keys_.of(request));
    ++stamp_;
  }
  std::uint32_t expect(const Ids& prefix, const ExpectedUse& use) { return cache_.expect(keys_.of(prefix), use); }
  /// After so many requests from now on.
  [[nodiscard]] ExpectedUse after(std::uint64_t uses) const { return {stamp_ + uses, stamp_ + 2 * uses}; }
  std::uint32_t cached(const Ids& prefix) { return cache_.tree().find(keys_.of(prefix)).length; }
  [[nodiscard]] ExpectedUses counts() const { return policy_->view().expected; }

  const Ids a_{1, 2, 3}, b_{4, 5, 6}, c_{7, 8, 9}, d_{10, 11, 12};

  void serve_all() {
    for (const Ids& each : {a_, b_, c_, d_}) serve(each);
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_ = adaptive_policy(capacity);
  tools::CacheSimulator cache_{*policy_, capacity};
  test::CheapKeys keys_;
  std::uint64_t stamp_ = 0;
};

TEST_F(ExpectedUseTest, the_blocks_of_a_session_that_has_ended_go_first) {
  serve_all();
  EXPECT_EQ(expect(c_, {}), 3U);
  serve({20, 21, 22});
  EXPECT_EQ(cached(c_), 0U);
  EXPECT_EQ(cached(a_) + cached(b_) + cached(d_), 9U);
  serve({30, 31, 32});
  EXPECT_EQ(cached(a_), 0U) << "as by LRU again";
}

TEST_F(ExpectedUseTest, what_is_used_last_goes_first) {
  serve_all();
  EXPECT_EQ(expect(a_, after(10)), 3U);
  EXPECT_EQ(expect(b_, after(1000)), 3U);
  EXPECT_EQ(expect(c_, after(100)), 3U);
  serve({20, 21, 22});
  EXPECT_EQ(cached(d_), 0U) << "nothing is expected of it";
  EXPECT_EQ(expect({20, 21, 22}, after(5)), 3U);
  for (const Ids* each : {&b_, &c_, &a_}) {
    SCOPED_TRACE(each->front());
    EXPECT_EQ(cached(*each), 3U);
    serve({each->front() + 100, each->front() + 101, each->front() + 102});
    EXPECT_EQ(cached(*each), 0U);
    EXPECT_EQ(expect({each->front() + 100, each->front() + 101, each->front() + 102}, after(5)), 3U);
  }
}

TEST_F(ExpectedUseTest, what_was_not_used_in_time_is_like_others_again) {
  serve_all();
  expect(a_, after(1));
  expect(b_, after(1000));
  expect(d_, after(1));
  serve(c_);
  serve(c_);
  EXPECT_EQ(cached(a_) + cached(d_), 6U);
  serve(c_);
  serve({20, 21, 22});
  EXPECT_EQ(cached(a_), 0U) << "the least recently used";
  serve({23, 24, 25});
  EXPECT_EQ(cached(d_), 0U);
  EXPECT_EQ(cached(b_), 3U) << "its time has not come";
  serve({26, 27, 28});
  EXPECT_EQ(cached(c_), 0U);
  EXPECT_EQ(counts().late, 2U);
  EXPECT_EQ(counts().waiting, 1U);
}

TEST_F(ExpectedUseTest, a_use_ends_what_was_expected) {
  serve_all();
  expect(b_, {});
  expect(c_, after(2));
  expect(d_, after(1));
  EXPECT_EQ(counts().waiting, 3U);
  serve(b_);
  serve(c_);
  for (int i = 0; i < 4; ++i) serve(c_);
  serve(d_);
  EXPECT_EQ(counts().waiting, 0U);
  EXPECT_EQ(counts().not_expected, 1U);
  EXPECT_EQ(counts().met, 1U);
  EXPECT_EQ(counts().late, 1U);
  serve({20, 21, 22});
  EXPECT_EQ(cached(a_), 0U) << "as by LRU";
  EXPECT_EQ(cached(b_), 3U);
}

TEST_F(ExpectedUseTest, only_the_blocks_after_the_last_branch_count) {
  serve({1, 2, 3});
  serve({1, 2, 4});
  EXPECT_EQ(expect({1, 2}, {}), 0U) << "both go on";
  EXPECT_EQ(expect({1, 2, 3}, {}), 1U);
  serve({20, 21, 22, 23, 24, 25, 26, 27, 28});
  EXPECT_EQ(cached({1, 2, 3}), 2U);
  EXPECT_EQ(cached({1, 2, 4}), 3U);
  EXPECT_EQ(expect({50}, {}), 0U) << "not cached";
}

TEST_F(ExpectedUseTest, a_prefix_that_others_have_continued_is_theirs) {
  serve(a_);
  expect(a_, {});
  serve({1, 2, 3, 4, 5});
  EXPECT_EQ(counts().not_expected, 1U);
  EXPECT_EQ(expect(a_, {}), 0U);
  EXPECT_EQ(expect({1, 2, 3, 4, 5}, {}), 5U) << "blocks 1 to 3 belong to nobody else";
}

TEST_F(ExpectedUseTest, a_new_one_takes_the_place_of_an_old_one) {
  serve_all();
  expect(a_, after(1000));
  expect(b_, after(10));
  expect(a_, after(5));
  serve({20, 21, 22});
  serve({23, 24, 25});
  serve({26, 27, 28});
  EXPECT_EQ(cached(a_), 3U);
  EXPECT_EQ(counts().waiting, 2U);
}

/// A pinned candidate stays one (keeps_pinned), so no on_evictable() follows the second call.
TEST(ExpectedUsePolicyTest, told_again_of_a_pinned_prefix_the_policy_still_knows_its_leaf) {
  test::CheapKeys keys;
  const auto policy = adaptive_policy(12);
  const auto use = [&](std::uint32_t node, std::uint64_t stamp) {
    const std::vector<std::uint64_t> name{node};
    policy->on_used({NodeId{node}, 0, keys.of(name)}, stamp, 0);
    policy->on_evictable({.block = {NodeId{node}, 0}, .key = keys.of(name).front(), .last_use = stamp});
  };
  const std::vector<std::uint64_t> told{5};
  use(5, 1);
  use(6, 2);
  policy->on_expected({NodeId{5}, 0, keys.of(told)}, {3, 100});
  policy->on_evictable({.block = {NodeId{5}, 0}, .key = keys.of(told).front(), .last_use = 1});
  policy->on_expected({NodeId{5}, 0, keys.of(told)}, {3, 4});
  EXPECT_EQ(policy->victim(), NodeId{6});
  use(7, 5);
  EXPECT_EQ(policy->victim(), NodeId{5}) << "it is late, and was used less recently";
  // The same after a use in between: two requests have the prefix, and the one that ends first tells.
  policy->on_expected({NodeId{5}, 0, keys.of(told)}, {7, 8});
  policy->on_evictable({.block = {NodeId{5}, 0}, .key = keys.of(told).front(), .last_use = 1});
  policy->on_used({NodeId{5}, 0, keys.of(told)}, 6, 0);
  policy->on_expected({NodeId{5}, 0, keys.of(told)}, {8, 9});
  use(8, 20);
  EXPECT_EQ(policy->victim(), NodeId{6});
  policy->on_unevictable(NodeId{6});
  EXPECT_EQ(policy->victim(), NodeId{7});
  policy->check_invariants();
}

}  // namespace
}  // namespace terrace
