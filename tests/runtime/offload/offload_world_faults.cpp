#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "tests/runtime/offload/offload_world.hpp"

#include <chrono>
#include <memory>
#include <set>
#include <utility>
#include <vector>

/// Faults of copies and streams, of the disk, and of the process itself.

namespace terrace::test {

void OffloadWorld::plant_fault() {
  if (options_.shared) disturb_shared();
  const Direction direction = random_.chance(0.5) ? Direction::swap_in : Direction::swap_out;
  if (options_.transfers_fail && random_.chance(0.5)) device_->fail_next(direction);
  if (options_.streams_freeze && random_.chance(0.5)) device_->stuck(direction, random_.chance(0.5));
  if (options_.streams_freeze && random_.chance(0.5)) device_->delay_completion(direction, random_.chance(0.5));
  if (!options_.disk_fails) return;
  IoFault fault;
  switch (random_.below(5)) {
    case 0: fault.error = 5 /* EIO */; break;
    case 1: fault.error = 28 /* ENOSPC */; break;
    case 2: fault.bytes_max = random_.below(block_bytes); break;
    case 3: fault.flip = true; break;
    default: fault.stall = true; break;
  }
  disk_->files().inject(disk_->files().next_number() + random_.below(6), fault);
}

void OffloadWorld::disk_step() {
  if (!disk_) return;
  if (disk_->stalled() > 0 && random_.chance(0.2)) disk_->release_stalled();
  if (disk_->queued() > 0) disk_->step(random_.below(disk_->queued()));
}

/// The process ends in the middle of things, and another one starts on what the disk has kept.
void OffloadWorld::crash() {
  std::set<Name> durable;
  // Sometimes everything is made durable before. Then it must be there afterwards.
  if (!options_.disk_fails && !options_.streams_freeze && random_.chance(0.5)) {
    while (!reservations_.empty()) publish(reservations_.begin()->first, true);
    const Result<WriteBackId> job = cache_->start_write_back({});
    TERRACE_CHECK(job.has_value());
    // The cache must have heard of every write and eviction of the store, before the two are compared.
    while (!cache_->write_back(*job)->ended() || cache_->work_left().writes > 0) {
      poll();
      device_->run();
      disk_step();
      clock_.advance(std::chrono::milliseconds{1});
    }
    poll();
    const WriteBackProgress end = *cache_->write_back(*job);
    TERRACE_CHECK(!end.flush_error);
    if (end.state == WriteBackState::done) {
      const std::set<Name> names = offered_;
      for (const Name& name : names) {
        if (name.front() != generation_) continue;
        std::vector<Name> path{name};
        if (options_.order == KeyOrder::prefix) {
          path.clear();
          for (std::size_t length = 2; length <= name.size(); ++length)
            path.emplace_back(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length));
        }
        if (store_->contains(key_of(name)) && offload_->leading(keys_of(path)) == path.size()) durable.insert(name);
      }
      // Blocks that the write policy has stored since the flush began are not covered.
      if (cache_->durability().durable_blocks != store_->stat().blocks) durable.clear();
    }
  }
  // Until the cache says otherwise, what a clear has removed may come back.
  if (cache_->erasing()) offered_.merge(before_clear_);
  before_clear_.clear();
  const bool power = random_.chance(0.5);
  auto left = std::make_unique<SimulatedIo>(
      disk_->files().left_by(power ? SimulatedFiles::End::power_failure : SimulatedFiles::End::killed));
  ++seen_.crashes;
  shared_before_ = shared_totals();
  live_.clear();
  pins_.clear();
  reservations_.clear();
  offload_.reset();
  cache_.reset();
  shared_.reset();
  store_.reset();
  bare_store_.reset();
  transfers_.reset();
  device_.reset();
  arena_.reset();
  disk_ = std::move(left);
  disk_->files().set_disk_bytes(Bytes{~0ULL});
  there_.clear();
  make();
  for (const Name& name : durable) TERRACE_CHECK(store_->contains(key_of(name)));
  seen_.durable += durable.size();
}

}  // namespace terrace::test
