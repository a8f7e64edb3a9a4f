#include "storage/resilience/circuit_breaker.hpp"
#include "base/random.hpp"
#include "tests/storage/blocks.hpp"

#include <boost/system/generic_category.hpp>
#include <boost/system/system_category.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <stdexcept>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using Admission = CircuitBreaker::Admission;
using Outcome = CircuitBreaker::Outcome;
using State = CircuitBreaker::State;

TEST(ErrorClasses, of_every_code) {
  const std::pair<Errc, ErrorClass> codes[] = {
      {Errc::ok, ErrorClass::none},
      {Errc::invalid_argument, ErrorClass::refused},
      {Errc::no_room, ErrorClass::full},
      {Errc::never_fits, ErrorClass::refused},
      {Errc::unknown_request, ErrorClass::refused},
      {Errc::duplicate_request, ErrorClass::refused},
      {Errc::not_ready, ErrorClass::refused},
      {Errc::not_found, ErrorClass::missing},
      {Errc::corrupt, ErrorClass::corrupt},
      {Errc::parent_missing, ErrorClass::missing},
      {Errc::full, ErrorClass::full},
      {Errc::io_failed, ErrorClass::transient},
      {Errc::load_failed, ErrorClass::transient},
      {Errc::refused, ErrorClass::refused},
      {Errc::cancelled, ErrorClass::refused},
      {Errc::deadline_exceeded, ErrorClass::transient},
      {Errc::incompatible, ErrorClass::refused},
      {Errc::in_use, ErrorClass::refused},
      {Errc::paused, ErrorClass::refused},
      {Errc::cleared, ErrorClass::refused},
      {Errc::stopped, ErrorClass::refused},
  };
  EXPECT_EQ(std::size(codes), static_cast<std::size_t>(Errc::stopped) + 1) << "a code that the table lacks";
  for (const auto& [code, expected] : codes) EXPECT_EQ(class_of(code), expected) << make_error_code(code).message();
}

TEST(ErrorClasses, of_what_the_system_reports) {
  const std::pair<int, ErrorClass> codes[] = {
      {0, ErrorClass::none},           {ENOENT, ErrorClass::missing},      {EIO, ErrorClass::transient},
      {EAGAIN, ErrorClass::transient}, {ETIMEDOUT, ErrorClass::transient}, {ENODEV, ErrorClass::transient},
      {EILSEQ, ErrorClass::corrupt},   {EBADMSG, ErrorClass::corrupt},     {ENOSPC, ErrorClass::full},
      {EDQUOT, ErrorClass::full},      {EACCES, ErrorClass::refused},      {EINVAL, ErrorClass::refused},
      {EROFS, ErrorClass::refused},    {12345, ErrorClass::refused},
  };
  for (const auto& [code, expected] : codes) {
    EXPECT_EQ(class_of({code, boost::system::generic_category()}), expected) << code;
    EXPECT_EQ(class_of({code, boost::system::system_category()}), expected) << code;
  }
  EXPECT_EQ(class_of({}), ErrorClass::none);
}

class CircuitBreakerTest : public testing::Test {
 protected:
  static constexpr BreakerOptions options{
      .failures_max = 3, .window = milliseconds{100}, .probe_first = milliseconds{10}, .probe_max = milliseconds{35}};
  void end(Outcome outcome) { breaker.ended(Admission::passed, outcome, now); }
  void fail(int times) {
    for (int i = 0; i < times; ++i) end(Outcome::failed);
  }
  void end_probe(Outcome outcome) {
    ASSERT_EQ(breaker.admit(now), Admission::probe);
    breaker.ended(Admission::probe, outcome, now);
    breaker.check_invariants();
  }

  TimePoint now{std::chrono::hours{1}};
  CircuitBreaker breaker{options};
};

