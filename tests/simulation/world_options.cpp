// The random options of worlds.
#include "tests/simulation/world.hpp"

#include "base/random.hpp"
#include "tests/runtime/picky_policy.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace terrace::test {
namespace {

/// Up to four groups of any kind, in up to three pools, and at least so many. Most have a group with full attention, as models
/// do.
void choose_groups(Random& random, ManagerConfig& manager, std::uint64_t least = 1) {
  const std::uint64_t groups = random.between(least, 4);
  const std::uint64_t pools = random.between(least, std::min<std::uint64_t>(groups, 3));
  for (std::uint64_t g = 0; g < groups; ++g) {
    GroupConfig group;
    group.kind = g == 0 && random.chance(0.8) ? GroupKind::full : static_cast<GroupKind>(random.below(5));
    group.block_tokens = static_cast<std::uint32_t>(random.between(1, 2));
    if (group.kind == GroupKind::sliding_window) group.span_tokens = static_cast<std::uint32_t>(random.between(1, 5));
    if (group.kind == GroupKind::chunked_local) {
      group.span_tokens = group.block_tokens * static_cast<std::uint32_t>(random.between(1, 3));
    }
    group.optional = g > 0 && group.kind != GroupKind::cross && random.chance(0.2);
    group.pool = PoolId{static_cast<std::uint16_t>(g < pools ? g : random.below(pools))};
    manager.groups.push_back(group);
  }
  // At least one group is cached, and decides what is a hit.
  if (manager.groups.front().kind == GroupKind::cross) manager.groups.front().kind = GroupKind::full;
  if (random.chance(0.3)) manager.hash_unit_tokens = 1;
  manager.pools[0].null_block = true;
  for (std::uint64_t pool = 1; pool < pools; ++pool) {
    PoolSizes sizes;
    sizes.null_block = true;
    sizes.device_blocks = static_cast<std::uint32_t>(random.between(6, 20));
    sizes.first_slot = static_cast<std::uint32_t>(random.below(3));
    sizes.host_blocks = random.chance(0.2) ? 0 : static_cast<std::uint32_t>(random.between(1, 24));
    if (manager.storage) sizes.staging_blocks = static_cast<std::uint32_t>(random.between(1, 4));
    manager.pools.push_back(sizes);
  }
}

}  // namespace

WorldOptions random_options(std::uint64_t seed) {
  Random random{seed * 7919 + 1};
  WorldOptions options;
  ManagerConfig& manager = options.manager;
  manager.pools[0].device_blocks = static_cast<std::uint32_t>(random.between(6, 20));
  manager.pools[0].null_block = random.chance(0.2);
  manager.pools[0].first_slot = random.chance(0.2) ? static_cast<std::uint32_t>(random.between(1, 5)) : 0;
  manager.pools[0].host_blocks = random.chance(0.2) ? 0 : static_cast<std::uint32_t>(random.between(1, 24));
  manager.inclusion = static_cast<InclusionPolicy>(random.below(4));
  options.store = static_cast<WorldOptions::Store>(random.below(3));
  options.stored_blocks = static_cast<std::uint32_t>(random.between(4, 40));
  manager.storage = options.store != WorldOptions::Store::none;
  if (manager.storage) {
    manager.pools[0].staging_blocks = static_cast<std::uint32_t>(random.between(1, 4));
    manager.write_policy = static_cast<WritePolicy>(random.below(4));
    manager.selective_hits = static_cast<std::uint32_t>(random.between(1, 3));
    manager.flush_interval = std::chrono::milliseconds{random.chance(0.4) ? 0 : random.between(1, 60)};
  }
  if (manager.storage && manager.inclusion != InclusionPolicy::inclusive && random.chance(0.1)) {
    manager.caching = false;
    manager.store_uncached = true;
  }
  options.faults.transfers_fail = random.chance(0.3);
  options.faults.streams_freeze = random.chance(0.2);
  options.faults.disk_fails = random.chance(0.4);
  options.faults.leases_drop = random.chance(0.5);
  if (options.store == WorldOptions::Store::file && random.chance(0.5)) {
    options.directories = static_cast<std::uint32_t>(random.between(2, 4));
    options.faults.directory_fails = random.chance(0.5);
  }
  options.poison = random.chance(0.8);
  options.policy = tools::all_policies[random.below(tools::all_policies.size())];
  manager.policy = policy_factory(options.policy);
  if (random.chance(0.5)) manager.device_reserve_max = 0.1 * static_cast<double>(random.between(1, 5));
  for (Watermarks* const marks : {&manager.device_watermarks, &manager.host_watermarks}) {
    if (!random.chance(0.25)) continue;
    marks->low = 0.1 * static_cast<double>(random.between(1, 4));
    marks->high = marks->low + 0.1 * static_cast<double>(random.below(5));
  }
  if (random.chance(0.5)) choose_groups(random, manager);
  // The speed of links and disks is measured with the clock, which advances by a few milliseconds now and then.
  constexpr std::array<double, 4> prefill_seconds{0, 1e-6, 1e-3, 0.1};
  manager.unit_prefill_seconds = prefill_seconds[random.below(prefill_seconds.size())];
  if (random.chance(0.3)) manager.loads = LoadPolicy::always;
  if (random.chance(0.4)) {
    options.ranks.count = static_cast<std::uint32_t>(random.between(2, 3));
    options.ranks.payload = random.chance(0.3) ? RankPayload::replicated : RankPayload::sharded;
  }
  constexpr std::array<std::uint32_t, 4> layers{1, 2, 4, 16};
  options.layers = layers[random.below(layers.size())];
  options.resilient = manager.storage && random.chance(0.5);
  options.faults.blocks_rot = options.resilient && random.chance(0.5) && options.faults.disk_fails;
  options.equal_prefixes = random.chance(0.15);
  if (random.chance(0.3)) {
    // These options cause conflicts over device slots: few slots above a large host tier, slow compute, and copies that outlive
    // their requests. Freed slots are not overwritten, because transfers would wait for that.
    manager.pools[0].device_blocks = static_cast<std::uint32_t>(random.between(6, 9));
    manager.pools[0].host_blocks = static_cast<std::uint32_t>(random.between(16, 40));
    manager.unit_prefill_seconds = 0;
    options.poison = false;
    options.slow_compute = true;
    options.faults.streams_freeze = random.chance(0.6);
  }
  // A job over the tree with few blocks under way sees the tree change, and must scan it again.
  if (random.chance(0.7)) manager.write_back_blocks_ahead = static_cast<std::uint32_t>(random.between(1, 4));
  options.faults.link_dies = options.faults.transfers_fail && random.chance(0.5);
  manager.host_admission = manager.inclusion != InclusionPolicy::inclusive && random.chance(0.3);
  // The default policy refuses nothing before it has learned.
  if (manager.host_admission && random.chance(0.7))
    manager.policy = PickyPolicy::factory([](const BlockKey& key) { return std::to_integer<int>(key.bytes.back()) % 2 == 0; });
  return options;
}

