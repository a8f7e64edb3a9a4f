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

/// Allocates memory for packed blocks, unless the caller has regions. Its constructor throws.
Mapping own_memory(const PoolMemory& pool) {
  const Bytes block_bytes = checked_size(pool.share, *pool.host);
  const Bytes size = device_bytes(pool.slots, block_bytes);
  if (!pool.regions.empty()) return {};
  // Refuse the layers before the memory is set up, because that takes long.
  static_cast<void>(packed_geometry(1, pool.slots, block_bytes, pool.layers));
  return Mapping{size, fmt::format("emulated device of {} slots of {}", pool.slots, to_string(block_bytes))};
}

DeviceGeometry geometry_of(const PoolMemory& pool, const Mapping& own) {
  const Bytes block_bytes = checked_size(pool.share, *pool.host);
  if (!pool.regions.empty()) return {pool.slots, pool.regions, block_bytes};
  return packed_geometry(reinterpret_cast<std::uintptr_t>(own.bytes().data()), pool.slots, block_bytes, pool.layers);
}

std::byte* at_address(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

SlotMemory::SlotMemory(const PoolMemory& pool)
    : host_{pool.host}, host_begin_{count(pool.share.offset)}, device_{own_memory(pool)}, geometry_{geometry_of(pool, device_)} {}

std::span<std::byte> SlotMemory::device_block(SlotId slot) const {
  TERRACE_CHECK(slot.value() < geometry_.slots());
  TERRACE_CHECK(geometry_.packed());
  const std::size_t size = count(geometry_.block_bytes());
  return {at_address(geometry_.regions()[0].base + slot.value() * size), size};
}

std::span<std::byte> SlotMemory::host_block(SlotId slot) const {
  return host_->block(slot).subspan(host_begin_, count(geometry_.block_bytes()));
}

void SlotMemory::copy(Direction direction, std::span<const SlotRun> runs, std::optional<LayerRange> layers) const {
  const bool out = direction == Direction::swap_out;
  const bool adjoin = !layers && geometry_.packed() && geometry_.block_bytes() == host_->block_bytes();
  for (SlotRun run : runs) {
    while (run.count > 0) {
      const SlotId in_arena = out ? run.destination : run.source;
      const std::uint32_t range = adjoin ? std::min(run.count, host_->contiguous_from(in_arena)) : 1;
      if (adjoin) {
        std::byte* const device = device_block(out ? run.source : run.destination).data();
        std::byte* const host = host_block(in_arena).data();
        std::memcpy(out ? host : device, out ? device : host, range * count(geometry_.block_bytes()));
      } else {
        copy_part(direction, {run.source, run.destination}, layers, 0, geometry_.bytes_of(layers));
      }
      run = {SlotId{run.source.value() + range}, SlotId{run.destination.value() + range}, run.count - range};
    }
  }
}

void SlotMemory::copy_part(Direction direction, SlotPair block, std::optional<LayerRange> layers, std::size_t begin,
                           std::size_t size) const {
  const bool out = direction == Direction::swap_out;
  copy_between(direction, out ? block.source : block.destination, host_block(out ? block.destination : block.source), layers,
               begin, size);
}

void SlotMemory::copy_block(Direction direction, SlotId slot, std::span<std::byte> host) const {
  TERRACE_CHECK(slot.value() < geometry_.slots());
  copy_between(direction, slot, host, {}, 0, count(geometry_.block_bytes()));
}

void SlotMemory::copy_between(Direction direction, SlotId slot, std::span<std::byte> host, std::optional<LayerRange> layers,
                              std::size_t begin, std::size_t size) const {
  const bool out = direction == Direction::swap_out;
  for_each_part(geometry_, slot.value(), layers, begin, size,
                [&](std::uint64_t address, std::uint64_t place, std::uint64_t bytes) {
                  std::byte* const device = at_address(address);
                  std::byte* const at = host.subspan(place, bytes).data();
                  std::memcpy(out ? at : device, out ? device : at, bytes);
                });
}

std::size_t SlotMemory::host_place(std::optional<LayerRange> layers, std::size_t at) const {
  std::size_t found = 0;
  for_each_part(geometry_, 0, layers, at, 1, [&](std::uint64_t, std::uint64_t place, std::uint64_t) { found = place; });
  return found;
}

SlotMemories::SlotMemories(std::span<const PoolMemory> pools) {
  if (pools.empty()) throw std::invalid_argument{"emulated device: it must have at least one pool of slots"};
  memories_.reserve(pools.size());
  for (const PoolMemory& pool : pools) memories_.emplace_back(pool);
  check_disjoint(geometries());
}

std::vector<DeviceGeometry> SlotMemories::geometries() const {
  std::vector<DeviceGeometry> all;
  all.reserve(memories_.size());
  for (const SlotMemory& memory : memories_) all.push_back(memory.geometry());
  return all;
}

std::vector<DeviceGeometry> SlotMemories::check_relocation(std::span<const RelocatedPool> pools) const {
  return relocated(geometries(), pools);
}

void SlotMemories::relocate(std::span<const RelocatedPool> pools) {
  std::vector<DeviceGeometry> moved = check_relocation(pools);
  for (std::size_t i = 0; i < memories_.size(); ++i) memories_[i].move_to(std::move(moved[i]));
}

std::vector<DevicePool> SlotMemories::pools() const {
  std::vector<DevicePool> pools;
  pools.reserve(memories_.size());
  for (const SlotMemory& memory : memories_) pools.push_back(memory.geometry().pool());
  return pools;
}

std::span<const std::byte> InPlaceAccess::read(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  const SlotMemory& memory = memories_->of(pool);
  if (memory.geometry().packed()) return memory.device_block(slot);
  const std::span<std::byte> block = scratch.first(count(memory.geometry().block_bytes()));
  memory.copy_block(Direction::swap_out, slot, block);
  return block;
}

std::span<std::byte> InPlaceAccess::write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  const SlotMemory& memory = memories_->of(pool);
  return memory.geometry().packed() ? memory.device_block(slot) : scratch.first(count(memory.geometry().block_bytes()));
}

void InPlaceAccess::written(PoolId pool, SlotId slot, std::span<std::byte> scratch) {
  const SlotMemory& memory = memories_->of(pool);
  if (!memory.geometry().packed())
    memory.copy_block(Direction::swap_in, slot, scratch.first(count(memory.geometry().block_bytes())));
}

}  // namespace terrace
