// Stores whose device may fail for a while.
#include "base/check.hpp"
#include "storage/resilience/guarded_store.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace terrace::test {

/// Back-offs and breaks as long as the steps of time are: both pass within a run.
std::unique_ptr<BlockStore> World::guard(std::unique_ptr<BlockStore> store) {
  if (!options_.guarded || store == nullptr) return store;
  using std::chrono::milliseconds;
  Random random{options_.stored_blocks + 77ULL};
  GuardOptions options;
  options.read_retries = static_cast<std::uint32_t>(random.below(3));
  options.write_retries = static_cast<std::uint32_t>(random.below(3));
  options.back_off_first = milliseconds{random.between(1, 20)};
  options.back_off_max = options.back_off_first * 4;
  options.waiting_max = static_cast<std::uint32_t>(random.between(0, 8));
  options.breaker.failures_max = static_cast<std::uint32_t>(random.between(1, 3));
  options.breaker.probe_first = milliseconds{random.between(5, 50)};
  options.breaker.probe_max = options.breaker.probe_first * 4;
  bare_stores_.push_back(std::move(store));
  auto guarded = std::make_unique<GuardedStore>(*bare_stores_.back(), clock_, options);
  if (options_.scrubbed) scrub(*guarded);
  return guarded;
}

/// A block in one to thirty milliseconds, and a pass as often as can be, from anywhere in the store.
void World::scrub(GuardedStore& guard) {
  Random random{options_.stored_blocks + 177ULL};
  const Bytes pace = guard.block_bytes() * (1000 / random.between(1, 30));
  scrubs_.push_back(std::make_unique<Scrub>(guard.block_bytes(), ScrubOptions{.bandwidth = pace, .period = {}}));
  scrubs_.back()->start(guard, clock_.now(), random.below(1000));
}

/// A bit of some block changes while it lies there.
void World::rot() {
  if (bare_stores_.empty()) return;
  BlockStore& store = *bare_stores_[random_.below(bare_stores_.size())];
  const StoreStep found = store.walk(random_.below(options_.stored_blocks), options_.stored_blocks);
  if (!found.key) return;
  std::span<std::byte> bytes;
  if (auto* const memory = dynamic_cast<MemoryStore*>(&store)) bytes = memory->raw(*found.key);
  if (const auto* const file = dynamic_cast<const FileStore*>(&store)) {
    const auto at = file->location(*found.key);
    const std::size_t pool = static_cast<std::size_t>(std::ranges::find(bare_stores_, &store, &std::unique_ptr<BlockStore>::get) -
                                                      bare_stores_.begin());
    bytes = disks_[pool]->files().content(at->file).subspan(at->offset, count(store.block_bytes()));
  }
  bytes[random_.below(bytes.size())] ^= std::byte{64};
}

void World::see_guards() {
  for (const auto& store : stores_) {
    const auto* const guarded = dynamic_cast<const GuardedStore*>(store.get());
    if (guarded == nullptr) continue;
    const StoreHealth health = guarded->health();
    TERRACE_CHECK(health.waiting == 0 && guarded->in_flight() == 0);
    seen_->retried += health.retried;
    seen_->breakers_opened += health.opened;
    seen_->declined += health.declined;
  }
  for (const auto& scrub : scrubs_) {
    const ScrubHealth health = scrub->health();
    seen_->scrubbed += health.blocks;
    seen_->scrub_passes += health.passes;
    seen_->scrub_corrupt += health.corrupt;
    TERRACE_CHECK(health.place <= health.places);
  }
}

}  // namespace terrace::test
