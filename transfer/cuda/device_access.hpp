#pragma once

#include "transfer/cuda/copy/piece_copier.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/pinned_pools.hpp"
#include "transfer/device/device.hpp"

#include <span>
#include <vector>

namespace terrace {

/// A GPU's blocks for work that runs on the host: copied to and fro by way of a pinned buffer, each call to its end. It is what
/// replay and tests compute with; an engine has kernels.
///
/// There is no one to tell that a copy failed: it is noted, and what is read is then a pattern that no content has. Threads: the
/// compute thread.
class DeviceAccess final : public BlockAccess {
 public:
  /// Throws CudaError. What is given outlives this.
  DeviceAccess(const CudaDriver& driver, const PinnedPools& pools, CUstream stream, FailureLog& failures);

  using BlockAccess::read;
  using BlockAccess::write_target;
  using BlockAccess::written;
  [[nodiscard]] std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  [[nodiscard]] std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  void written(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;

 private:
  /// The slot exists; its block's part of the scratch.
  [[nodiscard]] std::span<std::byte> block_of(PoolId pool, SlotId slot, std::span<std::byte> scratch) const;
  /// False: noted.
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
