// Blocks in regions of an engine, in ordinary memory: every copy must agree with a model that knows no regions.
#include "transfer/device/slot_memory.hpp"
#include "base/random.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using test::pattern;
using Block = std::vector<std::byte>;

std::uint64_t address(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Random regions of an engine: layers of one to three parts, each in an array of its own or beside others, with gaps.
struct Engine {
  Engine(Random& random, std::uint32_t slot_count) : slots{slot_count}, layers{static_cast<std::uint32_t>(random.between(1, 5))} {
    const std::uint64_t parts = random.between(1, 3);
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t part = 0; part < parts; ++part) sizes.push_back(random.between(1, 90));
    std::vector<std::pair<std::uint32_t, std::uint64_t>> order;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (const std::uint64_t size : sizes) order.emplace_back(layer, size);
    }
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t next = 0; next < order.size();) {
      const std::size_t together = std::min<std::size_t>(random.between(1, 3), order.size() - next);
      std::uint64_t stride = 0;
      for (std::size_t i = 0; i < together; ++i) stride += order[next + i].second;
      stride += random.below(20);
      memory.push_back(std::make_unique<Block>(slots * stride, gap));
      std::uint64_t at = 0;
      for (std::size_t i = 0; i < together; ++i, ++next) {
        regions.push_back({address(memory.back()->data()) + at, stride, order[next].second, order[next].first});
        at += order[next].second;
      }
    }
    for (const DeviceRegion& region : regions) block_bytes += region.bytes;
  }

  [[nodiscard]] Block block(std::uint32_t slot) const {
    Block bytes;
    for (const DeviceRegion& region : regions) {
      const auto* const part = reinterpret_cast<const std::byte*>(region.base + slot * region.stride);
      bytes.insert(bytes.end(), part, part + region.bytes);
    }
    return bytes;
  }
  /// The layer of each byte of a block.
  [[nodiscard]] std::vector<std::uint32_t> layer_of_bytes() const {
    std::vector<std::uint32_t> of;
    for (const DeviceRegion& region : regions) of.insert(of.end(), region.bytes, region.layer);
    return of;
  }
  [[nodiscard]] std::size_t bytes_of_gaps() const {
    std::size_t bytes = 0;
    for (const auto& each : memory) bytes += each->size();
    return bytes - slots * block_bytes;
  }

  static constexpr std::byte gap{0xC3};
  std::uint32_t slots;
  std::uint32_t layers;
  std::uint64_t block_bytes = 0;
  std::vector<std::unique_ptr<Block>> memory;
  std::vector<DeviceRegion> regions;
};

TEST(SlotMemoryProperty, copies_of_regions_agree_with_a_model_without_regions) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    constexpr std::uint32_t slots = 9;
    Engine engine{random, slots};
    const std::uint64_t before = random.below(30);
    const Bytes slot_bytes{before + engine.block_bytes + random.below(30)};
    HostArena arena{slots, slot_bytes, slot_bytes * random.between(2, 4)};
    EmulatedDevice device{
        std::array{PoolMemory{
            .slots = slots, .host = &arena, .share = {Bytes{before}, Bytes{engine.block_bytes}}, .regions = engine.regions}},
        {.instant = true}};
    EXPECT_EQ(device.info().pool().layers, engine.layers);
    const std::vector<std::uint32_t> layer_of = engine.layer_of_bytes();
    std::vector<Block> device_model;
    std::vector<Block> host_model;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      device.launch(test::writes(slot, 100 + slot));
      device_model.emplace_back(engine.block_bytes);
      test::fill(device_model.back(), 100 + slot);
      test::fill(arena.block(SlotId{slot}), 200 + slot);
      const auto block = arena.block(SlotId{slot});
      host_model.emplace_back(block.begin(), block.end());
    }
    for (std::uint64_t token = 1; token <= 40; ++token) {
      CopyCommand command{token, random.chance(0.5) ? swap_out : swap_in, {}, {}};
      const auto count = static_cast<std::uint32_t>(random.between(1, 3));
      const auto from = static_cast<std::uint32_t>(random.below(slots - count + 1));
      const auto to = static_cast<std::uint32_t>(random.below(slots - count + 1));
      command.runs = {test::run(from, to, count)};
      if (random.chance(0.6)) {
        const auto first = static_cast<std::uint32_t>(random.below(engine.layers));
        command.layers = LayerRange{first, static_cast<std::uint32_t>(random.between(1, engine.layers - first))};
      }
      const LayerRange wanted = command.layers.value_or(LayerRange{0, engine.layers});
      for (std::uint32_t i = 0; i < count; ++i) {
        for (std::size_t at = 0; at < engine.block_bytes; ++at) {
          if (layer_of[at] - wanted.first >= wanted.count) continue;
          if (command.direction == swap_out) {
            host_model[to + i][before + at] = device_model[from + i][at];
          } else {
            device_model[to + i][at] = host_model[from + i][before + at];
          }
        }
      }
      device.submit(command);
    }
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      EXPECT_EQ(engine.block(slot), device_model[slot]) << slot;
      EXPECT_TRUE(std::ranges::equal(arena.block(SlotId{slot}), host_model[slot])) << slot;
      device.launch([&](BlockAccess& access) {
        Block scratch(engine.block_bytes);
        EXPECT_TRUE(std::ranges::equal(access.read(SlotId{slot}, scratch), device_model[slot]));
      });
    }
    // Nothing was written into the gaps between blocks. (A block may have bytes of that value, too.)
    std::size_t gaps = 0;
    for (const auto& each : engine.memory) gaps += static_cast<std::size_t>(std::ranges::count(*each, Engine::gap));
    for (const Block& block : device_model) gaps -= static_cast<std::size_t>(std::ranges::count(block, Engine::gap));
    EXPECT_EQ(gaps, engine.bytes_of_gaps());
  }
}

