#pragma once

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace terrace {

inline constexpr std::uint32_t slots_of_engine = 16;

inline std::vector<BlockKey> names(std::initializer_list<int> numbers) {
  std::vector<BlockKey> keys;
  for (const int number : numbers) {
    const std::string name = "block " + std::to_string(number);
    keys.push_back(opaque_key({}, std::as_bytes(std::span{name})));
  }
  return keys;
}

inline std::vector<SlotId> slots(std::initializer_list<std::uint32_t> numbers) {
  std::vector<SlotId> slots;
  for (const std::uint32_t number : numbers) slots.emplace_back(number);
  return slots;
}

/// An OffloadCache over a simulated device whose slots belong to the test.
class Offload : public ::testing::Test {
 protected:
  void make(ManagerConfig config, const OffloadLimits& limits = {}) {
    // A transfer engine must end before its device.
    offload.reset();
    cache.reset();
    transfers.reset();
    PoolSizes& pool = config.pools.front();
    pool.engine_blocks = slots_of_engine;
    if ((config.storage || config.shared.on) && pool.staging_blocks == 0) pool.staging_blocks = 2;
    arena = std::make_unique<HostArena>(pool.host_blocks + pool.staging_blocks, Bytes{block_bytes});
    if (config.storage) store = std::make_unique<MemoryStore>(64, Bytes{block_bytes});
    const PoolMemory memory{slots_of_engine, arena.get(), {}, 4};
    device = std::make_unique<SimulatedDevice>(std::span{&memory, 1});
    transfers = std::make_unique<TransferEngine>(lanes, *device, clock, waker);
    cache = std::make_unique<Cache>(config, parts());
    offload = std::make_unique<OffloadCache>(*cache, limits);
  }
  void make_writing_through(std::uint32_t host_blocks, KeyOrder order) {
    ManagerConfig config = sizes(host_blocks, order, true);
    config.write_policy = WritePolicy::write_through;
    make(config);
  }
  CacheParts parts() {
    CacheParts parts{
        .transfers = *transfers, .pools = {{arena.get(), store.get()}}, .clock = clock, .waker = wakes ? &cache_waker : nullptr};
    if (watch != nullptr) parts.watches = {watch};
    parts.shared = shared;
    return parts;
  }
  static ManagerConfig sizes(std::uint32_t host_blocks, KeyOrder order, bool storage = false) {
    ManagerConfig config;
    config.pools.front().host_blocks = host_blocks;
    config.key_order = order;
    config.storage = storage;
    return config;
  }

  /// Set it before make().
  CacheWatch* watch = nullptr;
  SharedStore* shared = nullptr;

  /// The keys and slots of the order live as long as the test.
  OffloadOrder order(std::uint64_t id, const std::vector<BlockKey>& keys, const std::vector<SlotId>& to) {
    OffloadOrder order;
    order.id = OffloadJobId{id};
    order.keys = ordered_keys.emplace_back(keys);
    order.slots = ordered_slots.emplace_back(to);
    return order;
  }
  /// Compute writes the byte to the whole slot.
  void write(SlotId slot, int byte) {
    device->launch([slot, byte](BlockAccess& access) {
      std::vector<std::byte> scratch(1 << 21);
      std::ranges::fill(access.write_target(slot, scratch), std::byte(byte));
      access.written(slot, scratch);
    });
    device->run();
  }
  int read(SlotId slot) const { return static_cast<int>(device->peek({}, slot).back()); }
  /// Stores blocks whose bytes are the given ones, and waits.
  void put(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t first, int byte) {
    std::vector<SlotId> from;
    for (std::uint32_t i = first; i < keys.size(); ++i) {
      from.emplace_back(i - first);
      write(from.back(), byte + static_cast<int>(i));
    }
    OffloadOrder wanted = order(id, keys, from);
    wanted.first = first;
    ASSERT_TRUE(offload->store(wanted).has_value());
    settle();
  }
  void poll() {
    const auto some = offload->poll();
    events.insert(events.end(), some.begin(), some.end());
  }
  void settle() {
    for (int i = 0; i < 20; ++i) {
      device->run();
      poll();
    }
  }
  /// Polls as a loop does that sleeps on wake_fd().
  void poll_while_woken() {
    for (pollfd woken{offload->wake_fd(), POLLIN, 0}; ::poll(&woken, 1, 0) > 0;) poll();
  }
  /// The results of a job so far, by block; removes its events.
  std::map<std::uint32_t, ErrorCode> results(std::uint64_t id) {
    std::map<std::uint32_t, ErrorCode> found;
    for (const OffloadEvent& event : events) {
      if (event.job != OffloadJobId{id} || event.kind != OffloadEvent::Kind::block) continue;
      EXPECT_TRUE(found.emplace(event.block, event.error).second);
    }
    return found;
  }
  bool ended(std::uint64_t id) const {
    return std::ranges::any_of(events, [&](const OffloadEvent& event) {
      return event.kind == OffloadEvent::Kind::ended && event.job == OffloadJobId{id};
    });
  }

  std::size_t block_bytes = 64;
  bool wakes = false;
  TransferSchedulerConfig lanes;
  std::deque<std::vector<BlockKey>> ordered_keys;
  std::deque<std::vector<SlotId>> ordered_slots;
  ManualClock clock;
  NullWaker waker;
  EventFdWaker cache_waker;
  std::unique_ptr<HostArena> arena;
  std::unique_ptr<MemoryStore> store;
  std::unique_ptr<SimulatedDevice> device;
  std::unique_ptr<TransferEngine> transfers;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<OffloadCache> offload;
  std::vector<OffloadEvent> events;
};

}  // namespace terrace
