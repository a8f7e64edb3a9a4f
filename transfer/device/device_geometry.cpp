#include "transfer/device/device_geometry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

constexpr std::uint64_t address_max = std::numeric_limits<std::uint64_t>::max();

struct Strided {
  const DeviceRegion* region;
  std::uint32_t slots;

  [[nodiscard]] std::uint64_t begin(std::uint64_t slot) const { return region->base + slot * region->stride; }
  [[nodiscard]] std::uint64_t end(std::uint64_t slot) const { return begin(slot) + region->bytes; }
  [[nodiscard]] std::uint64_t end() const { return end(slots - 1); }
};

/// Two regions with the same stride can overlap only at a fixed distance in slots: the distance of their bases divided by the
/// stride, rounded down or up. Example: K and V are interleaved, at bases 0 and 64 with stride 128. Slot i of V lies between
/// slots i and i + 1 of K, and overlaps neither.
bool overlap_at_one_stride(const Strided& low, const Strided& high) {
  const std::uint64_t stride = low.region->stride;
  const std::uint64_t distance = high.region->base - low.region->base;
  const std::uint64_t slots_apart = distance / stride;
  const std::uint64_t rest = distance % stride;
  if (slots_apart < low.slots && rest < low.region->bytes) return true;
  return slots_apart + 1 < low.slots && rest + high.region->bytes > stride;
}

bool overlap_by_walking(const Strided& a, const Strided& b) {
  std::uint64_t in_a = 0;
  std::uint64_t in_b = 0;
  while (in_a < a.slots && in_b < b.slots) {
    if (a.end(in_a) <= b.begin(in_b)) {
      ++in_a;
    } else if (b.end(in_b) <= a.begin(in_a)) {
      ++in_b;
    } else {
      return true;
    }
  }
  return false;
}

bool overlap(Strided a, Strided b) {
  if (a.end() <= b.region->base || b.end() <= a.region->base) return false;
  if (a.region->base > b.region->base) std::swap(a, b);
  // The stride of a region with one slot has no meaning.
  const bool one_stride = a.region->stride == b.region->stride && a.slots > 1 && b.slots > 1;
  return one_stride ? overlap_at_one_stride(a, b) : overlap_by_walking(a, b);
}

void check_region(const DeviceRegion& region, std::size_t number, std::uint32_t slots) {
  const auto refuse = [number](const std::string& why) {
    throw std::invalid_argument{fmt::format("device geometry: region {} {}", number, why)};
  };
  if (region.base == 0) refuse("has no address");
  if (region.bytes == 0) refuse("is empty");
  if (slots > 1 && region.stride < region.bytes) {
    refuse(fmt::format("holds {} of each block at a stride of {}: its blocks overlap", to_string(Bytes{region.bytes}),
                       to_string(Bytes{region.stride})));
  }
  const std::uint64_t room = address_max - region.base;
  if (region.bytes > room || (slots > 1 && region.stride > (room - region.bytes) / (slots - 1))) {
    refuse("leaves the address space");
  }
}

/// Returns the number of layers. Throws std::invalid_argument if a layer is missing or differs in size.
std::uint32_t checked_layers(std::span<const DeviceRegion> regions) {
  std::uint32_t last = 0;
  for (const DeviceRegion& region : regions) last = std::max(last, region.layer);
  if (last >= regions.size()) {
    throw std::invalid_argument{fmt::format(
        "device geometry: a region has layer number {}, but {} regions cannot have so many layers", last, regions.size())};
  }
  std::vector<std::uint64_t> bytes(last + 1);
  for (const DeviceRegion& region : regions) bytes[region.layer] += region.bytes;
  for (std::uint32_t layer = 1; layer <= last; ++layer) {
    if (bytes[layer] == bytes[0]) continue;
    throw std::invalid_argument{fmt::format("device geometry: layer {} has {} of each block, and layer 0 has {}", layer,
                                            to_string(Bytes{bytes[layer]}), to_string(Bytes{bytes[0]}))};
  }
  return last + 1;
}

