#include "tests/simulation/ranks.hpp"

#include "transfer/host_arena.hpp"

namespace terrace::test {

Ranks::Ranks(const Options& options, std::span<const PoolMemory> pools, const LanesConfig& lanes, const Clock& clock,
             Waker& waker) {
  std::vector<Device*> devices;
  std::vector<RankedTransfers::Rank> ports;
  for (std::uint32_t rank = 0; rank < options.count; ++rank) {
    std::vector<PoolMemory> mine{pools.begin(), pools.end()};
    begins_.emplace_back();
    for (PoolMemory& pool : mine) {
      if (options.payload == RankPayload::sharded) {
        // Of whole words; the last rank's is the largest where they do not come out even.
        const std::uint64_t each = count(pool.host->block_bytes()) / options.count / 8 * 8;
        const bool last = rank + 1 == options.count;
        pool.share = {Bytes{each * rank}, last ? Bytes{} : Bytes{each}};
      }
      begins_.back().push_back(count(pool.share.offset));
    }
    stepped_.push_back(std::make_unique<SteppedDevice>(mine));
    devices.push_back(stepped_.back().get());
    engines_.push_back(std::make_unique<DirectTransfers>(lanes, *stepped_.back(), clock, waker));
    ports.push_back({"rank " + std::to_string(rank), engines_.back().get()});
  }
  devices_.emplace(std::move(devices));
  transfers_.emplace(std::move(ports), clock, waker, RankedTransfersOptions{.payload = options.payload});
}

void Ranks::step(Random& random) {
  SteppedDevice& device = any(random);
  const auto parts = device.step_options();
  if (!parts.empty()) device.step(parts[random.below(parts.size())]);
}

void Ranks::run() {
  for (const auto& device : stepped_) device->run();
}

void Ranks::mend() {
  for (const auto& device : stepped_) {
    for (const Direction direction : {Direction::swap_in, Direction::swap_out}) {
      device->stuck(direction, false);
      device->delay_completion(direction, false);
    }
  }
}

std::size_t Ranks::commands(Direction direction) const {
  std::size_t all = 0;
  for (const auto& device : stepped_) all += device->commands(direction);
  return all;
}

void Ranks::check_invariants() const {
  for (const auto& engine : engines_) engine->check_invariants();
  transfers_->check_invariants();
}

}  // namespace terrace::test
