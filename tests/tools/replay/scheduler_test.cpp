#include "tools/replay/engine/scheduler.hpp"
#include "base/random.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

using Kind = Action::Kind;
using Outcome = Answer::Outcome;

constexpr SchedulerLimits limits{.step_tokens = 100, .in_flight_max = 4, .block_tokens = 10};

/// The form in which tests write actions: "acquire 1: 4 blocks for 35", "compute 1: 0 to 35".
std::string text(const Action& action) {
  switch (action.kind) {
    case Kind::abort: return fmt::format("abort {}", action.request);
    case Kind::extend: return fmt::format("extend {} by {}", action.request, action.blocks);
    case Kind::preempt: return fmt::format("preempt {}", action.request);
    case Kind::acquire: return fmt::format("acquire {}: {} blocks for {}", action.request, action.blocks, action.tokens.to);
    case Kind::compute: {
      const auto& [from, to] = action.tokens;
      return fmt::format("compute {}: {} to {}{}", action.request, from, to, action.last ? ", last" : "");
    }
  }
  return "?";
}

/// A scheduler, and a cache that gives planned answers. By default it has room for everything, and no hits.
struct Engine {
  EngineCounts counts;
  Scheduler scheduler;
  std::map<RequestNumber, Answer> acquired;  ///< answers to acquire; otherwise `done`
  std::function<bool(const Action&)> can_extend = [](const Action&) { return true; };

  explicit Engine(const SchedulerLimits& with = limits) : scheduler{with, counts} {}

  void add(RequestNumber number, std::uint64_t prompt, std::uint64_t output = 1, std::optional<AbortPoint> abort = {}) {
    scheduler.add({number, prompt, output, abort});
  }

  /// Runs one step and returns its actions. The last computation of a request is done before the next step.
  std::vector<std::string> step() {
    std::vector<std::string> happened;
    std::vector<RequestNumber> ended;
    scheduler.step([&](const Action& action) {
      scheduler.check_invariants();
      happened.push_back(text(action));
      Answer answer;
      if (action.kind == Kind::acquire && acquired.contains(action.request)) answer = acquired[action.request];
      if (action.kind == Kind::extend && !can_extend(action)) answer.outcome = Outcome::no_room;
      if (action.kind == Kind::compute && action.last) ended.push_back(action.request);
      return answer;
    });
    for (const RequestNumber number : ended) scheduler.ended(number);
    scheduler.check_invariants();
    return happened;
  }
};

using Steps = std::vector<std::string>;

TEST(Scheduler, computes_a_prompt_in_chunks_of_what_the_step_has_left) {
  Engine engine;
  engine.add(1, 250);
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 25 blocks for 250", "compute 1: 0 to 100"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 100 to 200"}));
  engine.add(2, 80);
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 200 to 250, last", "acquire 2: 8 blocks for 80", "compute 2: 0 to 50"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 2: 50 to 80, last"}));
  EXPECT_TRUE(engine.scheduler.empty());
  EXPECT_EQ(engine.counts.prefilled, 330);
  EXPECT_EQ(engine.counts.steps, 4);
  EXPECT_EQ(engine.counts.running_mean(), 1.25);
}

TEST(Scheduler, decodes_a_token_a_step_and_the_first_one_comes_with_the_prompt) {
  Engine engine;
  engine.add(1, 35, 3);
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 4 blocks for 35", "compute 1: 0 to 35"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 35 to 36"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 36 to 37, last"}));
  EXPECT_EQ(engine.counts.decoded, 2);
  EXPECT_EQ(engine.step(), Steps{});
  EXPECT_EQ(engine.counts.steps, 3) << "a step without work is none";
}

TEST(Scheduler, acquires_one_block_ahead_and_extends_when_that_is_full_too) {
  Engine engine;
  engine.add(1, 9, 20);
  EXPECT_EQ(engine.step().front(), "acquire 1: 2 blocks for 9");
  for (int token = 9; token < 20; ++token) EXPECT_EQ(engine.step().size(), 1U) << token;
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "compute 1: 20 to 21"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 21 to 22"}));
}

TEST(Scheduler, serves_running_requests_before_it_admits_others) {
  Engine engine{{.step_tokens = 5, .in_flight_max = 4, .block_tokens = 10}};
  engine.add(1, 3, 9);
  engine.add(2, 4, 9);
  EXPECT_EQ(engine.step(),
            (Steps{"acquire 1: 2 blocks for 3", "compute 1: 0 to 3", "acquire 2: 2 blocks for 4", "compute 2: 0 to 2"}));
  engine.add(3, 9, 9);
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 3 to 4", "compute 2: 2 to 4", "acquire 3: 2 blocks for 9", "compute 3: 0 to 2"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 4 to 5", "compute 2: 4 to 5", "compute 3: 2 to 5"}));
}

