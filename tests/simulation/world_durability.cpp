// Compares what the cache reports about a power failure with the result of one.
#include "base/check.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "tests/simulation/world.hpp"
#include "tests/simulation/world_client.hpp"

#include <fmt/format.h>

#include <vector>

namespace terrace::test {
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
