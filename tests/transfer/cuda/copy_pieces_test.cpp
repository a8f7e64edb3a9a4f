#include "transfer/cuda/copy/copy_pieces.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using test::run;

constexpr Bytes block_bytes{96};
constexpr std::uint32_t slots_per_chunk = 5;
constexpr std::uint64_t base = 0x10'0000;

class CopyPieces : public testing::Test {
 protected:
  std::vector<CopyPiece> plan(Direction direction, std::vector<SlotRun> runs, const DeviceGeometry& geometry,
                              std::optional<LayerRange> layers = {}, std::uint64_t offset = 0) {
    CopyCommand command;
    command.layers = layers;
    command.direction = direction;
    command.runs = std::move(runs);
    std::vector<CopyPiece> pieces;
    plan_pieces(command, geometry, {&arena_, offset}, pieces);
    return pieces;
  }
  std::byte* host(std::uint32_t slot, std::size_t within = 0) { return arena_.block(SlotId{slot}).data() + within; }

  HostArena arena_{20, block_bytes, block_bytes* slots_per_chunk};
  DeviceGeometry packed_ = packed_geometry(base, 30, block_bytes);
  /// Three parts of 32 bytes, each in its own array.
  DeviceGeometry layers_{30, {{base, 32, 32}, {base + 0x1'0000, 32, 32}, {base + 0x2'0000, 32, 32}}, block_bytes};
};

TEST_F(CopyPieces, of_packed_blocks_are_one_a_run) {
  EXPECT_EQ(plan(swap_out, {run(7, 0, 3), run(2, 4, 1)}, packed_),
            (std::vector<CopyPiece>{{base + 7 * 96, host(0), 288}, {base + 2 * 96, host(4), 96}}));
}

TEST_F(CopyPieces, name_the_device_by_the_destination_of_a_swap_in) {
  EXPECT_EQ(plan(swap_in, {run(1, 9, 2)}, packed_), (std::vector<CopyPiece>{{base + 9 * 96, host(1), 192}}));
}

TEST_F(CopyPieces, end_where_a_chunk_of_the_arena_ends) {
  EXPECT_EQ(
      plan(swap_out, {run(10, 3, 9)}, packed_),
      (std::vector<CopyPiece>{{base + 10 * 96, host(3), 192}, {base + 12 * 96, host(5), 480}, {base + 17 * 96, host(10), 192}}));
}

