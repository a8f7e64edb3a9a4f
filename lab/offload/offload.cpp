#include "lab/offload/offload.hpp"

#include "lab/offload/offload_rig.hpp"
#include "lab/questions.hpp"
#include "lab/rounds.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

namespace terrace::tools {
namespace {

constexpr Bytes small_block{64};  // the cost of an order shows where blocks have nearly no bytes
constexpr Bytes largest_block = GiB;
constexpr std::uint32_t blocks_min = 2 * keys_a_question;  // more than the host tier has if there is storage
constexpr std::uint32_t blocks_max = 1U << 20U;
constexpr std::uint32_t orders_refused = 10'000;

std::string_view to_string(KeyOrder order) { return order == KeyOrder::flat ? "flat" : "prefix"; }

std::uint32_t blocks_of(const OffloadBenchOptions& options, Bytes block_bytes) {
  const std::uint64_t blocks = options.area_bytes / block_bytes / keys_a_question * keys_a_question;
  if (blocks < blocks_min || blocks > blocks_max) {
    throw std::invalid_argument{fmt::format("--area {}: {} blocks of {} in orders of {}; must be from {} to {}",
                                            to_string(options.area_bytes), blocks, to_string(block_bytes), keys_a_question,
                                            blocks_min, blocks_max)};
  }
  return static_cast<std::uint32_t>(blocks);
}

void check(const OffloadBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
  if (options.block_bytes.empty()) throw std::invalid_argument{"--block-bytes: at least one size is needed"};
  if (options.small_blocks == 0 || options.small_blocks % keys_a_question != 0 || options.small_blocks > blocks_max) {
    throw std::invalid_argument{fmt::format("--small-blocks {}: must be a multiple of {}, from {} to {}", options.small_blocks,
                                            keys_a_question, keys_a_question, blocks_max)};
  }
  const std::optional<Bytes> available = available_memory();
  for (const Bytes block_bytes : options.block_bytes) {
    if (block_bytes < small_block || block_bytes > largest_block || count(block_bytes) % count(small_block) != 0) {
      throw std::invalid_argument{fmt::format("--block-bytes {}: must be a multiple of {}, {} at most", to_string(block_bytes),
                                              to_string(small_block), to_string(largest_block))};
    }
    // The device, the plain copies, and twice as much for the host tier or for storage; with storage, a small host tier, too.
    const Bytes needed = block_bytes * (std::uint64_t{blocks_of(options, block_bytes)} * 5 + std::uint64_t{8} * keys_a_question);
    if (available && needed > *available) {
      throw std::invalid_argument{fmt::format("--area {}: blocks of {} take {} of memory; {} is available",
                                              to_string(options.area_bytes), to_string(block_bytes), to_string(needed),
                                              to_string(*available))};
    }
  }
}

/// The times of one way, and of memcpy in the same rounds.
class Times {
 public:
  void measure(OffloadRig& rig, OffloadWay way, unsigned round) {
    double plain = 0;
    if (round % 2 == 0) plain = rig.copy(way);
    const double moved = rig.move(way);
    if (round % 2 == 1) plain = rig.copy(way);
    const double blocks = rig.shape().blocks;
    const double gigabytes = blocks * static_cast<double>(count(rig.shape().block_bytes)) * 1e-9;
    figures_.add("gb_per_s", gigabytes / moved);
    figures_.add("memcpy_gb_per_s", gigabytes / plain);
    figures_.add("ratio", plain / moved);
    figures_.add("ns_a_block", moved * 1e9 / blocks);
    figures_.add("memcpy_ns_a_block", plain * 1e9 / blocks);
  }
  /// `from_storage` is the share of the loaded blocks that came from storage.
  [[nodiscard]] Row row(const OffloadShape& shape, std::string_view way, double from_storage = 0) const {
    Row row{{"block_bytes", count(shape.block_bytes)},
            {"blocks", shape.blocks},
            {"key_order", to_string(shape.key_order)},
            {"way", way},
            {"from_storage", from_storage}};
    figures_.add_medians(row);
    return row;
  }

 private:
  Figures figures_;
};

/// Fills the tiers, and compares the bytes that come back.
void warm_up(OffloadRig& rig) {
  for (int fill = 0; fill < 2; ++fill) {
    rig.name_new_blocks();
    static_cast<void>(rig.move(OffloadWay::store));
    rig.settle();
  }
  static_cast<void>(rig.copy(OffloadWay::store));
  rig.overwrite();
  static_cast<void>(rig.move(OffloadWay::load));
  rig.check();
}

constexpr Column move_columns[] = {{"block_bytes", "block", 7},
                                   {"blocks", "", 9},
                                   {"key_order", "keys", -6},
                                   {"way", "", -17},
                                   {"gb_per_s", "moved", 8, 2},
                                   {"memcpy_gb_per_s", "memcpy", 9, 2},
                                   {"ratio", "", 7, 2},
                                   {"ns_a_block", "ns a block", 12, 0},
                                   {"memcpy_ns_a_block", "memcpy ns", 11, 0},
                                   {"from_storage", "stored", 8, 2}};
constexpr Column offload_question_columns[] = {{"key_order", "keys", -6},
                                               {"question", "", -8},
                                               {"hit", "", 5},
                                               {"ns_a_key", "cache", 9, 2},
                                               {"set_ns_a_key", "std::unordered_set", 20, 2}};
constexpr Column refused_columns[] = {{"key_order", "keys", -6}, {"blocks", "", 8}, {"ns_an_order", "ns", 8, 0}};

/// The rows of the report.
struct Rows {
  boost::json::array moves;
  boost::json::array questions;
  boost::json::array refused;

