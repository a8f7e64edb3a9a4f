#include "transfer/device.hpp"

#include "base/check.hpp"
#include "transfer/host_arena.hpp"

namespace terrace {

void check_slots(const CopyCommand& command, std::uint32_t device_slots, const HostArena& host) {
  TERRACE_CHECK(!command.runs.empty());
  const bool out = command.direction == Direction::swap_out;
  for (const SlotRun& run : command.runs) {
    TERRACE_CHECK(run.count > 0);
    const auto on_device = [&](SlotId first) { return std::uint64_t{first.value()} + run.count <= device_slots; };
    const auto in_arena = [&](SlotId first) { return host.holds({first, run.count}); };
    const bool sources_exist = out ? on_device(run.source) : in_arena(run.source);
    const bool destinations_exist = out ? in_arena(run.destination) : on_device(run.destination);
    TERRACE_CHECK(sources_exist);
    TERRACE_CHECK(destinations_exist);
  }
}

}  // namespace terrace
