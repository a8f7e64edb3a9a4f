#include "tools/replay/workload/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::uint32_t rag_block_tokens = 64;

std::vector<TraceRequest> make(std::uint64_t seed, std::size_t requests, const RagModel& model = {}) {
  const std::unique_ptr<RequestSource> workload = rag_workload(seed, rag_block_tokens, model);
  std::vector<TraceRequest> made;
  while (made.size() < requests) made.push_back(workload->next().value());
  return made;
}

TEST(RagWorkload, stays_the_same_from_release_to_release) {
  // A change here changes everybody's results, so it must be intended.
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  for (const TraceRequest& request : make(1, 1000)) {
    input += request.input_tokens;
    output += request.output_tokens;
  }
  EXPECT_EQ(input, 3'216'140);
  EXPECT_EQ(output, 229'573);
}

/// For each block that is not in the preamble: how many different blocks follow it.
std::vector<std::size_t> children(const std::vector<TraceRequest>& requests, const RagModel& model) {
  std::map<std::uint64_t, std::set<std::uint64_t>> behind;
  for (const TraceRequest& request : requests) {
    for (std::size_t i = model.preamble / rag_block_tokens + 1; i < request.hash_ids.size(); ++i) {
      behind[request.hash_ids[i - 1]].insert(request.hash_ids[i]);
    }
  }
  std::vector<std::size_t> counts;
  for (const auto& each : behind) counts.push_back(each.second.size());
  std::ranges::sort(counts, std::greater{});
  return counts;
}

TEST(RagWorkload, has_hub_documents_with_hundreds_of_children_and_many_with_few) {
  const std::vector<std::size_t> counts = children(make(2, 4000), RagModel{});
  EXPECT_GE(counts[0], 400U);
  EXPECT_GE(counts[1], 200U);
  EXPECT_GE(counts[2], 100U);
  EXPECT_GE(std::ranges::count_if(counts, [](std::size_t n) { return n > 1 && n < 10; }), 100);
}

TEST(RagWorkload, asks_each_question_once) {
  std::set<std::uint64_t> last;
  std::size_t with_a_block = 0;
  for (const TraceRequest& request : make(3, 2000)) with_a_block += last.insert(request.hash_ids.back()).second ? 1 : 0;
  EXPECT_GT(with_a_block, 1600U);  // a few questions do not fill a block
}

TEST(RagWorkload, puts_the_same_documents_in_different_orders) {
  // Two documents of one block each and nothing else: the ids show their order.
  RagModel model;
  model.preamble = rag_block_tokens;
  model.documents = 2;
  model.document_median = rag_block_tokens;
  model.document_sigma = 0;
  model.document_counts = {0, 1, 0, 0};
  model.question_median = 1;
  model.question_sigma = 0;
  std::map<std::vector<std::uint64_t>, int> orders;
  for (const TraceRequest& request : make(4, 1000, model)) ++orders[request.hash_ids];
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
  for (const TraceRequest& request : make(4, 1000, model)) sorted.insert(request.hash_ids);
  EXPECT_EQ(sorted.size(), 1U);
}

TEST(RagWorkload, puts_one_to_four_documents_before_a_question) {
  RagModel model;
  model.document_median = 640;
  model.document_sigma = 0;
  model.question_median = 1;
  model.question_sigma = 0;
  std::map<std::uint32_t, int> lengths;
  for (const TraceRequest& request : make(5, 4000, model)) ++lengths[request.input_tokens];
  ASSERT_EQ(lengths.size(), 4U);
  std::size_t i = 0;
  for (const auto& [tokens, requests] : lengths) {
    EXPECT_NEAR(requests, 4000 * model.document_counts[i], 150) << tokens;
    ++i;
  }
}

}  // namespace
}  // namespace terrace::tools
