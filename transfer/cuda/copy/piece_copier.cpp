#include "transfer/cuda/copy/piece_copier.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {
namespace {

std::size_t index(CopyMethod method) { return static_cast<std::size_t>(method); }

/// The most descriptors of one call. A driver was seen to hang with 50,000.
constexpr std::size_t batch_pieces_max = 512;

/// Cuts pieces into tiles of at most `tile_bytes` bytes. Each call of fill() makes tiles until the page is full.
class Tiling {
 public:
  Tiling(std::span<const CopyPiece> pieces, Direction direction, const HostRanges& host, std::uint64_t tile_bytes)
      : pieces_{pieces}, direction_{direction}, host_{host}, tile_bytes_{tile_bytes} {}

  [[nodiscard]] bool done() const { return pieces_.empty(); }

  std::uint32_t fill(std::span<CopyTile> tiles) {
    std::uint32_t filled = 0;
    while (!pieces_.empty() && filled < tiles.size()) {
      const CopyPiece& piece = pieces_.front();
      if (within_ == 0) piece_host_ = host_.device_address(piece.host, piece.bytes);
      const std::uint64_t bytes = std::min(tile_bytes_, piece.bytes - within_);
      const CUdeviceptr device = piece.device + within_;
      const CUdeviceptr host = piece_host_ + within_;
      const bool out = direction_ == Direction::swap_out;
      tiles[filled++] = {.source = out ? device : host, .destination = out ? host : device, .bytes = bytes};
      within_ += bytes;
      if (within_ < piece.bytes) continue;
      within_ = 0;
      pieces_ = pieces_.subspan(1);
    }
    return filled;
  }

 private:
  std::span<const CopyPiece> pieces_;
  Direction direction_;
  const HostRanges& host_;
  std::uint64_t tile_bytes_;
  std::uint64_t within_ = 0;
  CUdeviceptr piece_host_ = 0;
};

}  // namespace

PieceCopier::PieceCopier(const CudaDriver& driver, CUdevice device, const CopyKernels* kernels, const HostMap& host,
                         unsigned kernel_blocks)
    : driver_{driver},
      kernels_{kernels},
      host_{host},
      kernel_blocks_{std::max(kernel_blocks, 1U)},
      host_addresses_{cuda_attribute(driver, device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0} {
  available_.set(index(CopyMethod::plain));
  available_.set(index(CopyMethod::batch), driver.memcpy_batch_12080 != nullptr || driver.memcpy_batch_13000 != nullptr);
  available_.set(index(CopyMethod::kernel), kernels != nullptr);
  available_.set(index(CopyMethod::bulk_kernel), kernels != nullptr && kernels->has_bulk());
  if (kernels != nullptr) ring_.emplace(driver);
}

CudaOutcome PieceCopier::enqueue(CopyMethod method, Direction direction, std::span<const CopyPiece> pieces, CUstream stream) {
  TERRACE_CHECK(available_.test(index(method)));
  switch (method) {
    case CopyMethod::batch: return enqueue_batch(direction, pieces, stream);
    case CopyMethod::plain: return enqueue_plain(direction, pieces, stream);
    case CopyMethod::kernel: return enqueue_kernel(false, direction, pieces, stream);
    case CopyMethod::bulk_kernel: return enqueue_kernel(shape_of(pieces).aligned, direction, pieces, stream);
  }
  return {CUDA_ERROR_INVALID_VALUE, "enqueue"};
}

CudaOutcome PieceCopier::enqueue_plain(Direction direction, std::span<const CopyPiece> pieces, CUstream stream) {
  for (const CopyPiece& piece : pieces) {
    const bool out = direction == Direction::swap_out;
    const CUresult result = out ? driver_.cuMemcpyDtoHAsync(piece.host, piece.device, piece.bytes, stream)
                                : driver_.cuMemcpyHtoDAsync(piece.device, piece.host, piece.bytes, stream);
    if (result != CUDA_SUCCESS) return {result, out ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync"};
  }
  return {};
}

CudaOutcome PieceCopier::enqueue_batch(Direction direction, std::span<const CopyPiece> pieces, CUstream stream) {
  destinations_.clear();
  sources_.clear();
  sizes_.clear();
  const bool out = direction == Direction::swap_out;
  const std::shared_ptr<const HostRanges> ranges = host_.now();
  for (const CopyPiece& piece : pieces) {
    const CUdeviceptr host =
        host_addresses_ ? reinterpret_cast<std::uintptr_t>(piece.host) : ranges->device_address(piece.host, piece.bytes);
    destinations_.push_back(out ? host : piece.device);
    sources_.push_back(out ? piece.device : host);
    sizes_.push_back(piece.bytes);
  }
  // Device memory is read in stream order, because the driver could otherwise read it before the event after which it is written.
  // Bytes to swap in were in host memory before this call, so they may be read at any time.
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = out ? CU_MEMCPY_SRC_ACCESS_ORDER_STREAM : CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  for (std::size_t begin = 0; begin < pieces.size(); begin += batch_pieces_max) {
    const std::size_t number = std::min(batch_pieces_max, pieces.size() - begin);
    CUdeviceptr* const to = destinations_.data() + begin;
    CUdeviceptr* const from = sources_.data() + begin;
    std::size_t* const sizes = sizes_.data() + begin;
    std::size_t first = 0;
    std::size_t fail_index = 0;
    const CUresult result =
        driver_.memcpy_batch_13000 != nullptr
            ? driver_.memcpy_batch_13000(to, from, sizes, number, &attributes, &first, 1, stream)
            : driver_.memcpy_batch_12080(to, from, sizes, number, &attributes, &first, 1, &fail_index, stream);
    if (result != CUDA_SUCCESS) return {result, "cuMemcpyBatchAsync"};
  }
  return {};
}

CudaOutcome PieceCopier::enqueue_kernel(bool bulk, Direction direction, std::span<const CopyPiece> pieces, CUstream stream) {
  const std::shared_ptr<const HostRanges> host = host_.now();
  Tiling tiling{pieces, direction, *host, bulk ? bulk_tile_bytes : kernel_tile_bytes};
  while (!tiling.done()) {
    std::span<CopyTile> page;
    CUdeviceptr address = 0;
    const CUresult free = ring_->next_page(page, address);
    if (free != CUDA_SUCCESS) return {free, "cuEventSynchronize"};
    const std::uint32_t count = tiling.fill(page);
    const CUresult launched = kernels_->copy(bulk, stream, address, count, kernel_blocks_);
    if (launched != CUDA_SUCCESS) return {launched, "cuLaunchKernel"};
    const CUresult recorded = ring_->launched(stream);
    if (recorded != CUDA_SUCCESS) {
      // Without the event, it is unknown when the page can be reused. So wait for the kernel now.
      static_cast<void>(await_stream(driver_, stream));
      return {recorded, "cuEventRecord"};
    }
  }
  return {};
}

}  // namespace terrace