TEST_F(CircuitBreakerTest, opens_after_failures_in_a_row) {
  fail(2);
  EXPECT_EQ(breaker.admit(now), Admission::passed);
  EXPECT_EQ(breaker.next_probe(), never);
  fail(1);
  EXPECT_EQ(breaker.state(), State::open);
  EXPECT_EQ(breaker.admit(now), Admission::declined);
  EXPECT_EQ(breaker.next_probe(), now + milliseconds{10});
  EXPECT_EQ(breaker.opened(), 1U);
}

TEST_F(CircuitBreakerTest, forgets_failures_at_a_success_and_at_nothing_less) {
  fail(2);
  end(Outcome::succeeded);
  fail(2);
  end(Outcome::unclear);
  EXPECT_EQ(breaker.state(), State::closed);
  fail(1);
  EXPECT_EQ(breaker.state(), State::open);
}

TEST_F(CircuitBreakerTest, stays_closed_where_failures_are_far_between) {
  for (int i = 0; i < 50; ++i) {
    fail(1);
    now += milliseconds{51};  // three of them take 102
    ASSERT_EQ(breaker.state(), State::closed);
    breaker.check_invariants();
  }
  now -= milliseconds{1};
  fail(1);
  EXPECT_EQ(breaker.state(), State::closed) << "the first of three was 101 ago";
  now += milliseconds{50};
  fail(1);
  EXPECT_EQ(breaker.state(), State::open) << "and now 100";
}

TEST_F(CircuitBreakerTest, opens_where_failures_in_a_row_took_as_long_as_the_window) {
  const auto fail_after = [&](milliseconds spent) { breaker.ended(Admission::passed, Outcome::failed, now, spent); };
  fail_after(milliseconds{99});
  end(Outcome::succeeded);
  now += milliseconds{1000};
  fail_after(milliseconds{50});
  now += milliseconds{20};
  fail_after(milliseconds{60});  // 40 of them were before the other one had ended
  EXPECT_EQ(breaker.state(), State::closed);
  breaker.check_invariants();
  now += milliseconds{1000};  // the third of three failures that were far between
  fail_after(milliseconds{30});
  EXPECT_EQ(breaker.state(), State::open) << "50, 20 and 30";
  breaker.check_invariants();
  now = breaker.next_probe();
  end_probe(Outcome::succeeded);
  fail_after(milliseconds{99});
  EXPECT_EQ(breaker.state(), State::closed) << "former failures are forgotten";
  fail_after(milliseconds{99});
  EXPECT_EQ(breaker.state(), State::closed) << "at the same time";
}

TEST_F(CircuitBreakerTest, opens_for_a_device_that_stands_still) {
  breaker.stands_still(now);
  EXPECT_EQ(breaker.state(), State::open);
  breaker.check_invariants();
  const TimePoint probe = breaker.next_probe();
  now += milliseconds{1};
  breaker.stands_still(now);
  EXPECT_EQ(breaker.next_probe(), probe);
  now = probe;
  end_probe(Outcome::succeeded);
  EXPECT_EQ(breaker.state(), State::closed);
}

TEST_F(CircuitBreakerTest, lets_one_probe_through_and_closes_when_it_succeeds) {
  fail(3);
  now += milliseconds{9};
  EXPECT_EQ(breaker.admit(now), Admission::declined);
  now += milliseconds{1};
  EXPECT_EQ(breaker.admit(now), Admission::probe);
  EXPECT_EQ(breaker.state(), State::half_open);
  EXPECT_EQ(breaker.admit(now), Admission::declined) << "one at a time";
  breaker.ended(Admission::probe, Outcome::succeeded, now);
  EXPECT_EQ(breaker.state(), State::closed);
  fail(2);
  EXPECT_EQ(breaker.state(), State::closed) << "former failures are forgotten";
}