/// Parts of copies, in which SimulatedDevice moves a block.
TEST(SlotMemory, copies_a_part_of_the_wanted_bytes_and_no_other) {
  std::array<std::byte, 64> k{};
  std::array<std::byte, 64> v{};
  HostArena arena{2, Bytes{16}};
  // The host has K of layer 0, V of layer 0, K of layer 1, V of layer 1; 4 bytes each.
  const std::vector<DeviceRegion> regions{{address(k.data()), 8, 4, 0},
                                          {address(v.data()), 8, 4, 0},
                                          {address(k.data()) + 4, 8, 4, 1},
                                          {address(v.data()) + 4, 8, 4, 1}};
  const SlotMemory memory{PoolMemory{.slots = 2, .host = &arena, .regions = regions}};
  test::fill(arena.block(SlotId{1}), 7);
  memory.copy_part(swap_in, {SlotId{1}, SlotId{0}}, LayerRange{1, 1}, 2, 4);
  for (std::size_t at = 0; at < 8; ++at) {
    EXPECT_EQ(k[at], at == 6 || at == 7 ? pattern(7, 8 + at - 4) : std::byte{}) << at;
    EXPECT_EQ(v[at], at == 4 || at == 5 ? pattern(7, 12 + at - 4) : std::byte{}) << at;
  }
  EXPECT_EQ(memory.host_place(LayerRange{1, 1}, 5), 13U);
  EXPECT_EQ(memory.host_place({}, 5), 5U);
}

/// Side by side, but with the layers of K first: the layers of a block do not lie side by side.
TEST(SlotMemory, finds_the_layers_of_packed_blocks_wherever_they_are) {
  std::array<std::byte, 16> blocks{};
  HostArena arena{1, Bytes{16}};
  const std::uint64_t base = address(blocks.data());
  const SlotMemory memory{
      PoolMemory{.slots = 1,
                 .host = &arena,
                 .regions = {{base, 16, 4, 0}, {base + 4, 16, 4, 1}, {base + 8, 16, 4, 0}, {base + 12, 16, 4, 1}}}};
  ASSERT_TRUE(memory.geometry().packed());
  test::fill(arena.block(SlotId{0}), 7);
  memory.copy({1, swap_in, {}, {test::run(0, 0, 1)}, {}, LayerRange{1, 1}});
  for (std::size_t at = 0; at < 16; ++at) EXPECT_EQ(blocks[at], at / 4 % 2 == 1 ? pattern(7, at) : std::byte{}) << at;
}

class SlotMemoryErrors : public testing::Test {
 protected:
  std::string refusal(const std::vector<DeviceRegion>& first, const std::vector<DeviceRegion>& second = {}) {
    std::vector<PoolMemory> pools{{.slots = 4, .host = &arena_, .regions = first}};
    if (!second.empty()) pools.push_back({.slots = 4, .host = &arena_, .regions = second});
    try {
      const SlotMemories made{pools};
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }
  HostArena arena_{4, Bytes{32}};
  std::array<std::byte, 512> memory_{};
  std::uint64_t base_ = address(memory_.data());
};

TEST_F(SlotMemoryErrors, are_those_of_every_device) {
  EXPECT_EQ(refusal({{base_, 32, 32, 0}}), "");
  EXPECT_EQ(refusal({{0, 32, 32, 0}}), "device geometry: region 0 has no address");
  EXPECT_NE(refusal({{base_, 16, 32, 0}}).find("its blocks overlap"), std::string::npos);
  EXPECT_NE(refusal({{base_, 32, 16, 0}}).find("1 regions add up to 16B a block, and the host has 32B of each"),
            std::string::npos)
      << refusal({{base_, 32, 16, 0}});
  EXPECT_EQ(refusal({{base_, 32, 32, 0}}, {{base_ + 64, 32, 32, 0}}),
            "device geometry: blocks of pool 0 overlap those of pool 1");
  EXPECT_EQ(refusal({{base_, 32, 32, 0}}, {{base_ + 128, 32, 32, 0}}), "");
}

}  // namespace
}  // namespace terrace
