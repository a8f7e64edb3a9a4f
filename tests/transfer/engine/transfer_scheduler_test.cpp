#include "transfer/engine/transfer_scheduler.hpp"
#include "tests/transfer/engine/transfer_scheduler_fixture.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <vector>

/// Tests of the transfers that the scheduler accepts, and of the order in which it starts pieces.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::seconds;
using test::run;
using test::start;
using test::transfer;
using test::TransferSchedulerTest;

TEST_F(TransferSchedulerTest, moves_a_transfer_and_reports_it_once) {
  Transfer made = transfer(7, swap_in, request, {run(3, 5, 2)});
  made.after = Fence{11};
  submit(std::move(made));
  const std::optional<Piece> piece = next(swap_in);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->id, TransferId{7});
  EXPECT_EQ(piece->direction, swap_in);
  EXPECT_EQ(piece->after, Fence{11});
  EXPECT_EQ(piece->runs, std::vector{run(3, 5, 2)});
  EXPECT_TRUE(events().empty());
  EXPECT_FALSE(scheduler_.idle());

  finish(*piece, {}, start + seconds{3});
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].id, TransferId{7});
  EXPECT_EQ(reported[0].kind, TransferEvent::Kind::finished);
  EXPECT_EQ(reported[0].outcomes, std::vector(2, BlockOutcome::done));
  EXPECT_EQ(reported[0].moved, Bytes{20});
  EXPECT_EQ(reported[0].took, seconds{3});
  EXPECT_FALSE(reported[0].error);
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_TRUE(events().empty());
}

TEST_F(TransferSchedulerTest, cuts_transfers_into_pieces_that_may_end_within_a_run) {
  submit(transfer(1, swap_out, request, {run(0, 10, 1), run(20, 30, 6), run(5, 5, 2)}));
  std::vector<std::vector<SlotRun>> pieces;
  while (const std::optional<Piece> piece = next()) {
    pieces.push_back(piece->runs);
    finish(*piece);
  }
  const std::vector<std::vector<SlotRun>> expected{
      {run(0, 10, 1), run(20, 30, 3)}, {run(23, 33, 3), run(5, 5, 1)}, {run(6, 6, 1)}};
  EXPECT_EQ(pieces, expected);
}

TEST_F(TransferSchedulerTest, cuts_pieces_of_one_block_where_a_block_is_larger_than_a_piece) {
  TransferSchedulerConfig large = config();
  large.pools[0].block_bytes = Bytes{1000};
  TransferScheduler scheduler{large};
  ASSERT_TRUE(scheduler.submit(transfer(1, swap_out, request, {run(0, 0, 2)})));
  EXPECT_EQ(scheduler.next(swap_out, start)->runs, std::vector{run(0, 0, 1)});
}

TEST_F(TransferSchedulerTest, serves_the_urgent_first_and_within_a_lane_who_came_first) {
  submit(1, store, 1);
  submit(2, make_room, 1);
  submit(3, request, 1);
  submit(4, store, 1);
  submit(5, request, 1);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{3, 5, 2, 1, 4}));
}

TEST_F(TransferSchedulerTest, keeps_a_bounded_number_of_pieces_ahead_of_an_urgent_transfer) {
  for (const Urgency background : {make_room, store}) {
    submit(1, background, 40);
    const std::optional<Piece> first = next();
    const std::optional<Piece> second = next();
    ASSERT_TRUE(first && second);
    EXPECT_FALSE(next()) << "two may be under way";
    submit(2, request, 1);
    const std::optional<Piece> urgent = next();
    ASSERT_TRUE(urgent) << "it queues up behind them at once";
    EXPECT_EQ(urgent->id, TransferId{2});
    EXPECT_FALSE(next());
    finish(*urgent);
    EXPECT_FALSE(next());
    finish(*first);
    const std::optional<Piece> third = next();
    ASSERT_TRUE(third);
    scheduler_.cancel_all();
    finish(*second);
    EXPECT_FALSE(scheduler_.idle());
    finish(*third);
    EXPECT_TRUE(scheduler_.idle());
  }
}

TEST_F(TransferSchedulerTest, starts_nothing_else_while_requests_have_something_to_start) {
  submit(1, request, 12);
  submit(2, store, 4);
  const std::optional<Piece> first = next();
  ASSERT_TRUE(first && next());
  EXPECT_FALSE(next()) << "a third piece of the request waits for room, and the store for that";
  finish(*first);
  EXPECT_EQ(next()->id, TransferId{1});
  EXPECT_EQ(next()->id, TransferId{2}) << "behind the last piece of the request";
}

