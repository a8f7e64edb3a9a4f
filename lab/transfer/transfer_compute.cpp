#include "lab/transfer/transfer_compute.hpp"

#include "lab/rounds.hpp"
#include "lab/transfer/transfer_background.hpp"
#include "transfer/device/transfer.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace terrace::tools {
namespace {

constexpr std::uint32_t steps_a_round = 40;

/// Returns how long a step took on the device. Keeps `background` full meanwhile, if it is given.
Duration step(TransferRig& rig, ComputeKind kind, BackgroundLoad* background) {
  rig.compute().start(kind);
  for (;;) {
    if (const std::optional<Duration> took = rig.compute().ended()) return *took;
    if (background != nullptr) {
      for (const TransferEvent& event : rig.events()) background->take(event);
    }
    std::this_thread::sleep_for(std::chrono::microseconds{100});  // leaves the core to the other threads
  }
}

ComputeRow measure(TransferRig& rig, ComputeKind kind, BackgroundLoad& background, unsigned rounds) {
  Latencies alone;
  Latencies beside;
  double seconds = 0;
  const Bytes before = background.moved();
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < steps_a_round; ++i) alone.add(step(rig, kind, nullptr));
    seconds += seconds_of([&] {
      background.start();
      for (std::uint32_t i = 0; i < steps_a_round; ++i) beside.add(step(rig, kind, &background));
      background.stop();
    });
  }
  ComputeRow row{.block_bytes = rig.block_bytes(),
                 .kind = kind,
                 .samples = rounds * steps_a_round,
                 .alone_us = alone.microseconds(),
                 .beside_us = beside.microseconds()};
  row.slowdown_p50 = row.beside_us.p50 / row.alone_us.p50;
  row.slowdown_p99 = row.beside_us.p99 / row.alone_us.p99;
  row.gb_per_s = static_cast<double>(count(background.moved() - before)) / 1e9 / seconds;
  return row;
}

}  // namespace

std::vector<ComputeRow> measure_compute(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds) {
  BackgroundLoad background{rig, lanes, {Direction::swap_out, Direction::swap_in}};
  std::vector<ComputeRow> rows;
  for (const ComputeKind kind : rig.compute().kinds()) rows.push_back(measure(rig, kind, background, rounds));
  return rows;
}

}  // namespace terrace::tools
