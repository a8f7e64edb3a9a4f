#pragma once

#include "lab/benches.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace terrace {
struct CudaDriver;
}

namespace terrace::tools {

/// The baseline of a device: copies over the same link, without any other code of Terrace. Threads: any, one for each direction.
class PlainCopies {
 public:
  virtual ~PlainCopies() = default;
  /// Makes one plain copy for each run (two if a run crosses chunks of the arena), one after the other, and waits for the last
  /// one. The host side is in the arena; the device side is memory of its own.
  virtual void copy(Direction direction, std::span<const SlotRun> runs) = 0;
};

/// The part of a machine that a step of compute needs most.
enum class ComputeKind : unsigned char {
  memory,      ///< device memory, as decoding
  arithmetic,  ///< all multiprocessors, with all of their shared memory, as prefill
  input,       ///< the link: the small copy to the device with which an engine begins a step
};
[[nodiscard]] std::string_view to_string(ComputeKind kind);

/// Work on a device that stands for the steps of an engine. Threads: one.
class ComputeWork {
 public:
  virtual ~ComputeWork() = default;
  /// The kinds that this device has.
  [[nodiscard]] virtual std::span<const ComputeKind> kinds() const = 0;
  /// Starts a step. The step before it has ended.
  virtual void start(ComputeKind kind) = 0;
  /// Returns how long the step took on the device; nothing while it runs.
  [[nodiscard]] virtual std::optional<Duration> ended() = 0;
};

/// Work of a GPU. In a build without CUDA it throws std::runtime_error. All members throw CudaError.
[[nodiscard]] std::unique_ptr<ComputeWork> make_cuda_work(int ordinal);
/// The same with this driver, which must outlive the work. It has twice `memory` on the device, which should be more than the
/// device's cache. Throws CudaUnavailable and CudaError.
[[nodiscard]] std::unique_ptr<ComputeWork> make_cuda_work(const CudaDriver& driver, int ordinal, Bytes memory);

/// Everything in `terrace-lab transfer` that depends on the kind of device. make_transfer_device() is the only place that chooses
/// it.
struct TransferDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<PlainCopies> plain;
  std::unique_ptr<ComputeWork> compute;  ///< of the emulated device: of its first half of slots
};

/// Takes the kind, the link and the layers of `options`. The arena must outlive both. Throws what the constructor of the device
/// throws.
[[nodiscard]] TransferDevice make_transfer_device(const TransferBenchOptions& options, std::uint32_t slots, HostArena& host);

}  // namespace terrace::tools