TEST(Scheduler, admits_no_more_requests_than_may_be_in_flight) {
  Engine engine{{.step_tokens = 100, .in_flight_max = 2, .block_tokens = 10}};
  EXPECT_TRUE(engine.scheduler.wants_more());
  for (RequestNumber number = 1; number <= 3; ++number) engine.add(number, 5, number == 1 ? 1 : 9);
  EXPECT_FALSE(engine.scheduler.wants_more());
  engine.step();
  EXPECT_EQ(engine.scheduler.in_flight(), 1) << "the first has ended";
  EXPECT_EQ(engine.step(), (Steps{"compute 2: 5 to 6", "acquire 3: 2 blocks for 5", "compute 3: 0 to 5"}));
}

TEST(Scheduler, lets_the_first_that_finds_no_room_hold_up_those_behind_it) {
  Engine engine;
  engine.add(1, 20, 9);
  engine.add(2, 20);
  engine.add(3, 20);
  engine.acquired[2] = {Outcome::no_room};
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 3 blocks for 20", "compute 1: 0 to 20", "acquire 2: 2 blocks for 20"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 20 to 21", "acquire 2: 2 blocks for 20"}));
  engine.acquired.clear();
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 21 to 22", "acquire 2: 2 blocks for 20", "compute 2: 0 to 20, last",
                                  "acquire 3: 2 blocks for 20", "compute 3: 0 to 20, last"}));
}

TEST(Scheduler, computes_only_what_the_cache_did_not_have) {
  Engine engine;
  engine.add(1, 35);
  engine.acquired[1] = {Outcome::done, 3};
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 4 blocks for 35", "compute 1: 30 to 35, last"}));
  EXPECT_EQ(engine.counts.prefilled, 5);
}

TEST(Scheduler, ends_a_request_of_which_nothing_is_left_to_compute) {
  Engine engine;
  engine.add(1, 30);
  engine.acquired[1] = {Outcome::done, 3};
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 3 blocks for 30", "compute 1: 30 to 30, last"}));
}

TEST(Scheduler, goes_on_with_others_while_a_request_waits_for_its_blocks) {
  Engine engine;
  engine.add(1, 35);
  engine.add(2, 15);
  engine.acquired[1] = {Outcome::pending};
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 4 blocks for 35", "acquire 2: 2 blocks for 15", "compute 2: 0 to 15, last"}));
  EXPECT_EQ(engine.step(), Steps{});
  engine.scheduler.became_ready(1, 2);
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 20 to 35, last"}));
}

TEST(Scheduler, acquires_again_what_a_request_lost_while_it_waited) {
  Engine engine;
  engine.add(1, 35);
  engine.acquired[1] = {Outcome::pending};
  engine.step();
  engine.scheduler.lost(1);
  EXPECT_EQ(engine.scheduler.in_flight(), 0);
  engine.acquired.clear();
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 4 blocks for 35", "compute 1: 0 to 35, last"}));
}

TEST(Scheduler, forgets_a_request_that_will_never_fit_and_goes_on) {
  Engine engine;
  engine.add(1, 999);
  engine.add(2, 15);
  engine.acquired[1] = {Outcome::never_fits};
  EXPECT_EQ(engine.step(), (Steps{"acquire 1: 100 blocks for 999", "acquire 2: 2 blocks for 15", "compute 2: 0 to 15, last"}));
  EXPECT_TRUE(engine.scheduler.empty());
}

/// Three requests that generate tokens. Each will soon need one more block.
Engine& three_writing(Engine& engine) {
  for (RequestNumber number = 1; number <= 3; ++number) engine.add(number, 10, 40);
  for (int i = 0; i < 11; ++i) engine.step();
  return engine;
}

TEST(Scheduler, preempts_the_youngest_which_is_the_first_to_be_taken_up_again) {
  Engine engine;
  three_writing(engine);
  engine.add(4, 10);
  bool given = false;
  engine.can_extend = [&](const Action& action) { return action.request == 1 ? std::exchange(given, true) : true; };
  EXPECT_EQ(engine.step(),
            (Steps{"extend 1 by 1", "preempt 3", "extend 1 by 1", "compute 1: 20 to 21", "extend 2 by 1", "compute 2: 20 to 21"}))
      << "and nobody is admitted in that step";
  EXPECT_EQ(engine.counts.preemptions, 1);
  // Its output is requested together with its prompt, and the next token is known.
  engine.acquired[3] = {Outcome::done, 1};
  EXPECT_EQ(engine.step(), (Steps{"compute 1: 21 to 22", "compute 2: 21 to 22", "acquire 3: 4 blocks for 21",
                                  "compute 3: 10 to 21", "acquire 4: 1 blocks for 10", "compute 4: 0 to 10, last"}));
  EXPECT_EQ(engine.counts.recomputed, 10);
  EXPECT_EQ(engine.counts.prefilled, 40);
}

