#pragma once

#include "lab/gpu/bench_kernels.hpp"
#include "lab/transfer/transfer_device.hpp"
#include "terrace/types.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace terrace::tools {

/// Steps on a stream of their own, as an engine has it, timed by events of the device:
///
/// - memory: copies of `memory` bytes within device memory, which should be more than its cache, by all multiprocessors;
/// - arithmetic: BenchKernels::arithmetic();
/// - input: one copy of 4 KiB from pinned memory.
///
/// Ownership: the driver must outlive it. It has twice `memory` on the device. Threads: one. All members throw CudaError.
class CudaWork final : public ComputeWork {
 public:
  /// Throws CudaUnavailable and CudaError.
  CudaWork(const CudaDriver& driver, int ordinal, Bytes memory = MiB * 256);
  /// Waits for the end of the step.
  ~CudaWork() override;

  [[nodiscard]] std::span<const ComputeKind> kinds() const override { return kinds_; }
  void start(ComputeKind kind) override;
  [[nodiscard]] std::optional<Duration> ended() override;

 private:
  static constexpr ComputeKind kinds_[] = {ComputeKind::memory, ComputeKind::arithmetic, ComputeKind::input};

  const CudaDriver& driver_;
  PrimaryContext context_;
  Bytes memory_bytes_;
  DeviceMemory from_;
  DeviceMemory to_;
  PinnedBuffer input_;
  StreamHandle stream_;
  EventHandle begin_;
  EventHandle end_;
  BenchKernels kernels_;
};

}  // namespace terrace::tools
