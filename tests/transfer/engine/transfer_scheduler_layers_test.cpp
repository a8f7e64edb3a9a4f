#include "tests/transfer/engine/transfer_scheduler_fixture.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <vector>

/// Transfers by layer: how they are cut, what is reported, how they end.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::seconds;
using test::run;
using test::start;
using test::transfer;

/// Blocks of 12 bytes in 6 layers of 2 bytes.
class TransferSchedulerLayersTest : public test::TransferSchedulerTest {
 protected:
  void make(std::uint64_t piece_bytes, std::uint32_t pieces_in_flight = 1) {
    TransferSchedulerConfig made = config();
    made.pools = {{.block_bytes = Bytes{12}, .layers = 6}};
    made.pieces.bytes = Bytes{piece_bytes};
    made.pieces.in_flight = pieces_in_flight;
    scheduler_ = TransferScheduler{made};
  }
  void submit(std::uint32_t blocks, TimePoint deadline = never) {
    Transfer made = transfer(1, swap_in, request, {run(0, 50, blocks)});
    made.by_layer = true;
    made.deadline = deadline;
    TransferSchedulerTest::submit(std::move(made));
  }
  Piece start_next() {
    std::optional<Piece> piece = next(swap_in);
    EXPECT_TRUE(piece);
    return piece.value_or(Piece{});
  }
  /// The layers reported since the last call; 0 stands for `finished`.
  std::vector<std::uint32_t> told() {
    std::vector<std::uint32_t> layers;
    for (const TransferEvent& event : events()) {
      EXPECT_EQ(event.kind == TransferEvent::Kind::layers, event.layers > 0);
      layers.push_back(event.layers);
      last_ = event;
    }
    return layers;
  }

  TransferEvent last_;
};

struct Part {
  LayerRange layers;
  std::vector<SlotRun> runs;

  friend bool operator==(const Part&, const Part&) = default;
};

TEST_F(TransferSchedulerLayersTest, splits_a_layer_that_is_larger_than_a_piece) {
  make(7);  // three layers of one block
  submit(5);
  std::vector<Part> parts;
  std::vector<std::vector<std::uint32_t>> told_after;
  while (const std::optional<Piece> piece = next(swap_in)) {
    parts.push_back({piece->layers.value(), piece->runs});
    finish(*piece);
    told_after.push_back(told());
  }
  ASSERT_EQ(parts.size(), 12U);
  for (std::uint32_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(parts[2 * layer], (Part{{layer, 1}, {run(0, 50, 3)}})) << layer;
    EXPECT_EQ(parts[2 * layer + 1], (Part{{layer, 1}, {run(3, 53, 2)}})) << layer;
    EXPECT_TRUE(told_after[2 * layer].empty()) << "half a layer is none";
    EXPECT_EQ(told_after[2 * layer + 1], std::vector{layer == 5 ? 0 : layer + 1}) << "the last is told of by the end";
  }
  EXPECT_EQ(last_.outcomes, std::vector(5, BlockOutcome::done));
  EXPECT_EQ(last_.moved, Bytes{60});
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerLayersTest, puts_as_many_layers_into_a_piece_as_fit) {
  make(17);  // eight layers of one block, or four layers of two blocks
  submit(2);
  const Piece first = start_next();
  EXPECT_EQ(first.layers, (LayerRange{0, 4}));
  EXPECT_EQ(first.runs, std::vector{run(0, 50, 2)});
  finish(first);
  EXPECT_EQ(told(), std::vector{4U});
  const Piece second = start_next();
  EXPECT_EQ(second.layers, (LayerRange{4, 2}));
  finish(second);
  EXPECT_EQ(told(), std::vector{0U});
}

TEST_F(TransferSchedulerLayersTest, says_nothing_of_layers_where_all_fit_into_a_piece) {
  make(24);
  submit(2);
  const Piece whole = start_next();
  EXPECT_EQ(whole.layers, (LayerRange{0, 6}));
  finish(whole);
  EXPECT_EQ(told(), std::vector{0U});
}

