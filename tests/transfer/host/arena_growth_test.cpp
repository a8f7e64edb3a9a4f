// A growing and shrinking arena: which chunks are warm when, what observers are told, and what is refused.

#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

using test::fill;
using test::holds;

constexpr Bytes block_bytes{4096};
constexpr std::uint32_t chunk_slots = 4;

/// Records what it was told, as "+first,count" and "-first,count".
class Recorder final : public HostChunkObserver {
 public:
  [[nodiscard]] Result<void> chunk_added(const HostChunk& chunk) override {
    EXPECT_EQ(chunk.bytes.size(), chunk.slots.count * count(block_bytes));
    // All pages exist by now, and are zero.
    EXPECT_TRUE(std::ranges::all_of(chunk.bytes, [](std::byte b) { return b == std::byte{0}; }));
    if (refuse) return Errc::io_failed;
    tell('+', chunk.slots);
    return {};
  }
  void chunk_removing(const HostChunk& chunk) override {
    EXPECT_NE(chunk.bytes[0], std::byte{0xFF});  // still mapped
    tell('-', chunk.slots);
  }
  std::vector<std::string> told;
  bool refuse = false;

 private:
  void tell(char what, SlotSpan slots) { told.push_back(fmt::format("{}{},{}", what, slots.first.value(), slots.count)); }
};

class ArenaGrowth : public ::testing::Test {
 protected:
  void make(std::uint32_t slots, std::uint32_t ready) {
    HostArenaOptions options;
    options.slots = slots;
    options.ready_slots = ready;
    options.block_bytes = block_bytes;
    options.chunk_bytes = block_bytes * chunk_slots;
    options.limits = limits;
    options.spare = {};
    auto own = std::make_unique<SimulatedArenaWorker>();
    worker = own.get();
    options.worker = std::move(own);
    arena = std::make_unique<HostArena>(std::move(options));
  }
  std::vector<ArenaEvent> poll() {
    std::vector<ArenaEvent> events;
    arena->poll(events);
    return events;
  }
  /// Lets the worker finish its work.
  std::vector<ArenaEvent> settle() {
    while (worker->step()) {
    }
    return poll();
  }

  std::function<MemoryLimits()> limits;
  Recorder recorder;
  SimulatedArenaWorker* worker = nullptr;
  std::unique_ptr<HostArena> arena;
};

TEST_F(ArenaGrowth, is_ready_with_what_was_asked_for_at_once_and_warm_with_the_rest) {
  make(10, 3);
  EXPECT_EQ(arena->slots(), 4U);  // whole chunks
  EXPECT_EQ(arena->slots_coming(), 6U);
  EXPECT_FALSE(arena->is_warm());
  EXPECT_TRUE(arena->holds({SlotId{0}, 4}));
  EXPECT_FALSE(arena->holds({SlotId{4}, 1}));
  ASSERT_TRUE(worker->step());
  EXPECT_FALSE(arena->holds({SlotId{4}, 1}));  // until the control plane has collected the event
  const auto events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm);
  EXPECT_EQ(events[0].slots, (SlotSpan{SlotId{4}, 4}));
  EXPECT_FALSE(arena->is_warm());
  EXPECT_EQ(settle().size(), 1U);
  EXPECT_TRUE(arena->is_warm());
  EXPECT_EQ(arena->slots(), 10U);
  EXPECT_EQ(arena->mapped(), block_bytes * 10);  // the last chunk is as large as needed
  EXPECT_FALSE(arena->holds({SlotId{9}, 2}));
}

TEST_F(ArenaGrowth, that_is_to_be_ready_at_once_asks_before_each_chunk_since_others_start_too) {
  // Each of the two arenas fits alone, but not both: the machine has memory for five chunks, and each arena needs four.
  std::uint32_t taken = 0;  // chunks taken by the other arena: one for each of ours
  std::uint32_t asked = 0;
  limits = [&] {
    MemoryLimits now;
    taken = asked;
    now.available = block_bytes * chunk_slots * (5 - std::min(5U, asked + taken));  // ours, and those of the other arena
    ++asked;
    return now;
  };
  try {
    make(4 * chunk_slots, 4 * chunk_slots);
    ADD_FAILURE() << "both have taken four chunks of five";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("16 slots of 4KiB, of which 8 are there: 32KiB do not fit"), std::string::npos) << text;
    EXPECT_NE(text.find("the largest size that fits is 16KiB"), std::string::npos) << text;
  }
  EXPECT_EQ(asked, 3U);
}

