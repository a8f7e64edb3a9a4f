#include "tools/replay/workload/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

/// The promises of all built-in workloads.
class Workloads : public testing::TestWithParam<std::string_view> {
 protected:
  static std::vector<TraceRequest> make(std::uint64_t seed, std::size_t requests, std::uint32_t block_tokens = 64) {
    const Workload workload = make_workload(GetParam(), seed, block_tokens);
    std::vector<TraceRequest> made;
    while (made.size() < requests) made.push_back(workload.requests->next().value());
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Workloads, testing::ValuesIn(workload_names),
                         [](const auto& row) { return std::string{row.param}; });

TEST_P(Workloads, are_the_same_for_the_same_seed_and_others_for_another) {
  EXPECT_EQ(make(7, 500), make(7, 500));
  EXPECT_NE(make(7, 500), make(8, 500));
}

TEST_P(Workloads, of_two_seeds_share_no_id) {
  std::set<std::uint64_t> ids;
  for (const TraceRequest& request : make(1, 300)) ids.insert(request.hash_ids.begin(), request.hash_ids.end());
  for (const TraceRequest& request : make(2, 300)) {
    for (const std::uint64_t id : request.hash_ids) ASSERT_FALSE(ids.contains(id));
  }
}

TEST_P(Workloads, name_the_blocks_of_an_output_as_the_prompt_that_repeats_it_does) {
  struct Output {
    std::uint64_t before = 0;  ///< the last block of the prompt
    std::vector<std::uint64_t> ids;
  };
  std::map<std::uint64_t, Output> outputs;  // by their first block
  std::uint64_t followed = 0;
  for (const TraceRequest& request : make(6, 2000)) {
    const std::vector<std::uint64_t>& ids = request.hash_ids;
    for (std::size_t i = 1; i < ids.size(); ++i) {
      const auto found = outputs.find(ids[i]);
      if (found == outputs.end()) continue;
      const auto& [before, written] = found->second;
      ASSERT_EQ(ids[i - 1], before);
      ASSERT_LE(i + written.size(), ids.size());
      ASSERT_TRUE(std::equal(written.begin(), written.end(), ids.begin() + static_cast<std::ptrdiff_t>(i)));
      ++followed;
    }
    if (request.output_ids.empty()) continue;
    const std::uint32_t end = request.input_tokens + request.output_tokens;
    ASSERT_EQ(request.output_ids.size(), end / 64 - request.input_tokens / 64);
    outputs[request.output_ids.front()] = {ids.back(), request.output_ids};
  }
  // No prompt repeats an answer about a document.
  if (GetParam() == "rag") {
    EXPECT_EQ(outputs.size(), 0U);
  } else {
    EXPECT_GT(followed, 1000U);
  }
}

TEST_P(Workloads, name_blocks_so_that_each_has_one_predecessor) {
  for (const std::uint32_t block_tokens : {1U, 16U, 64U, 512U}) {
    std::map<std::uint64_t, std::uint64_t> predecessor;
    for (const TraceRequest& request : make(3, block_tokens == 1 ? 100 : 1000, block_tokens)) {
      std::uint64_t before = 0;
      for (const std::uint64_t id : request.hash_ids) {
        const auto [at, is_new] = predecessor.emplace(id, before);
        ASSERT_EQ(at->second, before);
        before = id;
      }
    }
    EXPECT_GT(predecessor.size(), 500U);
  }
}

TEST_P(Workloads, name_every_full_block_come_in_order_and_keep_to_the_longest_context) {
  const Workload workload = make_workload(GetParam(), 4, 100);
  double last = 0;
  for (int i = 0; i < 5000; ++i) {
    const TraceRequest request = workload.requests->next().value();
    ASSERT_EQ(request.hash_ids.size(), request.input_tokens / 100);
    ASSERT_GE(request.timestamp_ms, last);
    ASSERT_LE(request.input_tokens, workload.context_max);
    ASSERT_GT(request.output_tokens, 0U);
    last = request.timestamp_ms;
  }
}

}  // namespace
}  // namespace terrace::tools
