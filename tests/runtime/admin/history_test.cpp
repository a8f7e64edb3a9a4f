// The history of the last hour, without threads and without time.

#include "runtime/admin/history/history.hpp"

#include "terrace/clock.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace::admin {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

class AdminHistory : public ::testing::Test {
 protected:
  void pass(std::chrono::seconds time) {
    clock.advance(time);
    wall += time;
  }
  void look() { history.look(moment, clock.now(), wall); }
  void slow(std::uint64_t id, double seconds) { moment.slowest.push_back({id, seconds, "storage", clock.now()}); }
  /// The minutes, the oldest first.
  [[nodiscard]] std::vector<json::value> minutes(std::optional<History::WallTime> at = {}) const {
    const json::array all = history.to_json(at);
    return {all.begin(), all.end()};
  }
  /// "TEXT" or "TEXT xTIMES", of the last minute.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> texts;
    const json::array all = minutes().back().at("events").as_array();
    for (const json::value& event : all) {
      const auto times = event.at("times").to_number<std::uint64_t>();
      texts.push_back(std::string{event.at("text").as_string()} + (times == 1 ? "" : " x" + std::to_string(times)));
    }
    return texts;
  }
  [[nodiscard]] static std::vector<std::uint64_t> slowest(const json::value& minute) {
    std::vector<std::uint64_t> ids;
    for (const json::value& each : minute.at("slowest").as_array()) ids.push_back(each.at("id").to_number<std::uint64_t>());
    return ids;
  }

  using Texts = std::vector<std::string>;
  using Ids = std::vector<std::uint64_t>;

  ManualClock clock;
  History::WallTime wall{1'000'000'020s};  // a minute begins
  Moment moment;
  History history;
};

TEST_F(AdminHistory, counts_in_each_minute_what_was_waited_for) {
  moment.waits = {{"room", 5, 1.0}, {"storage", 7, 2.0}};
  moment.moved_bytes = {{"swap_in", 100}};
  look();
  pass(1s);
  moment.waits = {{"room", 5, 1.0}, {"storage", 9, 3.5}};
  moment.moved_bytes = {{"swap_in", 140}};
  moment.ready_at_once = 3;
  moment.queued_blocks = 8;
  moment.queued_seconds = 0.25;
  look();
  moment.queued_blocks = 2;
  look();
  pass(60s);
  look();
  ASSERT_EQ(minutes().size(), 2U);
  const json::value first = minutes().front();
  EXPECT_EQ(first.at("begin").to_number<std::int64_t>(), 1'000'000'020);
  EXPECT_EQ(json::serialize(first.at("waits")), R"({"at_once":3,"storage":{"requests":2,"seconds":1.5E0}})");
  EXPECT_EQ(json::serialize(first.at("moved_bytes")), R"({"swap_in":40})");
  EXPECT_EQ(json::serialize(first.at("queue")), R"({"blocks":8,"oldest_seconds":2.5E-1})");
  EXPECT_EQ(json::serialize(minutes().back().at("waits")), R"({"at_once":0})");
}

TEST_F(AdminHistory, keeps_the_slowest_waits_of_each_minute_once) {
  look();
  for (std::uint64_t id = 1; id <= 7; ++id) slow(id, static_cast<double>(id % 4));
  pass(1s);
  look();
  look();
  EXPECT_EQ(slowest(minutes().back()), (Ids{3, 7, 2, 6, 1}));
  pass(59s);
  moment.slowest.erase(moment.slowest.begin());  // the others ended in the minute before, too
  slow(7, 3);                                    // another request with the same number
  look();
  ASSERT_EQ(minutes().size(), 2U);
  EXPECT_EQ(slowest(minutes().front()), (Ids{3, 7, 2, 6, 1}));
  EXPECT_EQ(slowest(minutes().back()), Ids{7});
  EXPECT_EQ(minutes().back().at("slowest").at(0).at("ended").to_number<double>(), 1'000'000'080.0);
}

TEST_F(AdminHistory, tells_what_changed) {
  moment.values = {{"host blocks", "100"}};
  moment.troubles = {{"blocks did not arrive", 4}};
  look();
  EXPECT_EQ(events(), Texts{}) << "how it begins is no event";
  moment.values = {{"host blocks", "50"}, {"write-back job 1", "running"}};
  moment.troubles.front().amount = 6;
  moment.reasons = {"storage is slow: 3 reads in 1.5 s"};
  look();
  EXPECT_EQ(events(), (Texts{"storage is slow: 3 reads in 1.5 s", "host blocks: 50, before 100", "write-back job 1: running",
                             "blocks did not arrive x2"}));
  moment.reasons = {"storage is slow: 4 reads in 2.5 s"};
  moment.troubles.front().amount = 7;
  look();
  EXPECT_EQ(events().size(), 4U) << "the same reason with other numbers goes on";
  EXPECT_EQ(events().back(), "blocks did not arrive x3");
  moment.reasons.clear();
  look();
  EXPECT_EQ(events().back(), "over: storage is slow: 4 reads in 2.5 s");
}

TEST_F(AdminHistory, keeps_an_hour_and_shows_the_minutes_around_a_time) {
  for (int minute = 0; minute < 100; ++minute) {
    history.note("minute " + std::to_string(minute), wall);
    pass(60s);
  }
  ASSERT_EQ(minutes().size(), History::minutes_max);
  EXPECT_EQ(minutes().front().at("events").at(0).at("text").as_string(), "minute 39");
  const auto around = minutes(wall - 10min);
  ASSERT_EQ(around.size(), 5U);
  EXPECT_EQ(around.front().at("events").at(0).at("text").as_string(), "minute 88");
  EXPECT_EQ(minutes(wall - 2h).size(), 0U);
}

TEST_F(AdminHistory, is_bounded_whatever_happens) {
  for (std::size_t n = 0; n < History::events_max + 3; ++n) history.note(std::string(1000, 'x') + std::to_string(n), wall);
  EXPECT_EQ(events(), Texts{std::string(History::text_max, 'x') + " x" + std::to_string(History::events_max + 3)});
  for (std::size_t n = 0; n < History::events_max + 3; ++n) history.note(std::to_string(n), wall);
  EXPECT_EQ(events().size(), History::events_max);
  EXPECT_EQ(minutes().back().at("events_left_out").to_number<std::uint64_t>(), 4U);
}

TEST_F(AdminHistory, cuts_no_character_in_two) {
  const std::string fits(History::text_max - 1, 'x');
  history.note(fits + "\u00e9", wall);
  EXPECT_EQ(events(), Texts{fits});
}

TEST_F(AdminHistory, a_clock_that_is_set_back_makes_no_minute_twice) {
  history.note("before", wall);
  history.note("after", wall - 30min);
  ASSERT_EQ(minutes().size(), 1U);
  EXPECT_EQ(events(), (Texts{"before", "after"}));
}

}  // namespace
}  // namespace terrace::admin
