#pragma once

#include "base/check.hpp"
#include "transfer/device/device.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace terrace {

/// Called once per rank, on that rank's compute timeline: at the same time as for the others.
using RankWork = std::function<void(std::uint32_t rank, BlockAccess& access)>;

/// The devices of one cache, one per rank, as compute sees them. Every rank launches the same steps in the same order (and
/// nothing of its own), so that one fence names the same point on all of them, and a transfer can name it for all.
///
/// Threads: as Device's compute side.
class RankDevices {
 public:
  /// At least one; they outlive this.
  explicit RankDevices(std::vector<Device*> devices) : devices_{std::move(devices)} { TERRACE_CHECK(!devices_.empty()); }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] Device& at(std::uint32_t rank) const { return *devices_.at(rank); }

  /// On every rank. `work` is shared by them.
  Fence launch(RankWork work) {
    if (devices_.size() == 1) {
      return devices_.front()->launch([work = std::move(work)](BlockAccess& access) { work(0, access); });
    }
    const auto shared = std::make_shared<const RankWork>(std::move(work));
    Fence point;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      const Fence mine = devices_[rank]->launch([shared, rank](BlockAccess& access) { (*shared)(rank, access); });
      const bool in_step = rank == 0 || mine == point;
      TERRACE_CHECK(in_step);
      point = mine;
    }
    return point;
  }
  /// That all ranks have reached.
  [[nodiscard]] Fence reached() const {
    Fence least = devices_.front()->reached();
    for (const Device* const device : devices_) least = std::min(least, device->reached());
    return least;
  }

 private:
  std::vector<Device*> devices_;
};

}  // namespace terrace
