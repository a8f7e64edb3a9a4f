#pragma once

#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <cstdint>

namespace terrace::tools {

/// The kernels of compute_kernels.cu, in the context that is current. Ownership: the driver must outlive them. Threads: one.
/// All members throw CudaError.
class BenchKernels {
 public:
  BenchKernels(const CudaDriver& driver, CUdevice device);

  /// Copies `bytes` within device memory by all multiprocessors.
  void memory(CUstream stream, CUdeviceptr from, CUdeviceptr to, std::uint64_t bytes) const;
  /// Computes on each multiprocessor, for about a millisecond on a large GPU, with all shared memory that a block can have, so
  /// that nothing else fits beside it. `out` has one float for each multiprocessor.
  void arithmetic(CUstream stream, CUdeviceptr out) const;
  /// Computes on one multiprocessor, for about so many milliseconds.
  void wait(CUstream stream, CUdeviceptr out, unsigned milliseconds) const;

 private:
  [[nodiscard]] CUfunction function(const char* name) const;
  void compute(CUstream stream, CUdeviceptr out, unsigned blocks, unsigned shared_bytes, unsigned milliseconds) const;

  const CudaDriver& driver_;
  unsigned multiprocessors_;
  unsigned shared_bytes_;
  Owned<CUmodule> module_;
  CUfunction memory_;
  CUfunction arithmetic_;
};

}  // namespace terrace::tools