TEST_F(TransferSchedulerLayersTest, makes_one_layer_of_one_block_a_piece_where_that_is_larger_already) {
  make(1);
  submit(2);
  EXPECT_EQ(start_next().runs, std::vector{run(0, 50, 1)});
}

TEST_F(TransferSchedulerLayersTest, cuts_runs_anew_in_each_layer) {
  make(6);
  Transfer made = transfer(1, swap_in, request, {run(0, 10, 2), run(7, 30, 2)});
  made.by_layer = true;
  TransferSchedulerTest::submit(std::move(made));
  std::vector<std::vector<SlotRun>> runs;
  while (const std::optional<Piece> piece = next(swap_in)) {
    runs.push_back(piece->runs);
    finish(*piece);
  }
  ASSERT_EQ(runs.size(), 12U);
  for (std::size_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(runs[2 * layer], (std::vector{run(0, 10, 2), run(7, 30, 1)}));
    EXPECT_EQ(runs[2 * layer + 1], std::vector{run(8, 31, 1)});
  }
}

TEST_F(TransferSchedulerLayersTest, moves_whole_blocks_and_tells_nothing_where_nobody_asked) {
  make(12);
  TransferSchedulerTest::submit(transfer(1, swap_in, request, {run(0, 0, 2)}));
  for (int i = 0; i < 2; ++i) {
    const Piece piece = start_next();
    EXPECT_FALSE(piece.layers);
    EXPECT_EQ(block_count(piece.runs), 1U);
    finish(piece);
  }
  EXPECT_EQ(told(), std::vector{0U});
}

TEST_F(TransferSchedulerLayersTest, takes_a_transfer_by_layer_of_a_pool_without_layers_as_any_other) {
  TransferSchedulerConfig made = config();
  made.pools.push_back({.block_bytes = Bytes{12}});
  scheduler_ = TransferScheduler{made};
  for (const PoolId pool : {PoolId{0}, PoolId{1}}) {
    Transfer asked = transfer(1, swap_in, request, {run(0, 0, 2)});
    asked.by_layer = true;
    asked.pool = pool;
    TransferSchedulerTest::submit(std::move(asked));
    const Piece piece = start_next();
    EXPECT_FALSE(piece.layers);
    finish(piece);
    EXPECT_EQ(told(), std::vector{0U});
  }
}

TEST_F(TransferSchedulerLayersTest, waits_for_the_earliest_piece_whatever_the_order_in_which_they_end) {
  make(4, 3);  // two blocks of one layer
  submit(2);
  const Piece first = start_next();
  const Piece second = start_next();
  const Piece third = start_next();
  finish(second);
  finish(third);
  EXPECT_TRUE(told().empty()) << "layer 0 still moves";
  finish(first);
  EXPECT_EQ(told(), std::vector{3U});
}

TEST_F(TransferSchedulerLayersTest, tells_of_no_layer_once_a_piece_has_failed_and_fails_its_blocks) {
  make(2, 2);  // one block of one layer
  submit(2);
  finish(start_next());
  finish(start_next());
  EXPECT_EQ(told(), std::vector{1U});
  const Piece good = start_next();
  finish(start_next(), Errc::io_failed);
  finish(good);
  EXPECT_TRUE(told().empty());
  while (const std::optional<Piece> piece = next(swap_in)) finish(*piece);
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_EQ(last_.outcomes, outcomes(1, BlockOutcome::done, 1, BlockOutcome::failed)) << "the other had all its layers";
  EXPECT_EQ(last_.error, Errc::io_failed);
  EXPECT_EQ(last_.moved, Bytes{12});
}

