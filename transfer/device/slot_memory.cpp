#include "transfer/device/slot_memory.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace terrace {
namespace {

Bytes device_bytes(std::uint32_t slots, Bytes block_bytes) {
  if (slots == 0) throw std::invalid_argument{"emulated device: it must have at least one slot"};
  if (count(block_bytes) > std::numeric_limits<std::uint64_t>::max() / slots) {
    throw std::invalid_argument{
        fmt::format("emulated device: {} slots of {} are more than can be counted", slots, to_string(block_bytes))};
  }
  return block_bytes * slots;
}

std::uint32_t checked_layers(std::uint32_t layers, Bytes block_bytes) {
  if (layers == 0 || count(block_bytes) % layers != 0) {
    throw std::invalid_argument{
        fmt::format("emulated device: a block of {} cannot be divided into {} layers", to_string(block_bytes), layers)};
  }
  return layers;
}

}  // namespace

SlotMemory::SlotMemory(const PoolMemory& pool)
    : slots_{pool.slots},
      host_{pool.host},
      host_begin_{count(pool.share.offset)},
      block_bytes_{checked_size(pool.share, *pool.host)},
      layers_{checked_layers(pool.layers, block_bytes_)},
      device_{device_bytes(slots_, block_bytes_),
              fmt::format("emulated device of {} slots of {}", slots_, to_string(block_bytes_))} {}

std::span<std::byte> SlotMemory::device_block(SlotId slot) const {
  TERRACE_CHECK(slot.value() < slots_);
  const std::size_t size = count(block_bytes_);
  return device_.bytes().subspan(slot.value() * size, size);
}

std::span<std::byte> SlotMemory::host_block(SlotId slot) const {
  return host_->block(slot).subspan(host_begin_, count(block_bytes_));
}

void SlotMemory::check(const CopyCommand& command) const { check_slots(command, pool(), *host_); }

ByteRange SlotMemory::range_of(std::optional<LayerRange> layers) const {
  const std::size_t layer_bytes = count(block_bytes_) / layers_;
  const LayerRange of = layers.value_or(LayerRange{0, layers_});
  return {of.first * layer_bytes, of.count * layer_bytes};
}

void SlotMemory::copy(const CopyCommand& command) const {
  if (!command.layers) return copy(command.direction, command.runs);
  const ByteRange range = range_of(command.layers);
  for (const SlotRun& run : command.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const SlotPair block{SlotId{run.source.value() + i}, SlotId{run.destination.value() + i}};
      copy_part(command.direction, block, range.begin, range.size);
    }
  }
}

void SlotMemory::copy(Direction direction, std::span<const SlotRun> runs) const {
  const bool shares_adjoin = block_bytes_ == host_->block_bytes();
  for (SlotRun run : runs) {
    while (run.count > 0) {
      const SlotId in_arena = direction == Direction::swap_out ? run.destination : run.source;
      const std::uint32_t range = shares_adjoin ? std::min(run.count, host_->contiguous_from(in_arena)) : 1;
      std::memcpy(destination(direction, run.destination).data(), source(direction, run.source).data(),
                  range * count(block_bytes_));
      run = {SlotId{run.source.value() + range}, SlotId{run.destination.value() + range}, run.count - range};
    }
  }
}

void SlotMemory::copy_part(Direction direction, SlotPair block, std::size_t begin, std::size_t size) const {
  const std::span<std::byte> from = source(direction, block.source).subspan(begin, size);
  std::memcpy(destination(direction, block.destination).subspan(begin, size).data(), from.data(), size);
}

SlotMemories::SlotMemories(std::span<const PoolMemory> pools) {
  if (pools.empty()) throw std::invalid_argument{"emulated device: it must have at least one pool of slots"};
  memories_.reserve(pools.size());
  for (const PoolMemory& pool : pools) memories_.emplace_back(pool);
}

std::vector<DevicePool> SlotMemories::pools() const {
  std::vector<DevicePool> pools;
  pools.reserve(memories_.size());
  for (const SlotMemory& memory : memories_) pools.push_back(memory.pool());
  return pools;
}

std::span<std::byte> SlotMemory::source(Direction direction, SlotId slot) const {
  return direction == Direction::swap_out ? device_block(slot) : host_block(slot);
}

std::span<std::byte> SlotMemory::destination(Direction direction, SlotId slot) const {
  return direction == Direction::swap_out ? host_block(slot) : device_block(slot);
}

}  // namespace terrace
