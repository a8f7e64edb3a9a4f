#pragma once

#include "tools/bench/rounds.hpp"
#include "tools/bench/transfer_rig.hpp"
#include "transfer/engine/lanes.hpp"
#include "transfer/device/plan.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::tools {

/// A persist lane that never runs dry: two plans of it, over slots of their own, each submitted again as soon as it has ended.
/// Threads: the rig's.
class BackgroundLoad {
 public:
  BackgroundLoad(TransferRig& rig, const LanesConfig& lanes)
      : rig_{rig}, piece_blocks_{blocks_of_a_piece(rig, lanes)} {
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(rig.blocks() / 2, plan_pieces * piece_blocks_));
    pieces_ = (blocks + piece_blocks_ - 1) / piece_blocks_;
    std::uint32_t slot = rig.first_slot(Direction::swap_in).value();
    for (Plan& plan : plans_) {
      for (std::uint32_t i = 0; i < blocks; ++i, ++slot) plan.pairs.push_back({SlotId{slot}, SlotId{slot}});
    }
  }

  void start() {
    running_ = true;
    for (Plan& plan : plans_) submit(plan);
  }
  /// Waits for what has started to end.
  void stop() {
    running_ = false;
    for (const Plan& plan : plans_) {
      if (plan.job) rig_.cancel(*plan.job);
    }
    while (plans_[0].job || plans_[1].job) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Until so many plans have ended since the beginning.
  void await_plans(std::size_t plans) {
    while (piece_us_.size() < plans) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Does nothing with others' events.
  void take(const TransferEvent& event) {
    for (Plan& plan : plans_) {
      if (plan.job != event.job) continue;
      plan.job.reset();
      if (!event.error) piece_us_.push_back(std::chrono::duration<double, std::micro>{event.copying}.count() / pieces_);
      if (running_) submit(plan);
    }
  }
  [[nodiscard]] std::size_t plans_ended() const { return piece_us_.size(); }
  [[nodiscard]] std::uint32_t piece_blocks() const { return piece_blocks_; }
  /// What a piece keeps the stream for; median.
  [[nodiscard]] double piece_us() const { return median(piece_us_); }

 private:
  /// Of one plan: enough that two of them outlast any pause.
  static constexpr std::uint64_t plan_pieces = 16;
  struct Plan {
    std::vector<SlotPair> pairs;
    std::optional<JobId> job;
  };

  [[nodiscard]] static std::uint32_t blocks_of_a_piece(const TransferRig& rig, const LanesConfig& lanes) {
    const std::uint64_t blocks = std::clamp<std::uint64_t>(lanes.piece_bytes / rig.block_bytes(), 1, rig.blocks() / 2);
    return static_cast<std::uint32_t>(blocks);
  }
  void submit(Plan& plan) { plan.job = rig_.submit(Direction::swap_in, Urgency::persist, plan.pairs); }

  TransferRig& rig_;
  std::uint32_t piece_blocks_;
  std::uint32_t pieces_ = 0;
  std::array<Plan, 2> plans_;
  bool running_ = false;
  std::vector<double> piece_us_;  ///< of each plan that was not cancelled
};

}  // namespace terrace::tools