WorldOptions shared_options(std::uint64_t seed, std::uint64_t model) {
  WorldOptions options = random_options(seed);
  Random random{seed * 4243 + 5};
  ManagerConfig& manager = options.manager;
  manager.groups.clear();
  manager.hash_unit_tokens = 0;
  manager.pools.resize(1);
  manager.pools[0].null_block = false;
  Random of_model{model * 3761 + 11};
  if (of_model.chance(0.5)) choose_groups(of_model, manager);
  for (PoolSizes& pool : manager.pools) pool.staging_blocks = static_cast<std::uint32_t>(random.between(2, 6));
  options.equal_prefixes = false;
  if (manager.inclusion != InclusionPolicy::inclusive && random.chance(0.15)) {
    manager.caching = false;
    manager.store_uncached = true;
  }
  SharedConfig& shared = manager.shared;
  shared.on = true;
  constexpr std::array<WritePolicy, 4> policies{WritePolicy::none, WritePolicy::selective, WritePolicy::write_through,
                                                WritePolicy::write_through};
  shared.writes = policies[random.below(policies.size())];
  shared.selective_hits = static_cast<std::uint32_t>(random.between(1, 3));
  shared.probe_timeout = std::chrono::milliseconds{random.between(5, 100)};
  shared.miss_lifetime = std::chrono::milliseconds{random.below(100)};
  shared.read_timeout = std::chrono::milliseconds{random.between(5, 100)};
  shared.write_timeout = std::chrono::milliseconds{random.between(5, 200)};
  shared.renew_interval = std::chrono::milliseconds{random.between(1, 500)};
  shared.rest = std::chrono::milliseconds{random.between(1, 100)};
  if (random.chance(0.3)) shared.writing_bytes_max = Bytes{random.between(1, 20'000)};
  if (random.chance(0.3)) shared.write_rate = per_second(KiB * random.between(50, 5000));
  if (random.chance(0.2)) shared.daily_write_bytes = KiB * random.between(4, 400);
  return options;
}

WorldOptions stored_options(std::uint64_t seed) {
  WorldOptions options = random_options(seed);
  Random random{seed * 3571 + 13};
  ManagerConfig& manager = options.manager;
  manager.groups.clear();
  manager.hash_unit_tokens = 0;
  manager.pools.resize(1);
  manager.storage = true;
  choose_groups(random, manager, 2);
  for (PoolSizes& pool : manager.pools) {
    pool.device_blocks = static_cast<std::uint32_t>(random.between(8, 12));
    pool.host_blocks = static_cast<std::uint32_t>(random.below(6));
    pool.staging_blocks = static_cast<std::uint32_t>(random.between(2, 6));
  }
  manager.caching = true;
  manager.store_uncached = false;
  if (random.chance(0.7)) manager.write_policy = WritePolicy::write_through;
  manager.unit_prefill_seconds = 0;
  options.store = WorldOptions::Store::file;
  options.stored_blocks = 60;
  options.faults.disk_fails = false;
  options.faults.blocks_rot = false;
  options.faults.directory_fails = false;
  options.haste = 8;
  options.clears = 0.5;
  options.restarts = 0.006;
  return options;
}

WorldOptions layered_options(std::uint64_t seed) {
  WorldOptions options = random_options(seed);
  Random random{seed * 6151 + 3};
  ManagerConfig& manager = options.manager;
  options.layers = random.chance(0.5) ? 4 : 16;
  options.faults.transfers_fail = true;
  options.faults.streams_freeze = false;
  manager.unit_prefill_seconds = 0;
  options.policy = tools::PolicyKind::lru;
  manager.policy = policy_factory(options.policy);
  manager.host_watermarks = {};
  manager.pools[0].device_blocks = 16;
  for (PoolSizes& pool : manager.pools) pool.host_blocks = 40;
  return options;
}

}  // namespace terrace::test
