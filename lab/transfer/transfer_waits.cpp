// The waits of requests and compute beside full lanes, and for the layers of a load.
#include "base/check.hpp"
#include "base/random.hpp"
#include "lab/rounds.hpp"
#include "lab/transfer/transfer_measurements.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace terrace::tools {
namespace {

using enum Direction;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::uint32_t samples_a_round = 50;
constexpr std::uint32_t steps_a_round = 40;

Row to_row(const Latencies& latencies) {
  const Percentiles us = latencies.microseconds();
  return {{"p50", us.p50}, {"p99", us.p99}, {"max", us.max}};
}

/// Keeps the store lanes of the given directions full: in each, two transfers with slots of their own, each submitted again as
/// soon as it ends. Threads: the rig's.
class BackgroundLoad {
 public:
  BackgroundLoad(TransferRig& rig, std::initializer_list<Direction> directions)
      : rig_{rig}, piece_blocks_{blocks_of_a_piece(rig)} {
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(rig.blocks() / 2, transfer_pieces * piece_blocks_));
    pieces_ = (blocks + piece_blocks_ - 1) / piece_blocks_;
    for (const Direction direction : directions) {
      std::uint32_t slot = rig.first_slot(direction).value();
      for (int each = 0; each < transfers_a_direction; ++each) {
        Crossing& transfer = transfers_.emplace_back(Crossing{direction, {}, {}});
        for (std::uint32_t i = 0; i < blocks; ++i, ++slot) transfer.pairs.push_back({SlotId{slot}, SlotId{slot}});
      }
    }
  }

  void start() {
    running_ = true;
    for (Crossing& transfer : transfers_) submit(transfer);
  }
  /// Cancels the transfers, and waits until their started pieces have ended.
  void stop() {
    running_ = false;
    for (const Crossing& transfer : transfers_) {
      if (transfer.id) rig_.cancel(*transfer.id);
    }
    while (std::ranges::any_of(transfers_, [](const Crossing& transfer) { return transfer.id.has_value(); })) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Waits until this many more transfers have ended.
  void await_transfers(std::size_t more) {
    const std::size_t wanted = piece_us_.size() + more;
    while (piece_us_.size() < wanted) {
      for (const TransferEvent& event : rig_.await_events()) take(event);
    }
  }
  /// Handles an event of this load. Ignores other events.
  void take(const TransferEvent& event) {
    for (Crossing& transfer : transfers_) {
      if (transfer.id != event.id) continue;
      transfer.id.reset();
      moved_ += event.moved;
      if (!event.error) piece_us_.push_back(Microseconds{event.copying}.count() / pieces_);
      if (running_) submit(transfer);
    }
  }
  /// The bytes of all transfers that have ended.
  [[nodiscard]] Bytes moved() const { return moved_; }
  [[nodiscard]] std::uint32_t piece_blocks() const { return piece_blocks_; }
  /// The median time that a piece uses the stream.
  [[nodiscard]] double piece_us() const { return median(piece_us_); }

 private:
  /// The pieces of one transfer: enough that the other transfer always covers the pause between two submits.
  static constexpr std::uint64_t transfer_pieces = 16;
  static constexpr int transfers_a_direction = 2;
  struct Crossing {
    Direction direction;
    std::vector<SlotPair> pairs;
    std::optional<TransferId> id;
  };

  [[nodiscard]] static std::uint32_t blocks_of_a_piece(const TransferRig& rig) {
    const std::uint64_t blocks = std::clamp<std::uint64_t>(rig.pieces().bytes / rig.block_bytes(), 1, rig.blocks() / 2);
    return static_cast<std::uint32_t>(blocks);
  }
  void submit(Crossing& transfer) { transfer.id = rig_.submit(transfer.direction, Urgency::store, transfer.pairs); }

  TransferRig& rig_;
  std::uint32_t piece_blocks_;
  std::uint32_t pieces_ = 0;
  std::vector<Crossing> transfers_;
  Bytes moved_{};
  bool running_ = false;
  std::vector<double> piece_us_;  ///< of each transfer that was not cancelled
};

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

Row measure_steps(TransferRig& rig, ComputeKind kind, BackgroundLoad& background, unsigned rounds) {
  Latencies alone;
  Latencies beside;
  double seconds = 0;
  const Bytes before = background.moved();
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < steps_a_round; ++i) alone.add(step(rig, kind, nullptr));
    seconds += seconds_of([&] {
      background.start();
      background.await_transfers(1);  // on a loaded machine, it might begin after the steps otherwise
      for (std::uint32_t i = 0; i < steps_a_round; ++i) beside.add(step(rig, kind, &background));
      background.stop();
    });
  }
  const Percentiles alone_us = alone.microseconds();
  const Percentiles beside_us = beside.microseconds();
  return {{"block_bytes", count(rig.block_bytes())},
          {"needs", to_string(kind)},
          {"samples", rounds * steps_a_round},
          {"alone_us", to_row(alone)},
          {"beside_us", to_row(beside)},
          {"slowdown_p50", beside_us.p50 / alone_us.p50},
          {"slowdown_p99", beside_us.p99 / alone_us.p99},
          {"gb_per_s", static_cast<double>(count(background.moved() - before)) / 1e9 / seconds}};
}

