#include "tools/bench/transfer_urgent.hpp"

#include "base/random.hpp"
#include "tools/bench/rounds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::tools {
namespace {

using enum Direction;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::uint32_t samples_a_round = 50;
/// Of one persist plan: enough that two of them outlast any pause.
constexpr std::uint64_t plan_pieces = 16;

/// Two plans of the persist lane, over slots of their own, each submitted again as soon as it has ended.
class Background {
 public:
  Background(TransferRig& rig, std::uint32_t piece_blocks) : rig_{rig} {
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(rig.blocks() / 2, plan_pieces * piece_blocks));
    pieces_ = (blocks + piece_blocks - 1) / piece_blocks;
    std::uint32_t slot = rig.first_slot(swap_in).value();
    for (Plan& plan : plans_) {
      for (std::uint32_t i = 0; i < blocks; ++i, ++slot) plan.pairs.push_back({SlotId{slot}, SlotId{slot}});
    }
  }

  void start() {
    running_ = true;
    for (Plan& plan : plans_) submit(plan);
  }
  /// What has started ends, which await_end() waits for.
  void stop() {
    running_ = false;
    for (const Plan& plan : plans_) {
      if (plan.job) rig_.cancel(*plan.job);
    }
  }
  void await_end() {
    while (plans_[0].job || plans_[1].job) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Does nothing with others' events.
  void take(const TransferEvent& event) {
    for (Plan& plan : plans_) {
      if (plan.job != event.job) continue;
      plan.job.reset();
      if (!event.error) piece_us_.push_back(Microseconds{event.copying}.count() / pieces_);
      if (running_) submit(plan);
    }
  }
  [[nodiscard]] std::size_t plans_ended() const { return piece_us_.size(); }
  [[nodiscard]] double piece_us() const { return median(piece_us_); }

 private:
  struct Plan {
    std::vector<SlotPair> pairs;
    std::optional<JobId> job;
  };

  void submit(Plan& plan) { plan.job = rig_.submit(swap_in, Urgency::persist, plan.pairs); }

  TransferRig& rig_;
  std::uint32_t pieces_ = 0;
  std::array<Plan, 2> plans_;
  bool running_ = false;
  std::vector<double> piece_us_;  ///< of each plan that was not cancelled
};

/// Submits an urgent plan and waits for its end.
Duration urgent(TransferRig& rig, Background& background) {
  const SlotPair pair{rig.urgent_slot(), rig.urgent_slot()};
  const auto begin = std::chrono::steady_clock::now();
  const JobId job = rig.submit(swap_in, Urgency::request, {&pair, 1});
  std::optional<Duration> took;
  while (!took) {
    // The others' events after ours do not make ours later, and those before it do: as in an engine's own loop.
    for (const TransferEvent& event : rig.await_events()) {
      if (event.job == job) took = std::chrono::steady_clock::now() - begin;
      background.take(event);
    }
  }
  return *took;
}

}  // namespace

UrgentRow measure_urgent(TransferRig& rig, const LanesConfig& lanes, unsigned rounds) {
  const std::uint64_t in_piece = std::clamp<std::uint64_t>(lanes.piece_bytes / rig.block_bytes(), 1, rig.blocks() / 2);
  const auto piece_blocks = static_cast<std::uint32_t>(in_piece);
  Background background{rig, piece_blocks};
  Random random{1};
  const auto sample = [&](Latencies& latencies) {
    const auto longest = static_cast<std::uint64_t>(2'000 * background.piece_us());
    std::this_thread::sleep_for(std::chrono::nanoseconds{random.between(0, longest)});
    latencies.add(urgent(rig, background));
  };
  // The pauses depend on how long a piece takes, so that is looked at first.
  background.start();
  while (background.plans_ended() < 4) {
    for (const TransferEvent& event : rig.await_events()) background.take(event);
  }
  background.stop();
  background.await_end();

  Latencies idle;
  Latencies busy;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < samples_a_round; ++i) sample(idle);
    background.start();
    for (std::uint32_t i = 0; i < samples_a_round; ++i) sample(busy);
    background.stop();
    background.await_end();
  }
  UrgentRow row{.block_bytes = rig.block_bytes(),
                .samples = rounds * samples_a_round,
                .idle_us = idle.microseconds(),
                .busy_us = busy.microseconds(),
                .piece_blocks = piece_blocks,
                .piece_us = background.piece_us()};
  row.bound_us = row.idle_us.p50 + row.piece_us;
  return row;
}

}  // namespace terrace::tools
