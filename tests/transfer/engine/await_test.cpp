// Streams of an engine that wait for transfers (TransferPort::await).
#include "base/random.hpp"
#include "terrace/emulated_stream.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "tests/transfer/engine/simulated_ranks.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using test::fill;
using test::holds;
using test::run;
using test::transfer;

constexpr std::uint32_t awaited_slots = 16;
constexpr std::uint32_t layers = 4;
constexpr Bytes awaited_block{64};
constexpr std::uint32_t every_layer = TransferPort::all_layers;

/// A device that the test advances. The stream of its engine is its compute timeline.
class AwaitTransfer : public testing::Test {
 protected:
  AwaitTransfer() {
    for (std::uint32_t slot = 0; slot < awaited_slots; ++slot) fill(arena_.block(SlotId{slot}), 200 + slot);
    TransferSchedulerConfig config;
    config.pieces.bytes = Bytes{count(awaited_block) / layers};  // a piece is one layer of one block
    config.pieces.in_flight = 2;
    transfers_.emplace(config, device_, clock_, waker_);
  }
  void submit(std::uint64_t id, SlotRun blocks, bool by_layer) {
    Transfer made = transfer(id, swap_in, request, {blocks});
    made.by_layer = by_layer;
    transfers_->submit(std::move(made));
  }
  std::size_t poll() {
    events_.clear();
    transfers_->poll(events_);
    transfers_->check_invariants();
    return events_.size();
  }
  Result<void> await(std::uint64_t id, std::uint32_t leading) { return transfers_->await(TransferId{id}, leading, {}, 0); }
  /// Lets the copies go on, but not compute.
  void copy_all() {
    for (;;) {
      const auto parts = device_.step_options();
      if (std::ranges::count(parts, SimulatedDevice::Part::swap_in) == 0) return;
      device_.step(SimulatedDevice::Part::swap_in);
    }
  }
  /// Launches work that looks at the leading layers of a block.
  void look(std::uint32_t slot, std::uint32_t leading, std::uint64_t seed) {
    device_.launch([=, this](BlockAccess& access) {
      const auto block = access.read(SlotId{slot}, {});
      seen_.push_back(holds(block.first(count(awaited_block) / layers * leading), seed));
    });
  }

  HostArena arena_{awaited_slots, awaited_block};
  SimulatedDevice device_{std::array{PoolMemory{.slots = awaited_slots, .host = &arena_, .layers = layers}}};
  ManualClock clock_;
  EventFdWaker waker_;
  std::optional<TransferEngine> transfers_;
  std::vector<TransferEvent> events_;
  std::vector<bool> seen_;
};

TEST_F(AwaitTransfer, is_for_the_leading_layers_as_their_pieces_reach_the_device) {
  submit(1, run(3, 8, 1), true);
  EXPECT_EQ(await(1, 1).error(), Errc::not_ready) << "it has not started";
  poll();  // layers 0 and 1 are under way
  ASSERT_TRUE(await(1, 1));
  look(8, 1, 203);
  EXPECT_TRUE(await(1, 2));
  look(8, 2, 203);
  EXPECT_EQ(await(1, 3).error(), Errc::not_ready);
  EXPECT_EQ(await(1, every_layer).error(), Errc::not_ready);
  EXPECT_TRUE(await(1, 0)) << "there is nothing to wait for";
  EXPECT_EQ(std::ranges::count(device_.step_options(), SimulatedDevice::Part::compute), 0) << "the stream waits";
  device_.run();
  EXPECT_EQ(seen_, (std::vector<bool>{true, true}));
  poll();
  ASSERT_TRUE(await(1, every_layer));
  look(8, 4, 203);
  device_.run();
  EXPECT_EQ(seen_, (std::vector<bool>{true, true, true}));
}

TEST_F(AwaitTransfer, of_a_transfer_that_is_not_by_layer_is_for_whole_blocks) {
  submit(1, run(3, 8, 2), false);  // two pieces: a piece is at least a block
  poll();
  ASSERT_TRUE(await(1, 1));
  look(9, 4, 204);
  device_.run();
  EXPECT_EQ(seen_, std::vector<bool>{true});
}

TEST_F(AwaitTransfer, is_not_ready_while_a_piece_waits_for_its_turn) {
  submit(1, run(0, 8, 3), false);  // three pieces, of which two are under way
  poll();
  EXPECT_EQ(await(1, every_layer).error(), Errc::not_ready);
  copy_all();
  poll();
  EXPECT_TRUE(await(1, every_layer));
}

