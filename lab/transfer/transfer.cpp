#include "lab/benches.hpp"

#include "lab/transfer/transfer_measurements.hpp"
#include "tools/device_name.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <utility>

namespace terrace::tools {
namespace {

/// The most blocks that a lane may hold.
constexpr std::uint32_t lane_blocks_max = TransferSchedulerConfig{}.queued_blocks_max;
/// A block needs space for a stamp at each end, and must fit into a chunk of the arena.
constexpr Bytes moved_block_min{64};
constexpr Bytes moved_block_max = GiB;

std::uint32_t blocks_of(const TransferBenchOptions& options, Bytes block_bytes) {
  const std::uint64_t blocks = options.blocks > 0 ? options.blocks : options.area_bytes / block_bytes;
  if (blocks < 2 || blocks > lane_blocks_max) {
    throw std::invalid_argument{
        fmt::format("{} blocks of {} a direction: must be from 2 to {}", blocks, to_string(block_bytes), lane_blocks_max)};
  }
  return static_cast<std::uint32_t>(blocks);
}

void check(const TransferBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
  if (options.pieces.in_flight == 0) throw std::invalid_argument{"--pieces-in-flight 0: at least 1 is needed"};
  if (count(options.pieces.bytes_in_flight) == 0) throw std::invalid_argument{"--bytes-in-flight 0: at least 1 is needed"};
  if (count(options.pieces.bytes) == 0) throw std::invalid_argument{"--piece-bytes 0: at least 1 is needed"};
  if (options.layers == 0) throw std::invalid_argument{"--layers 0: at least 1 is needed"};
  if (options.block_bytes.empty()) throw std::invalid_argument{"--block-bytes: at least one size is needed"};
  const std::optional<Bytes> available = available_memory();
  for (const Bytes block_bytes : options.block_bytes) {
    if (block_bytes < moved_block_min || block_bytes > moved_block_max) {
      throw std::invalid_argument{fmt::format("--block-bytes {}: must be from {} to {}", to_string(block_bytes),
                                              to_string(moved_block_min), to_string(moved_block_max))};
    }
    // Both directions: on the device, in the arena, and on the device side of the plain copies.
    const Bytes needed = block_bytes * (std::uint64_t{blocks_of(options, block_bytes)} * 2 + 1) * 3;
    if (available && needed > *available) {
      throw std::invalid_argument{fmt::format("{} blocks of {} a direction take {} of memory; {} is available",
                                              blocks_of(options, block_bytes), to_string(block_bytes), to_string(needed),
                                              to_string(*available))};
    }
  }
}

constexpr Column copy_columns[] = {{"block_bytes", "block", 7},
                                   {"blocks", "", 9},
                                   {"layout", "", -10},
                                   {"way", "", -8},
                                   {"gb_per_s", "moved", 8, 2},
                                   {"plain_gb_per_s", "plain", 9, 2},
                                   {"ratio", "", 7, 2},
                                   {"store_gb_per_s", "store", 9, 2},
                                   {"store_ratio", "ratio", 7, 2},
                                   {"bare_gb_per_s", "bare", 9, 2},
                                   {"bare_ratio", "ratio", 7, 2},
                                   {"submit_ns", "submit ns", 11, 1},
                                   {"collect_ns", "collect ns", 11, 1}};
constexpr Column urgent_columns[] = {{"block_bytes", "block", 7},      {"idle_us.p50", "idle p50", 11, 1},
                                     {"idle_us.p99", "p99", 10, 1},    {"busy_us.p50", "busy p50", 11, 1},
                                     {"busy_us.p99", "p99", 10, 1},    {"busy_us.max", "max", 10, 1},
                                     {"piece_us", "one piece", 11, 1}, {"bound_us", "bound", 10, 1}};
constexpr Column compute_columns[] = {{"block_bytes", "block", 7},
                                      {"needs", "", -10},
                                      {"alone_us.p50", "alone p50", 11, 1},
                                      {"alone_us.p99", "p99", 10, 1},
                                      {"beside_us.p50", "beside p50", 12, 1},
                                      {"beside_us.p99", "p99", 10, 1},
                                      {"slowdown_p50", "slowdown", 10, 2},
                                      {"slowdown_p99", "of p99", 7, 2},
                                      {"gb_per_s", "GB/s", 9, 2}};
constexpr Column layer_columns[] = {{"block_bytes", "block", 7},
                                    {"blocks", "", 9},
                                    {"layers", "", 8},
                                    {"told", "", 7},
                                    {"whole_us", "whole", 12, 1},
                                    {"first_us", "first layers", 14, 1},
                                    {"first_of_whole", "ratio", 7, 3},
                                    {"all_us", "all layers", 12, 1},
                                    {"all_of_whole", "ratio", 7, 2}};

}  // namespace

Row bench_transfer(const TransferBenchOptions& options) {
  check(options);
  print("medians of {} rounds; pieces of {}, {} and {} under way a direction; GB/s\n", options.rounds,
        to_string(options.pieces.bytes), options.pieces.in_flight, to_string(options.pieces.bytes_in_flight));
  print_head(copy_columns);
  boost::json::array copies;
  boost::json::array urgent;
  boost::json::array compute;
  boost::json::array layers;
  for (const Bytes block_bytes : options.block_bytes) {
    TransferBenchOptions here = options;
    if (count(block_bytes) % options.layers != 0) here.layers = 1;
    TransferRig rig{here, block_bytes, blocks_of(options, block_bytes)};
    for (const Row& row : measure_copies(rig, options.rounds)) add_row(copies, copy_columns, row);
    urgent.push_back(measure_urgent(rig, options.rounds));
    for (const Row& row : measure_compute(rig, options.rounds)) compute.push_back(row);
    if (rig.layers() > 1) layers.push_back(measure_layers(rig, options.rounds));
  }
  print_table("swap-in of 1 block, us: alone, and while the store lane of the same direction is full", urgent_columns, urgent);
  print_table("a step of compute, us, by what it needs most: alone, and while the store lanes of both directions are full",
              compute_columns, compute);
  print_table("swap-in of all blocks in one transfer, us: whole, and by layer", layer_columns, layers);
  return {{"device", device_name(options.cuda)},
          {"rounds", options.rounds},
          {"piece_bytes", count(options.pieces.bytes)},
          {"pieces_in_flight", options.pieces.in_flight},
          {"bytes_in_flight", count(options.pieces.bytes_in_flight)},
          {"copies", std::move(copies)},
          {"urgent", std::move(urgent)},
          {"compute", std::move(compute)},
          {"layers", std::move(layers)}};
}

}  // namespace terrace::tools