TEST(Scheduler, preempts_who_waits_for_blocks_before_who_computes) {
  Engine engine;
  engine.add(1, 10, 40);
  engine.add(2, 10, 40);
  engine.add(3, 10, 40);
  engine.acquired[3] = {Outcome::pending};
  for (int i = 0; i < 11; ++i) engine.step();
  int refusals = 1;
  engine.can_extend = [&](const Action&) { return refusals-- <= 0; };
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "preempt 3", "extend 1 by 1", "compute 1: 20 to 21", "extend 2 by 1",
                                  "compute 2: 20 to 21"}));
  EXPECT_EQ(engine.scheduler.in_flight(), 2);
}

TEST(Scheduler, has_a_request_that_is_the_youngest_itself_give_way) {
  Engine engine;
  three_writing(engine);
  engine.can_extend = [](const Action& action) { return action.request != 3; };
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "compute 1: 20 to 21", "extend 2 by 1", "compute 2: 20 to 21", "extend 3 by 1",
                                  "preempt 3"}));
}

TEST(Scheduler, never_preempts_the_oldest_which_leaves_out_a_step_instead) {
  Engine engine;
  three_writing(engine);
  engine.can_extend = [](const Action&) { return false; };
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "preempt 3", "extend 1 by 1", "preempt 2", "extend 1 by 1"}));
  engine.acquired[2] = {Outcome::no_room};
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "acquire 2: 4 blocks for 21"}));
  engine.can_extend = [](const Action&) { return true; };
  EXPECT_EQ(engine.step(), (Steps{"extend 1 by 1", "compute 1: 20 to 21", "acquire 2: 4 blocks for 21"}));
}

TEST(Scheduler, aborts_a_request_wherever_it_is) {
  Engine engine;
  engine.add(1, 150, 20, AbortPoint{.waiting = false, .tokens = 60});
  engine.add(2, 5, 20, AbortPoint{.waiting = false, .tokens = 7});
  engine.add(3, 5, 20, AbortPoint{.waiting = true});
  engine.add(4, 5, 20, AbortPoint{});
  engine.acquired[4] = {Outcome::pending};
  EXPECT_EQ(engine.step(), (Steps{"abort 3", "acquire 1: 16 blocks for 150", "compute 1: 0 to 100"}));
  EXPECT_EQ(engine.step(), (Steps{"abort 1", "acquire 2: 2 blocks for 5", "compute 2: 0 to 5", "acquire 4: 2 blocks for 5"}));
  EXPECT_EQ(engine.step(), (Steps{"abort 4", "compute 2: 5 to 6"}));
  EXPECT_EQ(engine.step(), (Steps{"compute 2: 6 to 7"}));
  EXPECT_EQ(engine.step(), (Steps{"abort 2"}));
  EXPECT_TRUE(engine.scheduler.empty());
  EXPECT_EQ(engine.scheduler.in_flight(), 0);
  EXPECT_EQ(engine.counts.aborted, 4);
}

/// A cache of a number of blocks, without content. It tracks who holds which blocks, and that nobody holds blocks that do not
/// exist.
class Room {
 public:
  Room(std::uint32_t blocks, Random& random) : free_{blocks}, random_{random} {}

  Answer answer(const Action& action) {
    switch (action.kind) {
      case Kind::abort:
      case Kind::preempt: give_back(action.request); break;
      case Kind::extend: return take(action.request, action.blocks) ? Answer{} : Answer{Outcome::no_room};
      case Kind::acquire: {
        if (!take(action.request, action.blocks)) return {Outcome::no_room};
        if (random_.chance(0.3)) {
          pending_.push_back(action.request);
          return {Outcome::pending};
        }
        return {Outcome::done, hits(action.tokens.to)};
      }
      default: break;
    }
    return {};
  }
  void give_back(RequestNumber number) {
    free_ += held_[number];
    held_.erase(number);
    std::erase(pending_, number);
  }
  void let_some_arrive(Scheduler& scheduler, const std::map<RequestNumber, std::uint64_t>& prompts) {
    for (const RequestNumber number : std::vector{pending_}) {
      if (random_.chance(0.5)) continue;
      std::erase(pending_, number);
      if (random_.chance(0.2)) {
        give_back(number);
        scheduler.lost(number);
      } else {
        scheduler.became_ready(number, hits(prompts.at(number)));
      }
    }
  }
  [[nodiscard]] bool idle() const { return held_.empty(); }

