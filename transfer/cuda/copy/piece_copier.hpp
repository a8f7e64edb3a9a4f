#pragma once

#include "transfer/cuda/copy/copy_kernels.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/cuda/copy/copy_pieces.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/device/transfer.hpp"

#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Puts the copies of pieces on a stream, by any copy method. Threads: the issuing thread of the stream.
class PieceCopier {
 public:
  /// If `kernels` is null, only the methods of the copy engine are available. All arguments given by reference or pointer must
  /// outlive this object. Throws CudaError.
  PieceCopier(const CudaDriver& driver, CUdevice device, const CopyKernels* kernels, const HostMap& host, unsigned kernel_blocks);

  [[nodiscard]] CopyMethods available() const { return available_; }
  /// Puts the copies on the stream. It may first wait for free descriptors. `method` must be available; if pieces are not
  /// aligned, `kernel` is used instead of `bulk_kernel`. A swap-in may read the host memory at once. If it fails, some of the
  /// copies may be on the stream.
  [[nodiscard]] CudaOutcome enqueue(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces, CUstream stream);

 private:
  [[nodiscard]] CudaOutcome enqueue_plain(Direction direction, std::span<const CopyPiece> pieces, CUstream stream);
  [[nodiscard]] CudaOutcome enqueue_batch(Direction direction, std::span<const CopyPiece> pieces, CUstream stream);
  [[nodiscard]] CudaOutcome enqueue_kernel(bool bulk, Direction direction, std::span<const CopyPiece> pieces, CUstream stream);

  const CudaDriver& driver_;
  const CopyKernels* kernels_;
  const HostMap& host_;
  unsigned kernel_blocks_;
  bool host_addresses_;  ///< the device addresses pinned host memory by the host's addresses
  CopyMethods available_;
  std::optional<TileRing> ring_;
  // Scratch memory of enqueue_batch().
  std::vector<CUdeviceptr> destinations_;
  std::vector<CUdeviceptr> sources_;
  std::vector<std::size_t> sizes_;
};

}  // namespace terrace
