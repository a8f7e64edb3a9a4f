#include "tests/transfer/engine/transfer_scheduler_fixture.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

/// How transfers end: cancelled, expired, failed, done.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::seconds;
using test::run;
using test::start;
using test::transfer;
using test::TransferSchedulerTest;

using TransferSchedulerEndTest = TransferSchedulerTest;

TEST_F(TransferSchedulerEndTest, cancels_a_queued_transfer_at_once) {
  submit(1, request, 3);
  submit(2, request, 3);
  scheduler_.cancel(TransferId{1});
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, std::vector(3, BlockOutcome::cancelled));
  EXPECT_EQ(reported[0].error, Errc::cancelled);
  EXPECT_EQ(reported[0].moved, Bytes{0});
  EXPECT_EQ(order(), std::vector<std::uint64_t>{2});
}

TEST_F(TransferSchedulerEndTest, knows_since_when_its_oldest_piece_is_under_way) {
  EXPECT_EQ(scheduler_.oldest_piece(), never);
  submit(1, request, 8, start + seconds{5});
  EXPECT_EQ(scheduler_.oldest_piece(), never) << "it only waits";
  const std::optional<Piece> first = next(swap_out, start + seconds{1});
  const std::optional<Piece> second = next(swap_out, start + seconds{2});
  EXPECT_EQ(scheduler_.oldest_piece(), start + seconds{1});
  finish(*first);
  EXPECT_EQ(scheduler_.oldest_piece(), start + seconds{2});
  scheduler_.expire(start + seconds{5});
  EXPECT_EQ(scheduler_.oldest_piece(), start + seconds{2}) << "its transfer was reported, and it still moves";
  finish(*second);
  EXPECT_EQ(scheduler_.oldest_piece(), never);
}

TEST_F(TransferSchedulerEndTest, reports_a_cancelled_transfer_when_what_had_started_has_ended) {
  submit(1, request, 10);
  const std::optional<Piece> piece = next();
  scheduler_.cancel(TransferId{1});
  EXPECT_TRUE(events().empty()) << "its first piece still moves";
  EXPECT_FALSE(next()) << "the rest never starts";
  finish(*piece);
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, outcomes(4, BlockOutcome::done, 6, BlockOutcome::cancelled));
  EXPECT_EQ(reported[0].moved, Bytes{40});
  EXPECT_EQ(reported[0].error, Errc::cancelled);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerEndTest, reports_a_transfer_normally_that_is_cancelled_when_all_of_it_has_started) {
  submit(1, request, 4);
  const std::optional<Piece> piece = next();
  scheduler_.cancel(TransferId{1});
  finish(*piece);
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, std::vector(4, BlockOutcome::done));
  EXPECT_FALSE(reported[0].error);
}

TEST_F(TransferSchedulerEndTest, cancels_everything_that_has_not_started) {
  submit(1, request, 8);
  submit(2, store, 1);
  submit(4, store, 1);
  submit(transfer(3, swap_in, make_room, {run(0, 0, 1)}));
  const std::optional<Piece> piece = next();
  scheduler_.cancel_all();
  scheduler_.check_invariants();
  EXPECT_EQ(events().size(), 3U);
  EXPECT_FALSE(next());
  EXPECT_FALSE(next(swap_in));
  finish(*piece);
  EXPECT_EQ(events().size(), 1U);
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerEndTest, resolves_a_transfer_at_its_deadline_and_confirms_it_when_the_last_piece_has_ended) {
  submit(1, request, 12, start + seconds{5});
  const std::optional<Piece> first = next();
  const std::optional<Piece> second = next();
  finish(*first, {}, start + seconds{1});
  const std::optional<Piece> third = next(swap_out, start + seconds{2});
  ASSERT_TRUE(second && third);
  EXPECT_EQ(scheduler_.next_deadline(), start + seconds{5});

  scheduler_.expire(start + seconds{5} - Duration{1});
  EXPECT_TRUE(events().empty());
  scheduler_.expire(start + seconds{5});
  scheduler_.check_invariants();
  std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].kind, TransferEvent::Kind::finished);
  EXPECT_EQ(reported[0].outcomes, outcomes(4, BlockOutcome::done, 8, BlockOutcome::unconfirmed));
  EXPECT_EQ(reported[0].moved, Bytes{40});
  EXPECT_EQ(reported[0].took, seconds{5});
  EXPECT_EQ(reported[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(scheduler_.next_deadline(), never);
  EXPECT_FALSE(scheduler_.idle());

  finish(*third, {}, start + seconds{6});
  EXPECT_TRUE(events().empty()) << "the second piece may still move bytes";
  finish(*second, Errc::io_failed, start + seconds{7});
  reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].kind, TransferEvent::Kind::confirmed);
  EXPECT_EQ(reported[0].id, TransferId{1});
  EXPECT_TRUE(reported[0].outcomes.empty());
  EXPECT_EQ(reported[0].moved, Bytes{0});
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerEndTest, goes_on_with_a_transfer_whose_deadline_was_postponed) {
  submit(1, request, 8, start + seconds{5});
  submit(2, request, 4, start + seconds{5});
  const std::optional<Piece> first = next();
  scheduler_.postpone(TransferId{1}, start + seconds{9});
  scheduler_.postpone(TransferId{1}, start + seconds{7});  // it is later already
  scheduler_.postpone(TransferId{2}, never);
  scheduler_.postpone(TransferId{99}, never);
  scheduler_.check_invariants();
  EXPECT_EQ(scheduler_.next_deadline(), start + seconds{9});
  finish(*first, {}, start + seconds{6});
  const std::optional<Piece> second = next(swap_out, start + seconds{8});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->id, TransferId{1});
  EXPECT_TRUE(events().empty());

  scheduler_.expire(start + seconds{9});
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, outcomes(4, BlockOutcome::done, 4, BlockOutcome::unconfirmed));
  scheduler_.postpone(TransferId{1}, never);  // too late
  scheduler_.check_invariants();
  EXPECT_EQ(scheduler_.next_deadline(), never);
  finish(*second, {}, start + seconds{10});
  EXPECT_EQ(events().size(), 1U);
}

