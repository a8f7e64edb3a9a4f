#include "transfer/emulated/link_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using std::chrono::microseconds;
using std::chrono::milliseconds;

LinkModel both(const LinkDirection& each, std::uint64_t seed = 1) { return {.directions = {each, each}, .seed = seed}; }

/// How long each of the first commands, of 1 KiB each, keeps its stream busy.
std::vector<Duration> held(const LinkModel& model, Direction direction, int commands = 100) {
  LinkStream stream{model, direction};
  std::vector<Duration> all;
  for (int i = 0; i < commands; ++i) all.push_back(stream.next(KiB).held);
  return all;
}

TEST(LinkStream, takes_no_time_and_never_fails_unless_told_to) {
  LinkStream stream{LinkModel{}, swap_in};
  for (std::uint64_t number = 1; number <= 10; ++number) {
    const LinkTurn turn = stream.next(GiB);
    EXPECT_EQ(turn.number, number);
    EXPECT_EQ(turn.held, Duration{});
    EXPECT_FALSE(turn.stalled);
    EXPECT_FALSE(turn.fails);
  }
}

TEST(LinkStream, takes_its_latency_and_the_time_of_its_bytes) {
  LinkModel model;
  model[swap_out] = {.bytes_per_second = per_second(MiB), .latency = microseconds{50}};
  model[swap_in] = {.bytes_per_second = per_second(MiB * 2)};
  EXPECT_EQ(LinkStream(model, swap_out).next(MiB * 3).held, std::chrono::seconds{3} + microseconds{50});
  EXPECT_EQ(LinkStream(model, swap_in).next(MiB * 3).held, milliseconds{1500});
  // Never shorter than the rate allows.
  EXPECT_EQ(LinkStream(model, swap_in).next(Bytes{1}).held, std::chrono::nanoseconds{477});
}

TEST(LinkStream, draws_the_same_jitter_from_the_same_seed) {
  const LinkDirection link{.latency = microseconds{10}, .jitter_max = microseconds{40}};
  const std::vector<Duration> first = held(both(link, 7), swap_out);
  EXPECT_EQ(first, held(both(link, 7), swap_out));
  EXPECT_NE(first, held(both(link, 8), swap_out));
  EXPECT_NE(first, held(both(link, 7), swap_in)) << "directions draw from the same numbers";
  for (const Duration each : first) {
    EXPECT_GE(each, microseconds{10});
    EXPECT_LE(each, microseconds{50});
  }
}

TEST(LinkStream, draws_jitter_over_the_whole_range) {
  const std::vector<Duration> drawn = held(both({.jitter_max = std::chrono::nanoseconds{3}}), swap_out, 200);
  for (int value = 0; value <= 3; ++value) EXPECT_NE(std::ranges::count(drawn, std::chrono::nanoseconds{value}), 0) << value;
}

TEST(LinkStream, stalls_every_nth_command_beside_its_jitter) {
  const LinkDirection link{.jitter_max = microseconds{40}};
  LinkDirection stalling = link;
  stalling.stall_every = 4;
  stalling.stall = milliseconds{5};
  std::vector<Duration> expected = held(both(link), swap_in);
  for (std::size_t i = 3; i < expected.size(); i += 4) expected[i] += milliseconds{5};
  EXPECT_EQ(held(both(stalling), swap_in), expected);
}

TEST(LinkStream, fails_every_nth_command_of_its_own_direction) {
  LinkModel model;
  model[swap_out].fail_every = 3;
  model[swap_in].stall_every = 2;
  LinkStream out{model, swap_out};
  LinkStream in{model, swap_in};
  for (std::uint64_t number = 1; number <= 30; ++number) {
    const LinkTurn turn = out.next(KiB);
    EXPECT_EQ(turn.fails, number % 3 == 0) << number;
    EXPECT_FALSE(turn.stalled) << number;
    const LinkTurn other = in.next(KiB);
    EXPECT_FALSE(other.fails) << number;
    EXPECT_EQ(other.stalled, number % 2 == 0) << number;
  }
}

TEST(LinkStream, refuses_to_go_back_in_time) {
  for (const LinkDirection& link : {LinkDirection{.latency = microseconds{-1}}, LinkDirection{.jitter_max = microseconds{-1}},
                                    LinkDirection{.stall = microseconds{-1}}}) {
    EXPECT_THROW((LinkStream{both(link), swap_out}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace terrace
