#pragma once

#include "transfer/cuda/copy/copy_tile.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// The kernels of kernels.cu, loaded into the current context. The constructor runs each kernel once without tiles, because a
/// driver that loads lazily would otherwise load it at its first launch, and would then wait for all running work. Constant after
/// construction.
class CopyKernels {
 public:
  /// Throws CudaError, for example if the driver is older than the compiler of the kernels.
  CopyKernels(const CudaDriver& driver, CUdevice device, CUstream stream);
  /// If the constructor throws, returns nothing and sets `why`; then the copy engine makes all copies.
  [[nodiscard]] static std::optional<CopyKernels> load(const CudaDriver& driver, CUdevice device, CUstream stream,
                                                       std::string& why);

  /// Returns true on devices of compute capability 9.0 or higher.
  [[nodiscard]] bool has_bulk() const { return bulk_ != nullptr; }
  /// Launches a kernel on the stream, that for bulk copies or the other one, which copies `count` tiles with at most `blocks_max`
  /// thread blocks. `tiles` is the device's address of the tiles, which must not change until the kernel has ended.
  [[nodiscard]] CUresult copy(bool bulk, CUstream stream, CUdeviceptr tiles, std::uint32_t count, unsigned blocks_max) const;

 private:
  const CudaDriver& driver_;
  Owned<CUmodule> module_;
  CUfunction tiles_ = nullptr;
  CUfunction bulk_ = nullptr;
};

/// Passes tiles to the kernels of one stream, in a ring of pages of pinned memory. A page is reused only after the kernel that
/// reads it has ended. Threads: the issuing thread of the stream.
class TileRing {
 public:
  static constexpr std::size_t pages = 8;
  static constexpr std::size_t page_tiles = 4096;

  /// Throws CudaError.
  explicit TileRing(const CudaDriver& driver);

  /// Waits until the next page is free, and returns it in `tiles`, with the device's address in `address`.
  [[nodiscard]] CUresult next_page(std::span<CopyTile>& tiles, CUdeviceptr& address);
  /// Reports that the kernel that reads the current page has been launched on the stream.
  [[nodiscard]] CUresult launched(CUstream stream) { return driver_.cuEventRecord(read_[page_].get(), stream); }

 private:
  const CudaDriver& driver_;
  PinnedBuffer memory_;
  std::vector<EventHandle> read_;
  std::size_t page_ = 0;
};

}  // namespace terrace