TEST_F(TransferSchedulerTest, counts_a_raised_piece_where_it_has_started) {
  submit(1, store, 8);
  ASSERT_TRUE(next() && next());
  scheduler_.raise(TransferId{1}, request);
  submit(2, store, 8);
  EXPECT_FALSE(next()) << "so many are under way ahead of requests already";
  submit(3, request, 8);
  EXPECT_EQ(next()->id, TransferId{3});
}

TEST_F(TransferSchedulerTest, bounds_the_bytes_under_way_but_lets_large_pieces_go) {
  TransferSchedulerConfig bounded = config();
  bounded.pieces.in_flight = 100;
  bounded.pieces.bytes_in_flight = Bytes{100};
  for (const Urgency urgency : {request, store}) {
    TransferScheduler scheduler{bounded};
    ASSERT_TRUE(scheduler.submit(transfer(1, swap_out, urgency, {run(0, 0, 40)})));
    EXPECT_TRUE(scheduler.next(swap_out, start));
    EXPECT_TRUE(scheduler.next(swap_out, start));
    EXPECT_FALSE(scheduler.next(swap_out, start)) << "that would be 120 bytes";
    bounded.pieces.bytes_in_flight = Bytes{1};
    TransferScheduler narrow{bounded};
    ASSERT_TRUE(narrow.submit(transfer(1, swap_out, urgency, {run(0, 0, 40)})));
    EXPECT_TRUE(narrow.next(swap_out, start));
    EXPECT_EQ(narrow.next(swap_out, start).has_value(), urgency == request);
    EXPECT_FALSE(narrow.next(swap_out, start));
    bounded.pieces.bytes_in_flight = Bytes{100};
  }
}

TEST_F(TransferSchedulerTest, asks_for_no_time_while_a_lane_before_it_waits_for_room) {
  scheduler_.limit(store, per_second(Bytes{1}));
  submit(1, request, 40);
  submit(2, store, 4);
  ASSERT_TRUE(next() && next());
  EXPECT_FALSE(next());
  EXPECT_EQ(scheduler_.next_deadline(), never);
}

TEST_F(TransferSchedulerTest, keeps_the_stream_busy_with_what_requests_wait_for) {
  submit(1, request, 40);
  const std::optional<Piece> first = next();
  ASSERT_TRUE(first && next());
  submit(2, request, 1);
  EXPECT_FALSE(next()) << "the bound holds for the urgent too";
  finish(*first);
  EXPECT_TRUE(next());
}

TEST_F(TransferSchedulerTest, does_not_make_one_direction_wait_for_the_other) {
  submit(1, request, 40);
  ASSERT_TRUE(next() && next());
  submit(transfer(2, swap_in, store, {run(0, 0, 1)}));
  const std::optional<Piece> piece = next(swap_in);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->id, TransferId{2});
}

TEST_F(TransferSchedulerTest, raises_a_transfer_behind_those_that_wait_in_the_lane_already) {
  submit(1, store, 1);
  submit(2, store, 1);
  submit(3, request, 1);
  submit(4, make_room, 1);
  scheduler_.raise(TransferId{2}, request);
  scheduler_.check_invariants();
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{3, 2, 4, 1}));
}

