#pragma once

#include "transfer/cuda/copy/copy_kernels.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/cuda/copy/copy_pieces.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/device/transfer.hpp"

#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Puts the copies of pieces on a stream, by any of the methods. Threads: the stream's issuing one.
class PieceCopier {
 public:
  /// Without kernels there are the methods of the copy engine only. What is given by reference outlives this. Throws CudaError.
  PieceCopier(const CudaDriver& driver, const CopyKernels* kernels, const HostMap& host, unsigned kernel_blocks);

  [[nodiscard]] CopyMethods available() const { return available_; }
  /// Returns when the copies are on the stream, or before where they need descriptors of which none are free. `method` is
  /// available; for pieces that are not aligned the kernel stands in for the bulk kernel. Failed: some of the copies may be on
  /// the stream.
  [[nodiscard]] CudaOutcome enqueue(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces, CUstream stream);

 private:
  [[nodiscard]] CudaOutcome enqueue_plain(Direction direction, std::span<const CopyPiece> pieces, CUstream stream);
  [[nodiscard]] CudaOutcome enqueue_batch(Direction direction, std::span<const CopyPiece> pieces, CUstream stream);
  [[nodiscard]] CudaOutcome enqueue_kernel(bool bulk, Direction direction, std::span<const CopyPiece> pieces, CUstream stream);

  const CudaDriver& driver_;
  const CopyKernels* kernels_;
  const HostMap& host_;
  unsigned kernel_blocks_;
  CopyMethods available_;
  std::optional<TileRing> ring_;
  // enqueue_batch's, kept for their memory.
  std::vector<CUdeviceptr> destinations_;
  std::vector<CUdeviceptr> sources_;
  std::vector<std::size_t> sizes_;
};

}  // namespace terrace