struct Load {
  double first_us = 0;
  double all_us = 0;
  std::uint32_t told = 0;
};

Load load(TransferRig& rig, std::span<const SlotPair> pairs, TransferRig::ByLayer by_layer) {
  Load seen;
  const auto begin = std::chrono::steady_clock::now();
  const TransferId id = rig.submit(swap_in, Urgency::request, pairs, by_layer);
  for (bool ended = false; !ended;) {
    const std::span<const TransferEvent> events = rig.await_events();
    const double now = Microseconds{std::chrono::steady_clock::now() - begin}.count();
    for (const TransferEvent& event : events) {
      TERRACE_CHECK(event.id == id);
      if (seen.first_us == 0) seen.first_us = now;
      ended = event.kind == TransferEvent::Kind::finished;
      if (!ended) ++seen.told;
    }
    seen.all_us = now;
  }
  return seen;
}

}  // namespace

Row measure_urgent(TransferRig& rig, unsigned rounds) {
  BackgroundLoad background{rig, {swap_in}};
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
  const Bytes piece = rig.block_bytes() * std::uint64_t{background.piece_blocks()};
  const std::uint64_t pieces_ahead =
      std::clamp<std::uint64_t>(rig.pieces().bytes_in_flight / piece, 1, std::uint64_t{rig.pieces().in_flight});
  return {{"block_bytes", count(rig.block_bytes())},
          {"samples", rounds * samples_a_round},
          {"idle_us", to_row(idle)},
          {"busy_us", to_row(busy)},
          {"piece_blocks", background.piece_blocks()},
          {"piece_us", background.piece_us()},
          {"pieces_ahead", pieces_ahead},
          {"bound_us", idle.microseconds().p50 + static_cast<double>(pieces_ahead) * background.piece_us()}};
}

std::vector<Row> measure_compute(TransferRig& rig, unsigned rounds) {
  BackgroundLoad background{rig, {Direction::swap_out, Direction::swap_in}};
  std::vector<Row> rows;
  for (const ComputeKind kind : rig.compute().kinds()) rows.push_back(measure_steps(rig, kind, background, rounds));
  return rows;
}

Row measure_layers(TransferRig& rig, unsigned rounds) {
  std::vector<SlotPair> pairs;
  const std::uint32_t first_slot = rig.first_slot(swap_in).value();
  for (const std::uint32_t i : scattered_order(rig.blocks())) pairs.push_back({SlotId{first_slot + i}, SlotId{first_slot + i}});
  rig.stamp(swap_in);
  Figures figures;
  std::uint32_t told = 0;
  for (unsigned round = 0; round < rounds + 1; ++round) {
    const Load at_once = load(rig, pairs, TransferRig::ByLayer::no);
    const Load by_layer = load(rig, pairs, TransferRig::ByLayer::yes);
    if (round == 0) continue;  // the first round touches the memory
    figures.add("whole_us", at_once.all_us);
    figures.add("first_us", by_layer.first_us);
    figures.add("all_us", by_layer.all_us);
    figures.add("first_of_whole", by_layer.first_us / at_once.all_us);
    figures.add("all_of_whole", by_layer.all_us / at_once.all_us);
    told = std::max(told, by_layer.told);
  }
  rig.check_stamps(swap_in, pairs);
  Row row{{"block_bytes", count(rig.block_bytes())}, {"blocks", rig.blocks()}, {"layers", rig.layers()}, {"told", told}};
  figures.add_medians(row);
  return row;
}

}  // namespace terrace::tools