TEST_F(TransferSchedulerTest, raises_what_is_left_of_a_transfer_under_way) {
  submit(1, store, 12);
  const std::optional<Piece> first = next();
  submit(2, make_room, 1);
  scheduler_.raise(TransferId{1}, request);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{1, 1, 2}));
  finish(*first);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerTest, does_not_lower_a_transfer_and_ignores_unknown_ones) {
  submit(1, request, 1);
  submit(2, make_room, 1);
  scheduler_.raise(TransferId{1}, store);
  scheduler_.raise(TransferId{99}, request);
  scheduler_.cancel(TransferId{99});
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(TransferSchedulerTest, refuses_a_transfer_beyond_the_bound_and_changes_nothing) {
  submit(1, store, 60);
  submit(2, request, 60);
  const Result<void> refused = scheduler_.submit(transfer(3, swap_out, store, {run(0, 0, 41)}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), Errc::refused);
  scheduler_.check_invariants();
  EXPECT_TRUE(events().empty());
  submit(4, store, 40);  // exactly at the limit
  submit(transfer(5, swap_in, store, {run(0, 0, 100)}));

  const std::optional<Piece> of_request = next();
  EXPECT_EQ(of_request->id, TransferId{2});
  submit(6, request, 44);  // work under way does not count
  EXPECT_FALSE(scheduler_.submit(transfer(3, swap_out, request, {run(0, 0, 1)})));
}

TEST_F(TransferSchedulerTest, refuses_a_transfer_without_blocks) {
  EXPECT_EQ(scheduler_.submit(transfer(1, swap_out, request, {})).error(), Errc::invalid_argument);
  EXPECT_EQ(scheduler_.submit(transfer(1, swap_out, request, {run(0, 0, 1), run(0, 0, 0)})).error(), Errc::invalid_argument);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerTest, refuses_a_configuration_that_moves_nothing) {
  TransferSchedulerConfig bad = config();
  bad.pools[0].block_bytes = Bytes{0};
  EXPECT_THROW(TransferScheduler{bad}, std::invalid_argument);
  bad = config();
  bad.pieces.in_flight = 0;
  EXPECT_THROW(TransferScheduler{bad}, std::invalid_argument);
  bad = config();
  bad.pieces.bytes_in_flight = Bytes{};
  EXPECT_THROW(TransferScheduler{bad}, std::invalid_argument);
}

using TransferSchedulerDeathTest = TransferSchedulerTest;

TEST_F(TransferSchedulerDeathTest, stops_at_a_second_transfer_of_one_id) {
  submit(1, request, 1);
  EXPECT_DEATH((void)scheduler_.submit(transfer(1, swap_out, request, {run(0, 0, 1)})), "is_new");
}

/// The same scheduler with 40 bytes per second for Urgency::store: a piece of 4 blocks per second.
class LimitedTransferSchedulerTest : public TransferSchedulerTest {
 protected:
  LimitedTransferSchedulerTest() {
    TransferSchedulerConfig limited = config();
    limited.rates[static_cast<std::size_t>(store)] = BytesPerSecond{40};
    scheduler_ = TransferScheduler{limited};
  }
};

TEST_F(LimitedTransferSchedulerTest, lets_one_piece_go_at_once_and_then_keeps_the_rate) {
  submit(1, store, 10);
  finish(*next());
  EXPECT_FALSE(next());
  EXPECT_EQ(scheduler_.next_deadline(), start + seconds{1});
  EXPECT_FALSE(next(swap_out, start + seconds{1} - Duration{1}));
  finish(*next(swap_out, start + seconds{1}));
  // The last piece is half a piece, so half a second is enough.
  EXPECT_EQ(scheduler_.next_deadline(), start + std::chrono::milliseconds{1500});
  finish(*next(swap_out, start + std::chrono::milliseconds{1500}));
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(LimitedTransferSchedulerTest, lets_what_is_less_urgent_go_where_the_more_urgent_has_used_its_rate_up) {
  scheduler_.limit(make_room, BytesPerSecond{40});
  scheduler_.limit(store, BytesPerSecond{0});
  submit(1, make_room, 8);
  submit(2, store, 8);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{1, 2, 2}));
  EXPECT_EQ(scheduler_.next_deadline(), start + seconds{1});
  EXPECT_EQ(next(swap_out, start + seconds{1})->id, TransferId{1});
}

TEST_F(LimitedTransferSchedulerTest, takes_another_rate_at_once) {
  submit(1, store, 16);
  finish(*next());
  EXPECT_FALSE(next());
  scheduler_.limit(store, BytesPerSecond{0});
  finish(*next());
  scheduler_.limit(store, BytesPerSecond{40});
  finish(*next());
  EXPECT_FALSE(next());
  EXPECT_TRUE(next(swap_out, start + seconds{1}));
  TransferSchedulerConfig of_requests = config();
  of_requests.rates[static_cast<std::size_t>(request)] = BytesPerSecond{1};
  EXPECT_THROW(TransferScheduler{of_requests}, std::invalid_argument);
}

TEST_F(LimitedTransferSchedulerTest, shares_the_rate_between_the_directions) {
  submit(1, store, 4);
  submit(transfer(2, swap_in, store, {run(0, 0, 4)}));
  ASSERT_TRUE(next());
  EXPECT_FALSE(next(swap_in));
  EXPECT_TRUE(next(swap_in, start + seconds{1}));
}

TEST_F(LimitedTransferSchedulerTest, holds_back_no_other_lane) {
  submit(1, store, 8);
  finish(*next());
  submit(2, make_room, 40);
  submit(3, request, 40);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_FALSE(scheduler_.idle());
}

TEST_F(LimitedTransferSchedulerTest, does_not_limit_a_transfer_that_was_raised) {
  submit(1, store, 12);
  finish(*next());
  scheduler_.raise(TransferId{1}, request);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{1, 1}));
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(LimitedTransferSchedulerTest, asks_to_be_woken_for_the_rate_only_where_there_is_room) {
  submit(1, store, 4);
  ASSERT_TRUE(next());
  submit(3, store, 4);
  EXPECT_EQ(scheduler_.next_deadline(), start + seconds{1}) << "a second piece may be under way";
  submit(4, make_room, 8);
  ASSERT_TRUE(next());
  EXPECT_FALSE(next());
  EXPECT_EQ(scheduler_.next_deadline(), never);
}

}  // namespace
}  // namespace terrace
