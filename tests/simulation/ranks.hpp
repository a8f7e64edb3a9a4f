#pragma once

#include "base/clock.hpp"
#include "base/random.hpp"
#include "transfer/rank_devices.hpp"
#include "transfer/ranked_transfers.hpp"
#include "transfer/stepped_device.hpp"
#include "transfer/transfer_engine.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {

/// The devices of a world, one per rank, each with lanes of its own: they move when the seed says so, each at its own pace.
class Ranks {
 public:
  struct Options {
    std::uint32_t count = 1;
    RankPayload payload = RankPayload::sharded;
  };

  /// `pools`: slots and arena of each; the shares are dealt out here.
  Ranks(const Options& options, std::span<const PoolMemory> pools, const LanesConfig& lanes, const Clock& clock, Waker& waker);

  [[nodiscard]] RankDevices& devices() { return *devices_; }
  [[nodiscard]] TransferPort& transfers() { return *transfers_; }
  /// Which byte of a block a rank's share begins with.
  [[nodiscard]] std::size_t share_begin(std::uint32_t rank, PoolId pool) const { return begins_.at(rank).at(pool.value()); }

  /// One rank's device does one thing, if it can.
  void step(Random& random);
  void run();
  [[nodiscard]] SteppedDevice& any(Random& random) { return *stepped_[random.below(stepped_.size())]; }
  void mend();
  [[nodiscard]] std::size_t commands(Direction direction) const;
  void check_invariants() const;

 private:
  std::vector<std::vector<std::size_t>> begins_;
  std::vector<std::unique_ptr<SteppedDevice>> stepped_;
  std::optional<RankDevices> devices_;
  std::vector<std::unique_ptr<DirectTransfers>> engines_;
  std::optional<RankedTransfers> transfers_;
};

}  // namespace terrace::test
