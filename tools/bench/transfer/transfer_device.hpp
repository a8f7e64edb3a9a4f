#pragma once

#include "base/bytes.hpp"
#include "transfer/device/device.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/host/host_arena.hpp"

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

struct TransferDeviceOptions {
  std::optional<int> cuda;        ///< which CUDA device; none: the emulated one
  std::uint32_t layers = 1;       ///< of a block
  Bytes link_bytes_per_second{};  ///< of the emulated device, each way; 0: as fast as memory goes
};

/// The arena outlives both. Throws as the device's constructor.
[[nodiscard]] TransferDevice make_transfer_device(const TransferDeviceOptions& options, std::uint32_t slots, HostArena& host);

}  // namespace terrace::tools
