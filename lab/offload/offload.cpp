#include "lab/offload/offload.hpp"

#include "lab/offload/offload_rig.hpp"
#include "lab/questions.hpp"
#include "lab/rounds.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
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

struct MoveRow {
  Bytes block_bytes{};
  std::uint32_t blocks = 0;
  KeyOrder key_order = KeyOrder::flat;
  std::string_view way;
  double gb_per_s = 0;
  double memcpy_gb_per_s = 0;
  double ratio = 0;  ///< of the two, in the same round
  double ns_a_block = 0;
  double memcpy_ns_a_block = 0;
  double from_storage = 0;  ///< the share of the loaded blocks that came from storage
};

boost::json::object to_json(const MoveRow& row) {
  return {{"block_bytes", count(row.block_bytes)},
          {"blocks", row.blocks},
          {"key_order", to_string(row.key_order)},
          {"way", row.way},
          {"gb_per_s", row.gb_per_s},
          {"memcpy_gb_per_s", row.memcpy_gb_per_s},
          {"ratio", row.ratio},
          {"ns_a_block", row.ns_a_block},
          {"memcpy_ns_a_block", row.memcpy_ns_a_block},
          {"from_storage", row.from_storage}};
}

/// The times of one way, and of memcpy in the same rounds.
class Times {
 public:
  void measure(OffloadRig& rig, OffloadWay way, unsigned round) {
    double plain = 0;
    if (round % 2 == 0) plain = rig.copy(way);
    const double moved = rig.move(way);
    if (round % 2 == 1) plain = rig.copy(way);
    moved_.push_back(moved);
    plain_.push_back(plain);
    ratios_.push_back(plain / moved);
  }
  [[nodiscard]] MoveRow row(const OffloadShape& shape, std::string_view way) const {
    const double blocks = shape.blocks;
    const double giga_bytes = blocks * static_cast<double>(count(shape.block_bytes)) * 1e-9;
    const double moved = median(moved_);
    const double plain = median(plain_);
    return {.block_bytes = shape.block_bytes,
            .blocks = shape.blocks,
            .key_order = shape.key_order,
            .way = way,
            .gb_per_s = giga_bytes / moved,
            .memcpy_gb_per_s = giga_bytes / plain,
            .ratio = median(ratios_),
            .ns_a_block = moved * 1e9 / blocks,
            .memcpy_ns_a_block = plain * 1e9 / blocks};
  }

 private:
  std::vector<double> moved_;
  std::vector<double> plain_;
  std::vector<double> ratios_;
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

struct Rows {
  std::vector<MoveRow> moves;
  std::vector<std::pair<KeyOrder, QuestionRow>> questions;
  std::vector<std::pair<KeyOrder, double>> refused_ns;
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
  rows.moves.push_back(stores.row(rig.shape(), "store"));
  rows.moves.push_back(loads.row(rig.shape(), "load"));
}

void measure_storage(const OffloadBenchOptions& options, OffloadRig& rig, Rows& rows) {
  warm_up(rig);
  const OffloadTotals before = rig.cache().totals();
  Times loads;
  for (unsigned round = 0; round < options.rounds; ++round) loads.measure(rig, OffloadWay::load, round);
  const OffloadTotals after = rig.cache().totals();
  MoveRow row = loads.row(rig.shape(), "load from storage");
  row.from_storage = static_cast<double>(after.loaded_storage - before.loaded_storage) /
                     (static_cast<double>(row.blocks) * static_cast<double>(options.rounds));
  rows.moves.push_back(row);
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
    rows.questions.emplace_back(order, questions.measure("look_up", hit, stop, look_up));
    rows.questions.emplace_back(order, questions.measure("leading", hit, Questions::Stop::at_a_miss, leading));
  }
}

void measure_refused(const OffloadBenchOptions& options, const OffloadShape& shape, Rows& rows) {
  OffloadShape bounded = shape;
  bounded.limits.blocks_in_flight = keys_a_question / 2;
  bounded.blocks = keys_a_question;
  OffloadRig rig{bounded};
  std::vector<double> ns;
  for (unsigned round = 0; round < options.rounds; ++round) ns.push_back(rig.refuse(orders_refused) * 1e9 / orders_refused);
  rows.refused_ns.emplace_back(shape.key_order, median(ns));
}

void print_moves(std::span<const MoveRow> rows) {
  for (const MoveRow& row : rows) {
    print("{:>7} {:>8}  {:<6}  {:<17} {:>7.2f}  {:>7.2f} {:>6.2f}  {:>10.0f} {:>10.0f}  {:>6.2f}\n", to_string(row.block_bytes),
          row.blocks, to_string(row.key_order), row.way, row.gb_per_s, row.memcpy_gb_per_s, row.ratio, row.ns_a_block,
          row.memcpy_ns_a_block, row.from_storage);
  }
  flush_output();
}

void print_rest(const Rows& rows) {
  print("\nquestions about {} keys, ns a key\n", keys_a_question);
  for (const auto& [order, row] : rows.questions) {
    print("{:<6}  {:<8} {:<4}  {:>7.2f}; std::unordered_set {:>7.2f}\n", to_string(order), row.question, row.hit ? "hit" : "miss",
          row.ns_a_key, row.set_ns_a_key);
  }
  for (const auto& [order, ns] : rows.refused_ns) {
    print("{:<6}  an order of {} blocks refused at the bound: {:.0f} ns\n", to_string(order), keys_a_question, ns);
  }
}

boost::json::object report_of(const OffloadBenchOptions& options, const Rows& rows) {
  boost::json::array moves;
  for (const MoveRow& row : rows.moves) moves.push_back(to_json(row));
  boost::json::array questions;
  for (const auto& [order, row] : rows.questions) {
    boost::json::object object = to_json(row);
    object["key_order"] = to_string(order);
    questions.push_back(std::move(object));
  }
  boost::json::array refused;
  for (const auto& [order, ns] : rows.refused_ns) {
    refused.push_back({{"key_order", to_string(order)}, {"blocks", keys_a_question}, {"ns_an_order", ns}});
  }
  return {{"device", to_string(options.device)}, {"rounds", options.rounds},          {"order_blocks", keys_a_question},
          {"moves", std::move(moves)},           {"questions", std::move(questions)}, {"refused", std::move(refused)}};
}

}  // namespace

std::string_view to_string(OffloadDevice device) { return device == OffloadDevice::instant ? "instant" : "emulated"; }

void bench_offload(const OffloadBenchOptions& options) {
  check(options);
  print("medians of {} rounds; {} device; orders of {} blocks; GB/s\n", options.rounds, to_string(options.device),
        keys_a_question);
  print("{:>7} {:>8}  {:<6}  {:<17} {:>7}  {:>7} {:>6}  {:>10} {:>10}  {:>6}\n", "block", "blocks", "keys", "way", "moved",
        "memcpy", "ratio", "ns a block", "memcpy ns", "stored");
  Rows rows;
  std::size_t printed = 0;
  const auto print_new = [&] {
    print_moves(std::span{rows.moves}.subspan(printed));
    printed = rows.moves.size();
  };
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
      print_new();
    }
    shape.block_bytes = small_block;
    shape.blocks = options.small_blocks;
    shape.home = OffloadHome::host;
    OffloadRig rig{shape};
    measure_host(options, rig, rows);
    ask(options, rig, rows);
    print_new();
    measure_refused(options, shape, rows);
  }
  print_rest(rows);
  if (!options.report.empty()) write_report(options.report, json_text(report_of(options, rows)));
}

}  // namespace terrace::tools
