#include "runtime/cache/control/shared_look_ups.hpp"

#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;
using test::keys_of;

class LookUps : public testing::Test {
 protected:
  static SharedLookUps::Asker request(std::uint64_t number) { return {SharedLookUps::Asker::Kind::request, number}; }
  void look(std::uint64_t number, const std::vector<BlockKey>& keys, std::uint32_t from, TimePoint deadline = never) {
    look_ups.look(request(number), std::span{keys}.subspan(from), from, deadline, now);
    look_ups.check_invariants();
  }
  std::vector<SharedLookUps::Answer> answers() {
    std::vector<SharedLookUps::Answer> taken;
    look_ups.take_answers(taken);
    look_ups.check_invariants();
    return taken;
  }

  SharedConfig config;
  SharedActions actions;
  SharedTotals totals;
  SharedLookUps look_ups{config, actions, totals};
  TimePoint now{1s};
};

TEST_F(LookUps, answer_with_the_end_of_what_is_there) {
  look(7, keys_of({1, 2, 3, 4, 5}), 2);
  ASSERT_EQ(actions.probes.size(), 1U);
  EXPECT_EQ(actions.probes[0].keys.size(), 3U);
  EXPECT_EQ(actions.probes[0].deadline, now + 20ms);
  look_ups.on_probed(actions.probes[0].token, {}, 2, now + 1ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(7));
  EXPECT_EQ(taken[0].end, 4U);
  EXPECT_EQ(look_ups.probes(), 0U);
  EXPECT_NEAR(look_ups.round_trip_seconds(), 0.001, 1e-9);
  EXPECT_EQ(totals.asked, 3U);
  EXPECT_EQ(totals.there, 2U);
}

TEST_F(LookUps, join_a_probe_that_covers_their_blocks) {
  look(1, keys_of({1, 2, 3, 4}), 0);
  look(2, keys_of({1, 2, 3}), 1);        // a part of it
  look(3, keys_of({1, 2, 3, 4, 5}), 0);  // more
  look(4, keys_of({1, 2, 9}), 1);        // other blocks
  ASSERT_EQ(actions.probes.size(), 3U);
  EXPECT_EQ(totals.look_ups_joined, 1U);
  look_ups.on_probed(actions.probes[0].token, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].end, 2U);
  EXPECT_EQ(taken[1].end, 2U) << "of its blocks 1 and 2, only block 1 is there";
  EXPECT_EQ(look_ups.asking(), 2U);
}

TEST_F(LookUps, of_joined_askers_whose_first_block_is_not_there_are_answered_with_nothing) {
  look(1, keys_of({1, 2, 3, 4}), 0);
  look(2, keys_of({1, 2, 3}), 2);
  look_ups.on_probed(actions.probes[0].token, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].end, 0U);
}

TEST_F(LookUps, end_at_the_deadline_and_cancel_the_probe) {
  look(1, keys_of({1, 2}), 0);
  look(2, keys_of({3, 4}), 0, now + 5ms);
  EXPECT_EQ(look_ups.next_deadline(), now + 5ms);
  look_ups.on_time(now + 5ms);
  auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(2));
  EXPECT_EQ(taken[0].end, 0U);
  ASSERT_EQ(actions.cancelled_probes.size(), 1U);
  EXPECT_EQ(actions.cancelled_probes[0], actions.probes[1].token);
  EXPECT_EQ(look_ups.next_deadline(), now + 20ms);
  look_ups.on_time(now + 20ms - 1ns);
  EXPECT_FALSE(look_ups.has_answers());
  look_ups.on_time(now + 20ms);
  EXPECT_EQ(answers().size(), 1U);
  EXPECT_EQ(look_ups.next_deadline(), never);
  EXPECT_EQ(look_ups.probes(), 2U) << "their events come";
  EXPECT_EQ(totals.look_ups_late, 2U);
  for (const SharedActions::Probe& probe : actions.probes) look_ups.on_probed(probe.token, Errc::cancelled, 0, now + 21ms);
  EXPECT_FALSE(look_ups.has_answers());
  EXPECT_EQ(look_ups.probes(), 0U);
}

TEST_F(LookUps, cancel_a_probe_when_the_last_asker_leaves) {
  look(1, keys_of({1, 2}), 0);
  look(2, keys_of({1, 2}), 0);
  look_ups.leave(request(1));
  EXPECT_TRUE(actions.cancelled_probes.empty());
  look_ups.leave(request(2));
  EXPECT_EQ(actions.cancelled_probes.size(), 1U);
  look(3, keys_of({1, 2}), 0);
  EXPECT_EQ(actions.probes.size(), 2U) << "nobody joins a cancelled probe";
  look_ups.on_probed(actions.probes[0].token, {}, 2, now);
  EXPECT_FALSE(look_ups.has_answers());
  look_ups.on_probed(actions.probes[1].token, {}, 2, now);
  EXPECT_EQ(answers().size(), 1U);
}

TEST_F(LookUps, whose_asker_leaves_before_it_has_taken_the_answer_have_none) {
  look(1, keys_of({1}), 0);
  look_ups.on_probed(actions.probes[0].token, {}, 1, now);
  look_ups.leave(request(1));
  EXPECT_FALSE(look_ups.has_answers());
}

TEST_F(LookUps, remember_for_a_short_time_what_is_missing) {
  const auto keys = keys_of({1, 2, 3});
  look(1, keys, 0);
  look_ups.on_probed(actions.probes[0].token, {}, 1, now);
  EXPECT_FALSE(look_ups.is_missing(keys[0], now));
  EXPECT_TRUE(look_ups.is_missing(keys[1], now));
  EXPECT_FALSE(look_ups.is_missing(keys[2], now)) << "nobody knows";
  EXPECT_TRUE(look_ups.is_missing(keys[1], now + 1s - 1ns));
  EXPECT_FALSE(look_ups.is_missing(keys[1], now + 1s));
  look_ups.forget();
  EXPECT_FALSE(look_ups.is_missing(keys[1], now));
}

TEST_F(LookUps, that_fail_say_what_is_known_and_remember_nothing_as_missing) {
  const auto keys = keys_of({1, 2, 3});
  look(1, keys, 0);
  look_ups.on_probed(actions.probes[0].token, Errc::deadline_exceeded, 2, now + 20ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].end, 2U);
  EXPECT_FALSE(look_ups.is_missing(keys[2], now + 20ms));
  EXPECT_EQ(look_ups.round_trip_seconds(), 0);
}

}  // namespace
}  // namespace terrace
