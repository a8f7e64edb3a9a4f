// Stores whose device may fail for a while.
#include "base/check.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/simulation/world.hpp"

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

}  // namespace terrace::test