TEST_F(TransferSchedulerEndTest, never_starts_the_rest_of_a_transfer_past_its_deadline) {
  submit(1, request, 8, start + seconds{5});
  const std::optional<Piece> piece = next();
  EXPECT_FALSE(next(swap_out, start + seconds{5}));
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, outcomes(4, BlockOutcome::unconfirmed, 4, BlockOutcome::cancelled));
  finish(*piece);
  EXPECT_EQ(events().size(), 1U);
}

TEST_F(TransferSchedulerEndTest, resolves_a_queued_transfer_at_its_deadline_with_nothing_to_confirm) {
  submit(1, request, 3, start + seconds{5});
  scheduler_.expire(start + seconds{9});
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, std::vector(3, BlockOutcome::cancelled));
  EXPECT_EQ(reported[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(reported[0].took, Duration{});
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(TransferSchedulerEndTest, reports_a_transfer_normally_whose_pieces_ended_before_the_deadline) {
  submit(1, request, 2, start + seconds{5});
  finish(*next(), {}, start + seconds{4});
  scheduler_.expire(start + seconds{5});
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, std::vector(2, BlockOutcome::done));
  EXPECT_FALSE(reported[0].error);
  EXPECT_EQ(scheduler_.next_deadline(), never);
}

TEST_F(TransferSchedulerEndTest, resolves_a_cancelled_transfer_at_its_deadline_if_what_had_started_has_not_ended) {
  submit(1, request, 8, start + seconds{5});
  const std::optional<Piece> piece = next();
  scheduler_.cancel(TransferId{1});
  scheduler_.expire(start + seconds{5});
  std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].outcomes, outcomes(4, BlockOutcome::unconfirmed, 4, BlockOutcome::cancelled));
  EXPECT_EQ(reported[0].error, Errc::cancelled);
  scheduler_.cancel(TransferId{1});
  finish(*piece, {}, start + seconds{60});
  reported = events();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].kind, TransferEvent::Kind::confirmed);
}

TEST_F(TransferSchedulerEndTest, fails_the_blocks_of_a_failed_piece_and_moves_the_others) {
  submit(1, request, 12);
  finish(*next());
  finish(*next(), Errc::io_failed);
  finish(*next());
  const std::vector<TransferEvent> reported = events();
  ASSERT_EQ(reported.size(), 1U);
  std::vector<BlockOutcome> expected = outcomes(4, BlockOutcome::done, 4, BlockOutcome::failed);
  expected.insert(expected.end(), 4, BlockOutcome::done);
  EXPECT_EQ(reported[0].outcomes, expected);
  EXPECT_EQ(reported[0].moved, Bytes{80});
  EXPECT_EQ(reported[0].error, Errc::io_failed);
}

using TransferSchedulerEndDeathTest = TransferSchedulerTest;

TEST_F(TransferSchedulerEndDeathTest, stops_at_a_piece_that_ends_twice) {
  submit(1, request, 8);
  const std::optional<Piece> piece = next();
  finish(*piece);
  EXPECT_DEATH(scheduler_.finish(piece->token, {}, start), "broken invariant");
}

}  // namespace
}  // namespace terrace