TEST_F(CopyPieces, of_regions_are_one_a_block_and_region_in_the_order_of_the_host) {
  EXPECT_EQ(plan(swap_out, {run(4, 1, 2)}, layers_), (std::vector<CopyPiece>{{base + 4 * 32, host(1), 32},
                                                                             {base + 0x1'0000 + 4 * 32, host(1, 32), 32},
                                                                             {base + 0x2'0000 + 4 * 32, host(1, 64), 32},
                                                                             {base + 5 * 32, host(2), 32},
                                                                             {base + 0x1'0000 + 5 * 32, host(2, 32), 32},
                                                                             {base + 0x2'0000 + 5 * 32, host(2, 64), 32}}));
}

TEST_F(CopyPieces, join_regions_that_lie_side_by_side) {
  // K and V of one layer are adjacent; those of the other layer are elsewhere.
  const DeviceGeometry beside{30, {{base, 64, 32}, {base + 32, 64, 32}, {base + 0x2'0000, 32, 32}}, block_bytes};
  EXPECT_EQ(plan(swap_in, {run(1, 4, 1)}, beside),
            (std::vector<CopyPiece>{{base + 4 * 64, host(1), 64}, {base + 0x2'0000 + 4 * 32, host(1, 64), 32}}));
}

TEST_F(CopyPieces, join_whole_blocks_whose_regions_lie_side_by_side_but_not_over_a_chunk) {
  const DeviceGeometry split{30, {{base, 96, 40}, {base + 40, 96, 56}}, block_bytes};
  EXPECT_EQ(plan(swap_out, {run(0, 3, 4)}, split), (std::vector<CopyPiece>{{base, host(3), 192}, {base + 192, host(5), 192}}));
}

TEST_F(CopyPieces, of_layers_are_their_regions_wherever_those_lie_in_the_gathered_block) {
  // All K, then all V, of two layers. K of both layers is adjacent.
  const DeviceGeometry geometry{
      30, {{base, 48, 24, 0}, {base + 24, 48, 24, 1}, {base + 0x1'0000, 24, 24, 0}, {base + 0x2'0000, 24, 24, 1}}, block_bytes};
  EXPECT_EQ(geometry.layers(), 2U);
  EXPECT_EQ(plan(swap_in, {run(1, 4, 2)}, geometry, LayerRange{1, 1}),
            (std::vector<CopyPiece>{{base + 4 * 48 + 24, host(1, 24), 24},
                                    {base + 0x2'0000 + 4 * 24, host(1, 72), 24},
                                    {base + 5 * 48 + 24, host(2, 24), 24},
                                    {base + 0x2'0000 + 5 * 24, host(2, 72), 24}}));
  EXPECT_EQ(plan(swap_in, {run(1, 4, 2)}, geometry, LayerRange{0, 2}), plan(swap_in, {run(1, 4, 2)}, geometry));
}

TEST_F(CopyPieces, of_layers_of_packed_blocks_are_one_a_block) {
  const DeviceGeometry packed = packed_geometry(base, 30, block_bytes, 4);
  EXPECT_EQ(
      plan(swap_in, {run(3, 7, 3)}, packed, LayerRange{1, 2}),
      (std::vector<CopyPiece>{
          {base + 7 * 96 + 24, host(3, 24), 48}, {base + 8 * 96 + 24, host(4, 24), 48}, {base + 9 * 96 + 24, host(5, 24), 48}}));
  EXPECT_EQ(plan(swap_in, {run(3, 7, 3)}, packed), plan(swap_in, {run(3, 7, 3)}, packed_)) << "whole ones lose nothing by it";
}

/// A share of 96-byte slots: bytes 24 to 72.
class SharePieces : public CopyPieces {
 protected:
  static constexpr std::uint64_t offset = 24;
  static constexpr Bytes share{48};
  DeviceGeometry packed_share_ = packed_geometry(base, 30, share, 2);
};

TEST_F(SharePieces, of_packed_blocks_are_one_a_block_for_the_next_ones_are_apart_on_the_host) {
  EXPECT_EQ(plan(swap_out, {run(7, 3, 3)}, packed_share_, {}, offset),
            (std::vector<CopyPiece>{
                {base + 7 * 48, host(3, 24), 48}, {base + 8 * 48, host(4, 24), 48}, {base + 9 * 48, host(5, 24), 48}}));
}

TEST_F(SharePieces, of_the_last_share_of_a_slot_do_not_join_the_first_of_the_next) {
  EXPECT_EQ(plan(swap_in, {run(3, 7, 2)}, packed_share_, {}, 48),
            (std::vector<CopyPiece>{{base + 7 * 48, host(3, 48), 48}, {base + 8 * 48, host(4, 48), 48}}));
}

TEST_F(SharePieces, of_layers_and_regions_are_gathered_within_the_share) {
  EXPECT_EQ(plan(swap_in, {run(3, 7, 2)}, packed_share_, LayerRange{1, 1}, offset),
            (std::vector<CopyPiece>{{base + 7 * 48 + 24, host(3, 48), 24}, {base + 8 * 48 + 24, host(4, 48), 24}}));
  // K and V of layer 0 are adjacent; those of layer 1 are elsewhere.
  const DeviceGeometry regions{
      30, {{base, 24, 12, 0}, {base + 12, 24, 12, 0}, {base + 0x1'0000, 12, 12, 1}, {base + 0x2'0000, 12, 12, 1}}, share};
  EXPECT_EQ(plan(swap_out, {run(4, 1, 1)}, regions, {}, offset),
            (std::vector<CopyPiece>{{base + 4 * 24, host(1, 24), 24},
                                    {base + 0x1'0000 + 4 * 12, host(1, 48), 12},
                                    {base + 0x2'0000 + 4 * 12, host(1, 60), 12}}));
  EXPECT_EQ(plan(swap_out, {run(4, 1, 1)}, regions, LayerRange{1, 1}, offset),
            (std::vector<CopyPiece>{{base + 0x1'0000 + 4 * 12, host(1, 48), 12}, {base + 0x2'0000 + 4 * 12, host(1, 60), 12}}));
}

TEST_F(SharePieces, of_all_ranks_cover_every_byte_of_every_slot_once) {
  constexpr std::uint32_t ranks = 4;
  const DeviceGeometry quarter = packed_geometry(base, 30, Bytes{24}, 3);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (const CopyPiece& piece : plan(swap_out, {run(2, 0, 7), run(11, 9, 11)}, quarter, {}, rank * 24)) {
      for (std::byte& byte : std::span{piece.host, piece.bytes}) byte = std::byte(std::to_integer<int>(byte) + 1);
    }
  }
  for (std::uint32_t slot = 0; slot < 20; ++slot) {
    for (std::byte& byte : arena_.block(SlotId{slot})) EXPECT_EQ(byte, std::byte{slot < 7 || slot >= 9}) << slot;
  }
}

TEST_F(CopyPieces, say_their_shape) {
  const PieceShape shape = shape_of(plan(swap_out, {run(4, 0, 2)}, layers_));
  EXPECT_EQ(shape.count, 6U);
  EXPECT_EQ(shape.bytes, 192U);
  EXPECT_TRUE(shape.aligned);
  const DeviceGeometry odd{30, {{base + 8, 96, 96}}, block_bytes};
  EXPECT_FALSE(shape_of(plan(swap_out, {run(4, 0, 2)}, odd)).aligned);
  const DeviceGeometry odd_sizes{30, {{base, 96, 40}, {base + 0x1'0000, 64, 56}}, block_bytes};
  EXPECT_FALSE(shape_of(plan(swap_out, {run(4, 0, 2)}, odd_sizes)).aligned);
}

TEST_F(CopyPieces, cover_every_byte_of_every_block_once_and_no_other) {
  std::mt19937 random{7};
  for (int round = 0; round < 200; ++round) {
    const DeviceGeometry& geometry = round % 2 == 0 ? packed_ : layers_;
    std::vector<SlotRun> runs;
    std::vector<int> expected(20, 0);
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(random()) % 6;
      const std::uint32_t device = static_cast<std::uint32_t>(random()) % (30 - count);
      const std::uint32_t in_arena = static_cast<std::uint32_t>(random()) % (20 - count);
      runs.push_back(run(device, in_arena, count));
      for (std::uint32_t slot = in_arena; slot < in_arena + count; ++slot) ++expected[slot];
    }
    std::uint64_t bytes = 0;
    for (const CopyPiece& piece : plan(swap_out, runs, geometry)) {
      bytes += piece.bytes;
      // Counts in the arena itself. An access outside of it is reported by the sanitizers.
      for (std::byte& byte : std::span{piece.host, piece.bytes}) byte = std::byte(std::to_integer<int>(byte) + 1);
    }
    std::uint64_t wanted = 0;
    for (std::uint32_t slot = 0; slot < 20; ++slot) {
      wanted += static_cast<std::uint64_t>(expected[slot]) * count(block_bytes);
      for (std::byte& byte : arena_.block(SlotId{slot})) {
        ASSERT_EQ(std::to_integer<int>(byte), expected[slot]);
        byte = std::byte{0};
      }
    }
    EXPECT_EQ(bytes, wanted);
  }
}

}  // namespace
}  // namespace terrace
