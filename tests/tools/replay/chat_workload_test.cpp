#include "tools/replay/workload/workloads.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace terrace::tools {
namespace {

std::vector<TraceRequest> make_chats(std::uint64_t seed, std::size_t requests, std::uint32_t block_tokens = 64) {
  const std::unique_ptr<RequestSource> workload = chat_workload(seed, block_tokens);
  std::vector<TraceRequest> made;
  while (made.size() < requests) made.push_back(workload->next().value());
  return made;
}

TEST(ChatWorkload, is_the_same_for_the_same_seed_and_another_for_another) {
  EXPECT_EQ(make_chats(7, 500), make_chats(7, 500));
  EXPECT_NE(make_chats(7, 500), make_chats(8, 500));
}

TEST(ChatWorkload, stays_the_same_from_release_to_release) {
  // A change here changes everybody's results, so it must be intended.
  const std::vector<TraceRequest> requests = make_chats(1, 1000);
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  for (const TraceRequest& request : requests) {
    input += request.input_tokens;
    output += request.output_tokens;
  }
  EXPECT_EQ(input, 1'553'961);
  EXPECT_EQ(output, 313'019);
}

TEST(ChatWorkload, ids_form_a_tree_where_each_has_one_predecessor) {
  std::map<std::uint64_t, std::uint64_t> predecessor;
  for (const TraceRequest& request : make_chats(3, 2000)) {
    std::uint64_t before = 0;
    for (const std::uint64_t id : request.hash_ids) {
      const auto [at, is_new] = predecessor.emplace(id, before);
      ASSERT_EQ(at->second, before);
      before = id;
    }
  }
  EXPECT_GT(predecessor.size(), 1000);
}

TEST(ChatWorkload, names_every_full_block_and_comes_in_order) {
  double last = 0;
  for (const TraceRequest& request : make_chats(4, 2000, 100)) {
    ASSERT_EQ(request.hash_ids.size(), request.input_tokens / 100);
    ASSERT_GE(request.timestamp_ms, last);
    last = request.timestamp_ms;
  }
}

TEST(ChatWorkload, shares_system_prompts_and_repeats_what_was_said) {
  std::map<std::uint64_t, int> seen;
  std::uint64_t blocks = 0;
  std::uint64_t again = 0;
  for (const TraceRequest& request : make_chats(5, 2000)) {
    for (const std::uint64_t id : request.hash_ids) {
      ++blocks;
      if (++seen[id] > 1) ++again;
    }
  }
  EXPECT_GT(again * 2, blocks);
}

}  // namespace
}  // namespace terrace::tools
