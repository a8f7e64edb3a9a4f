#include "base/check.hpp"
#include "terrace/device.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace terrace {

RankDevices::RankDevices(std::vector<Device*> devices) : devices_{std::move(devices)} { TERRACE_CHECK(!devices_.empty()); }

Fence RankDevices::launch(RankWork work) {
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

Fence RankDevices::reached() const {
  Fence least = devices_.front()->reached();
  for (const Device* const device : devices_) least = std::min(least, device->reached());
  return least;
}

}  // namespace terrace
