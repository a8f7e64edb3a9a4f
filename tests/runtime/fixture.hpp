#pragma once

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/cache.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
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

/// A cache on a device without threads, with a store in memory. The test decides what moves when.
class CacheFixture : public ::testing::Test {
 protected:
  CacheFixture();
  ~CacheFixture() override;

  static constexpr std::uint64_t block_bytes = 64;

  /// Block sizes grow with the pool: those of the second pool are twice as large as those of the first, and so on.
  static std::uint64_t block_bytes_of(PoolId pool) { return block_bytes * (pool.value() + 1U); }

  void make(ManagerConfig config, std::uint32_t stored_blocks = 64);

  void TearDown() override;

  [[nodiscard]] static AcquireRequest request(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0) {
    return request_for(id, keys, extra);
  }

  /// Acquires a request. Returns an error if it was refused. The lease is kept under the id.
  Result<void> acquire(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0);
  /// The same for a request that `change` has changed, and that is not refused.
  template <class Change>
  void acquire_with(std::uint64_t id, const std::vector<BlockKey>& keys, Change change) {
    AcquireRequest wanted = request(id, keys);
    change(wanted);
    leases[id] = cache->acquire(wanted).value();
  }
  /// A whole request: acquire, compute, commit, release.
  void run(std::uint64_t id, const std::vector<BlockKey>& keys);
  Result<std::span<const Duplicate>> commit(std::uint64_t id, const std::vector<BlockKey>& keys);
  void release(std::uint64_t id);
  [[nodiscard]] bool ready(std::uint64_t id) const;
  [[nodiscard]] RequestStats stats(std::uint64_t id) const;
  [[nodiscard]] std::vector<SlotId> table(std::uint64_t id, GroupId group = {}) const;
  /// Appends the events since the last call to `events`.
  void poll();
  /// Lets everything move that can.
  void settle();
  /// The same for what is on the device and the stores, in so many steps.
  void run_and_poll(int times);
  /// Settles, and returns whether the request is ready then.
  [[nodiscard]] bool ready_when_settled(std::uint64_t id);
  [[nodiscard]] const ManagerStats& totals() const { return cache->manager().stats(); }
  [[nodiscard]] WriteBackProgress progress(WriteBackId id) const { return cache->write_back(id).value(); }
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
  std::optional<HostRows> host_rows;  ///< of the first pool
  /// Set these before make(). Only calls of the cache wake the waker.
  CacheWatch* watch = nullptr;
  SharedStore* shared = nullptr;
  std::uint32_t poll_blocks = 2048;
  std::optional<EventFdWaker> cache_waker;
  ManualClock clock;
  NullWaker waker;
  SimulatedArenaWorker* arena_worker = nullptr;  ///< of the first arena
  std::unique_ptr<HostArena> arena;
  std::vector<std::unique_ptr<HostArena>> other_arenas;
  std::vector<std::unique_ptr<MemoryStore>> other_stores;
  std::unique_ptr<SimulatedDevice> device;
  std::unique_ptr<TransferEngine> transfers;
  std::unique_ptr<MemoryStore> store;
  std::unique_ptr<Cache> cache;
  std::map<std::uint64_t, Lease> leases;
  std::vector<RequestEvent> events;
};

[[nodiscard]] ManagerConfig sizes(std::uint32_t device_blocks, std::uint32_t host_blocks = 0,
                                  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive);
[[nodiscard]] ManagerConfig with_storage(ManagerConfig config, WritePolicy policy);

}  // namespace terrace::test
