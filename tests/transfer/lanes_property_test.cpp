#include "base/random.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/lanes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace terrace {
namespace {

using test::plan;
using test::run;

/// What a job's blocks may have come to, as seen from outside the lanes.
struct Seen {
  std::vector<SlotRun> runs;
  std::vector<BlockOutcome> outcomes;  ///< cancelled until its piece ends
  std::uint32_t started = 0;
  std::uint32_t pieces_under_way = 0;
  bool finished = false;
  bool owes_confirmation = false;
};

/// Drives lanes at random and keeps a plain account of every block beside them.
class World {
 public:
  explicit World(std::uint64_t seed) : random_{seed}, lanes_{config(random_)} {}

  void step() {
    switch (random_.below(8)) {
      case 0:
      case 1: submit(); break;
      case 2: lanes_.raise(any_job(), static_cast<Urgency>(random_.below(urgency_count))); break;
      case 3: if (random_.chance(0.3)) lanes_.cancel(any_job()); break;
      case 4: now_ += std::chrono::milliseconds{random_.below(40)}; lanes_.expire(now_); break;
      case 5:
      case 6: start(random_.chance(0.5) ? Direction::swap_out : Direction::swap_in); break;
      default: end_one(); break;
    }
    take_events();
    lanes_.check_invariants();
  }

  void drain() {
    for (int i = 0; i < 200'000 && !lanes_.idle(); ++i) {
      now_ += std::chrono::milliseconds{1};
      start(Direction::swap_out);
      start(Direction::swap_in);
      end_one();
      take_events();
      lanes_.check_invariants();
    }
    EXPECT_TRUE(lanes_.idle());
    EXPECT_EQ(lanes_.next_deadline(), never);
    for (const auto& [job, seen] : jobs_) {
      EXPECT_TRUE(seen.finished) << job;
      EXPECT_FALSE(seen.owes_confirmation) << job;
    }
  }

  std::size_t jobs() const { return jobs_.size(); }
  const std::map<BlockOutcome, std::uint64_t>& totals() const { return totals_; }

 private:
  struct Running {
    Piece piece;
    std::uint32_t first_block;
    std::uint32_t blocks;
  };

  static LanesConfig config(Random& random) {
    LanesConfig made;
    made.block_bytes = Bytes{100};
    made.piece_bytes = Bytes{100 * random.between(1, 5)};
    made.pieces_in_flight = static_cast<std::uint32_t>(random.between(1, 4));
    made.queued_blocks_max = 60;
    if (random.chance(0.5)) made.rates[static_cast<std::size_t>(Urgency::persist)] = Bytes{100'000};
    if (random.chance(0.3)) made.rates[static_cast<std::size_t>(Urgency::prefetch)] = Bytes{150'000};
    return made;
  }

  JobId any_job() { return JobId{random_.between(1, std::max<std::uint64_t>(last_job_, 1))}; }

  void submit() {
    std::vector<SlotRun> runs;
    for (std::uint64_t i = random_.between(1, 4); i > 0; --i) {
      runs.push_back(run(static_cast<std::uint32_t>(random_.below(1000)), static_cast<std::uint32_t>(random_.below(1000)),
                         static_cast<std::uint32_t>(random_.between(1, 6))));
    }
    TransferPlan made = plan(++last_job_, random_.chance(0.5) ? Direction::swap_out : Direction::swap_in,
                             static_cast<Urgency>(random_.below(urgency_count)), runs);
    if (random_.chance(0.5)) made.deadline = now_ + std::chrono::milliseconds{random_.below(200)};
    const std::uint32_t blocks = block_count(runs);
    const Result<void> taken = lanes_.submit(std::move(made));
    if (!taken) {
      EXPECT_EQ(taken.error(), Errc::refused);
      return;
    }
    Seen& seen = jobs_[last_job_];
    seen.runs = std::move(runs);
    seen.outcomes.assign(blocks, BlockOutcome::cancelled);
  }

  void start(Direction direction) {
    std::optional<Piece> piece = lanes_.next(direction, now_);
    take_events();
    if (!piece) return;
    Seen& seen = jobs_.at(piece->job.value());
    EXPECT_FALSE(seen.finished) << "a piece of a job that has ended";
    EXPECT_EQ(piece->direction, direction);
    const std::uint32_t blocks = block_count(piece->runs);
    EXPECT_EQ(pairs(piece->runs), pairs(seen.runs, seen.started, blocks)) << "its blocks come in order, each once";
    running_.push_back({std::move(*piece), seen.started, blocks});
    seen.started += blocks;
    ++seen.pieces_under_way;
  }

  void end_one() {
    if (running_.empty()) return;
    const std::size_t which = random_.below(running_.size());
    const Running ended = std::move(running_[which]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool fails = random_.chance(0.1);
    Seen& seen = jobs_.at(ended.piece.job.value());
    std::fill_n(seen.outcomes.begin() + ended.first_block, ended.blocks,
                fails ? BlockOutcome::failed : BlockOutcome::done);
    --seen.pieces_under_way;
    lanes_.finish(ended.piece.token, fails ? ErrorCode{Errc::io_failed} : ErrorCode{}, now_);
  }

  void take_events() {
    std::vector<TransferEvent> events;
    lanes_.take_events(events);
    for (const TransferEvent& event : events) {
      Seen& seen = jobs_.at(event.job.value());
      if (event.kind == TransferEvent::Kind::confirmed) {
        EXPECT_TRUE(seen.owes_confirmation);
        EXPECT_EQ(seen.pieces_under_way, 0U);
        seen.owes_confirmation = false;
        continue;
      }
      EXPECT_FALSE(seen.finished) << "finished comes once";
      seen.finished = true;
      std::vector<BlockOutcome> expected = seen.outcomes;
      for (const Running& piece : running_) {
        if (piece.piece.job != event.job) continue;
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
  Lanes lanes_;
  std::uint64_t last_job_ = 0;
  std::map<std::uint64_t, Seen> jobs_;
  std::vector<Running> running_;
  std::map<BlockOutcome, std::uint64_t> totals_;
};

TEST(LanesProperty, every_block_of_every_plan_comes_to_exactly_one_end) {
  std::map<BlockOutcome, std::uint64_t> totals;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world{seed};
    for (int i = 0; i < 2'000; ++i) world.step();
    world.drain();
    for (const auto& [outcome, blocks] : world.totals()) totals[outcome] += blocks;
    if (HasFailure()) return;
  }
  // The test means little if an outcome never occurs.
  EXPECT_EQ(totals.size(), 4U);
}

}  // namespace
}  // namespace terrace
