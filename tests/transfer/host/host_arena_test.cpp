#include "transfer/host/host_arena.hpp"
#include "tests/transfer/support.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace {
namespace {

using test::fill;
using test::holds;

std::uintptr_t address(std::span<const std::byte> bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()); }

TEST(HostArena, gives_every_slot_memory_of_its_own) {
  const HostArena arena{7, Bytes{4096}, Bytes{3 * 4096}};
  for (std::uint32_t slot = 0; slot < 7; ++slot) fill(arena.block(SlotId{slot}), slot);
  for (std::uint32_t slot = 0; slot < 7; ++slot) {
    EXPECT_EQ(arena.block(SlotId{slot}).size(), 4096U);
    EXPECT_TRUE(holds(arena.block(SlotId{slot}), slot)) << slot;
  }
}

TEST(HostArena, begins_blocks_of_whole_pages_at_pages) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const HostArena arena{9, Bytes{3 * page}, Bytes{8 * page}};
  for (std::uint32_t slot = 0; slot < 9; ++slot) EXPECT_EQ(address(arena.block(SlotId{slot})) % page, 0U) << slot;
}

TEST(HostArena, says_how_far_memory_is_contiguous) {
  // A slot of 1000 bytes fits three times into a chunk of 3500 bytes. The rest is unused, because no slot crosses a chunk
  // boundary.
  const HostArena arena{8, Bytes{1000}, Bytes{3500}};
  const std::uint32_t expected[] = {3, 2, 1, 3, 2, 1, 2, 1};
  for (std::uint32_t slot = 0; slot < 8; ++slot) {
    const std::uint32_t contiguous = arena.contiguous_from(SlotId{slot});
    EXPECT_EQ(contiguous, expected[slot]) << slot;
    for (std::uint32_t next = 1; next < contiguous; ++next) {
      EXPECT_EQ(address(arena.block(SlotId{slot + next})), address(arena.block(SlotId{slot})) + next * 1000);
    }
  }
}

TEST(HostArena, may_have_no_slots) { EXPECT_EQ((HostArena{0, Bytes{4096}}.slots()), 0U); }

TEST(HostArena, refuses_a_block_of_nothing_or_over_a_chunk) {
  EXPECT_THROW((HostArena{1, Bytes{0}}), std::invalid_argument);
  EXPECT_THROW((HostArena{1, Bytes{4097}, Bytes{4096}}), std::invalid_argument);
}

TEST(HostArena, says_what_and_how_much_could_not_be_had) {
  try {
    const HostArena arena{4, TiB * 256, TiB * 1024};
    FAIL() << "a PiB was to be had";
  } catch (const std::system_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("host arena of 4 slots of 256TiB"), std::string::npos) << text;
    EXPECT_NE(text.find("cannot map 1024TiB"), std::string::npos) << text;
  }
}

TEST(HostArena, does_not_take_a_size_beyond_every_address_for_a_small_one) {
  constexpr Bytes all{std::numeric_limits<std::uint64_t>::max()};
  EXPECT_THROW((HostArena{1, all, all}), std::system_error);
}

TEST(HostArenaDeathTest, stops_at_a_slot_it_does_not_have) {
  const HostArena arena{2, Bytes{64}};
  EXPECT_DEATH((void)arena.block(SlotId{2}), "broken invariant");
}

}  // namespace
}  // namespace terrace
