#pragma once

#include "base/random.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "transfer/engine/ranked_transfers.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {

/// Devices without threads, one per rank, each with its own scheduler. They move when a test or a seed says so, each at its own
/// pace.
class Ranks {
 public:
  struct Options {
    std::uint32_t count = 1;
    RankPayload payload = RankPayload::sharded;
  };

  /// `pools`: slots and arena of each pool. The shares of the ranks are set here.
  Ranks(const Options& options, std::span<const PoolMemory> pools, const TransferSchedulerConfig& scheduler_config,
        const Clock& clock, Waker& waker);

  [[nodiscard]] RankDevices& devices() { return *devices_; }
  [[nodiscard]] SimulatedDevice& device(std::uint32_t rank) { return *simulated_.at(rank); }
  [[nodiscard]] RankedTransfers& transfers() { return *transfers_; }
  /// The first byte of a rank's share in a block.
  [[nodiscard]] std::size_t share_begin(std::uint32_t rank, PoolId pool) const { return begins_.at(rank).at(pool.value()); }

  /// Lets the device of one rank do one thing, if it can. If there is something to copy, compute continues only with this
  /// probability.
  void step(Random& random, double compute = 1);
  void run();
  [[nodiscard]] SimulatedDevice& any(Random& random) { return *simulated_[random.below(simulated_.size())]; }
  void mend();
  [[nodiscard]] std::size_t commands(Direction direction) const;
  void check_invariants() const;

 private:
  std::vector<std::vector<std::size_t>> begins_;
  std::vector<std::unique_ptr<SimulatedDevice>> simulated_;
  std::optional<RankDevices> devices_;
  std::vector<std::unique_ptr<TransferEngine>> engines_;
  std::optional<RankedTransfers> transfers_;
};

inline Ranks::Ranks(const Options& options, std::span<const PoolMemory> pools, const TransferSchedulerConfig& scheduler_config,
                    const Clock& clock, Waker& waker) {
  std::vector<Device*> devices;
  std::vector<RankedTransfers::Rank> ports;
  for (std::uint32_t rank = 0; rank < options.count; ++rank) {
    std::vector<PoolMemory> mine{pools.begin(), pools.end()};
    begins_.emplace_back();
    for (PoolMemory& pool : mine) {
      if (options.payload == RankPayload::sharded) {
        // Shares are whole words of each layer. If they do not divide evenly, the last rank has the largest one.
        const std::uint64_t unit = std::uint64_t{8} * pool.layers;
        const std::uint64_t each = count(pool.host->block_bytes()) / options.count / unit * unit;
        const bool last = rank + 1 == options.count;
        pool.share = {Bytes{each * rank}, last ? Bytes{} : Bytes{each}};
      }
      begins_.back().push_back(count(pool.share.offset));
    }
    simulated_.push_back(std::make_unique<SimulatedDevice>(mine));
    devices.push_back(simulated_.back().get());
    engines_.push_back(std::make_unique<TransferEngine>(scheduler_config, *simulated_.back(), clock, waker));
    ports.push_back({"rank " + std::to_string(rank), engines_.back().get()});
  }
  devices_.emplace(std::move(devices));
  transfers_.emplace(std::move(ports), clock, waker, RankedTransfersOptions{.payload = options.payload});
}

inline void Ranks::step(Random& random, double compute) {
  SimulatedDevice& device = any(random);
  const auto parts = device.step_options();
  if (parts.empty()) return;
  const SimulatedDevice::Part part = parts[random.below(parts.size())];
  if (part == SimulatedDevice::Part::compute && parts.size() > 1 && !random.chance(compute)) return;
  device.step(part);
}

inline void Ranks::run() {
  for (const auto& device : simulated_) device->run();
}

inline void Ranks::mend() {
  for (const auto& device : simulated_) {
    for (const Direction direction : {Direction::swap_in, Direction::swap_out}) {
      device->dead(direction, false);
      device->stuck(direction, false);
      device->delay_completion(direction, false);
    }
  }
}

inline std::size_t Ranks::commands(Direction direction) const {
  std::size_t all = 0;
  for (const auto& device : simulated_) all += device->commands(direction);
  return all;
}

inline void Ranks::check_invariants() const {
  for (const auto& engine : engines_) engine->check_invariants();
  transfers_->check_invariants();
}

}  // namespace terrace::test