TEST_F(CircuitBreakerTest, waits_twice_as_long_after_each_probe_that_fails_up_to_a_bound) {
  fail(3);
  for (const int wait : {10, 20, 35, 35}) {
    EXPECT_EQ(breaker.next_probe(), now + milliseconds{wait});
    now = breaker.next_probe();
    end_probe(Outcome::failed);
  }
  EXPECT_EQ(breaker.failed_probes(), 4U);
  now = breaker.next_probe();
  end_probe(Outcome::succeeded);
  fail(3);
  EXPECT_EQ(breaker.next_probe(), now + milliseconds{10}) << "from the beginning again";
}

TEST_F(CircuitBreakerTest, probes_again_at_once_where_a_probe_told_nothing) {
  fail(3);
  now = breaker.next_probe();
  end_probe(Outcome::unclear);
  EXPECT_EQ(breaker.state(), State::half_open);
  end_probe(Outcome::succeeded);
  EXPECT_EQ(breaker.state(), State::closed);
}

TEST_F(CircuitBreakerTest, hears_nothing_from_stragglers) {
  fail(3);
  const TimePoint probe = breaker.next_probe();
  end(Outcome::succeeded);
  fail(5);
  EXPECT_EQ(breaker.state(), State::open);
  EXPECT_EQ(breaker.next_probe(), probe);
  EXPECT_EQ(breaker.opened(), 1U);
}

TEST_F(CircuitBreakerTest, says_what_it_does) {
  EXPECT_EQ(breaker.describe(now), "the tier is in use");
  fail(1);
  EXPECT_EQ(breaker.describe(now), "the tier is in use; its last 1 operations failed");
  fail(2);
  EXPECT_EQ(breaker.describe(now), "the tier is not used after 3 failures in a row; it is tried again in 10 ms");
  now = breaker.next_probe();
  end_probe(Outcome::failed);
  EXPECT_EQ(breaker.describe(now), "the tier is not used, and 1 probes of it failed; it is tried again in 20 ms");
}

TEST_F(CircuitBreakerTest, refuses_options_that_make_no_sense) {
  EXPECT_THROW(CircuitBreaker({.failures_max = 0}), std::invalid_argument);
  EXPECT_THROW(CircuitBreaker({.window = {}}), std::invalid_argument);
  EXPECT_THROW(CircuitBreaker({.probe_first = {}}), std::invalid_argument);
  EXPECT_THROW(CircuitBreaker({.probe_first = milliseconds{2}, .probe_max = milliseconds{1}}), std::invalid_argument);
}

/// Compared with a list of all failures since the last success.
TEST_F(CircuitBreakerTest, agrees_with_a_plain_model_at_random) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  std::deque<TimePoint> failures;
  std::uint64_t opened = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (random.chance(0.5)) now += milliseconds{random.below(60)};
    const State before = breaker.state();
    const Admission admission = breaker.admit(now);
    if (before == State::closed) {
      ASSERT_EQ(admission, Admission::passed);
    }
    if (before == State::open) {
      ASSERT_EQ(admission, now >= breaker.next_probe() ? Admission::probe : Admission::declined);
    }
    if (admission == Admission::declined) continue;
    const auto outcome = static_cast<Outcome>(random.chance(0.6) ? 1 : random.below(3));
    breaker.ended(admission, outcome, now);
    breaker.check_invariants();
    if (admission == Admission::probe) {
      const State after = outcome == Outcome::succeeded ? State::closed
                          : outcome == Outcome::failed  ? State::open
                                                        : State::half_open;
      ASSERT_EQ(breaker.state(), after);
      opened += after == State::open;
      failures.clear();
      continue;
    }
    if (outcome == Outcome::succeeded) failures.clear();
    if (outcome == Outcome::failed) failures.push_back(now);
    const bool opens =
        outcome == Outcome::failed && failures.size() >= 3 && now - failures[failures.size() - 3] <= milliseconds{100};
    ASSERT_EQ(breaker.state(), opens ? State::open : State::closed);
    opened += opens;
  }
  EXPECT_EQ(breaker.opened(), opened);
  EXPECT_GT(opened, 1000U);
}

}  // namespace
}  // namespace terrace::test
