#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace terrace::tools {

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

/// Work of the emulated device: reads its first `blocks` blocks on the thread that computes. The device must outlive it.
[[nodiscard]] std::unique_ptr<ComputeWork> make_emulated_work(Device& device, std::uint32_t blocks, Bytes block_bytes);

/// Work of a GPU (lab/gpu/cuda_work.hpp). In a build without CUDA it throws std::runtime_error. Throws as CudaWork.
[[nodiscard]] std::unique_ptr<ComputeWork> make_cuda_work(int ordinal);

}  // namespace terrace::tools
