#include "tools/bench/transfer_device.hpp"

#include "base/check.hpp"
#include "transfer/emulated_device.hpp"
#include "transfer/slot_memory.hpp"

namespace terrace::tools {
namespace {

/// memcpy, on the calling thread.
class MemoryCopies final : public PlainCopies {
 public:
  MemoryCopies(std::uint32_t slots, const HostArena& host) : memory_{slots, host} {}

  void copy(Direction direction, std::span<const SlotRun> runs) override { memory_.copy(direction, runs); }

 private:
  SlotMemory memory_;
};

}  // namespace

TransferDevice make_transfer_device(DeviceChoice choice, std::uint32_t slots, const HostArena& host) {
  TERRACE_CHECK(choice.kind == DeviceChoice::Kind::emulated);
  return {std::make_unique<EmulatedDevice>(slots, host), std::make_unique<MemoryCopies>(slots, host)};
}

}  // namespace terrace::tools
