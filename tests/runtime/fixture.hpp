#pragma once

#include "runtime/cache.hpp"
#include "storage/memory_store.hpp"
#include "tests/radix/key_helpers.hpp"
#include "transfer/host_arena.hpp"
#include "transfer/stepped_device.hpp"
#include "transfer/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace terrace::test {

/// A cache over a device without threads and a store in memory: the test decides what moves when.
class CacheFixture : public ::testing::Test {
 protected:
  static constexpr std::uint64_t block_bytes = 64;

  void make(ManagerConfig config, std::uint32_t stored_blocks = 64) {
    if (config.storage && config.staging_blocks == 0) config.staging_blocks = 4;
    arena = std::make_unique<HostArena>(std::max(config.host_blocks, host_blocks_max) + config.staging_blocks,
                                        Bytes{block_bytes}, MiB);
    device = std::make_unique<SteppedDevice>(config.first_slot + std::max(config.device_blocks, device_blocks_max), *arena);
    LanesConfig lanes;
    lanes.block_bytes = Bytes{block_bytes};
    transfers = std::make_unique<DirectTransfers>(lanes, *device, clock, waker);
    if (config.storage) store = std::make_unique<MemoryStore>(stored_blocks, Bytes{block_bytes});
    CacheParts parts{*transfers, *arena, store.get(), clock, nullptr, nullptr};
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
    AcquireRequest wanted;
    wanted.id = RequestId{id};
    wanted.keys = keys;
    wanted.blocks = static_cast<std::uint32_t>(keys.size()) + extra;
    return wanted;
  }

  /// Acquires; true where it was accepted. The lease is kept under its id.
  Result<void> acquire(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0) {
    Result<Lease> lease = cache->acquire(request(id, keys, extra));
    if (!lease) return lease.error();
    leases[id] = std::move(*lease);
    return {};
  }
  /// What a finished request leaves behind: acquired, computed, committed, released.
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
  [[nodiscard]] bool ready(std::uint64_t id) const { return cache->ready(leases.at(id)); }
  [[nodiscard]] RequestStats stats(std::uint64_t id) const { return cache->request_stats(leases.at(id)).value(); }
  [[nodiscard]] std::vector<SlotId> table(std::uint64_t id) const {
    const auto slots = cache->block_table(leases.at(id)).value();
    return {slots.begin(), slots.end()};
  }
  /// Events since the last call are appended to `events`.
  void poll() {
    const auto some = cache->poll();
    events.insert(events.end(), some.begin(), some.end());
  }
  /// Everything that can move moves.
  void settle() {
    for (int i = 0; i < 50; ++i) {
      device->run();
      poll();
    }
  }
  [[nodiscard]] std::uint64_t free_on_device() const { return cache->manager().device_ledger().free; }
  [[nodiscard]] std::uint64_t resident(Tier tier) const {
    return cache->manager().residency().tree().resident(Residency::plane(tier));
  }

  /// Set before make(): room to grow.
  std::uint32_t device_blocks_max = 0;
  std::uint32_t host_blocks_max = 0;
  ManualClock clock;
  NullWaker waker;
  std::unique_ptr<HostArena> arena;
  std::unique_ptr<SteppedDevice> device;
  std::unique_ptr<DirectTransfers> transfers;
  std::unique_ptr<MemoryStore> store;
  std::unique_ptr<Cache> cache;
  std::map<std::uint64_t, Lease> leases;
  std::vector<RequestEvent> events;
};

inline ManagerConfig sizes(std::uint32_t device_blocks, std::uint32_t host_blocks = 0, Relation relation = Relation::keep) {
  ManagerConfig config;
  config.device_blocks = device_blocks;
  config.host_blocks = host_blocks;
  config.relation = relation;
  return config;
}

inline ManagerConfig with_storage(ManagerConfig config, WritePolicy policy) {
  config.storage = true;
  config.write_policy = policy;
  return config;
}

}  // namespace terrace::test
