// The stores of a world, whose device may fail for a while, and what a power failure leaves of them.

#include "base/check.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/simulation/world.hpp"
#include "tests/simulation/world_client.hpp"

#include <fmt/format.h>

#include <chrono>
#include <span>
#include <utility>
#include <vector>

namespace terrace::test {

/// Back-offs and breaks are as long as the time steps, so that both pass within a run.
std::unique_ptr<BlockStore> World::make_resilient(std::unique_ptr<BlockStore> store) {
  if (!options_.resilient || store == nullptr) return store;
  using std::chrono::milliseconds;
  Random random{options_.stored_blocks + 77ULL};
  ResilienceOptions options;
  options.read_retries = static_cast<std::uint32_t>(random.below(3));
  options.write_retries = static_cast<std::uint32_t>(random.below(3));
  options.back_off_first = milliseconds{random.between(1, 20)};
  options.back_off_max = options.back_off_first * 4;
  options.waiting_max = static_cast<std::uint32_t>(random.between(0, 8));
  options.breaker.failures_max = static_cast<std::uint32_t>(random.between(1, 3));
  options.breaker.probe_first = milliseconds{random.between(5, 50)};
  options.breaker.probe_max = options.breaker.probe_first * 4;
  bare_stores_.push_back(std::move(store));
  return std::make_unique<ResilientStore>(*bare_stores_.back(), clock_, options);
}

/// Flips a bit of a stored block.
void World::rot() {
  const std::size_t pool = random_.below(bare_stores_.size());
  BlockStore& store = *bare_stores_[pool];
  std::vector<BlockKey> keys;
  store.for_each([&](const StoredBlock& block) { keys.push_back(block.key); });
  if (keys.empty()) return;
  const BlockKey& key = keys[random_.below(keys.size())];
  std::span<std::byte> bytes;
  if (auto* const memory = dynamic_cast<MemoryStore*>(&store)) bytes = memory->raw(key);
  if (const auto* const file = dynamic_cast<const FileStore*>(&store)) {
    const auto at = file->location(key);
    bytes = disks_[pool]->files().content(at->file).subspan(at->offset, count(store.block_bytes()));
  }
  bytes[random_.below(bytes.size())] ^= std::byte{64};
}

void World::see_resilient_stores() {
  for (const auto& store : stores_) {
    const auto* const resilient = dynamic_cast<const ResilientStore*>(store.get());
    if (resilient == nullptr) continue;
    const StoreHealth health = resilient->health();
    TERRACE_CHECK(health.waiting == 0 && resilient->in_flight() == 0);
    seen_->retried += health.retried;
    seen_->breakers_opened += health.opened;
    seen_->declined += health.declined;
    seen_->corrupt += resilient->stat().corrupt;
  }
}

// ---- compares what the cache reports about a power failure with the result of one

namespace {

/// Number of stored blocks that can be read. Each is verified.
std::uint64_t readable_blocks(SimulatedIo& disk, const FileStoreConfig& config) {
  FileStore store{config, disk};
  std::vector<BlockKey> keys;
  store.for_each([&](const StoredBlock& block) { keys.push_back(block.key); });
  AlignedBuffer buffer{count(config.block_bytes)};
  std::uint64_t readable = 0;
  for (const BlockKey& key : keys) {
    const StoreRead read{.token = 0, .key = key, .into = buffer.span()};
    store.read({&read, 1});
    for (bool ended = false; !ended;) {
      if (disk.queued() > 0) disk.step(0);
      std::vector<StoreEvent> events;
      store.poll(events);
      for (const StoreEvent& event : events) {
        if (event.kind != StoreEvent::Kind::read) continue;
        ended = true;
        readable += event.error ? 0 : 1;
      }
    }
  }
  return readable;
}

}  // namespace

FileStoreConfig World::file_config(std::size_t pool) const {
  const Bytes block_bytes{block_bytes_of(pool)};
  FileStoreConfig config;
  config.directory = "/store";
  config.name.clear();
  config.capacity = capacity_for(options_.stored_blocks, block_bytes, options_.directories);
  config.block_bytes = block_bytes;
  for (std::uint32_t n = 1; n < options_.directories; ++n) config.more_directories.push_back(fmt::format("/store-{}", n));
  config.stripe_bytes = block_bytes * 2;
  config.accept_lost_directories = true;
  config.id = 1;
  return config;
}

/// On a disk without faults.
void World::check_durable() {
  const Durability said = cache_->durability();
  seen_->durable += said.durable_blocks;
  seen_->lost += said.lost_blocks;
  if (disks_.empty() || options_.faults.disk_fails) return;
  std::uint64_t left = 0;
  for (std::size_t pool = 0; pool < disks_.size(); ++pool) {
    SimulatedIo after{disks_[pool]->files().left_by(SimulatedFiles::End::power_failure)};
    FileStoreConfig config = file_config(pool);
    // (A smaller capacity would cut a store that has grown.)
    config.capacity = capacity_for(stored_blocks_max, config.block_bytes, options_.directories);
    after.files().set_disk_bytes(Bytes{~0ULL});
    left += readable_blocks(after, config);
  }
  TERRACE_CHECK(left >= said.durable_blocks);
}

}  // namespace terrace::test
