#include "lab/benches.hpp"
#include "lab/questions.hpp"
#include "lab/rounds.hpp"
#include "lab/storage/storage_ground.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"
#include "tools/numbered_key.hpp"
#include "tools/output.hpp"
#include "tools/replay/options/preflight.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

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

enum class OffloadWay : unsigned char { store, load };
enum class OffloadHome : unsigned char {
  host,     ///< the host tier has room for twice the blocks
  storage,  ///< it has room for a quarter of them, and memory in place of a disk has all
};

struct OffloadShape {
  BenchDevice device = BenchDevice::instant;
  Bytes block_bytes{};
  std::uint32_t blocks = 0;  ///< a multiple of keys_a_question
  KeyOrder key_order = KeyOrder::flat;
  OffloadHome home = OffloadHome::host;
  OffloadLimits limits{};
};

CacheSystemOptions options_of(const OffloadShape& shape, const AlignedBuffer& device_memory) {
  CacheSystemOptions options;
  const std::uint64_t block = count(shape.block_bytes);
  const DeviceRegion region{reinterpret_cast<std::uintptr_t>(device_memory.data()), block, block, 0};
  RankOptions rank{.device = InstantGpu{}, .regions = {{region}}};
  if (shape.device == BenchDevice::emulated) rank.device = EmulatedGpu{};
  options.ranks = {rank};
  std::uint32_t host_blocks = shape.blocks * 2;
  if (shape.home == OffloadHome::storage) {
    host_blocks = std::max(shape.blocks / 4, keys_a_question);
    options.storage = MemoryStorage{.capacity = shape.block_bytes * (std::uint64_t{shape.blocks} * 2)};
    options.write_policy = WritePolicy::write_through;
  }
  options.pools = {{.block_bytes = shape.block_bytes, .device_blocks = Blocks{shape.blocks}, .host_blocks = Blocks{host_blocks}}};
  options.engine_owns_slots = true;
  options.key_order = shape.key_order;
  options.loads = LoadPolicy::always;
  return options;
}

/// An OffloadCache over a device in memory of the rig, and memory for plain copies of the same blocks. Blocks are moved in orders
/// of 32, from and to scattered slots. In prefix order, the 32 keys are a prefix. Threads: one.
class OffloadRig {
 public:
  /// Throws as CacheSystem does.
  explicit OffloadRig(const OffloadShape& shape)
      : shape_{shape},
        device_memory_{noise(count(shape.block_bytes) * shape.blocks)},
        plain_memory_{count(shape.block_bytes) * shape.blocks},
        in_flight_max_{shape.home == OffloadHome::storage ? keys_a_question : 1024} {
    for (const std::uint32_t n : scattered_order(shape.blocks)) slots_.emplace_back(n);
    marks_.resize(shape.blocks);
    for (std::uint32_t n = 0; n < shape.blocks; ++n) std::memcpy(&marks_[n], slot(n).data(), sizeof marks_[n]);
    system_ = std::make_unique<CacheSystem>(options_of(shape, device_memory_));
    offload_ = std::make_unique<OffloadCache>(system_->cache(), shape.limits);
    name_new_blocks();
  }

  /// Gives all slots new keys. Blocks of earlier keys stay in the cache until they are evicted.
  void name_new_blocks() {
    keys_.clear();
    for (std::uint32_t n = 0; n < shape_.blocks; ++n) keys_.push_back(numbered_key(++next_key_));
  }

  /// Orders a move of all blocks and waits for its end. Returns the seconds. Throws std::runtime_error if a block is not moved.
  [[nodiscard]] double move(OffloadWay way) {
    const std::uint32_t orders = shape_.blocks / keys_a_question;
    return seconds_of([&] {
      std::uint32_t begun = 0;
      std::uint32_t ended = 0;
      while (ended < orders) {
        while (begun < orders && has_room(way)) {
          const OffloadOrder next = order(begun++);
          const Result<void> accepted = way == OffloadWay::store ? offload_->store(next) : offload_->load(next);
          if (!accepted) throw std::runtime_error{"an order was refused: " + accepted.error().message()};
        }
        const std::uint32_t now = collect();
        ended += now;
        if (now == 0) wait();
      }
    });
  }

  /// Copies the same blocks with memcpy, in the same order. Returns the seconds.
  [[nodiscard]] double copy(OffloadWay way) {
    return seconds_of([&] {
      const std::size_t block = count(shape_.block_bytes);
      for (std::uint32_t n = 0; n < shape_.blocks; ++n) {
        std::byte* const plain = plain_memory_.data() + n * block;
        std::byte* const device = slot(slots_[n].value()).data();
        if (way == OffloadWay::store) std::memcpy(plain, device, block);
        else std::memcpy(device, plain, block);
      }
    });
  }

