#pragma once

#include "transfer/cuda/copy/copy_tile.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The kernels of kernels.cu, loaded into the current context and run once on nothing: a driver that loads lazily would load at
/// the first launch, and wait for all that runs. Constant after construction.
class CopyKernels {
 public:
  /// Throws CudaError, as where the driver is older than the compiler of the kernels.
  CopyKernels(const CudaDriver& driver, CUdevice device, CUstream stream);

  /// Devices from compute capability 9.0 on.
  [[nodiscard]] bool has_bulk() const { return bulk_ != nullptr; }
  /// `tiles` is the address of the device's; they stay what they are until the kernel has ended.
  [[nodiscard]] CUresult copy_tiles(CUstream stream, CUdeviceptr tiles, std::uint32_t count, unsigned blocks_max) const;
  [[nodiscard]] CUresult copy_bulk(CUstream stream, CUdeviceptr tiles, std::uint32_t count, unsigned blocks_max) const;

 private:
  const CudaDriver& driver_;
  Owned<CUmodule> module_;
  CUfunction tiles_ = nullptr;
  CUfunction bulk_ = nullptr;
};

/// Tiles on their way to kernels of one stream, in pinned memory: a few pages, each written again only when the kernel that
/// reads it has ended. Threads: the stream's issuing one.
class TileRing {
 public:
  static constexpr std::size_t pages = 8;
  static constexpr std::size_t page_tiles = 4096;

  /// Throws CudaError.
  explicit TileRing(const CudaDriver& driver);

  /// The next page, waited for.
  [[nodiscard]] CUresult next_page(std::span<CopyTile>& tiles, CUdeviceptr& address);
  /// What has been launched on the stream up to now reads the page that next_page gave last.
  [[nodiscard]] CUresult launched(CUstream stream);

 private:
  const CudaDriver& driver_;
  PinnedBuffer memory_;
  std::vector<EventHandle> read_;
  std::size_t page_ = 0;
};

}  // namespace terrace
