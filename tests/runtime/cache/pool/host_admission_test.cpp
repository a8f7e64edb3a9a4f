// Which evicted blocks a full host tier takes (CacheSystemOptions::host_admission).

#include "tests/refusal.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/picky_policy.hpp"

#include <set>
#include <stdexcept>

namespace terrace {
namespace {

using test::keys_of;
using test::sizes;
using test::with_storage;

class HostAdmission : public test::CacheFixture {
 protected:
  /// The policies of this cache refuse these blocks.
  ManagerConfig picky(ManagerConfig config, const std::vector<BlockKey>& refused) {
    config.host_admission = true;
    config.policy = test::PickyPolicy::factory(
        [all = std::set<BlockKey>(refused.begin(), refused.end())](const BlockKey& key) { return !all.contains(key); });
    return config;
  }
  void run_and_settle(std::uint64_t id, const std::vector<BlockKey>& keys) {
    run(id, keys);
    settle();
  }
  std::uint64_t in_host(const std::vector<BlockKey>& keys) const { return cache->match(keys).found[Source::host]; }
};

TEST_F(HostAdmission, only_a_full_host_refuses_blocks) {
  const auto first = keys_of({1, 2});
  const auto refused = keys_of({3, 4});
  std::vector<BlockKey> never = first;
  never.insert(never.end(), refused.begin(), refused.end());
  make(picky(sizes(2, 2), never));
  run_and_settle(1, first);
  run_and_settle(2, refused);
  EXPECT_EQ(in_host(first), 2U) << "there were free slots";
  run_and_settle(3, keys_of({5, 6}));
  EXPECT_EQ(in_host(first), 2U);
  EXPECT_EQ(cache->match(refused).found.sum(), 0U);
  EXPECT_EQ(totals().not_admitted, 2U);
  EXPECT_EQ(totals().dropped_lost, 2U);
  run_and_settle(4, keys_of({7, 8}));
  EXPECT_EQ(in_host(keys_of({5, 6})), 2U) << "these are admitted";
  EXPECT_EQ(in_host(first), 0U);
  EXPECT_EQ(totals().not_admitted, 2U);
}

TEST_F(HostAdmission, is_off_unless_it_is_asked_for) {
  ManagerConfig config = picky(sizes(2, 2), keys_of({3, 4}));
  config.host_admission = ManagerConfig{}.host_admission;
  make(config);
  for (const auto& keys : {keys_of({1, 2}), keys_of({3, 4}), keys_of({5, 6})}) run_and_settle(1, keys);
  EXPECT_EQ(in_host(keys_of({3, 4})), 2U);
  EXPECT_EQ(totals().not_admitted, 0U);
}

/// A host copy needs the block before it. So that block is copied, whatever the policy says.
TEST_F(HostAdmission, takes_a_block_on_which_host_copies_depend) {
  const auto chain = keys_of({1, 2, 3});
  make(picky(sizes(3, 2), {chain[0]}));
  run_and_settle(1, chain);
  run_and_settle(2, keys_of({9}));  // evicts 3
  run_and_settle(3, keys_of({8}));  // evicts 2
  ASSERT_EQ(resident(Tier::host), 2U);
  run_and_settle(4, keys_of({7}));  // evicts 1
  EXPECT_EQ(in_host(chain), 2U);
  EXPECT_EQ(totals().not_admitted, 0U);
}

TEST_F(HostAdmission, does_not_keep_a_block_from_storage) {
  make(picky(with_storage(sizes(2, 2), WritePolicy::write_back), keys_of({3, 4})));
  for (const auto& keys : {keys_of({1, 2}), keys_of({3, 4}), keys_of({5, 6})}) run_and_settle(1, keys);
  EXPECT_EQ(totals().not_admitted, 2U);
  EXPECT_EQ(cache->match(keys_of({3, 4})).found[Source::storage], 2U);
  EXPECT_EQ(totals().dropped_lost, 0U);
}

TEST_F(HostAdmission, needs_a_host_that_the_cache_fills_by_eviction) {
  ManagerConfig config = sizes(2, 2, InclusionPolicy::inclusive);
  config.host_admission = true;
  EXPECT_EQ(test::refusal_of<std::invalid_argument>([&] { validate(config); }),
            "host_admission leaves blocks out of the host, but inclusion policy inclusive copies all of them");
  config = sizes(0, 2);
  config.pools[0].engine_blocks = 4;
  config.host_admission = true;
  EXPECT_EQ(test::refusal_of<std::invalid_argument>([&] { validate(config); }),
            "host_admission is about blocks that the cache evicts from the device, but the device slots belong to the engine");
}

}  // namespace
}  // namespace terrace
