#include "runtime/cache/control/shared_questions.hpp"

#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;
using test::keys_of;

class Questions : public testing::Test {
 protected:
  static ManagerConfig config() {
    ManagerConfig made = test::sizes(8, 8);
    made.pools[0].staging_blocks = 2;
    made.shared.on = true;
    return made;
  }
  static SharedQuestions::Asker request(std::uint64_t number) { return {SharedQuestions::Asker::Kind::request, number}; }
  void ask(std::uint64_t number, const std::vector<BlockKey>& keys, std::uint32_t from, TimePoint deadline = never) {
    questions.ask(request(number), {.keys = std::span{keys}.subspan(from), .from = from}, deadline);
    questions.check_invariants();
  }
  void on_probed(std::size_t probe, ErrorCode error, std::uint32_t leading, TimePoint at) {
    state.now = at;
    questions.on_probed(actions.probes[probe].token, error, leading);
  }
  void on_time(TimePoint at) {
    state.now = at;
    questions.on_time();
  }
  std::vector<SharedQuestions::Answer> answers() {
    std::vector<SharedQuestions::Answer> taken;
    questions.take_answers(taken);
    questions.check_invariants();
    return taken;
  }

  const TimePoint now{1s};
  ManagerState state{config()};
  HitPlanner planner{state};
  SharedActions& actions = state.groups.at({}).actions().shared;
  SharedTotals& totals = state.shared;
  SharedQuestions questions{state, planner};

  void SetUp() override { state.now = now; }
};

TEST_F(Questions, answer_with_the_end_of_what_is_there) {
  ask(7, keys_of({1, 2, 3, 4, 5}), 2);
  ASSERT_EQ(actions.probes.size(), 1U);
  EXPECT_EQ(actions.probes[0].keys.size(), 3U);
  EXPECT_EQ(actions.probes[0].deadline, now + 20ms);
  on_probed(0, {}, 2, now + 1ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(7));
  EXPECT_EQ(taken[0].end, 4U);
  EXPECT_EQ(questions.probes(), 0U);
  EXPECT_NEAR(questions.round_trip_seconds(), 0.001, 1e-9);
  EXPECT_EQ(totals.asked, 3U);
  EXPECT_EQ(totals.there, 2U);
}

TEST_F(Questions, join_a_probe_that_covers_their_blocks) {
  ask(1, keys_of({1, 2, 3, 4}), 0);
  ask(2, keys_of({1, 2, 3}), 1);        // a part of it
  ask(3, keys_of({1, 2, 3, 4, 5}), 0);  // more
  ask(4, keys_of({1, 2, 9}), 1);        // other blocks
  ASSERT_EQ(actions.probes.size(), 3U);
  EXPECT_EQ(totals.look_ups_joined, 1U);
  on_probed(0, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].end, 2U);
  EXPECT_EQ(taken[1].end, 2U) << "of its blocks 1 and 2, only block 1 is there";
  EXPECT_EQ(questions.asking(), 2U);
}

TEST_F(Questions, of_joined_askers_whose_first_block_is_not_there_are_answered_with_nothing) {
  ask(1, keys_of({1, 2, 3, 4}), 0);
  ask(2, keys_of({1, 2, 3}), 2);
  on_probed(0, {}, 2, now);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].end, 0U);
}

TEST_F(Questions, end_at_the_deadline_and_cancel_the_probe) {
  ask(1, keys_of({1, 2}), 0);
  ask(2, keys_of({3, 4}), 0, now + 5ms);
  EXPECT_EQ(questions.next_deadline(), now + 5ms);
  on_time(now + 5ms);
  auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].asker, request(2));
  EXPECT_EQ(taken[0].end, 0U);
  ASSERT_EQ(actions.cancelled_probes.size(), 1U);
  EXPECT_EQ(actions.cancelled_probes[0], actions.probes[1].token);
  EXPECT_EQ(questions.next_deadline(), now + 20ms);
  on_time(now + 20ms - 1ns);
  EXPECT_FALSE(questions.has_answers());
  on_time(now + 20ms);
  EXPECT_EQ(answers().size(), 1U);
  EXPECT_EQ(questions.next_deadline(), never);
  EXPECT_EQ(questions.probes(), 2U) << "their events come";
  EXPECT_EQ(totals.look_ups_late, 2U);
  for (std::size_t probe = 0; probe < actions.probes.size(); ++probe) on_probed(probe, Errc::cancelled, 0, now + 21ms);
  EXPECT_FALSE(questions.has_answers());
  EXPECT_EQ(questions.probes(), 0U);
}

TEST_F(Questions, cancel_a_probe_when_the_last_asker_leaves) {
  ask(1, keys_of({1, 2}), 0);
  ask(2, keys_of({1, 2}), 0);
  questions.leave(request(1));
  EXPECT_TRUE(actions.cancelled_probes.empty());
  questions.leave(request(2));
  EXPECT_EQ(actions.cancelled_probes.size(), 1U);
  ask(3, keys_of({1, 2}), 0);
  EXPECT_EQ(actions.probes.size(), 2U) << "nobody joins a cancelled probe";
  on_probed(0, {}, 2, now);
  EXPECT_FALSE(questions.has_answers());
  on_probed(1, {}, 2, now);
  EXPECT_EQ(answers().size(), 1U);
}

TEST_F(Questions, whose_asker_leaves_before_it_has_taken_the_answer_have_none) {
  ask(1, keys_of({1}), 0);
  on_probed(0, {}, 1, now);
  questions.leave(request(1));
  EXPECT_FALSE(questions.has_answers());
}

TEST_F(Questions, remember_for_a_short_time_what_is_missing) {
  const auto keys = keys_of({1, 2, 3});
  ask(1, keys, 0);
  on_probed(0, {}, 1, now);
  EXPECT_FALSE(questions.is_missing(keys[0]));
  EXPECT_TRUE(questions.is_missing(keys[1]));
  EXPECT_FALSE(questions.is_missing(keys[2])) << "nobody knows";
  state.now = now + 1s - 1ns;
  EXPECT_TRUE(questions.is_missing(keys[1]));
  state.now = now + 1s;
  EXPECT_FALSE(questions.is_missing(keys[1]));
  questions.forget();
  state.now = now;
  EXPECT_FALSE(questions.is_missing(keys[1]));
}

TEST_F(Questions, that_fail_say_what_is_known_and_remember_nothing_as_missing) {
  const auto keys = keys_of({1, 2, 3});
  ask(1, keys, 0);
  on_probed(0, Errc::deadline_exceeded, 2, now + 20ms);
  const auto taken = answers();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].end, 2U);
  state.now = now + 20ms;
  EXPECT_FALSE(questions.is_missing(keys[2]));
  EXPECT_EQ(questions.round_trip_seconds(), 0);
}

}  // namespace
}  // namespace terrace