/// Checks that the layout is the same as before, because blocks on the host have that layout.
void check_same_layout(std::size_t pool, const DeviceGeometry& before, std::span<const DeviceRegion> regions) {
  if (regions.size() != before.regions().size()) {
    throw std::invalid_argument{
        fmt::format("device geometry: pool {} has {} regions, and not {}", pool, before.regions().size(), regions.size())};
  }
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const DeviceRegion& had = before.regions()[i];
    if (regions[i].layer != had.layer) {
      throw std::invalid_argument{fmt::format("device geometry: region {} of pool {} is of layer {}, and not of {}", i, pool,
                                              had.layer, regions[i].layer)};
    }
    if (regions[i].bytes == had.bytes && regions[i].stride == had.stride) continue;
    throw std::invalid_argument{fmt::format(
        "device geometry: region {} of pool {} holds {} of each block at a stride of {}, and not {} at a stride of {}", i, pool,
        to_string(Bytes{had.bytes}), to_string(Bytes{had.stride}), to_string(Bytes{regions[i].bytes}),
        to_string(Bytes{regions[i].stride}))};
  }
}

bool are_packed(std::span<const DeviceRegion> regions, Bytes block_bytes) {
  std::uint64_t next = regions.front().base;
  for (const DeviceRegion& region : regions) {
    if (region.base != next || region.stride != count(block_bytes)) return false;
    next += region.bytes;
  }
  return true;
}

}  // namespace

DeviceGeometry::DeviceGeometry(std::uint32_t slots, std::vector<DeviceRegion> regions, Bytes block_bytes, bool owned)
    : slots_{slots}, regions_{std::move(regions)}, block_bytes_{block_bytes}, owned_{owned} {
  if (slots_ == 0) throw std::invalid_argument{"device geometry: a pool must have at least one slot"};
  if (regions_.empty()) throw std::invalid_argument{"device geometry: a pool must have at least one region"};
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    check_region(regions_[i], i, slots_);
    sum += regions_[i].bytes;
  }
  if (sum != count(block_bytes_)) {
    throw std::invalid_argument{fmt::format("device geometry: {} regions add up to {} a block, and the host has {} of each",
                                            regions_.size(), to_string(Bytes{sum}), to_string(block_bytes_))};
  }
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    for (std::size_t j = i + 1; j < regions_.size(); ++j) {
      if (!overlap({&regions_[i], slots_}, {&regions_[j], slots_})) continue;
      throw std::invalid_argument{fmt::format("device geometry: blocks of region {} overlap those of region {}", i, j)};
    }
  }
  layers_ = checked_layers(regions_);
  packed_ = are_packed(regions_, block_bytes_);
}

std::uint64_t DeviceGeometry::bytes_of(std::optional<LayerRange> layers) const {
  const std::uint64_t whole = count(block_bytes_);
  return layers ? whole / layers_ * layers->count : whole;
}

DeviceGeometry packed_geometry(std::uint64_t base, std::uint32_t slots, Bytes block_bytes, std::uint32_t layers) {
  if (layers == 0 || count(block_bytes) % layers != 0) {
    throw std::invalid_argument{
        fmt::format("device geometry: a block of {} cannot be divided into {} layers", to_string(block_bytes), layers)};
  }
  const std::uint64_t bytes = count(block_bytes) / layers;
  std::vector<DeviceRegion> regions;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    regions.push_back({base + layer * bytes, count(block_bytes), bytes, layer});
  }
  return {slots, std::move(regions), block_bytes, true};
}

void check_disjoint(std::span<const DeviceGeometry> pools) {
  for (std::size_t i = 0; i < pools.size(); ++i) {
    for (std::size_t j = i + 1; j < pools.size(); ++j) {
      for (const DeviceRegion& a : pools[i].regions()) {
        for (const DeviceRegion& b : pools[j].regions()) {
          if (!overlap({&a, pools[i].slots()}, {&b, pools[j].slots()})) continue;
          throw std::invalid_argument{fmt::format("device geometry: blocks of pool {} overlap those of pool {}", i, j)};
        }
      }
    }
  }
}

std::vector<DeviceGeometry> relocated(std::vector<DeviceGeometry> pools, std::span<const RelocatedPool> moved) {
  for (const RelocatedPool& each : moved) {
    const std::size_t number = each.pool.value();
    if (number >= pools.size()) throw std::invalid_argument{fmt::format("device geometry: there is no pool {}", number)};
    DeviceGeometry& pool = pools[number];
    if (pool.owned()) {
      throw std::invalid_argument{fmt::format("device geometry: the memory of pool {} is the device's own", number)};
    }
    check_same_layout(number, pool, each.regions);
    pool = DeviceGeometry{pool.slots(), each.regions, pool.block_bytes()};
  }
  check_disjoint(pools);
  return pools;
}

}  // namespace terrace
