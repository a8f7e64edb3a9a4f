#include "terrace/host_memory.hpp"

#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

namespace terrace {
namespace {

std::byte* address(std::uintptr_t number) { return reinterpret_cast<std::byte*>(number); }

TEST(HostRows, are_checked_for_any_numbers) {
  const std::array<std::uintptr_t, 4> addresses{0, 1, 4096, std::numeric_limits<std::uintptr_t>::max()};
  const std::array<std::uint32_t, 4> counts{0, 1, 7, ~0U};
  const std::array<std::uint64_t, 6> sizes{0, 1, 4096, std::uint64_t{1} << 33, std::uint64_t{1} << 63, ~std::uint64_t{0}};
  for (const std::uintptr_t at : addresses) {
    for (const std::uint32_t count : counts) {
      for (const std::uint64_t bytes : sizes) {
        for (const std::uint64_t stride : sizes) {
          const HostRows rows{address(at), count, Bytes{bytes}, Bytes{stride}};
          const std::uint64_t distance = stride == 0 ? bytes : stride;
          const bool fits = at != 0 && count > 0 && bytes > 0 && distance >= bytes &&
                            static_cast<unsigned __int128>(distance) * (count - 1) + bytes <= ~std::uint64_t{0} - at;
          EXPECT_EQ(check_rows(rows).has_value(), fits) << at << ' ' << count << ' ' << bytes << ' ' << stride;
        }
      }
    }
  }
}

TEST(PrivateRegion, has_aligned_rows_of_zeros) {
  const PrivateRegion region{3, Bytes{5000}};
  EXPECT_EQ(region.rows().count, 3U);
  EXPECT_EQ(region.rows().row(1).size(), 5000U);
  EXPECT_EQ(region.rows().stride(), Bytes{8192});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.rows().row(2).data()) % 4096, 0U);
  EXPECT_TRUE(std::ranges::all_of(region.rows().row(2), [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_THROW(PrivateRegion(0, Bytes{1}), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(1, Bytes{0}), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(~0U, TiB), std::invalid_argument);
  EXPECT_THROW(PrivateRegion(1U << 16, GiB), std::runtime_error);
}

struct Observer final : HostChunkObserver {
  Result<void> chunk_added(const HostChunk& chunk) override {
    added.push_back(chunk);
    return {};
  }
  void chunk_removing(const HostChunk&) override { ++removed; }
  std::vector<HostChunk> added;
  int removed = 0;
};

HostArenaOptions arena_in(const HostRows& rows, std::uint32_t slots) {
  HostArenaOptions options;
  options.slots = options.ready_slots = slots;
  options.block_bytes = rows.row_bytes;
  options.chunk_bytes = rows.row_bytes * 2;
  options.rows = rows;
  return options;
}

TEST(HostArenaInRows, puts_each_slot_into_its_row_and_leaves_the_rest_alone) {
  std::vector<std::byte> memory(7 * 200, std::byte{5});
  const HostRows rows{memory.data(), 7, Bytes{100}, Bytes{200}};
  const auto owner = std::make_shared<int>(1);
  Observer observer;
  {
    HostArenaOptions options = arena_in(rows, 5);
    options.rows_owner = owner;
    HostArena arena{std::move(options)};
    ASSERT_TRUE(arena.observe(observer).has_value());
    EXPECT_EQ(owner.use_count(), 2);
    for (std::uint32_t slot = 0; slot < 5; ++slot) {
      EXPECT_EQ(arena.block(SlotId{slot}).data(), rows.row(slot).data());
      EXPECT_EQ(arena.block(SlotId{slot}).size(), 100U);
      EXPECT_EQ(arena.contiguous_from(SlotId{slot}), 1U);
    }
    EXPECT_TRUE(arena.holds({SlotId{0}, 5}));
    EXPECT_FALSE(arena.holds({SlotId{0}, 6}));
    ASSERT_EQ(observer.added.size(), 3U);
    EXPECT_EQ(observer.added[0].slots, (SlotSpan{SlotId{0}, 2}));
    EXPECT_EQ(observer.added[0].bytes.data(), memory.data());
    EXPECT_EQ(observer.added[0].bytes.size(), 300U);
    EXPECT_EQ(observer.added[2].slots, (SlotSpan{SlotId{4}, 1}));

    // One more row is there after the chunk of row 4, which cannot become larger.
    EXPECT_EQ(arena.grow(2).error(), Errc::never_fits);
    ASSERT_TRUE(arena.grow(1).has_value());
    std::vector<ArenaEvent> events;
    while (events.empty()) arena.poll(events);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm);
    EXPECT_EQ(arena.block(SlotId{6}).data(), rows.row(6).data());
    EXPECT_EQ(arena.grow(1).error(), Errc::never_fits);

    arena.give_back(3);
    events.clear();
    while (events.empty()) arena.poll(events);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::gone);
  }
  EXPECT_EQ(observer.removed, 4);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{5}; }));
}

TEST(HostArenaInRows, without_gaps_is_contiguous) {
  std::vector<std::byte> memory(8 * 64);
  HostArena arena{arena_in({memory.data(), 8, Bytes{64}}, 8)};
  EXPECT_EQ(arena.contiguous_from(SlotId{2}), 2U) << "up to the end of the chunk";
  EXPECT_EQ(arena.block(SlotId{7}).data(), memory.data() + 7 * 64);
}

TEST(HostArenaInRows, refuses_rows_that_cannot_hold_its_slots) {
  std::vector<std::byte> memory(8 * 64);
  const HostRows rows{memory.data(), 8, Bytes{64}};
  EXPECT_THROW(HostArena{arena_in(rows, 9)}, std::invalid_argument);
  EXPECT_THROW(HostArena{arena_in({nullptr, 8, Bytes{64}}, 8)}, std::invalid_argument);
  EXPECT_THROW(HostArena{arena_in({memory.data(), 8, Bytes{64}, Bytes{63}}, 8)}, std::invalid_argument);
  HostArenaOptions other_size = arena_in(rows, 8);
  other_size.block_bytes = Bytes{32};
  EXPECT_THROW(HostArena{std::move(other_size)}, std::invalid_argument);
}

}  // namespace
}  // namespace terrace