  /// Waits until nothing is under way, writes to storage included.
  void settle() {
    while (offload_->has_pending_work()) {
      if (collect() == 0) wait();
    }
  }

  /// Overwrites the first bytes of every slot.
  void overwrite() {
    for (std::uint32_t n = 0; n < shape_.blocks; ++n) std::memset(slot(n).data(), 0, sizeof(std::uint64_t));
  }

  /// Throws std::runtime_error if the slots do not have their content.
  void check() const {
    for (std::uint32_t n = 0; n < shape_.blocks; ++n) {
      if (std::memcmp(slot(n).data(), &marks_[n], sizeof marks_[n]) != 0) throw std::runtime_error{"a load brought wrong bytes"};
    }
  }

  /// Orders a load that exceeds the bound of blocks, `orders` times. Returns the seconds. Throws std::runtime_error if one is
  /// accepted.
  [[nodiscard]] double refuse(std::uint32_t orders) {
    const OffloadOrder same = order(0);
    std::uint32_t refused = 0;
    const double seconds = seconds_of([&] {
      for (std::uint32_t n = 0; n < orders; ++n) {
        const Result<void> accepted = offload_->load(same);
        if (!accepted && accepted.error() == Errc::refused) ++refused;
      }
    });
    if (refused != orders) throw std::runtime_error{"an order above the bound was not refused"};
    return seconds;
  }

  [[nodiscard]] const OffloadShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<BlockKey>& keys() const { return keys_; }
  [[nodiscard]] const OffloadCache& cache() const { return *offload_; }

 private:
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t n) const {
    const std::uint64_t block = count(shape_.block_bytes);
    return device_memory_.span(n * block, block);
  }

  [[nodiscard]] OffloadOrder order(std::uint32_t n) const {
    OffloadOrder order;
    order.id = OffloadJobId{n};
    const std::size_t first = std::size_t{n} * keys_a_question;
    order.keys = std::span{keys_}.subspan(first, keys_a_question);
    order.slots = std::span{slots_}.subspan(first, keys_a_question);
    return order;
  }

  /// Returns whether another order can begin now.
  [[nodiscard]] bool has_room(OffloadWay way) const {
    // A host slot is not free again before storage has its block.
    if (way == OffloadWay::store && shape_.home == OffloadHome::storage && offload_->has_pending_work()) return false;
    return offload_->blocks_in_flight() + keys_a_question <= in_flight_max_;
  }

  /// Returns the number of jobs that have ended.
  std::uint32_t collect() {
    std::uint32_t ended = 0;
    for (const OffloadEvent& event : offload_->poll()) {
      if (event.kind != OffloadEvent::Kind::ended) continue;
      if (event.error) {
        throw std::runtime_error{fmt::format("{} blocks of an order were not moved: {}", event.failed, event.error.message())};
      }
      ++ended;
    }
    return ended;
  }

  void wait() const {
    constexpr int a_while_ms = 100;
    if (shape_.device == BenchDevice::instant) return;  // it wakes nobody
    pollfd descriptor{offload_->wake_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, a_while_ms);
  }

  OffloadShape shape_;
  AlignedBuffer device_memory_;
  AlignedBuffer plain_memory_;
  std::vector<SlotId> slots_;  ///< in the order in which they are moved
  std::vector<BlockKey> keys_;
  std::vector<std::uint64_t> marks_;  ///< the first bytes of every slot
  std::uint64_t next_key_ = 0;
  std::uint32_t in_flight_max_ = 0;
  std::unique_ptr<CacheSystem> system_;
  std::unique_ptr<OffloadCache> offload_;
};

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
  add_row(rows.moves, move_columns, stores.row(rig.shape(), "store"));
  add_row(rows.moves, move_columns, loads.row(rig.shape(), "load"));
}

void measure_storage(const OffloadBenchOptions& options, OffloadRig& rig, Rows& rows) {
  warm_up(rig);
  const OffloadTotals before = rig.cache().totals();
  Times loads;
  for (unsigned round = 0; round < options.rounds; ++round) loads.measure(rig, OffloadWay::load, round);
  const OffloadTotals after = rig.cache().totals();
  const double loaded = static_cast<double>(rig.shape().blocks) * static_cast<double>(options.rounds);
  const double from_storage = static_cast<double>(after.loaded_storage - before.loaded_storage) / loaded;
  add_row(rows.moves, move_columns, loads.row(rig.shape(), "load from storage", from_storage));
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

std::string_view to_string(BenchDevice device) { return device == BenchDevice::instant ? "instant" : "emulated"; }

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