TEST_F(AwaitTransfer, succeeds_until_the_event_of_the_end_is_collected_and_then_knows_nothing) {
  EXPECT_EQ(await(1, every_layer).error(), Errc::unknown_request);
  submit(1, run(3, 8, 1), false);
  poll();
  copy_all();
  EXPECT_TRUE(await(1, every_layer)) << "the device has not been asked";
  ASSERT_EQ(poll(), 1U);
  EXPECT_EQ(events_[0].kind, TransferEvent::Kind::finished);
  EXPECT_EQ(await(1, every_layer).error(), Errc::unknown_request);
  submit(1, run(4, 9, 1), false);
  EXPECT_EQ(await(1, every_layer).error(), Errc::not_ready) << "the id is another transfer's now";
  poll();
  EXPECT_TRUE(await(1, every_layer));
}

TEST_F(AwaitTransfer, fails_with_the_error_of_a_transfer_of_which_a_part_has_failed) {
  submit(1, run(0, 8, 4), false);
  poll();
  device_.fail_next(swap_in);
  copy_all();
  poll();
  EXPECT_EQ(await(1, every_layer).error(), Errc::io_failed);
  EXPECT_EQ(await(1, 1).error(), Errc::io_failed);
}

TEST_F(AwaitTransfer, is_refused_for_a_rank_or_a_stream_that_does_not_exist) {
  submit(1, run(3, 8, 1), false);
  poll();
  EXPECT_EQ(transfers_->await(TransferId{1}, every_layer, {}, 1).error(), Errc::invalid_argument);
  int not_a_stream = 0;
  EXPECT_EQ(transfers_->await(TransferId{1}, every_layer, &not_a_stream, 0).error(), Errc::invalid_argument);
}

