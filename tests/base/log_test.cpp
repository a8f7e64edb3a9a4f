#include "base/log.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using Lines = std::vector<std::pair<LogLevel, std::string>>;

class Collected final : public LogSink {
 public:
  void write(LogLevel level, std::string_view sentence) override {
    if (first_) std::exchange(first_, nullptr)->wait();
    lines.emplace_back(level, sentence);
  }
  /// The first write blocks until `freed` is ready.
  void block_until(const std::shared_future<void>& freed) { first_ = &freed; }

  Lines lines;

 private:
  const std::shared_future<void>* first_ = nullptr;
};

void say(Log& log, const std::string& sentence, std::string_view topic = "tests", LogLevel level = LogLevel::warning) {
  log.write(level, topic, [&] { return sentence; });
}

TEST(LogTest, hands_on_what_is_wanted_in_order_and_all_of_it_before_it_ends) {
  Collected sink;
  const ManualClock clock;
  {
    Log log{{.sink = &sink}, clock};
    say(log, "a");
    say(log, "not wanted", "tests", LogLevel::info);
    say(log, "b", "tests", LogLevel::error);
  }
  EXPECT_EQ(sink.lines, (Lines{{LogLevel::warning, "a"}, {LogLevel::error, "b"}}));
}

TEST(LogTest, uses_no_sink_after_its_end) {
  const ManualClock clock;
  auto sink = std::make_unique<Collected>();
  Log log{{.sink = sink.get()}, clock};
  say(log, "a");
  log.end();
  EXPECT_EQ(sink->lines, (Lines{{LogLevel::warning, "a"}}));
  sink.reset();
  say(log, "b");
  log.end();
}

TEST(LogTest, makes_no_sentence_that_nobody_wants) {
  Collected sink;
  const ManualClock clock;
  Log none{{}, clock};
  Log errors{{.sink = &sink, .least = LogLevel::error}, clock};
  const auto make = []() -> std::string {
    ADD_FAILURE() << "was made";
    return "";
  };
  none.write(LogLevel::error, "tests", make);
  errors.write(LogLevel::warning, "tests", make);
}

TEST(LogTest, says_only_so_much_of_one_topic_and_how_much_it_left_out) {
  Collected sink;
  ManualClock clock;
  {
    Log log{{.sink = &sink, .per_period = 2, .period = std::chrono::seconds{10}}, clock};
    for (const char* const sentence : {"a", "b", "c", "d"}) say(log, sentence);
    say(log, "x", "others");
    clock.advance(std::chrono::seconds{10});
    for (const char* const sentence : {"e", "f", "g"}) say(log, sentence);
  }
  EXPECT_EQ(sink.lines, (Lines{{LogLevel::warning, "a"},
                               {LogLevel::warning, "b"},
                               {LogLevel::warning, "x"},
                               {LogLevel::warning, "e (2 more about tests were left out)"},
                               {LogLevel::warning, "f"},
                               {LogLevel::warning, "1 more about tests were left out"}}));
}

TEST(LogTest, never_waits_for_a_sink_that_stands_still) {
  Collected sink;
  std::promise<void> freed;
  const std::shared_future<void> when{freed.get_future()};
  sink.block_until(when);
  const ManualClock clock;
  {
    Log log{{.sink = &sink, .per_period = 1000, .waiting_max = 3}, clock};
    // All calls return although the sink does not: one line may be with the sink, and three wait.
    for (int i = 0; i < 100; ++i) say(log, std::to_string(i));
    freed.set_value();
  }
  ASSERT_GE(sink.lines.size(), 4U);
  ASSERT_LE(sink.lines.size(), 5U);
  EXPECT_EQ(sink.lines.front().second, "0");
  EXPECT_NE(sink.lines.back().second.find("more about tests were left out"), std::string::npos);
}

}  // namespace
}  // namespace terrace
