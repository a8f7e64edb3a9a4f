#include "transfer/cuda/device_access.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstring>

namespace terrace {
namespace {

constexpr std::byte unread{0xDB};

Bytes largest_block(const PinnedPools& pools) {
  Bytes largest{};
  for (const PinnedPools::Pool& pool : pools.all()) largest = std::max(largest, pool.geometry.block_bytes());
  return largest;
}

}  // namespace

DeviceAccess::DeviceAccess(const CudaDriver& driver, CUdevice device, const PinnedPools& pools, CUstream stream,
                           FailureLog& failures)
    : driver_{driver},
      pools_{pools},
      stream_{stream},
      failures_{failures},
      buffer_{driver, largest_block(pools), "host access to a block"},
      copier_{driver, device, nullptr, pools.host(), 1} {}

std::span<const std::byte> DeviceAccess::read(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  const std::span<std::byte> block = block_of(pool, slot, scratch);
  if (copy(Direction::swap_out, pool, slot)) {
    std::memcpy(block.data(), buffer_.bytes().data(), block.size());
  } else {
    std::ranges::fill(block, unread);
  }
  return block;
}

std::span<std::byte> DeviceAccess::write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  return block_of(pool, slot, scratch);
}

void DeviceAccess::written(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  const std::span<std::byte> block = block_of(pool, slot, scratch);
  std::memcpy(buffer_.bytes().data(), block.data(), block.size());
  // A failure is noted. The slot then has wrong bytes, which a later comparison will detect.
  static_cast<void>(copy(Direction::swap_in, pool, slot));
}

std::span<std::byte> DeviceAccess::block_of(PoolId pool, SlotId slot, std::span<std::byte> scratch) const {
  const DeviceGeometry& geometry = pools_.of(pool).geometry;
  TERRACE_CHECK(slot.value() < geometry.slots());
  TERRACE_CHECK(scratch.size() >= count(geometry.block_bytes()));
  return scratch.first(count(geometry.block_bytes()));
}

bool DeviceAccess::copy(Direction direction, PoolId pool, SlotId slot) {
  pieces_.clear();
  plan_block(slot, buffer_.bytes().data(), pools_.of(pool).geometry, pieces_);
  const CudaOutcome enqueued = copier_.enqueue(CopyMethod::plain, direction, pieces_, stream_);
  // Wait even after a failure, because copies that are on the stream use the buffer.
  const CudaOutcome ended{await_stream(driver_, stream_), "cuStreamSynchronize"};
  const bool failed = failures_.note(enqueued);
  return !failures_.note(ended) && !failed;
}

}  // namespace terrace