/// Random transfers and waits: a stream that was told to go on after a transfer has its bytes.
TEST_F(AwaitTransfer, never_lets_a_stream_see_a_block_that_has_not_arrived) {
  Random random{7};
  std::uint64_t id = 0;
  std::size_t looked = 0;
  for (int round = 0; round < 3'000; ++round) {
    for (std::uint32_t slot = 0; slot < awaited_slots; ++slot)
      fill(arena_.block(SlotId{slot}), 1'000 + round * awaited_slots + slot);
    const auto first = static_cast<std::uint32_t>(random.below(awaited_slots - 3));
    const auto blocks = static_cast<std::uint32_t>(random.between(1, 3));
    submit(++id, run(first, first, blocks), random.chance(0.5));
    std::uint32_t asked = 0;
    bool over = false;
    while (!over || !device_.step_options().empty()) {
      if (random.chance(0.5)) {
        const auto leading = static_cast<std::uint32_t>(random.between(1, layers));
        // A transfer that is not by layer is one layer, which is whole blocks.
        if (asked < 3 && await(id, leading)) {
          look(first + blocks - 1, leading, 1'000 + static_cast<std::uint64_t>(round) * awaited_slots + first + blocks - 1);
          ++asked;
          ++looked;
        }
      }
      const auto parts = device_.step_options();
      if (!parts.empty() && random.chance(0.8)) device_.step(parts[random.below(parts.size())]);
      if (random.chance(0.3)) {
        poll();
        for (const TransferEvent& event : events_) over = over || event.kind == TransferEvent::Kind::finished;
      }
    }
  }
  EXPECT_GT(looked, 3'000U);
  ASSERT_EQ(seen_.size(), looked);
  EXPECT_EQ(std::ranges::count(seen_, false), 0);
}

class AwaitRanks : public testing::Test {
 protected:
  void start(RankPayload payload) {
    ranks_.emplace(test::Ranks::Options{.count = 2, .payload = payload},
                   std::array{PoolMemory{.slots = awaited_slots, .host = &arena_}}, TransferSchedulerConfig{}, clock_, waker_);
  }
  Result<void> await(std::uint64_t id, std::uint32_t rank) {
    return ranks_->transfers().await(TransferId{id}, every_layer, {}, rank);
  }
  std::size_t poll() {
    events_.clear();
    return ranks_->transfers().poll(events_);
  }
  HostArena arena_{awaited_slots, awaited_block};
  ManualClock clock_;
  EventFdWaker waker_;
  std::optional<test::Ranks> ranks_;
  std::vector<TransferEvent> events_;
};

TEST_F(AwaitRanks, wait_each_for_the_copies_of_its_own_device) {
  start(RankPayload::sharded);
  ranks_->transfers().submit(transfer(1, swap_in, request, {run(3, 8, 1)}));
  EXPECT_EQ(await(1, 0).error(), Errc::not_ready);
  poll();
  EXPECT_TRUE(await(1, 0));
  ranks_->device(0).run();
  poll();
  EXPECT_TRUE(await(1, 0)) << "it has its part; the other rank still copies";
  EXPECT_TRUE(await(1, 1));
  EXPECT_EQ(await(1, 2).error(), Errc::invalid_argument);
  EXPECT_EQ(await(9, 0).error(), Errc::unknown_request);
  ranks_->run();
  EXPECT_EQ(poll(), 1U);
  EXPECT_EQ(await(1, 0).error(), Errc::unknown_request);
}

TEST_F(AwaitRanks, wait_for_nothing_where_a_rank_takes_no_part) {
  start(RankPayload::replicated);
  ranks_->transfers().submit(transfer(1, swap_out, request, {run(3, 8, 1)}));
  EXPECT_NE(await(1, 0).has_value(), await(1, 1).has_value()) << "one rank swaps out";
}

TEST_F(AwaitRanks, fail_where_any_rank_has_failed) {
  start(RankPayload::sharded);
  ranks_->transfers().submit(transfer(1, swap_in, request, {run(3, 8, 1)}));
  poll();
  ranks_->device(0).fail_next(swap_in);
  ranks_->device(0).run();
  poll();
  EXPECT_EQ(await(1, 0).error(), Errc::io_failed);
  EXPECT_EQ(await(1, 1).error(), Errc::io_failed) << "the block is of no use without its other part";
  ranks_->run();
  poll();
}

/// With threads: loads by layer into slots that a stream reads, and swap-outs of slots that it writes again, without any wait of
/// the host but for the next poll.
TEST(AwaitThreads, order_a_stream_with_the_copies_of_real_threads) {
  HostArena arena{awaited_slots, awaited_block};
  std::vector<std::byte> memory(awaited_slots * count(awaited_block));
  std::vector<DeviceRegion> regions;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    // The layers lie in the opposite order.
    const std::uint64_t part = count(awaited_block) / layers;
    regions.push_back(
        {reinterpret_cast<std::uintptr_t>(memory.data()) + (layers - 1 - layer) * awaited_slots * part, part, part, layer});
  }
  const auto each_part = [&](std::uint32_t slot, const auto& part) {
    for (const DeviceRegion& region : regions) {
      part(std::span{reinterpret_cast<std::byte*>(region.base + slot * region.stride), region.bytes}, region.layer);
    }
  };
  EmulatedStream stream;
  EmulatedDevice device{std::array{PoolMemory{.slots = awaited_slots, .host = &arena, .regions = regions}}};
  EventFdWaker waker;
  const SteadyClock clock;
  TransferSchedulerConfig config;
  config.pieces.bytes = Bytes{count(awaited_block) / layers};
  ThreadedTransfers transfers{config, device, clock, waker};
  std::atomic<std::uint32_t> wrong{0};
  std::uint64_t id = 0;
  const auto until_ordered = [&](std::uint32_t leading, std::vector<TransferEvent>& events) {
    for (;;) {
      const Result<void> ordered = transfers.await(TransferId{id}, leading, stream.ref(), 0);
      if (ordered) return;
      if (ordered.error() != Errc::not_ready) break;
      std::this_thread::yield();
      waker.acknowledge();
      transfers.poll(events);
    }
    // It has ended: then nothing has to be waited for.
    EXPECT_FALSE(events.empty());
  };
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::vector<TransferEvent> events;
    const auto slot = static_cast<std::uint32_t>(round % awaited_slots);
    stream.synchronize();
    fill(arena.block(SlotId{slot}), round);
    Transfer up = transfer(++id, swap_in, request, {run(slot, slot, 1)});
    up.by_layer = true;
    transfers.submit(std::move(up));
    for (std::uint32_t leading = 1; leading <= layers; ++leading) {
      until_ordered(leading, events);
      stream.run([&, slot, round, leading] {
        each_part(slot, [&](std::span<std::byte> part, std::uint32_t layer) {
          if (layer >= leading) return;
          for (std::size_t i = 0; i < part.size(); ++i) wrong += part[i] != test::pattern(round, layer * part.size() + i);
        });
      });
    }
    const auto finished = [&] { return !events.empty() && events.back().kind == TransferEvent::Kind::finished; };
    while (!finished()) {
      waker.wait(test::patience_ms);
      waker.acknowledge();
      transfers.poll(events);
    }
    events.clear();
    // The stream writes the block, the copy takes it, and the stream writes it again.
    stream.run([&, slot, round] {
      each_part(slot, [&](std::span<std::byte> part, std::uint32_t layer) {
        for (std::size_t i = 0; i < part.size(); ++i) part[i] = test::pattern(round + 7, layer * part.size() + i);
      });
    });
    Transfer down = transfer(++id, swap_out, request, {run(slot, slot, 1)});
    const Result<Fence> written = device.signal(stream.ref());
    ASSERT_TRUE(written);
    down.after = *written;
    transfers.submit(std::move(down));
    until_ordered(every_layer, events);
    stream.run([&, slot] { each_part(slot, [](std::span<std::byte> part, std::uint32_t) { fill(part, 12'345); }); });
    while (!finished()) {
      waker.wait(test::patience_ms);
      waker.acknowledge();
      transfers.poll(events);
    }
    EXPECT_TRUE(holds(arena.block(SlotId{slot}), round + 7)) << round;
  }
  stream.synchronize();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace terrace
