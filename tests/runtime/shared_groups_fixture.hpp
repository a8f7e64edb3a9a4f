#pragma once

#include "radix/groups/groups.hpp"
#include "storage/shared/memory_shared_store.hpp"
#include "tests/runtime/shared_fixture.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace terrace::test {

/// A model of these groups, each of which has a pool of its own.
[[nodiscard]] inline ManagerConfig model_of(std::vector<GroupConfig> groups, std::uint32_t device_blocks,
                                            std::uint32_t host_blocks) {
  ManagerConfig config;
  config.pools.clear();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].pool = PoolId{static_cast<std::uint16_t>(g)};
    PoolSizes pool;
    pool.device_blocks = device_blocks;
    pool.host_blocks = host_blocks;
    pool.staging_blocks = 8;
    pool.null_block = groups[g].kind != GroupKind::full || groups[g].optional;
    config.pools.push_back(pool);
  }
  config.groups = std::move(groups);
  return config;
}

inline constexpr GroupConfig full_of_two{.block_tokens = 2};
inline constexpr GroupConfig full_of_one{.block_tokens = 1};
inline constexpr GroupConfig window_of_three{.kind = GroupKind::sliding_window, .block_tokens = 1, .span_tokens = 3};
inline constexpr GroupConfig chunk_of_four{.kind = GroupKind::chunked_local, .block_tokens = 2, .span_tokens = 4};
inline constexpr GroupConfig state_of_two{.kind = GroupKind::recurrent, .block_tokens = 2};

/// A cache with several groups whose blocks have the content that belongs to their keys, over a shared store. A hash unit has one
/// token.
class SharedGroupsFixture : public CacheFixture {
 protected:
  void make_groups(ManagerConfig config, SharedStore& others, WritePolicy writes = WritePolicy::none) {
    shared = &others;
    model = config.groups;
    config.loads = LoadPolicy::always;
    for (const GroupConfig& group : model) rules.emplace_back(group, hash_unit(model));
    make(with_shared(std::move(config), writes));
    poll();  // notices that the store can be used
  }
  [[nodiscard]] BlockKey key_of(std::size_t group, const std::vector<BlockKey>& keys, std::uint32_t block) const {
    return key_in_group(keys[std::size_t{block + 1} * rules[group].units_per_block() - 1],
                        GroupId{static_cast<std::uint16_t>(group)});
  }
  /// Visits the blocks [from, to) of the request in every group, by units, that are no null blocks.
  template <class Visit>
  void for_each_block(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t from, std::uint32_t to, Visit visit) {
    for (std::size_t g = 0; g < model.size(); ++g) {
      const GroupId group{static_cast<std::uint16_t>(g)};
      const std::vector<SlotId> slots = table(id, group);
      for (std::uint32_t block = rules[g].full_blocks(from); block < rules[g].full_blocks(to); ++block) {
        const bool is_null = slots[block] == SlotId{0} && cache->manager().config().pool(model[g].pool).null_block;
        if (!is_null) visit(model[g].pool, slots[block], key_of(g, keys, block));
      }
    }
  }
  [[nodiscard]] std::uint32_t hit_units(std::uint64_t id) const {
    return static_cast<std::uint32_t>(cache->hit_sources(leases.at(id)).value().size());
  }
  /// For a ready request: compares its hits, computes the rest, commits and ends it.
  void use(std::uint64_t id, const std::vector<BlockKey>& keys) {
    const auto units = static_cast<std::uint32_t>(keys.size());
    const std::uint32_t hit = hit_units(id);
    for_each_block(id, keys, 0, hit, [&](PoolId pool, SlotId slot, const BlockKey& key) {
      device->launch([this, pool, slot, key](BlockAccess& access) {
        std::vector<std::byte> scratch(block_bytes_of(pool));
        ++compared;
        mismatches += !holds(access.read(pool, slot, scratch), key.prefix64());
      });
    });
    Fence written;
    for_each_block(id, keys, hit, units, [&](PoolId pool, SlotId slot, const BlockKey& key) {
      written = device->launch([pool, slot, key](BlockAccess& access) {
        std::vector<std::byte> scratch(block_bytes_of(pool));
        fill(access.write_target(pool, slot, scratch), key.prefix64());
        access.written(pool, slot, scratch);
      });
    });
    ASSERT_TRUE(cache->commit(leases.at(id), keys, written).has_value());
    cache->release(std::move(leases.at(id)), written);
    leases.erase(id);
  }
  /// Serves a whole request. Returns what it found where.
  RequestStats serve(std::uint64_t id, const std::vector<BlockKey>& keys) {
    EXPECT_TRUE(acquire(id, keys).has_value());
    EXPECT_TRUE(ready_when_settled(id));
    const RequestStats found = stats(id);
    use(id, keys);
    settle();
    return found;
  }
  void TearDown() override {
    if (cache) settle();
    EXPECT_EQ(mismatches, 0U) << "of " << compared << " blocks that were hit";
    CacheFixture::TearDown();
  }

  std::vector<GroupConfig> model;
  std::vector<GroupRule> rules;
  std::uint64_t compared = 0;
  std::uint64_t mismatches = 0;
};

/// One of several caches of a test, over one engine.
class GroupsInstance final : public SharedGroupsFixture {
 public:
  GroupsInstance(std::shared_ptr<SharedMemoryEngine> engine, ManagerConfig config, WritePolicy writes)
      : store_{std::move(engine), clock} {
    make_groups(std::move(config), store_, writes);
    settle();
  }
  ~GroupsInstance() override { TearDown(); }
  void TestBody() override {}

  using SharedGroupsFixture::acquire;
  using SharedGroupsFixture::cache;
  using SharedGroupsFixture::clock;
  using SharedGroupsFixture::compared;
  using SharedGroupsFixture::leases;
  using SharedGroupsFixture::mismatches;
  using SharedGroupsFixture::serve;
  using SharedGroupsFixture::settle;

 private:
  MemorySharedStore store_;
};

/// A cache over a shared store that the test drives.
class SharedGroupsByHand : public SharedGroupsFixture {
 protected:
  /// The store has the blocks [first, end) of this group.
  void put(std::size_t group, const std::vector<BlockKey>& keys, std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t block = first; block < end; ++block) {
      store_of_others.put({key_of(group, keys, block)}, block_bytes_of(model[group].pool));
    }
  }
  void let_others_answer() {
    store_of_others.answers = true;
    settle();
  }
  [[nodiscard]] SharedTotals totals() const { return cache->shared_totals(); }

  HandSharedStore store_of_others;
};

}  // namespace terrace::test
