#include "transfer/device/device_geometry.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

using Regions = std::vector<DeviceRegion>;

/// Why the geometry is refused; empty if it is not.
std::string refusal(std::uint32_t slots, const Regions& regions, std::uint64_t block_bytes) {
  try {
    const DeviceGeometry made{slots, regions, Bytes{block_bytes}};
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(DeviceGeometry, takes_packed_blocks) {
  const DeviceGeometry packed = packed_geometry(0x1000, 10, Bytes{100});
  EXPECT_EQ(packed.slots(), 10U);
  ASSERT_EQ(packed.regions().size(), 1U);
  EXPECT_EQ(packed.regions()[0].stride, 100U);
  EXPECT_EQ(packed.extent(packed.regions()[0]), 1000U);
}

TEST(DeviceGeometry, takes_layers_of_which_each_has_its_arrays) {
  EXPECT_EQ(refusal(8, {{0x1000, 64, 64}, {0x2000, 64, 64}, {0x1200, 64, 64}}, 192), "");
}

TEST(DeviceGeometry, takes_parts_side_by_side_in_one_array) {
  EXPECT_EQ(refusal(8, {{0x1000, 128, 64}, {0x1040, 128, 64}}, 128), "");
  EXPECT_EQ(refusal(8, {{0x1040, 128, 64}, {0x1000, 128, 64}}, 128), "") << "in any order";
  EXPECT_EQ(refusal(8, {{0x1000, 192, 64}, {0x1000 + 64 + 192 * 2, 192, 64}}, 128), "") << "and shifted by slots";
}

TEST(DeviceGeometry, refuses_parts_of_different_regions_that_overlap) {
  EXPECT_TRUE(says(refusal(8, {{0x1000, 64, 64}, {0x103F, 64, 64}}, 128), "region 0 overlap those of region 1"));
  EXPECT_TRUE(says(refusal(8, {{0x1000, 128, 64}, {0x1041, 128, 64}}, 128), "overlap")) << "by a byte, with the next block's";
  EXPECT_TRUE(says(refusal(8, {{0x1000, 128, 64}, {0x103F, 128, 64}}, 128), "overlap")) << "by a byte, with its own block's";
  EXPECT_TRUE(says(refusal(8, {{0x1000, 128, 64}, {0x1000 + 7 * 128, 128, 64}}, 128), "overlap")) << "at the last slot";
  EXPECT_EQ(refusal(8, {{0x1000, 128, 64}, {0x1000 + 8 * 128, 128, 64}}, 128), "");
  EXPECT_TRUE(says(refusal(1, {{0x1000, 8, 64}, {0x1020, 8, 64}}, 128), "overlap")) << "the stride of one slot says nothing";
}

TEST(DeviceGeometry, refuses_overlaps_at_different_strides) {
  // Blocks of 16 bytes at 0, 48, 96, 144 and at 20, 84, 148.
  EXPECT_TRUE(says(refusal(4, {{0x1000, 48, 16}, {0x1014, 64, 16}}, 32), "overlap"));
  EXPECT_EQ(refusal(3, {{0x1000, 48, 16}, {0x1010, 96, 16}}, 32), "");
}

TEST(DeviceGeometry, agrees_with_comparing_every_pair_of_blocks) {
  for (std::uint64_t stride_a = 4; stride_a <= 12; stride_a += 2) {
    for (std::uint64_t stride_b = 4; stride_b <= 12; stride_b += 2) {
      for (std::uint64_t base_b = 100; base_b < 150; ++base_b) {
        constexpr std::uint32_t slots = 4;
        bool overlap = false;
        for (std::uint64_t i = 0; i < slots; ++i) {
          for (std::uint64_t j = 0; j < slots; ++j) {
            const std::uint64_t a = 110 + i * stride_a;
            const std::uint64_t b = base_b + j * stride_b;
            overlap |= a < b + 3 && b < a + 4;
          }
        }
        EXPECT_EQ(!refusal(slots, {{110, stride_a, 4}, {base_b, stride_b, 3}}, 7).empty(), overlap)
            << stride_a << " " << stride_b << " " << base_b;
      }
    }
  }
}

TEST(DeviceGeometry, refuses_what_makes_no_sense_and_names_it) {
  EXPECT_TRUE(says(refusal(0, {{0x1000, 64, 64}}, 64), "at least one slot"));
  EXPECT_TRUE(says(refusal(1, {}, 64), "at least one region"));
  EXPECT_TRUE(says(refusal(2, {{0x1000, 64, 64}, {0, 64, 64}}, 128), "region 1 has no address"));
  EXPECT_TRUE(says(refusal(2, {{0x1000, 64, 0}}, 0), "region 0 is empty"));
  EXPECT_TRUE(says(refusal(2, {{0x1000, 63, 64}}, 64), "its blocks overlap"));
  EXPECT_TRUE(says(refusal(2, {{0x1000, 64, 64}}, 65), "add up to 64B a block, and the host has 65B of each"));
  EXPECT_TRUE(says(refusal(3, {{0x1000, std::uint64_t{1} << 63, 64}}, 64), "leaves the address space"));
  EXPECT_TRUE(says(refusal(1, {{~std::uint64_t{0} - 10, 64, 64}}, 64), "leaves the address space"));
}

TEST(DeviceGeometry, knows_the_layers_of_its_regions) {
  // K of both layers, then V of both.
  EXPECT_EQ((DeviceGeometry{8, {{0x1000, 64, 64, 0}, {0x2000, 64, 64, 1}, {0x3000, 32, 32, 0}, {0x4000, 32, 32, 1}}, Bytes{192}}
                 .layers()),
            2U);
  EXPECT_EQ((DeviceGeometry{8, {{0x1000, 64, 64}, {0x2000, 64, 64}}, Bytes{128}}.layers()), 1U);
  EXPECT_TRUE(
      says(refusal(8, {{0x1000, 64, 64, 0}, {0x2000, 32, 32, 1}}, 96), "layer 1 has 32B of each block, and layer 0 has 64B"));
  EXPECT_TRUE(says(refusal(8, {{0x1000, 64, 64, 0}, {0x2000, 64, 64, 2}, {0x3000, 64, 64, 2}}, 192), "layer 1 has 0B"));
  EXPECT_TRUE(says(refusal(8, {{0x1000, 64, 64, 7}}, 64), "layer number 7"));
}

TEST(DeviceGeometry, takes_packed_blocks_apart_into_layers) {
  const DeviceGeometry packed = packed_geometry(0x1000, 10, Bytes{96}, 3);
  EXPECT_EQ(packed.layers(), 3U);
  EXPECT_TRUE(packed.packed());
  ASSERT_EQ(packed.regions().size(), 3U);
  EXPECT_EQ(packed.regions()[2].base, 0x1040U);
  EXPECT_EQ(packed.regions()[2].bytes, 32U);
  EXPECT_FALSE((DeviceGeometry{8, {{0x1000, 64, 64}, {0x2000, 64, 64}}, Bytes{128}}.packed()));
  EXPECT_THROW((void)packed_geometry(0x1000, 10, Bytes{96}, 5), std::invalid_argument);
}

TEST(DeviceGeometry, refuses_pools_that_overlap) {
  const std::vector<DeviceGeometry> apart{packed_geometry(0x1000, 4, Bytes{64}), packed_geometry(0x1100, 2, Bytes{128})};
  EXPECT_NO_THROW(check_disjoint(apart));
  const std::vector<DeviceGeometry> overlapping{packed_geometry(0x1000, 4, Bytes{64}), packed_geometry(0x10FF, 2, Bytes{128})};
  EXPECT_THROW(check_disjoint(overlapping), std::invalid_argument);
}

}  // namespace
}  // namespace terrace
