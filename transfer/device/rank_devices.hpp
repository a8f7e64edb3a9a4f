#pragma once

#include "base/check.hpp"
#include "terrace/device.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace terrace {

/// Work that is called once for each rank, on the compute timeline of that rank. Ranks may call it at the same time.
using RankWork = std::function<void(std::uint32_t rank, BlockAccess& access)>;

/// The devices of one cache, one for each rank, as the compute side uses them. Every rank launches the same steps in the same
/// order, and nothing else. So one fence names the same point on all ranks, and a transfer to all ranks needs only one fence.
///
/// Threads: those of Device's compute side.
class RankDevices {
 public:
  /// There must be at least one device. The devices must outlive this object.
  explicit RankDevices(std::vector<Device*> devices) : devices_{std::move(devices)} { TERRACE_CHECK(!devices_.empty()); }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] Device& at(std::uint32_t rank) const { return *devices_.at(rank); }

  /// Launches the work on every rank. All ranks share `work`. Returns the point, which is the same on every rank.
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
  /// Returns the point that all ranks have reached.
  [[nodiscard]] Fence reached() const {
    Fence least = devices_.front()->reached();
    for (const Device* const device : devices_) least = std::min(least, device->reached());
    return least;
  }

 private:
  std::vector<Device*> devices_;
};

}  // namespace terrace
