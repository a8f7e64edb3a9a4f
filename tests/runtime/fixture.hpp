#pragma once

#include "base/waker.hpp"
#include "runtime/cache/cache_parts.hpp"
#include "runtime/manager/cache_manager.hpp"
#include "runtime/types/config.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/cache.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::test {

[[nodiscard]] inline AcquireRequest request_for(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0) {
  AcquireRequest wanted;
  wanted.id = RequestId{id};
  wanted.keys = keys;
  wanted.units = HashUnits{static_cast<std::uint32_t>(keys.size()) + extra};
  return wanted;
}

/// A cache on a device without threads, with a store in memory. The test decides what moves when.
class CacheFixture : public ::testing::Test {
 protected:
  static constexpr std::uint64_t block_bytes = 64;

  /// Block sizes grow with the pool: those of the second pool are twice as large as those of the first, and so on.
  static std::uint64_t block_bytes_of(PoolId pool) { return block_bytes * (pool.value() + 1U); }

  void make(ManagerConfig config, std::uint32_t stored_blocks = 64) {
    for (PoolSizes& pool : config.pools) {
      if ((config.storage || config.shared.on) && pool.staging_blocks == 0) pool.staging_blocks = 4;
    }
    HostArenaOptions host;
    const PoolSizes& first = config.pools.front();
    host.slots = first.host_blocks + first.staging_blocks;
    host.ready_slots = host_warm ? host.slots : first.staging_blocks;
    host.block_bytes = Bytes{block_bytes};
    host.chunk_bytes = Bytes{block_bytes} * host_chunk_blocks;
    host.limits = host_limits;
    host.spare = {};
    auto worker = std::make_unique<SimulatedArenaWorker>();
    arena_worker = worker.get();
    host.worker = std::move(worker);
    arena = std::make_unique<HostArena>(std::move(host));
    if (config.storage) store = std::make_unique<MemoryStore>(stored_blocks, Bytes{block_bytes});
    const std::uint32_t device_slots = first.first_slot + std::max(first.device_blocks, device_blocks_max);
    std::vector<PoolMemory> memories{{device_slots, arena.get(), {}, layers}};
    std::vector<PoolParts> pools{{arena.get(), store.get()}};
    for (std::size_t i = 1; i < config.pools.size(); ++i) {
      const PoolSizes& sizes = config.pools[i];
      const Bytes bytes{block_bytes_of(PoolId{static_cast<std::uint16_t>(i)})};
      other_arenas.push_back(std::make_unique<HostArena>(sizes.host_blocks + sizes.staging_blocks, bytes, MiB));
      if (config.storage) other_stores.push_back(std::make_unique<MemoryStore>(stored_blocks, bytes));
      memories.push_back({sizes.device_blocks, other_arenas.back().get(), {}, layers});
      pools.push_back({other_arenas.back().get(), config.storage ? other_stores.back().get() : nullptr});
    }
    device = std::make_unique<SimulatedDevice>(memories);
    transfers = std::make_unique<DirectTransfers>(scheduler_config, *device, clock, waker);
    CacheParts parts{*transfers, std::move(pools), clock, cache_waker ? &*cache_waker : nullptr};
    if (watch != nullptr) parts.watches = {watch};
    parts.shared = shared;
    cache = std::make_unique<Cache>(config, parts);
  }

  void TearDown() override {
    if (!cache) return;
    leases.clear();
    settle();
    cache->manager().check_invariants();
    EXPECT_TRUE(cache->manager().device_ledger().balanced());
  }

  [[nodiscard]] static AcquireRequest request(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0) {
    return request_for(id, keys, extra);
  }

  /// Acquires a request. Returns an error if it was refused. The lease is kept under the id.
  Result<void> acquire(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0) {
    Result<Lease> lease = cache->acquire(request(id, keys, extra));
    if (!lease) return lease.error();
    leases[id] = std::move(*lease);
    return {};
  }
  /// A whole request: acquire, compute, commit, release.
  void run(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    settle();
    ASSERT_TRUE(ready(id));
    ASSERT_TRUE(commit(id, keys).has_value());
    release(id);
    settle();
  }
  Result<std::span<const Duplicate>> commit(std::uint64_t id, const std::vector<BlockKey>& keys) {
    return cache->commit(leases.at(id), keys, Fence{});
  }
  void release(std::uint64_t id) { leases.erase(id); }
  [[nodiscard]] bool ready(std::uint64_t id) const { return cache->state(leases.at(id)) == RequestState::ready; }
  [[nodiscard]] RequestStats stats(std::uint64_t id) const { return cache->request_stats(leases.at(id)).value(); }
  [[nodiscard]] std::vector<SlotId> table(std::uint64_t id, GroupId group = {}) const {
    const auto slots = cache->block_table(leases.at(id), group).value();
    return {slots.begin(), slots.end()};
  }
  /// Appends the events since the last call to `events`.
  void poll() {
    const auto some = cache->poll();
    events.insert(events.end(), some.begin(), some.end());
  }
  /// Lets everything move that can.
  void settle() {
    for (int i = 0; i < 50; ++i) {
      device->run();
      arena_worker->step();
      poll();
    }
  }
  [[nodiscard]] std::uint64_t free_on_device() const { return cache->manager().device_ledger().free; }
  [[nodiscard]] std::uint64_t resident(Tier tier) const { return cache->manager().residency().tree().resident(tier); }

  /// Set it before make(): slots to which the first pool can grow.
  std::uint32_t device_blocks_max = 0;
  /// Set it before make(): chunk size of the first pool's arena.
  std::uint32_t host_chunk_blocks = 1024;
  /// Set these before make(): layers of the blocks of all pools, and how transfers are cut into pieces.
  std::uint32_t layers = 1;
  TransferSchedulerConfig scheduler_config;
  bool host_warm = true;  ///< if false, only staging is warm at the start
  std::function<MemoryLimits()> host_limits;
  /// Set these before make(). Only calls of the cache wake the waker.
  CacheWatch* watch = nullptr;
  SharedStore* shared = nullptr;
  std::optional<EventFdWaker> cache_waker;
  ManualClock clock;
  NullWaker waker;
  SimulatedArenaWorker* arena_worker = nullptr;  ///< of the first arena
  std::unique_ptr<HostArena> arena;
  std::vector<std::unique_ptr<HostArena>> other_arenas;
  std::vector<std::unique_ptr<MemoryStore>> other_stores;
  std::unique_ptr<SimulatedDevice> device;
  std::unique_ptr<DirectTransfers> transfers;
  std::unique_ptr<MemoryStore> store;
  std::unique_ptr<Cache> cache;
  std::map<std::uint64_t, Lease> leases;
  std::vector<RequestEvent> events;
};

inline ManagerConfig sizes(std::uint32_t device_blocks, std::uint32_t host_blocks = 0,
                           InclusionPolicy inclusion = InclusionPolicy::non_inclusive) {
  ManagerConfig config;
  config.pools[0].device_blocks = device_blocks;
  config.pools[0].host_blocks = host_blocks;
  config.inclusion = inclusion;
  return config;
}

inline ManagerConfig with_storage(ManagerConfig config, WritePolicy policy) {
  config.storage = true;
  config.write_policy = policy;
  return config;
}

}  // namespace terrace::test
