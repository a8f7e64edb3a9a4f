#include "terrace/device.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "terrace/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace terrace {

// Defaults for a device that supports neither streams nor memory of the caller.
Result<Fence> Device::signal(StreamRef) {
  return failure<Errc::invalid_argument, "this device knows no streams of the engine: mark its work by launch()">;
}
Result<void> Device::await(StreamRef, std::span<const std::uint64_t>) { return Errc::not_ready; }
Result<void> Device::await(StreamRef, Fence) { return Errc::not_ready; }
Result<void> Device::relocate(std::span<const RelocatedPool>) {
  return failure<Errc::invalid_argument, "this device cannot move its blocks to other memory">;
}
Result<void> Device::check_relocation(std::span<const RelocatedPool>) { return {}; }

Bytes checked_size(const HostShare& share, const HostSlots& host) {
  const std::uint64_t slot = count(host.block_bytes());
  const std::uint64_t offset = count(share.offset);
  const std::uint64_t bytes = count(share.bytes) == 0 && offset < slot ? slot - offset : count(share.bytes);
  if (bytes == 0 || offset >= slot || bytes > slot - offset) {
    throw std::invalid_argument{fmt::format("a device's share of {} from byte {} on is not within host slots of {}",
                                            to_string(share.bytes), offset, to_string(host.block_bytes()))};
  }
  return Bytes{bytes};
}

void check_slots(const CopyCommand& command, const DevicePool& pool, const HostSlots& host) {
  TERRACE_CHECK(!command.runs.empty());
  if (command.layers) {
    TERRACE_CHECK(command.layers->count > 0);
    TERRACE_CHECK(std::uint64_t{command.layers->first} + command.layers->count <= pool.layers);
  }
  const bool out = command.direction == Direction::swap_out;
  for (const SlotRun& run : command.runs) {
    TERRACE_CHECK(run.count > 0);
    const auto on_device = [&](SlotId first) { return std::uint64_t{first.value()} + run.count <= pool.slots; };
    const auto in_arena = [&](SlotId first) { return host.holds({first, run.count}); };
    const bool sources_exist = out ? on_device(run.source) : in_arena(run.source);
    const bool destinations_exist = out ? in_arena(run.destination) : on_device(run.destination);
    TERRACE_CHECK(sources_exist);
    TERRACE_CHECK(destinations_exist);
  }
}

// ---- the devices of all ranks ------------------------------------------------------------------------------------------------

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
