#pragma once

#include "transfer/device.hpp"
#include "transfer/host_arena.hpp"
#include "transfer/plan.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace terrace::tools {

/// The yardstick of a device: copies over the same link with nothing of ours around them. Threads: any, one a direction.
class PlainCopies {
 public:
  virtual ~PlainCopies() = default;
  /// One plain copy a run (two where a run crosses chunks of the arena), one after the other, and waits for the last. The host's
  /// side is the arena's, the device's is memory of its own.
  virtual void copy(Direction direction, std::span<const SlotRun> runs) = 0;
};

/// What `bench transfer` knows of a kind of device; another kind is made here, and nowhere else.
struct TransferDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<PlainCopies> plain;
};

/// `cuda`: which CUDA device; none: the emulated one. The arena outlives both. Throws as the device's constructor.
[[nodiscard]] TransferDevice make_transfer_device(std::optional<int> cuda, std::uint32_t slots, HostArena& host);

}  // namespace terrace::tools
