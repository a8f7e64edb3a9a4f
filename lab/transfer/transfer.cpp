#include "lab/transfer/transfer.hpp"

#include "lab/transfer/transfer_compute.hpp"
#include "lab/transfer/transfer_copies.hpp"
#include "lab/transfer/transfer_layers.hpp"
#include "lab/transfer/transfer_rig.hpp"
#include "lab/transfer/transfer_urgent.hpp"
#include "tools/device_name.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

/// The most blocks that a lane may hold.
constexpr std::uint32_t blocks_max = TransferSchedulerConfig{}.queued_blocks_max;
/// A block needs space for a stamp at each end, and must fit into a chunk of the arena.
constexpr Bytes smallest_block{64};
constexpr Bytes largest_block = GiB;

std::uint32_t blocks_of(const TransferBenchOptions& options, Bytes block_bytes) {
  const std::uint64_t blocks = options.blocks > 0 ? options.blocks : options.area_bytes / block_bytes;
  if (blocks < 2 || blocks > blocks_max) {
    throw std::invalid_argument{
        fmt::format("{} blocks of {} a direction: must be from 2 to {}", blocks, to_string(block_bytes), blocks_max)};
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
    if (block_bytes < smallest_block || block_bytes > largest_block) {
      throw std::invalid_argument{fmt::format("--block-bytes {}: must be from {} to {}", to_string(block_bytes),
                                              to_string(smallest_block), to_string(largest_block))};
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

void print_copies(const std::vector<CopyRow>& rows) {
  for (const CopyRow& row : rows) {
    print("{:>7} {:>8}  {:<10}  {:<8} {:>7.2f}  {:>7.2f} {:>6.2f}  {:>7.2f} {:>6.2f}  {:>7.2f} {:>6.2f}  {:>9.1f} {:>10.1f}\n",
          to_string(row.block_bytes), row.blocks, to_string(row.layout), to_string(row.way), row.gb_per_s, row.plain_gb_per_s,
          row.ratio, row.store_gb_per_s, row.store_ratio, row.bare_gb_per_s, row.bare_ratio, row.submit_ns, row.collect_ns);
  }
  flush_output();
}

void print_urgent(const std::vector<UrgentRow>& rows) {
  print("\nswap-in of 1 block, us: alone, and while the store lane of the same direction is full\n");
  print("{:>7}  {:>9} {:>9}  {:>9} {:>9} {:>9}  {:>9} {:>9}\n", "block", "idle p50", "p99", "busy p50", "p99", "max", "one piece",
        "bound");
  for (const UrgentRow& row : rows) {
    print("{:>7}  {:>9.1f} {:>9.1f}  {:>9.1f} {:>9.1f} {:>9.1f}  {:>9.1f} {:>9.1f}\n", to_string(row.block_bytes),
          row.idle_us.p50, row.idle_us.p99, row.busy_us.p50, row.busy_us.p99, row.busy_us.max, row.piece_us, row.bound_us);
  }
}

void print_compute(const std::vector<ComputeRow>& rows) {
  if (rows.empty()) return;
  print("\na step of compute, us, by what it needs most: alone, and while the store lanes of both directions are full\n");
  print("{:>7}  {:<10}  {:>9} {:>9}  {:>10} {:>9}  {:>8} {:>6}  {:>7}\n", "block", "needs", "alone p50", "p99", "beside p50",
        "p99", "slowdown", "of p99", "GB/s");
  for (const ComputeRow& row : rows) {
    print("{:>7}  {:<10}  {:>9.1f} {:>9.1f}  {:>10.1f} {:>9.1f}  {:>8.2f} {:>6.2f}  {:>7.2f}\n", to_string(row.block_bytes),
          to_string(row.kind), row.alone_us.p50, row.alone_us.p99, row.beside_us.p50, row.beside_us.p99, row.slowdown_p50,
          row.slowdown_p99, row.gb_per_s);
  }
}

void print_layers(const std::vector<LayersRow>& rows) {
  if (rows.empty()) return;
  print("\nswap-in of all blocks in one transfer, us: whole, and by layer\n");
  print("{:>7} {:>8} {:>7} {:>6}  {:>10}  {:>12} {:>6}  {:>10} {:>6}\n", "block", "blocks", "layers", "told", "whole",
        "first layers", "ratio", "all layers", "ratio");
  for (const LayersRow& row : rows) {
    print("{:>7} {:>8} {:>7} {:>6}  {:>10.1f}  {:>12.1f} {:>6.3f}  {:>10.1f} {:>6.2f}\n", to_string(row.block_bytes), row.blocks,
          row.layers, row.told, row.whole_us, row.first_us, row.first_of_whole, row.all_us, row.all_of_whole);
  }
}

boost::json::object to_json(const LayersRow& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"blocks", row.blocks},
          {"layers", row.layers},
          {"told", row.told},
          {"whole_us", row.whole_us},
          {"first_us", row.first_us},
          {"all_us", row.all_us},
          {"first_of_whole", row.first_of_whole},
          {"all_of_whole", row.all_of_whole}};
}

boost::json::object to_json(const CopyRow& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"blocks", row.blocks},
          {"plan_blocks", row.transfer_blocks},
          {"layout", to_string(row.layout)},
          {"way", to_string(row.way)},
          {"gb_per_s", row.gb_per_s},
          {"plain_gb_per_s", row.plain_gb_per_s},
          {"ratio", row.ratio},
          {"store_gb_per_s", row.store_gb_per_s},
          {"store_ratio", row.store_ratio},
          {"bare_gb_per_s", row.bare_gb_per_s},
          {"bare_ratio", row.bare_ratio},
          {"submit_ns", row.submit_ns},
          {"collect_ns", row.collect_ns}};
}

