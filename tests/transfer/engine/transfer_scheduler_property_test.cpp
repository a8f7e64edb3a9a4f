#include "base/random.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace terrace {
namespace {

using test::run;
using test::transfer;

/// The state of the blocks of a transfer, as seen from outside the scheduler.
struct Seen {
  std::vector<SlotRun> runs;
  std::vector<BlockOutcome> outcomes;  ///< `cancelled` until the piece of the block ends
  bool by_layer = false;
  /// By layer (whole blocks have one layer), by block.
  std::vector<std::vector<bool>> started;
  std::vector<std::vector<bool>> arrived;
  std::uint32_t next_layer = 0;  ///< first layer of the next piece
  std::uint32_t next_block = 0;
  std::uint32_t told_layers = 0;
  bool failed = false;  ///< a piece has failed
  bool finished = false;
  bool owes_confirmation = false;
};

/// Uses a scheduler at random, and keeps a simple record of every block.
class World {
 public:
  explicit World(std::uint64_t seed) : random_{seed}, scheduler_{config(random_)} {}

  void step() {
    switch (random_.below(8)) {
      case 0:
      case 1: submit(); break;
      case 2: scheduler_.raise(any_transfer(), static_cast<Urgency>(random_.below(urgency_count))); break;
      case 3:
        if (random_.chance(0.3)) scheduler_.cancel(any_transfer());
        break;
      case 4:
        now_ += std::chrono::milliseconds{random_.below(40)};
        scheduler_.expire(now_);
        break;
      case 5:
      case 6: start(random_.chance(0.5) ? Direction::swap_out : Direction::swap_in); break;
      default: end_one(); break;
    }
    take_events();
    scheduler_.check_invariants();
  }

  void drain() {
    for (int i = 0; i < 200'000 && !scheduler_.idle(); ++i) {
      now_ += std::chrono::milliseconds{1};
      start(Direction::swap_out);
      start(Direction::swap_in);
      end_one();
      take_events();
      scheduler_.check_invariants();
    }
    EXPECT_TRUE(scheduler_.idle());
    EXPECT_EQ(scheduler_.next_deadline(), never);
    for (const auto& [id, seen] : transfers_) {
      EXPECT_TRUE(seen.finished) << id;
      EXPECT_FALSE(seen.owes_confirmation) << id;
    }
  }

  std::size_t ids() const { return transfers_.size(); }
  const std::map<BlockOutcome, std::uint64_t>& totals() const { return totals_; }
  std::uint64_t told() const { return told_; }

 private:
  static constexpr std::uint32_t block_layers = 5;
  struct Running {
    Piece piece;
    std::uint32_t first_block;
    std::uint32_t blocks;
    LayerRange layers;
  };

