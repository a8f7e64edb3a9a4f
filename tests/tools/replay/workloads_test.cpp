// The built-in workloads, and the keys of their blocks.

#include "tools/replay/workload/workloads.hpp"
#include "terrace/keys.hpp"
#include "tools/replay/engine/key_maker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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

TEST_P(Workloads, stay_the_same_from_release_to_release) {
  // A change here changes everybody's results, so it must be intended.
  const std::map<std::string_view, std::pair<std::uint64_t, std::uint64_t>> expected{
      {"agent", {14'664'258, 155'009}}, {"chat", {1'553'961, 313'019}}, {"rag", {3'216'140, 229'573}}};
  std::pair<std::uint64_t, std::uint64_t> tokens;  // input, output
  for (const TraceRequest& request : make(1, 1000)) {
    tokens.first += request.input_tokens;
    tokens.second += request.output_tokens;
  }
  EXPECT_EQ(tokens, expected.at(GetParam()));
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

TEST(ChatWorkload, shares_system_prompts_and_repeats_what_was_said) {
  std::map<std::uint64_t, int> seen;
  std::uint64_t blocks = 0;
  std::uint64_t again = 0;
  const std::unique_ptr<RequestSource> workload = chat_workload(5, block_tokens);
  for (int i = 0; i < 2000; ++i) {
    const TraceRequest request = workload->next().value();
    for (const std::uint64_t id : request.hash_ids) {
      ++blocks;
      if (++seen[id] > 1) ++again;
    }
  }
  EXPECT_GT(again * 2, blocks);
}

std::vector<TraceRequest> make_rag(std::uint64_t seed, std::size_t requests, const RagModel& model = {}) {
  const std::unique_ptr<RequestSource> workload = rag_workload(seed, block_tokens, model);
  std::vector<TraceRequest> made;
  while (made.size() < requests) made.push_back(workload->next().value());
  return made;
}

/// For each block that is not in the preamble: how many different blocks follow it.
std::vector<std::size_t> children(const std::vector<TraceRequest>& requests, const RagModel& model) {
  std::map<std::uint64_t, std::set<std::uint64_t>> behind;
  for (const TraceRequest& request : requests) {
    for (std::size_t i = model.preamble / block_tokens + 1; i < request.hash_ids.size(); ++i) {
      behind[request.hash_ids[i - 1]].insert(request.hash_ids[i]);
    }
  }
  std::vector<std::size_t> counts;
  for (const auto& each : behind) counts.push_back(each.second.size());
  std::ranges::sort(counts, std::greater{});
  return counts;
}

TEST(RagWorkload, has_hub_documents_with_hundreds_of_children_and_many_with_few) {
  const std::vector<std::size_t> counts = children(make_rag(2, 4000), RagModel{});
  EXPECT_GE(counts[0], 400U);
  EXPECT_GE(counts[1], 200U);
  EXPECT_GE(counts[2], 100U);
  EXPECT_GE(std::ranges::count_if(counts, [](std::size_t n) { return n > 1 && n < 10; }), 100);
}

TEST(RagWorkload, asks_each_question_once) {
  std::set<std::uint64_t> last;
  std::size_t with_a_block = 0;
  for (const TraceRequest& request : make_rag(3, 2000)) with_a_block += last.insert(request.hash_ids.back()).second ? 1 : 0;
  EXPECT_GT(with_a_block, 1600U);  // a few questions do not fill a block
}

TEST(RagWorkload, puts_the_same_documents_in_different_orders) {
  // Two documents of one block each and nothing else: the ids show their order.
  RagModel model;
  model.preamble = block_tokens;
  model.documents = 2;
  model.document_median = block_tokens;
  model.document_sigma = 0;
  model.document_counts = {0, 1, 0, 0};
  model.question_median = 1;
  model.question_sigma = 0;
  std::map<std::vector<std::uint64_t>, int> orders;
  for (const TraceRequest& request : make_rag(4, 1000, model)) ++orders[request.hash_ids];
  ASSERT_EQ(orders.size(), 2U);
  const auto& [one, other] = std::pair{*orders.begin(), *orders.rbegin()};
  EXPECT_EQ(one.first[0], other.first[0]);  // the preamble
  EXPECT_NE(one.first[1], other.first[1]);  // another document
  EXPECT_NE(one.first[2], other.first[2]);  // the first document has other blocks after the second one than before it
  EXPECT_NE(one.first[1], other.first[2]);
  EXPECT_GT(one.second, 100);
  EXPECT_GT(other.second, 100);

  model.best_first_chance = 1;
  std::set<std::vector<std::uint64_t>> sorted;
  for (const TraceRequest& request : make_rag(4, 1000, model)) sorted.insert(request.hash_ids);
  EXPECT_EQ(sorted.size(), 1U);
}

TEST(RagWorkload, puts_one_to_four_documents_before_a_question) {
  RagModel model;
  model.document_median = 640;
  model.document_sigma = 0;
  model.question_median = 1;
  model.question_sigma = 0;
  std::map<std::uint32_t, int> lengths;
  for (const TraceRequest& request : make_rag(5, 4000, model)) ++lengths[request.input_tokens];
  ASSERT_EQ(lengths.size(), 4U);
  std::size_t i = 0;
  for (const auto& [tokens, requests] : lengths) {
    EXPECT_NEAR(requests, 4000 * model.document_counts[i], 150) << tokens;
    ++i;
  }
}

const BlockKey root = root_key({{}, {}, std::nullopt, std::nullopt, 0});

std::vector<BlockKey> chained(const std::vector<std::uint64_t>& ids) {
  KeyChain chain{root, 512};
  for (const std::uint64_t id : ids) {
    std::array<std::byte, 8> name;
    for (std::size_t i = 0; i < 8; ++i) name[i] = static_cast<std::byte>(id >> (8 * i));
    EXPECT_TRUE(chain.append_opaque(name));
  }
  return {chain.keys().begin(), chain.keys().end()};
}

TEST(KeyMaker, makes_the_keys_of_a_chain_of_little_endian_names) {
  KeyMaker maker{root};
  const std::vector<std::uint64_t> ids{1, 0x0102'0304'0506'0708, 3};
  EXPECT_EQ(maker.keys(ids), chained(ids));
  EXPECT_EQ(maker.keys(ids), chained(ids)) << "from memory";
}

TEST(KeyMaker, does_not_mix_up_an_id_that_comes_behind_different_ones) {
  KeyMaker maker{root};
  for (const std::vector<std::uint64_t>& ids : {std::vector<std::uint64_t>{1, 9}, {2, 9}, {1, 9}, {9}}) {
    EXPECT_EQ(maker.keys(ids), chained(ids));
  }
}

TEST(KeyMaker, makes_own_keys_that_repeat_for_the_request_and_are_nobody_elses) {
  KeyMaker maker{root};
  const auto longer = [&](std::vector<std::uint64_t> ids, std::uint64_t request, std::size_t blocks) {
    std::vector<BlockKey> keys = maker.keys(ids);
    maker.append_own(keys, request, blocks);
    return keys;
  };
  const std::vector<BlockKey> keys = longer({1, 2}, 7, 4);
  ASSERT_EQ(keys.size(), 4U);
  EXPECT_EQ(std::vector(keys.begin(), keys.begin() + 2), chained({1, 2}));
  EXPECT_EQ(longer({1, 2}, 7, 4), keys);
  EXPECT_EQ(longer({1, 2}, 7, 3), std::vector(keys.begin(), keys.begin() + 3));
  EXPECT_NE(longer({1, 2}, 8, 4)[2], keys[2]);
  EXPECT_NE(longer({1, 2, 7}, 7, 3)[2], keys[2]);
  EXPECT_EQ(longer({1, 2, 3}, 7, 2).size(), 3U) << "never shorter";
}

}  // namespace
}  // namespace terrace::tools