boost::json::object to_json(const Percentiles& us) { return {{"p50", us.p50}, {"p99", us.p99}, {"max", us.max}}; }

boost::json::object to_json(const UrgentRow& row) {
  return {{"block_bytes", count(row.block_bytes)}, {"samples", row.samples},           {"idle_us", to_json(row.idle_us)},
          {"busy_us", to_json(row.busy_us)},       {"piece_blocks", row.piece_blocks}, {"piece_us", row.piece_us},
          {"pieces_ahead", row.pieces_ahead},      {"bound_us", row.bound_us}};
}

boost::json::object to_json(const ComputeRow& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"needs", to_string(row.kind)},
          {"samples", row.samples},
          {"alone_us", to_json(row.alone_us)},
          {"beside_us", to_json(row.beside_us)},
          {"slowdown_p50", row.slowdown_p50},
          {"slowdown_p99", row.slowdown_p99},
          {"gb_per_s", row.gb_per_s}};
}

}  // namespace

void bench_transfer(const TransferBenchOptions& options) {
  check(options);
  TransferSchedulerConfig lanes;
  lanes.pieces = options.pieces;

  print("medians of {} rounds; pieces of {}, {} and {} under way a direction; GB/s\n", options.rounds,
        to_string(options.pieces.bytes), options.pieces.in_flight, to_string(options.pieces.bytes_in_flight));
  print("{:>7} {:>8}  {:<10}  {:<8} {:>7}  {:>7} {:>6}  {:>7} {:>6}  {:>7} {:>6}  {:>9} {:>10}\n", "block", "blocks", "layout",
        "way", "moved", "plain", "ratio", "store", "ratio", "bare", "ratio", "submit ns", "collect ns");
  boost::json::array copies;
  std::vector<UrgentRow> urgent;
  std::vector<ComputeRow> compute;
  std::vector<LayersRow> layers;
  for (const Bytes block_bytes : options.block_bytes) {
    TransferDeviceOptions device{.cuda = options.cuda, .layers = 1, .link_bytes_per_second = options.link_bytes_per_second};
    if (count(block_bytes) % options.layers == 0) device.layers = options.layers;
    TransferRig rig{device, block_bytes, blocks_of(options, block_bytes), lanes};
    const std::vector<CopyRow> rows = measure_copies(rig, options.pieces.bytes, options.rounds);
    print_copies(rows);
    for (const CopyRow& row : rows) copies.push_back(to_json(row));
    urgent.push_back(measure_urgent(rig, lanes, options.rounds));
    for (const ComputeRow& row : measure_compute(rig, lanes, options.rounds)) compute.push_back(row);
    if (rig.layers() > 1) layers.push_back(measure_layers(rig, options.rounds));
  }
  print_urgent(urgent);
  print_compute(compute);
  print_layers(layers);

  if (options.report.empty()) return;
  boost::json::array urgent_rows;
  for (const UrgentRow& row : urgent) urgent_rows.push_back(to_json(row));
  boost::json::array compute_rows;
  for (const ComputeRow& row : compute) compute_rows.push_back(to_json(row));
  boost::json::array layers_rows;
  for (const LayersRow& row : layers) layers_rows.push_back(to_json(row));
  write_report(options.report, json_text(boost::json::object{{"device", device_name(options.cuda)},
                                                             {"rounds", options.rounds},
                                                             {"piece_bytes", count(options.pieces.bytes)},
                                                             {"pieces_in_flight", options.pieces.in_flight},
                                                             {"bytes_in_flight", count(options.pieces.bytes_in_flight)},
                                                             {"copies", std::move(copies)},
                                                             {"urgent", std::move(urgent_rows)},
                                                             {"compute", std::move(compute_rows)},
                                                             {"layers", std::move(layers_rows)}}));
}

}  // namespace terrace::tools