  static TransferSchedulerConfig config(Random& random) {
    TransferSchedulerConfig made;
    made.pools = {{.block_bytes = Bytes{100}, .layers = block_layers}};
    made.pieces.bytes = Bytes{random.between(10, 500)};
    made.pieces.in_flight = static_cast<std::uint32_t>(random.between(1, 4));
    made.queued_blocks_max = 60;
    if (random.chance(0.5)) made.rates[static_cast<std::size_t>(Urgency::store)] = BytesPerSecond{100'000};
    if (random.chance(0.3)) made.rates[static_cast<std::size_t>(Urgency::make_room)] = BytesPerSecond{150'000};
    return made;
  }

  TransferId any_transfer() { return TransferId{random_.between(1, std::max<std::uint64_t>(last_transfer_, 1))}; }

  void submit() {
    std::vector<SlotRun> runs;
    for (std::uint64_t i = random_.between(1, 4); i > 0; --i) {
      runs.push_back(run(static_cast<std::uint32_t>(random_.below(1000)), static_cast<std::uint32_t>(random_.below(1000)),
                         static_cast<std::uint32_t>(random_.between(1, 6))));
    }
    Transfer made = transfer(++last_transfer_, random_.chance(0.5) ? Direction::swap_out : Direction::swap_in,
                             static_cast<Urgency>(random_.below(urgency_count)), runs);
    if (random_.chance(0.5)) made.deadline = now_ + std::chrono::milliseconds{random_.below(200)};
    made.by_layer = random_.chance(0.5);
    const bool by_layer = made.by_layer;
    const std::uint32_t blocks = block_count(runs);
    const Result<void> taken = scheduler_.submit(std::move(made));
    if (!taken) {
      EXPECT_EQ(taken.error(), Errc::refused);
      return;
    }
    Seen& seen = transfers_[last_transfer_];
    seen.runs = std::move(runs);
    seen.outcomes.assign(blocks, BlockOutcome::cancelled);
    seen.by_layer = by_layer;
    seen.started.assign(by_layer ? block_layers : 1, std::vector<bool>(blocks));
    seen.arrived = seen.started;
  }

  void start(Direction direction) {
    std::optional<Piece> piece = scheduler_.next(direction, now_);
    take_events();
    if (!piece) return;
    Seen& seen = transfers_.at(piece->id.value());
    EXPECT_FALSE(seen.finished) << "a piece of a job that has ended";
    EXPECT_EQ(piece->direction, direction);
    EXPECT_EQ(piece->layers.has_value(), seen.by_layer);
    const LayerRange layers = piece->layers.value_or(LayerRange{});
    const std::uint32_t blocks = block_count(piece->runs);
    EXPECT_EQ(layers.first, seen.next_layer);
    EXPECT_EQ(pairs(piece->runs), pairs(seen.runs, seen.next_block, blocks)) << "its blocks come in order, each once a layer";
    for (std::uint32_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
      for (std::uint32_t block = seen.next_block; block < seen.next_block + blocks; ++block) {
        EXPECT_FALSE(seen.started.at(layer).at(block));
        seen.started.at(layer).at(block) = true;
      }
    }
    running_.push_back({std::move(*piece), seen.next_block, blocks, layers});
    seen.next_block += blocks;
    if (seen.next_block < seen.outcomes.size()) {
      EXPECT_EQ(layers.count, 1U) << "several layers go only whole";
      return;
    }
    seen.next_block = 0;
    seen.next_layer += layers.count;
  }

  void end_one() {
    if (running_.empty()) return;
    const std::size_t which = random_.below(running_.size());
    const Running ended = std::move(running_[which]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool fails = random_.chance(0.1);
    Seen& seen = transfers_.at(ended.piece.id.value());
    for (std::uint32_t block = ended.first_block; block < ended.first_block + ended.blocks; ++block) {
      if (fails) seen.outcomes[block] = BlockOutcome::failed;
      for (std::uint32_t i = 0; i < ended.layers.count; ++i) seen.arrived[ended.layers.first + i][block] = true;
      const bool all_arrived = std::ranges::all_of(seen.arrived, [&](const auto& layer) { return layer[block]; });
      if (all_arrived && seen.outcomes[block] != BlockOutcome::failed) seen.outcomes[block] = BlockOutcome::done;
    }
    seen.failed |= fails;
    scheduler_.finish(ended.piece.token, fails ? ErrorCode{Errc::io_failed} : ErrorCode{}, now_);
  }

  void take_events() {
    std::vector<TransferEvent> events;
    scheduler_.take_events(events);
    for (const TransferEvent& event : events) {
      Seen& seen = transfers_.at(event.id.value());
      if (event.kind == TransferEvent::Kind::layers) {
        EXPECT_TRUE(seen.by_layer && !seen.finished && !seen.failed);
        EXPECT_GT(event.layers, seen.told_layers);
        EXPECT_LT(event.layers, block_layers);
        for (std::uint32_t layer = 0; layer < event.layers; ++layer) {
          EXPECT_EQ(std::ranges::count(seen.arrived.at(layer), false), 0) << "layer " << layer;
        }
        seen.told_layers = event.layers;
        ++told_;
        continue;
      }
      if (event.kind == TransferEvent::Kind::confirmed) {
        EXPECT_TRUE(seen.owes_confirmation);
        EXPECT_TRUE(std::ranges::none_of(running_, [&](const Running& r) { return r.piece.id == event.id; }));
        seen.owes_confirmation = false;
        continue;
      }
      EXPECT_FALSE(seen.finished) << "finished comes once";
      seen.finished = true;
      std::vector<BlockOutcome> expected = seen.outcomes;
      for (const Running& piece : running_) {
        if (piece.piece.id != event.id) continue;
        seen.owes_confirmation = true;
        std::fill_n(expected.begin() + piece.first_block, piece.blocks, BlockOutcome::unconfirmed);
      }
      EXPECT_EQ(event.outcomes, expected);
      const bool all_done = std::ranges::count(expected, BlockOutcome::done) == std::ssize(expected);
      EXPECT_EQ(!event.error, all_done);
      EXPECT_EQ(count(event.moved), 100U * static_cast<std::uint64_t>(std::ranges::count(expected, BlockOutcome::done)));
      for (const BlockOutcome outcome : event.outcomes) ++totals_[outcome];
    }
  }

  static std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs(const std::vector<SlotRun>& runs, std::size_t from = 0,
                                                                    std::size_t blocks = SIZE_MAX) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
    for (const SlotRun& each : runs) {
      for (std::uint32_t i = 0; i < each.count; ++i) {
        if (from > 0) {
          --from;
        } else if (all.size() < blocks) {
          all.emplace_back(each.source.value() + i, each.destination.value() + i);
        }
      }
    }
    return all;
  }

  Random random_;
  TimePoint now_{std::chrono::hours{1}};
  TransferScheduler scheduler_;
  std::uint64_t last_transfer_ = 0;
  std::map<std::uint64_t, Seen> transfers_;
  std::vector<Running> running_;
  std::map<BlockOutcome, std::uint64_t> totals_;
  std::uint64_t told_ = 0;
};

TEST(TransferSchedulerProperty, every_block_of_every_transfer_comes_to_exactly_one_end) {
  std::map<BlockOutcome, std::uint64_t> totals;
  std::uint64_t told = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world{seed};
    for (int i = 0; i < 2'000; ++i) world.step();
    world.drain();
    for (const auto& [outcome, blocks] : world.totals()) totals[outcome] += blocks;
    told += world.told();
    if (HasFailure()) return;
  }
  // The test means little if some outcome never occurs.
  EXPECT_EQ(totals.size(), 4U);
  EXPECT_GT(told, 1'000U);
}

}  // namespace
}  // namespace terrace
