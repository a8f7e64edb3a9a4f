#pragma once

#include "lab/rounds.hpp"
#include "lab/transfer/transfer_rig.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

namespace terrace::tools {

/// Keeps the store lanes of the given directions full: in each, two transfers with slots of their own, each submitted again as
/// soon as it ends. Threads: the rig's.
class BackgroundLoad {
 public:
  BackgroundLoad(TransferRig& rig, const TransferSchedulerConfig& lanes, std::initializer_list<Direction> directions)
      : rig_{rig}, piece_blocks_{blocks_of_a_piece(rig, lanes)} {
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(rig.blocks() / 2, transfer_pieces * piece_blocks_));
    pieces_ = (blocks + piece_blocks_ - 1) / piece_blocks_;
    for (const Direction direction : directions) {
      std::uint32_t slot = rig.first_slot(direction).value();
      for (int each = 0; each < transfers_a_direction; ++each) {
        Crossing& transfer = transfers_.emplace_back(Crossing{direction, {}, {}});
        for (std::uint32_t i = 0; i < blocks; ++i, ++slot) transfer.pairs.push_back({SlotId{slot}, SlotId{slot}});
      }
    }
  }

  void start() {
    running_ = true;
    for (Crossing& transfer : transfers_) submit(transfer);
  }
  /// Cancels the transfers, and waits until their started pieces have ended.
  void stop() {
    running_ = false;
    for (const Crossing& transfer : transfers_) {
      if (transfer.id) rig_.cancel(*transfer.id);
    }
    while (std::ranges::any_of(transfers_, [](const Crossing& transfer) { return transfer.id.has_value(); })) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Waits until this many transfers have ended since construction.
  void await_transfers(std::size_t transfers) {
    while (piece_us_.size() < transfers) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Handles an event of this load. Ignores other events.
  void take(const TransferEvent& event) {
    for (Crossing& transfer : transfers_) {
      if (transfer.id != event.id) continue;
      transfer.id.reset();
      moved_ += event.moved;
      if (!event.error) piece_us_.push_back(std::chrono::duration<double, std::micro>{event.copying}.count() / pieces_);
      if (running_) submit(transfer);
    }
  }
  /// The bytes of all transfers that have ended.
  [[nodiscard]] Bytes moved() const { return moved_; }
  [[nodiscard]] std::uint32_t piece_blocks() const { return piece_blocks_; }
  /// The median time that a piece uses the stream.
  [[nodiscard]] double piece_us() const { return median(piece_us_); }

 private:
  /// The pieces of one transfer: enough that the other transfer always covers the pause between two submits.
  static constexpr std::uint64_t transfer_pieces = 16;
  static constexpr int transfers_a_direction = 2;
  struct Crossing {
    Direction direction;
    std::vector<SlotPair> pairs;
    std::optional<TransferId> id;
  };

  [[nodiscard]] static std::uint32_t blocks_of_a_piece(const TransferRig& rig, const TransferSchedulerConfig& lanes) {
    const std::uint64_t blocks = std::clamp<std::uint64_t>(lanes.pieces.bytes / rig.block_bytes(), 1, rig.blocks() / 2);
    return static_cast<std::uint32_t>(blocks);
  }
  void submit(Crossing& transfer) { transfer.id = rig_.submit(transfer.direction, Urgency::store, transfer.pairs); }

  TransferRig& rig_;
  std::uint32_t piece_blocks_;
  std::uint32_t pieces_ = 0;
  std::vector<Crossing> transfers_;
  Bytes moved_{};
  bool running_ = false;
  std::vector<double> piece_us_;  ///< of each transfer that was not cancelled
};

}  // namespace terrace::tools
