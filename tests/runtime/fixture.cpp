#include "tests/runtime/fixture.hpp"

#include <algorithm>
#include <utility>

namespace terrace::test {

ManagerConfig sizes(std::uint32_t device_blocks, std::uint32_t host_blocks, InclusionPolicy inclusion) {
  ManagerConfig config;
  config.pools[0].device_blocks = device_blocks;
  config.pools[0].host_blocks = host_blocks;
  config.inclusion = inclusion;
  return config;
}

ManagerConfig with_storage(ManagerConfig config, WritePolicy policy) {
  config.storage = true;
  config.write_policy = policy;
  return config;
}

CacheFixture::CacheFixture() = default;
CacheFixture::~CacheFixture() = default;

void CacheFixture::make(ManagerConfig config, std::uint32_t stored_blocks) {
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
  host.rows = host_rows;
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
  transfers = std::make_unique<TransferEngine>(scheduler_config, *device, clock, waker);
  CacheParts parts{*transfers, std::move(pools), clock, cache_waker ? &*cache_waker : nullptr};
  if (watch != nullptr) parts.watches = {watch};
  parts.shared = shared;
  parts.poll_blocks = poll_blocks;
  cache = std::make_unique<Cache>(config, parts);
}

void CacheFixture::TearDown() {
  if (!cache) return;
  leases.clear();
  settle();
  cache->manager().check_invariants();
  EXPECT_TRUE(cache->manager().device_ledger().balanced());
}

Result<void> CacheFixture::acquire(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra) {
  Result<Lease> lease = cache->acquire(request(id, keys, extra));
  if (!lease) return lease.error();
  leases[id] = std::move(*lease);
  return {};
}

void CacheFixture::run(std::uint64_t id, const std::vector<BlockKey>& keys) {
  ASSERT_TRUE(acquire(id, keys).has_value());
  settle();
  ASSERT_TRUE(ready(id));
  ASSERT_TRUE(commit(id, keys).has_value());
  release(id);
  settle();
}

Result<std::span<const Duplicate>> CacheFixture::commit(std::uint64_t id, const std::vector<BlockKey>& keys) {
  return cache->commit(leases.at(id), keys, Fence{});
}

std::vector<SlotId> CacheFixture::table(std::uint64_t id, GroupId group) const {
  const auto slots = cache->block_table(leases.at(id), group).value();
  return {slots.begin(), slots.end()};
}

void CacheFixture::poll() {
  const auto some = cache->poll();
  events.insert(events.end(), some.begin(), some.end());
}

void CacheFixture::settle() {
  for (int i = 0; i < 50; ++i) {
    device->run();
    arena_worker->step();
    poll();
  }
}

void CacheFixture::run_and_poll(int times) {
  for (int i = 0; i < times; ++i) {
    device->run();
    poll();
  }
}

bool CacheFixture::ready_when_settled(std::uint64_t id) {
  settle();
  return ready(id);
}

void CacheFixture::release(std::uint64_t id) { leases.erase(id); }
bool CacheFixture::ready(std::uint64_t id) const { return cache->state(leases.at(id)) == RequestState::ready; }
RequestStats CacheFixture::stats(std::uint64_t id) const { return cache->request_stats(leases.at(id)).value(); }

}  // namespace terrace::test