 private:
  bool take(RequestNumber number, std::uint32_t blocks) {
    if (blocks > free_) return false;
    free_ -= blocks;
    held_[number] += blocks;
    return true;
  }
  std::uint32_t hits(std::uint64_t tokens) { return static_cast<std::uint32_t>(random_.below((tokens - 1) / 10 + 1)); }

  std::uint32_t free_;
  Random& random_;
  std::map<RequestNumber, std::uint32_t> held_;
  std::vector<RequestNumber> pending_;
};

TEST(Scheduler, brings_every_request_to_its_end_whatever_the_cache_does) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    Room room{24, random};
    Engine engine{{.step_tokens = random.between(1, 60), .in_flight_max = 6, .block_tokens = 10}};
    std::map<RequestNumber, std::uint64_t> prompts;
    std::map<RequestNumber, std::uint64_t> reached;  // by requests that have computed anything
    std::map<RequestNumber, std::uint64_t> outputs;
    std::uint64_t ended_total = 0;
    RequestNumber last = 0;
    int steps = 0;
    while (last < 40 || !engine.scheduler.empty()) {
      ASSERT_LT(++steps, 20'000);
      while (last < 40 && engine.scheduler.wants_more()) {
        prompts[++last] = random.between(1, 120);
        outputs[last] = random.between(0, 110);
        Aborts aborts{seed * 100 + last, 0.2};
        engine.add(last, prompts[last], outputs[last], aborts.draw(prompts[last], outputs[last]));
      }
      std::vector<RequestNumber> ended;
      std::uint64_t tokens = 0;
      engine.scheduler.step([&](const Action& action) {
        engine.scheduler.check_invariants();
        if (action.kind == Kind::compute) {
          tokens += action.tokens.size();
          reached[action.request] = action.tokens.to;
        }
        if (action.last) {
          EXPECT_EQ(action.tokens.to, tokens_computed(prompts[action.request], outputs[action.request]));
          ended.push_back(action.request);
        }
        return room.answer(action);
      });
      ASSERT_LE(tokens, 60U);
      for (const RequestNumber number : ended) {
        room.give_back(number);
        engine.scheduler.ended(number);
        ++ended_total;
      }
      room.let_some_arrive(engine.scheduler, prompts);
      engine.scheduler.check_invariants();
    }
    EXPECT_TRUE(room.idle());
    EXPECT_EQ(ended_total + engine.counts.aborted, 40U);
    EXPECT_GT(engine.counts.preemptions + engine.counts.aborted, 0U);
  }
}

TEST(Aborts, come_at_the_rate_that_was_asked_for) {
  for (const double rate : {0.0, 0.25, 1.0}) {
    Aborts aborts{1, rate};
    int drawn = 0;
    for (int i = 0; i < 4000; ++i) drawn += aborts.draw(100, 10) ? 1 : 0;
    EXPECT_NEAR(drawn, 4000 * rate, 120);
  }
}

TEST(Aborts, come_at_every_point_of_a_life) {
  Aborts aborts{2, 1.0};
  int waiting = 0;
  int at_once = 0;
  int in_prompt = 0;
  int in_output = 0;
  for (int i = 0; i < 4000; ++i) {
    const AbortPoint point = aborts.draw(100, 10).value();
    waiting += point.waiting ? 1 : 0;
    at_once += !point.waiting && point.tokens == 0 ? 1 : 0;
    in_prompt += point.tokens > 0 && point.tokens <= 100 ? 1 : 0;
    in_output += point.tokens > 100 ? 1 : 0;
    ASSERT_LE(point.tokens, 110U);
  }
  for (const int count : {waiting, at_once, in_prompt, in_output}) EXPECT_NEAR(count, 1000, 120);
}

TEST(Aborts, are_the_same_for_the_same_seed) {
  Aborts one{3, 0.5};
  Aborts same{3, 0.5};
  Aborts other{4, 0.5};
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const auto point = one.draw(1000, 100);
    EXPECT_EQ(same.draw(1000, 100), point);
    differ += other.draw(1000, 100) != point ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

}  // namespace
}  // namespace terrace::tools
