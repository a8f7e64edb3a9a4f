// The hints of an orchestrator that knows the whole trace.

#include "tools/replay/workload/hints.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::uint32_t block_tokens = 16;

TraceRequest request(double at_ms, std::vector<std::uint64_t> blocks) {
  const auto tokens = static_cast<std::uint32_t>(blocks.size() * block_tokens);
  return {.timestamp_ms = at_ms, .input_tokens = tokens, .output_tokens = 1, .hash_ids = std::move(blocks), .output_ids = {}};
}

/// A session of two requests with 10 s between them, one of two requests with 100 s, and one of a single request.
const std::vector<TraceRequest>& sessions() {
  static const std::vector<TraceRequest> all{request(0, {1, 2}), request(1'000, {11, 12}), request(2'000, {21, 22}),
                                             request(10'000, {1, 2, 3}), request(101'000, {11, 12, 13})};
  return all;
}

std::vector<std::optional<Oracle::Hint>> told(const Oracle::Options& options, const std::vector<TraceRequest>& requests) {
  Oracle oracle{options};
  for (const TraceRequest& each : requests) oracle.add(each, block_tokens);
  oracle.prepare();
  std::vector<std::optional<Oracle::Hint>> hints;
  for (std::size_t i = 0; i < oracle.requests(); ++i) hints.push_back(oracle.after(i));
  return hints;
}

bool ends(const std::optional<Oracle::Hint>& hint) { return hint && !hint->uses; }
bool returns(const std::optional<Oracle::Hint>& hint) { return hint && hint->uses; }

TEST(OracleTest, tells_the_ends_of_sessions) {
  const auto hints = told({.hints = Hints::ended}, sessions());
  EXPECT_FALSE(hints[0]);
  EXPECT_FALSE(hints[1]);
  EXPECT_TRUE(ends(hints[2]));
  EXPECT_TRUE(ends(hints[3]));
  EXPECT_TRUE(ends(hints[4]));
}

TEST(OracleTest, tells_of_returns_within_a_minute_in_requests) {
  const auto hints = told({.hints = Hints::returns}, sessions());
  ASSERT_TRUE(returns(hints[0]));
  // 10 s, at a request every 20.2 s, and an error of a factor of 1.6 or a little more.
  EXPECT_GT(*hints[0]->uses, 0.5 / 5);
  EXPECT_LT(*hints[0]->uses, 0.5 * 5);
  for (std::size_t i = 1; i < hints.size(); ++i) EXPECT_FALSE(hints[i]) << i;
}

TEST(OracleTest, tells_both) {
  const auto hints = told({.hints = Hints::oracle}, sessions());
  EXPECT_TRUE(returns(hints[0]) && !hints[1] && ends(hints[2]) && ends(hints[3]) && ends(hints[4]));
}

TEST(OracleTest, a_common_beginning_makes_no_session) {
  std::vector<TraceRequest> requests;
  for (std::uint64_t i = 0; i < 9; ++i) requests.push_back(request(static_cast<double>(i) * 1'000, {1, 100 + i}));
  for (const auto& hint : told({.hints = Hints::ended}, requests)) EXPECT_TRUE(ends(hint));
}

TEST(OracleTest, leaves_hints_out_and_tells_wrong_ones) {
  std::vector<TraceRequest> requests;  // each odd request is the last of its session
  for (std::uint64_t i = 0; i < 4'000; ++i)
    requests.push_back(request(static_cast<double>(i) * 100'000, {i / 2, 10'000 + i / 2}));
  const auto count = [&](const Oracle::Options& options, std::size_t of) {
    const auto hints = told(options, requests);
    std::size_t found = 0;
    for (std::size_t i = of; i < hints.size(); i += 2) found += hints[i] ? 1 : 0;
    return static_cast<double>(found);
  };
  EXPECT_EQ(count({.hints = Hints::ended}, 1), 2'000);
  EXPECT_EQ(count({.hints = Hints::ended}, 0), 0);
  EXPECT_NEAR(count({.hints = Hints::ended, .missing = 0.5}, 1), 1'000, 100);
  EXPECT_EQ(count({.hints = Hints::ended, .missing = 1}, 1), 0);
  // One in five of all that are told.
  EXPECT_NEAR(count({.hints = Hints::ended, .wrong = 0.2}, 0), 500, 80);
  EXPECT_EQ(count({.hints = Hints::none}, 1), 0);
}

}  // namespace
}  // namespace terrace::tools
