#include "transfer/device.hpp"

#include "base/check.hpp"

namespace terrace {

void check_slots(const CopyCommand& command, std::uint32_t device_slots, std::uint32_t host_slots) {
  TERRACE_CHECK(!command.runs.empty());
  const bool out = command.direction == Direction::swap_out;
  const std::uint64_t sources = out ? device_slots : host_slots;
  const std::uint64_t destinations = out ? host_slots : device_slots;
  for (const SlotRun& run : command.runs) {
    TERRACE_CHECK(run.count > 0);
    TERRACE_CHECK(std::uint64_t{run.source.value()} + run.count <= sources);
    TERRACE_CHECK(std::uint64_t{run.destination.value()} + run.count <= destinations);
  }
}

}  // namespace terrace