TEST_F(ArenaGrowth, is_ordinary_memory_and_leaves_nothing_behind_when_the_process_is_killed) {
  make(8, 8);
  const std::byte* const begin = arena->block(SlotId{0}).data();
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  std::ifstream maps{"/proc/self/maps"};
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char rights[8] = {};
    unsigned long offset = 0;
    char device[16] = {};
    unsigned long inode = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx %7s %lx %15s %lu", &from, &to, rights, &offset, device, &inode), 6) << line;
    if (at < from || at >= to) continue;
    found = true;
    EXPECT_EQ(inode, 0UL) << "a file, which would be left: " << line;
    EXPECT_EQ(rights[3], 'p') << "nobody else's: " << line;
  }
  EXPECT_TRUE(found);
}

TEST_F(ArenaGrowth, keeps_what_is_there_as_it_grows_and_shrinks) {
  make(6, 6);
  for (std::uint32_t slot = 0; slot < 6; ++slot) fill(arena->block(SlotId{slot}), slot);
  ASSERT_TRUE(arena->grow(5).has_value());
  EXPECT_EQ(arena->state(2), ChunkState::reserved);
  EXPECT_EQ(settle().size(), 2U);
  EXPECT_EQ(arena->slots(), 11U);
  EXPECT_EQ(arena->slots_of(2), (SlotSpan{SlotId{8}, 4}));  // after the gap that the partial chunk leaves
  EXPECT_EQ(arena->slots_of(3), (SlotSpan{SlotId{12}, 1}));
  EXPECT_FALSE(arena->holds({SlotId{5}, 2}));
  fill(arena->block(SlotId{12}), 12);
  arena->give_back(2);
  EXPECT_EQ(arena->state(2), ChunkState::unmapping);
  EXPECT_FALSE(arena->holds({SlotId{8}, 1}));
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::gone);
  EXPECT_EQ(arena->mapped(), block_bytes * 7);
  for (std::uint32_t slot = 0; slot < 6; ++slot) EXPECT_TRUE(holds(arena->block(SlotId{slot}), slot));
  EXPECT_TRUE(holds(arena->block(SlotId{12}), 12));
  // The number is free again, for a chunk of another size.
  ASSERT_TRUE(arena->grow(2).has_value());
  EXPECT_EQ(settle().at(0).slots, (SlotSpan{SlotId{8}, 2}));
  EXPECT_EQ(arena->contiguous_from(SlotId{8}), 2U);
}

TEST_F(ArenaGrowth, tells_an_observer_of_every_chunk_that_comes_and_goes) {
  make(6, 6);
  ASSERT_TRUE(arena->observe(recorder).has_value());
  ASSERT_TRUE(arena->grow(4).has_value());
  EXPECT_EQ(recorder.told, (std::vector<std::string>{"+0,4", "+4,2"}));
  (void)settle();
  arena->give_back(0);
  EXPECT_EQ(recorder.told.size(), 3U);  // not on the thread of the control plane
  (void)settle();
  EXPECT_EQ(recorder.told, (std::vector<std::string>{"+0,4", "+4,2", "+8,4", "-0,4"}));
  Recorder second;
  ASSERT_TRUE(arena->observe(second).has_value());
  arena->unobserve(recorder);
  arena->unobserve(recorder);
  EXPECT_EQ(recorder.told.size(), 6U);
  arena.reset();
  EXPECT_EQ(second.told, (std::vector<std::string>{"+4,2", "+8,4", "-4,2", "-8,4"}));
}

TEST_F(ArenaGrowth, does_without_a_chunk_that_an_observer_refuses_and_says_so) {
  make(4, 4);
  ASSERT_TRUE(arena->observe(recorder).has_value());
  ASSERT_TRUE(arena->grow(4).has_value());
  recorder.refuse = true;
  const auto events = settle();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, ArenaEvent::Kind::failed);
  EXPECT_NE(events[0].why.find("16KiB could not be registered"), std::string::npos) << events[0].why;
  EXPECT_EQ(arena->slots(), 4U);
  EXPECT_EQ(arena->mapped(), block_bytes * 4);
  EXPECT_EQ(arena->state(1), ChunkState::absent);
  recorder.refuse = false;
  ASSERT_TRUE(arena->grow(4).has_value());
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm);
}

