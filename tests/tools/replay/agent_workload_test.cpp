#include "tools/replay/workload/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::uint32_t block_tokens = 64;

std::vector<TraceRequest> make_agents(std::uint64_t seed, std::size_t requests, const AgentModel& model = {}) {
  const std::unique_ptr<RequestSource> workload = agent_workload(seed, block_tokens, model);
  std::vector<TraceRequest> made;
  while (made.size() < requests) made.push_back(workload->next().value());
  return made;
}

bool begins_with(const std::vector<std::uint64_t>& ids, const std::vector<std::uint64_t>& start) {
  return start.size() <= ids.size() && std::equal(start.begin(), start.end(), ids.begin());
}

TEST(AgentWorkload, stays_the_same_from_release_to_release) {
  // A change here changes everybody's results, so it must be intended.
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  for (const TraceRequest& request : make_agents(1, 1000)) {
    input += request.input_tokens;
    output += request.output_tokens;
  }
  EXPECT_EQ(input, 14'664'258);
  EXPECT_EQ(output, 155'009);
}

TEST(AgentWorkload, reads_long_contexts_again_at_each_step) {
  std::map<std::uint64_t, int> seen;
  std::uint64_t blocks = 0;
  std::uint64_t again = 0;
  for (const TraceRequest& request : make_agents(5, 3000)) {
    for (const std::uint64_t id : request.hash_ids) {
      ++blocks;
      if (++seen[id] > 1) ++again;
    }
  }
  EXPECT_GT(blocks, 3000 * 100);      // at least 6,400 tokens per request
  EXPECT_GT(again * 10, blocks * 9);  // nine of ten blocks were sent before
}

TEST(AgentWorkload, shares_the_preamble_among_all_and_tools_among_those_of_a_kind) {
  const AgentModel model;
  std::map<std::uint64_t, std::set<std::uint64_t>> behind;  // for each block, the blocks that follow it
  std::set<std::uint64_t> first;
  for (const TraceRequest& request : make_agents(6, 3000)) {
    first.insert(request.hash_ids.front());
    behind[request.hash_ids[model.preamble / block_tokens - 1]].insert(request.hash_ids[model.preamble / block_tokens]);
  }
  EXPECT_EQ(first.size(), 1U);
  ASSERT_EQ(behind.size(), 1U);
  EXPECT_EQ(behind.begin()->second.size(), model.kinds);
}

TEST(AgentWorkload, interleaves_agents) {
  // Most requests do not continue the one directly before them.
  const std::vector<TraceRequest> requests = make_agents(7, 2000);
  int goes_on = 0;
  for (std::size_t i = 1000; i < requests.size(); ++i) {
    if (begins_with(requests[i].hash_ids, requests[i - 1].hash_ids)) ++goes_on;
  }
  EXPECT_LT(goes_on, 200);
}

TEST(AgentWorkload, forks_sub_agents_from_their_parents_context_and_then_goes_on) {
  AgentModel model;
  model.task_gap_mean = 1e12;  // one agent at a time
  model.fork_chance = 0.3;
  model.steps_mean = 1000;
  const std::vector<TraceRequest> requests = make_agents(1, 40, model);
  // Blocks where contexts branch: if two different blocks follow a block, sub-agents branch there, or an agent and its sub-agent.
  std::map<std::uint64_t, std::set<std::uint64_t>> behind;
  for (const TraceRequest& request : requests) {
    for (std::size_t i = 1; i < request.hash_ids.size(); ++i) behind[request.hash_ids[i - 1]].insert(request.hash_ids[i]);
  }
  const auto forks = std::ranges::count_if(behind, [](const auto& each) { return each.second.size() > 1; });
  EXPECT_GE(forks, 2);
  EXPECT_TRUE(std::ranges::all_of(behind, [&](const auto& each) { return each.second.size() <= model.forks_max + 1; }));
  // The common context is long: the last request still begins with the first request.
  EXPECT_TRUE(begins_with(requests.back().hash_ids, requests.front().hash_ids));
  EXPECT_GT(requests.back().hash_ids.size(), requests.front().hash_ids.size() + 20);
}

}  // namespace
}  // namespace terrace::tools
