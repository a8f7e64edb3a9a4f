#include "lab/transfer/transfer_urgent.hpp"

#include "base/random.hpp"
#include "lab/transfer/transfer_background.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::tools {
namespace {

using enum Direction;

constexpr std::uint32_t samples_a_round = 50;
/// Submits an urgent transfer and waits for its end.
Duration urgent(TransferRig& rig, BackgroundLoad& background) {
  const SlotPair pair{rig.urgent_slot(), rig.urgent_slot()};
  const auto begin = std::chrono::steady_clock::now();
  const TransferId id = rig.submit(swap_in, Urgency::request, {&pair, 1});
  std::optional<Duration> took;
  while (!took) {
    // Events before ours delay it, and events after it do not, as in the loop of an engine.
    for (const TransferEvent& event : rig.await_events()) {
      if (event.id == id) took = std::chrono::steady_clock::now() - begin;
      background.take(event);
    }
  }
  return *took;
}

}  // namespace

UrgentRow measure_urgent(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds) {
  BackgroundLoad background{rig, lanes, {swap_in}};
  Random random{1};
  const auto sample = [&](Latencies& latencies) {
    const auto longest = static_cast<std::uint64_t>(2'000 * background.piece_us());
    std::this_thread::sleep_for(std::chrono::nanoseconds{random.between(0, longest)});
    latencies.add(urgent(rig, background));
  };
  // The pauses depend on how long a piece takes, so this is measured first.
  background.start();
  background.await_transfers(4);
  background.stop();

  Latencies idle;
  Latencies busy;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < samples_a_round; ++i) sample(idle);
    background.start();
    for (std::uint32_t i = 0; i < samples_a_round; ++i) sample(busy);
    background.stop();
  }
  UrgentRow row{.block_bytes = rig.block_bytes(),
                .samples = rounds * samples_a_round,
                .idle_us = idle.microseconds(),
                .busy_us = busy.microseconds(),
                .piece_blocks = background.piece_blocks(),
                .piece_us = background.piece_us()};
  const Bytes piece = rig.block_bytes() * std::uint64_t{row.piece_blocks};
  row.pieces_ahead = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(lanes.pieces.bytes_in_flight / piece, 1, std::uint64_t{lanes.pieces.in_flight}));
  row.bound_us = row.idle_us.p50 + row.pieces_ahead * row.piece_us;
  return row;
}

}  // namespace terrace::tools