TEST_F(ArenaGrowth, a_chunk_that_one_observer_refuses_is_nobodys) {
  make(4, 4);
  Recorder other;
  ASSERT_TRUE(arena->observe(other).has_value());
  ASSERT_TRUE(arena->observe(recorder).has_value());
  ASSERT_TRUE(arena->grow(4).has_value());
  recorder.refuse = true;
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::failed);
  EXPECT_EQ(other.told, (std::vector<std::string>{"+0,4", "+4,4", "-4,4"}));
  recorder.refuse = false;
  ASSERT_TRUE(arena->grow(4).has_value());
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm);
  arena->give_back(0);
  (void)settle();
  EXPECT_EQ(other.told.back(), "-0,4");
  EXPECT_EQ(recorder.told.back(), "-0,4");
  arena->unobserve(other);
}

TEST_F(ArenaGrowth, an_observer_that_refuses_what_is_there_observes_nothing) {
  make(8, 8);
  recorder.refuse = true;
  EXPECT_EQ(arena->observe(recorder).error(), Errc::io_failed);
  recorder.refuse = false;
  arena->give_back(1);
  (void)settle();
  EXPECT_TRUE(recorder.told.empty());
}

TEST_F(ArenaGrowth, a_chunk_that_is_cancelled_is_never_made) {
  make(4, 4);
  ASSERT_TRUE(arena->observe(recorder).has_value());
  ASSERT_TRUE(arena->grow(8).has_value());
  arena->cancel(2);
  const auto events = settle();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm);
  EXPECT_EQ(events[1].kind, ArenaEvent::Kind::failed);
  EXPECT_TRUE(events[1].why.empty());
  EXPECT_EQ(recorder.told.size(), 2U);
  EXPECT_TRUE(arena->is_warm());
}

TEST_F(ArenaGrowth, ends_while_chunks_are_still_to_come) {
  make(12, 4);
  arena->cancel(1);
  arena.reset();
}

TEST_F(ArenaGrowth, asks_before_it_takes_memory) {
  MemoryLimits now;
  now.available = block_bytes * 10;
  limits = [&now] { return now; };
  try {
    make(11, 4);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string{error.what()}.find("the largest size that fits is 40KiB"), std::string::npos) << error.what();
  }
  make(4, 4);
  now.available = block_bytes * 7;
  ASSERT_TRUE(arena->grow(8).has_value());  // two chunks, of which one would fit
  const auto events = settle();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, ArenaEvent::Kind::failed);
  EXPECT_NE(events[0].why.find("the largest size that fits is 28KiB"), std::string::npos) << events[0].why;
}

TEST_F(ArenaGrowth, refuses_more_slots_than_can_be_numbered) {
  make(4, 4);
  EXPECT_EQ(arena->grow(std::numeric_limits<std::uint32_t>::max()).error(), Errc::never_fits);
  EXPECT_TRUE(arena->is_warm());
}

TEST(ArenaThread, makes_and_unmakes_chunks_while_others_use_theirs) {
  EventFdWaker waker;
  Recorder recorder;
  HostArenaOptions options;
  options.slots = 64;
  options.ready_slots = 8;
  options.block_bytes = block_bytes;
  options.chunk_bytes = block_bytes * 8;
  options.touch.threads = 2;
  options.waker = &waker;
  HostArena arena{std::move(options)};
  ASSERT_TRUE(arena.observe(recorder).has_value());
  std::vector<ArenaEvent> events;
  const auto wait_for = [&](std::size_t wanted) {
    while (events.size() < wanted) {
      waker.acknowledge();
      arena.poll(events);
      fill(arena.block(SlotId{3}), 7);
      if (events.size() < wanted) waker.wait(-1);
    }
  };
  wait_for(7);
  EXPECT_TRUE(arena.is_warm());
  for (std::uint32_t slot = 0; slot < 64; ++slot) fill(arena.block(SlotId{slot}), slot);
  for (std::uint32_t chunk = 4; chunk < 8; ++chunk) arena.give_back(chunk);
  wait_for(11);
  EXPECT_EQ(arena.mapped(), block_bytes * 32);
  for (std::uint32_t slot = 8; slot < 32; ++slot) EXPECT_TRUE(holds(arena.block(SlotId{slot}), slot));
  ASSERT_TRUE(arena.grow(1024).has_value());  // and do not wait for it
}

}  // namespace
}  // namespace terrace
