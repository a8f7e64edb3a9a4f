#pragma once

#include "terrace/device.hpp"
#include "transfer/cuda/copy/piece_copier.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/pinned_pools.hpp"

#include <span>
#include <vector>

namespace terrace {

/// Gives work on the host access to the blocks of a GPU. Each call copies a block through a pinned buffer and waits for the end
/// of the copy. Replay and tests compute in this way; an engine uses kernels.
///
/// Threads: the compute thread. Errors: a copy that fails is noted in the FailureLog. A block that could not be read is filled
/// with a fixed pattern.
class DeviceAccess final : public BlockAccess {
 public:
  /// All arguments must outlive this object. Throws CudaError.
  DeviceAccess(const CudaDriver& driver, CUdevice device, const PinnedPools& pools, CUstream stream, FailureLog& failures);

  using BlockAccess::read;
  using BlockAccess::write_target;
  using BlockAccess::written;
  [[nodiscard]] std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  [[nodiscard]] std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  void written(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;

 private:
  /// Checks that the slot exists. Returns the part of the scratch memory that a block needs.
  [[nodiscard]] std::span<std::byte> block_of(PoolId pool, SlotId slot, std::span<std::byte> scratch) const;
  /// Copies a block between the device and the buffer. Returns false if that failed; the failure is noted.
  [[nodiscard]] bool copy(Direction direction, PoolId pool, SlotId slot);

  const CudaDriver& driver_;
  const PinnedPools& pools_;
  CUstream stream_;
  FailureLog& failures_;
  PinnedBuffer buffer_;
  PieceCopier copier_;
  std::vector<CopyPiece> pieces_;
};

}  // namespace terrace
