#include "tools/plan/request_log.hpp"

#include "tests/tools/plan/logs.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

using test::log_of;

TEST(RequestLog, numbers_blocks_by_their_first_use_and_gives_back_each_prompt) {
  const RequestLog log = log_of({{7, 8, 9}, {7, 8}, {}, {7, 5}, {8}});
  EXPECT_EQ(log.different_blocks(), 5U);
  EXPECT_EQ(log.blocks(), 8U);
  EXPECT_EQ(log.longest(), 3U);
  EXPECT_EQ(log.seconds(), 4);
  std::vector<std::vector<BlockNumber>> prompts;
  for (const RequestLog::Request& request : log.requests()) log.read(request, prompts.emplace_back());
  // The id 8 at the beginning of a prompt is not the block 8 behind 7.
  EXPECT_EQ(prompts, (std::vector<std::vector<BlockNumber>>{{0, 1, 2}, {0, 1}, {}, {0, 3}, {4}}));
  EXPECT_NE(log.key(1), log.key(4));
}

TEST(RequestLog, counts_full_blocks_and_all_tokens) {
  RequestLog log{root_key({}), 10};
  log.add({.timestamp_ms = 5000, .input_tokens = 29, .output_tokens = 3, .hash_ids = {1, 2, 3}, .output_ids = {}});
  log.add({.timestamp_ms = 2000, .input_tokens = 9, .output_tokens = 3, .hash_ids = {4}, .output_ids = {}});
  EXPECT_EQ(log.blocks(), 2U);
  EXPECT_EQ(log.tokens(), 38U);
  EXPECT_EQ(log.seconds(), 3) << "timestamps in any order";
}

TEST(RequestLog, counts_the_blocks_that_a_small_cache_can_keep) {
  const RequestLog log = log_of({{1, 2, 3}, {1}, {4, 5}});
  EXPECT_EQ(log.blocks_within(0), 0U);
  EXPECT_EQ(log.blocks_within(2), 5U);
  EXPECT_EQ(log.blocks_within(3), 6U);
}

}  // namespace
}  // namespace terrace::tools