TEST_F(TransferSchedulerLayersTest, counts_a_block_as_done_only_with_its_last_layer) {
  make(2, 2);
  submit(2);
  for (int i = 0; i < 11; ++i) finish(start_next());  // everything except the last layer of the second block
  EXPECT_EQ(told(), (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
  scheduler_.cancel(TransferId{1});
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_EQ(last_.outcomes, outcomes(1, BlockOutcome::done, 1, BlockOutcome::cancelled));
  EXPECT_EQ(last_.error, Errc::cancelled);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerLayersTest, tells_of_no_layer_once_cancelled) {
  make(4, 2);
  submit(2);
  const Piece first = start_next();
  const Piece second = start_next();
  scheduler_.cancel(TransferId{1});
  finish(first);
  EXPECT_TRUE(told().empty());
  finish(second);
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_EQ(last_.outcomes, std::vector(2, BlockOutcome::cancelled));
  EXPECT_EQ(last_.moved, Bytes{0});
}

TEST_F(TransferSchedulerLayersTest, leaves_unconfirmed_at_the_deadline_the_blocks_of_which_any_layer_moves) {
  make(2, 2);
  submit(3, start + seconds{1});
  finish(start_next());
  finish(start_next());
  finish(start_next());
  const Piece moving = start_next();  // layer 1 of the first block
  EXPECT_EQ(told(), std::vector{1U});
  scheduler_.expire(start + seconds{1});
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_EQ(last_.outcomes, outcomes(1, BlockOutcome::unconfirmed, 2, BlockOutcome::cancelled));
  finish(moving);
  const std::vector<TransferEvent> confirmed = events();
  ASSERT_EQ(confirmed.size(), 1U);
  EXPECT_EQ(confirmed[0].kind, TransferEvent::Kind::confirmed);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerLayersTest, keeps_a_failed_block_unconfirmed_while_another_of_its_layers_moves) {
  make(2, 2);
  submit(1, start + seconds{1});
  finish(start_next(), Errc::io_failed);
  const Piece moving = start_next();
  scheduler_.expire(start + seconds{1});
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_EQ(last_.outcomes, std::vector{BlockOutcome::unconfirmed});
  finish(moving);
}

TEST_F(TransferSchedulerLayersTest, counts_towards_the_bound_until_the_last_layer_has_started) {
  make(24, 2);  // twelve layers of one block, or one layer of ten blocks
  submit(10);
  const auto other = [] { return transfer(2, swap_in, request, {run(0, 0, 91)}); };
  for (int layer = 0; layer < 5; ++layer) {
    finish(start_next());
    EXPECT_EQ(scheduler_.submit(other()).error(), Errc::refused) << layer;
  }
  const Piece last = start_next();
  EXPECT_TRUE(scheduler_.submit(other()));
  finish(last);
  scheduler_.cancel_all();
}

TEST_F(TransferSchedulerLayersTest, lets_an_urgent_transfer_in_between_two_layers) {
  make(4);
  Transfer background = transfer(1, swap_in, make_room, {run(0, 0, 2)});
  background.by_layer = true;
  TransferSchedulerTest::submit(std::move(background));
  const Piece first = start_next();
  TransferSchedulerTest::submit(transfer(2, swap_in, request, {run(0, 0, 1)}));
  finish(first);
  EXPECT_EQ(start_next().id, TransferId{2});
}

TEST_F(TransferSchedulerLayersTest, refuses_layers_that_do_not_divide_a_block) {
  TransferSchedulerConfig odd = config();
  odd.pools[0].layers = 3;
  EXPECT_THROW(TransferScheduler{odd}, std::invalid_argument);
  odd.pools[0].layers = 0;
  EXPECT_THROW(TransferScheduler{odd}, std::invalid_argument);
  odd.pools[0].layers = 5;
  EXPECT_NO_THROW(TransferScheduler{odd});
  odd.pools.push_back({.block_bytes = Bytes{12}, .layers = 5});
  EXPECT_THROW(TransferScheduler{odd}, std::invalid_argument);
}

}  // namespace
}  // namespace terrace
