#include "tools/bench/transfer/transfer_compute.hpp"

#include "tools/bench/transfer/transfer_background.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::uint32_t steps_a_round = 40;
/// Bytes that a step reads: a few milliseconds of work, and more than fits into a cache.
constexpr Bytes step_bytes_wanted = MiB * 32;

std::uint64_t sum(std::span<const std::byte> bytes) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at + sizeof all <= bytes.size(); at += sizeof all) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    all += word;
  }
  return all;
}

/// Reads blocks that nothing writes (the sources of the other direction), and returns how long that took. Keeps `background` full
/// meanwhile, if it is given.
Duration step(TransferRig& rig, std::uint32_t blocks, BackgroundLoad* background) {
  Duration took{};
  const std::uint32_t first = rig.first_slot(Direction::swap_out).value();
  const Fence done = rig.device().launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(count(rig.block_bytes()));
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t all = 0;
    for (std::uint32_t block = 0; block < blocks; ++block) all += sum(access.read(SlotId{first + block}, scratch));
    took = std::chrono::steady_clock::now() - begin;
    static volatile std::uint64_t kept = 0;  // prevents the compiler from removing the reads
    kept = kept + all;
  });
  while (rig.device().reached() < done) {
    if (background != nullptr) {
      for (const TransferEvent& event : rig.events()) background->take(event);
    }
    std::this_thread::sleep_for(std::chrono::microseconds{100});  // leaves the core to the other threads
  }
  return took;
}

}  // namespace

ComputeRow measure_compute(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds) {
  BackgroundLoad background{rig, lanes};
  const std::uint64_t wanted = std::clamp<std::uint64_t>(step_bytes_wanted / rig.block_bytes(), 1, rig.blocks());
  const auto blocks = static_cast<std::uint32_t>(wanted);
  Latencies alone;
  Latencies beside;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < steps_a_round; ++i) alone.add(step(rig, blocks, nullptr));
    background.start();
    for (std::uint32_t i = 0; i < steps_a_round; ++i) beside.add(step(rig, blocks, &background));
    background.stop();
  }
  ComputeRow row{.block_bytes = rig.block_bytes(),
                 .step_bytes = rig.block_bytes() * blocks,
                 .samples = rounds * steps_a_round,
                 .alone_us = alone.microseconds(),
                 .beside_us = beside.microseconds()};
  row.slowdown_p50 = row.beside_us.p50 / row.alone_us.p50;
  row.slowdown_p99 = row.beside_us.p99 / row.alone_us.p99;
  return row;
}

}  // namespace terrace::tools