  void add_move(Row row) {
    print_row(move_columns, row);
    moves.push_back(std::move(row));
  }
};

void measure_host(const OffloadBenchOptions& options, OffloadRig& rig, Rows& rows) {
  warm_up(rig);
  Times stores;
  Times loads;
  for (unsigned round = 0; round < options.rounds; ++round) {
    rig.name_new_blocks();
    stores.measure(rig, OffloadWay::store, round);
    loads.measure(rig, OffloadWay::load, round);
  }
  rows.add_move(stores.row(rig.shape(), "store"));
  rows.add_move(loads.row(rig.shape(), "load"));
}

void measure_storage(const OffloadBenchOptions& options, OffloadRig& rig, Rows& rows) {
  warm_up(rig);
  const OffloadTotals before = rig.cache().totals();
  Times loads;
  for (unsigned round = 0; round < options.rounds; ++round) loads.measure(rig, OffloadWay::load, round);
  const OffloadTotals after = rig.cache().totals();
  const double loaded = static_cast<double>(rig.shape().blocks) * static_cast<double>(options.rounds);
  rows.add_move(
      loads.row(rig.shape(), "load from storage", static_cast<double>(after.loaded_storage - before.loaded_storage) / loaded));
}

void ask(const OffloadBenchOptions& options, const OffloadRig& rig, Rows& rows) {
  const Questions questions{rig.keys(), options.rounds};
  std::array<OffloadHit, keys_a_question> hits{};
  const auto look_up = [&](std::span<const BlockKey> keys) -> std::size_t {
    if (!rig.cache().look_up(keys, hits)) return 0;
    return keys.size() - static_cast<std::size_t>(std::ranges::count(hits, OffloadHit::miss));
  };
  const auto leading = [&](std::span<const BlockKey> keys) { return std::size_t{rig.cache().leading(keys)}; };
  // A look-up in prefix order needs no more questions after the first miss.
  const KeyOrder order = rig.shape().key_order;
  const auto stop = order == KeyOrder::flat ? Questions::Stop::at_the_end : Questions::Stop::at_a_miss;
  for (const bool hit : {true, false}) {
    for (Row row : {questions.measure("look_up", hit, stop, look_up),
                    questions.measure("leading", hit, Questions::Stop::at_a_miss, leading)}) {
      row["key_order"] = to_string(order);
      rows.questions.push_back(std::move(row));
    }
  }
}

void measure_refused(const OffloadBenchOptions& options, const OffloadShape& shape, Rows& rows) {
  OffloadShape bounded = shape;
  bounded.limits.blocks_in_flight = keys_a_question / 2;
  bounded.blocks = keys_a_question;
  OffloadRig rig{bounded};
  std::vector<double> ns;
  for (unsigned round = 0; round < options.rounds; ++round) ns.push_back(rig.refuse(orders_refused) * 1e9 / orders_refused);
  rows.refused.push_back({{"key_order", to_string(shape.key_order)}, {"blocks", keys_a_question}, {"ns_an_order", median(ns)}});
}

}  // namespace

std::string_view to_string(OffloadDevice device) { return device == OffloadDevice::instant ? "instant" : "emulated"; }

Row bench_offload(const OffloadBenchOptions& options) {
  check(options);
  print("medians of {} rounds; {} device; orders of {} blocks; GB/s\n", options.rounds, to_string(options.device),
        keys_a_question);
  print_head(move_columns);
  Rows rows;
  for (const KeyOrder key_order : {KeyOrder::flat, KeyOrder::prefix}) {
    OffloadShape shape{.device = options.device, .key_order = key_order};
    for (const Bytes block_bytes : options.block_bytes) {
      shape.block_bytes = block_bytes;
      shape.blocks = blocks_of(options, block_bytes);
      for (const OffloadHome home : {OffloadHome::host, OffloadHome::storage}) {
        shape.home = home;
        OffloadRig rig{shape};
        if (home == OffloadHome::host) measure_host(options, rig, rows);
        else measure_storage(options, rig, rows);
      }
    }
    shape.block_bytes = small_block;
    shape.blocks = options.small_blocks;
    shape.home = OffloadHome::host;
    OffloadRig rig{shape};
    measure_host(options, rig, rows);
    ask(options, rig, rows);
    measure_refused(options, shape, rows);
  }
  print_table(fmt::format("questions about {} keys, ns a key", keys_a_question), offload_question_columns, rows.questions);
  print_table("an order refused at the bound", refused_columns, rows.refused);
  return {{"device", to_string(options.device)},    {"rounds", options.rounds},
          {"order_blocks", keys_a_question},        {"moves", std::move(rows.moves)},
          {"questions", std::move(rows.questions)}, {"refused", std::move(rows.refused)}};
}

}  // namespace terrace::tools
