#pragma once

#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace terrace::test {

inline constexpr TimePoint start{std::chrono::hours{1}};

/// A scheduler with blocks of 10 bytes, pieces of 4 blocks, and 2 pieces under way.
class TransferSchedulerTest : public testing::Test {
 protected:
  static TransferSchedulerConfig config() {
    TransferSchedulerConfig made;
    made.pools = {{.block_bytes = Bytes{10}}};
    made.pieces.bytes = Bytes{45};
    made.pieces.in_flight = 2;
    made.queued_blocks_max = 100;
    return made;
  }

  void submit(Transfer made) {
    EXPECT_TRUE(scheduler_.submit(std::move(made)));
    scheduler_.check_invariants();
  }
  void submit(std::uint64_t id, Urgency urgency, std::uint32_t blocks, TimePoint deadline = never) {
    Transfer made = transfer(id, Direction::swap_out, urgency, {run(0, 0, blocks)});
    made.deadline = deadline;
    submit(std::move(made));
  }
  std::optional<Piece> next(Direction direction = Direction::swap_out, TimePoint now = start) {
    std::optional<Piece> piece = scheduler_.next(direction, now);
    scheduler_.check_invariants();
    return piece;
  }
  void finish(const Piece& piece, ErrorCode error = {}, TimePoint now = start) {
    scheduler_.finish(piece.token, error, now);
    scheduler_.check_invariants();
  }
  std::vector<TransferEvent> events() {
    std::vector<TransferEvent> taken;
    scheduler_.take_events(taken);
    scheduler_.check_invariants();
    return taken;
  }
  /// The transfers of all pieces in the order of their start, if each piece ends at once.
  std::vector<std::uint64_t> order() {
    std::vector<std::uint64_t> ids;
    while (const std::optional<Piece> piece = next()) {
      ids.push_back(piece->id.value());
      finish(*piece);
    }
    return ids;
  }
  static std::vector<BlockOutcome> outcomes(std::size_t first, BlockOutcome a, std::size_t then, BlockOutcome b) {
    std::vector<BlockOutcome> all(first, a);
    all.insert(all.end(), then, b);
    return all;
  }

  TransferScheduler scheduler_{config()};
};

}  // namespace terrace::test
