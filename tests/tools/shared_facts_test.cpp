// The judgement of `terrace shared check`: from what is known about servers to what an operator reads.

#include "tools/shared/facts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

ServerFacts good_server(const std::string& address = "a:1") {
  return {.address = address,
          .software = "Redis",
          .version = "7.0.15",
          .memory_max = count(GiB * 64),
          .memory_used = count(GiB),
          .machine_memory = count(GiB * 128),
          .policy = "volatile-ttl",
          .appends = false,
          .snapshots = false,
          .role = "master",
          .replicas = 0};
}

/// A single server that is as it should be.
SharedFacts good() {
  SharedFacts facts;
  facts.servers.push_back(good_server());
  facts.round_trips.assign(100, 0.001);
  facts.writes = facts.reads = SharedCost{.blocks = 32, .seconds = 0.032};
  return facts;
}

SharedNeeds needs() {
  SharedNeeds needs;
  needs.compute_seconds = 0.004;
  needs.probe_deadline = std::chrono::milliseconds{20};
  return needs;
}

std::vector<Finding> of(const std::vector<Finding>& findings, const std::string& label) {
  std::vector<Finding> found;
  std::ranges::copy_if(findings, std::back_inserter(found), [&](const Finding& finding) { return finding.label == label; });
  return found;
}

/// The only finding about this.
Finding only(const SharedFacts& facts, const std::string& label, const SharedNeeds& with = needs()) {
  const std::vector<Finding> found = of(judge(facts, with), label);
  EXPECT_EQ(found.size(), 1U) << label;
  return found.empty() ? Finding{} : found.front();
}

TEST(SharedFacts, a_good_store_has_no_warning_and_each_fact_one_line) {
  const std::vector<Finding> findings = judge(good(), needs());
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, FactVerdict::ok) << finding.label << ": " << finding.text;
    EXPECT_TRUE(finding.advice.empty()) << finding.label;
    EXPECT_LE(finding.label.size(), 8U);
    EXPECT_EQ(of(findings, finding.label).size(), 1U) << finding.label;
  }
  EXPECT_EQ(findings.size(), 9U);
}

TEST(SharedFacts, whatever_is_no_ok_says_what_it_costs_or_how_to_mend_it) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.slots_lost = 5;
  facts.servers = {good_server(),
                   good_server("b:1"),
                   {.address = "c:1", .unreachable = "c:1: nobody listens there"},
                   {.address = "d:1", .info_refusal = "NOPERM"}};
  facts.servers[1].policy = "noeviction";
  facts.servers[1].version = "5.0.7";
  facts.servers[1].snapshots = true;
  facts.servers[1].role = "slave";
  facts.round_trips.assign(10, 0.1);
  facts.probes_failed = 1;
  facts.writes->failed = 1;
  facts.trouble = "b:1 forbids something";
  facts.not_removed = 3;
  SharedNeeds slow = needs();
  slow.compute_seconds = 0.0001;
  for (const Finding& finding : judge(facts, slow)) {
    EXPECT_EQ(finding.advice.empty(), finding.verdict == FactVerdict::ok) << finding.label << ": " << finding.text;
    EXPECT_LE(finding.label.size(), 8U);
  }
}

TEST(SharedFacts, the_eviction_policy_is_judged) {
  SharedFacts facts = good();
  for (const auto& [policy, verdict] :
       {std::pair{"volatile-ttl", FactVerdict::ok}, std::pair{"allkeys-lru", FactVerdict::ok},
        std::pair{"volatile-lfu", FactVerdict::ok}, std::pair{"allkeys-random", FactVerdict::warning},
        std::pair{"noeviction", FactVerdict::warning}}) {
    facts.servers[0].policy = policy;
    EXPECT_EQ(only(facts, "policy").verdict, verdict) << policy;
    EXPECT_TRUE(only(facts, "policy").text.starts_with(policy));
  }
  EXPECT_NE(only(facts, "policy").advice.find("CONFIG SET maxmemory-policy volatile-ttl"), std::string::npos);
}

TEST(SharedFacts, servers_that_differ_have_a_line_for_each_value) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.slots_lost = 0;
  for (const char* address : {"b:1", "c:1", "d:1", "e:1"}) facts.servers.push_back(good_server(address));
  for (ServerFacts& server : facts.servers) server.full_coverage = false;
  EXPECT_EQ(only(facts, "policy").verdict, FactVerdict::ok);
  EXPECT_EQ(only(facts, "coverage").verdict, FactVerdict::ok);
  EXPECT_EQ(only(facts, "cluster").text, "5 servers have all slots");
  facts.servers[2].policy = "noeviction";
  const std::vector<Finding> policies = of(judge(facts, needs()), "policy");
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_EQ(policies[0].text, "noeviction at c:1");
  EXPECT_TRUE(policies[1].text.starts_with("volatile-ttl at a:1, b:1, d:1 and 1 more")) << policies[1].text;
}

TEST(SharedFacts, a_cluster_must_have_all_slots_and_go_on_without_one_server) {
  SharedFacts facts = good();
  facts.cluster = true;
  facts.servers[0].full_coverage = true;
  facts.slots_lost = 100;
  EXPECT_EQ(only(facts, "cluster").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "coverage").verdict, FactVerdict::warning);
  facts.slots_lost = std::nullopt;
  EXPECT_EQ(only(facts, "cluster").verdict, FactVerdict::unknown);
  facts.servers.push_back({.address = "b:1", .unreachable = "b:1: nobody listens there"});
  EXPECT_EQ(of(judge(facts, needs()), "server")[0].text, "b:1: nobody listens there");
}

TEST(SharedFacts, memory_needs_a_limit_that_the_machine_has_and_room_for_some_prompts) {
  SharedFacts facts = good();
  EXPECT_EQ(only(facts, "memory").text, "1GiB of 64GiB used; 32768 blocks of 2MiB fit into all of it, which are 524288 tokens");
  facts.servers[0].memory_max = 0;
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning);
  EXPECT_EQ(only(facts, "memory").text, "no limit (maxmemory 0) at a:1");
  facts.servers[0].memory_max = count(GiB * 256);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning) << "the machine has 128 GiB";
  facts.servers[0].memory_max = count(GiB);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning) << "8192 tokens";
  facts.servers[0].memory_max = facts.servers[0].memory_used = count(GiB * 64);
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::ok) << "a full cache is the usual state";
  facts.servers[0].policy = "noeviction";
  EXPECT_EQ(only(facts, "memory").verdict, FactVerdict::warning);
}

TEST(SharedFacts, a_cache_needs_no_disk_and_no_replica_takes_its_writes) {
  SharedFacts facts = good();
  facts.servers[0].appends = true;
  EXPECT_EQ(only(facts, "disk").text, "appendonly is on");
  facts.servers[0].snapshots = true;
  EXPECT_EQ(only(facts, "disk").text, "appendonly is on, and it saves snapshots");
  EXPECT_EQ(only(facts, "disk").verdict, FactVerdict::warning);
  facts.servers[0].replicas = 2;
  EXPECT_EQ(only(facts, "replicas").verdict, FactVerdict::ok);
  facts.servers[0].role = "slave";
  EXPECT_EQ(only(facts, "replicas").verdict, FactVerdict::failed);
}

TEST(SharedFacts, old_servers_are_named_and_valkey_is_none) {
  SharedFacts facts = good();
  for (const auto& [version, verdict] : {std::pair{"6.0.16", FactVerdict::warning}, std::pair{"6.2.0", FactVerdict::ok},
                                         std::pair{"10.1", FactVerdict::ok}, std::pair{"5", FactVerdict::warning}}) {
    facts.servers[0].version = version;
    EXPECT_EQ(only(facts, "server").verdict, verdict) << version;
  }
  facts.servers[0].software = "Valkey";
  EXPECT_EQ(only(facts, "server").verdict, FactVerdict::ok);
}

TEST(SharedFacts, what_a_user_with_few_rights_is_not_told_is_no_failure) {
  SharedFacts facts = good();
  facts.servers[0] = {.address = "a:1",
                      .software = "Redis",
                      .version = "7.0.15",
                      .role = "master",
                      .info_refusal = "NOPERM no info",
                      .config_refusal = "NOPERM no config"};
  for (const char* label : {"policy", "memory", "disk", "replicas"}) {
    const Finding finding = only(facts, label);
    EXPECT_EQ(finding.verdict, FactVerdict::unknown) << label;
    EXPECT_NE(finding.text.find("NOPERM"), std::string::npos) << label;
    EXPECT_NE(finding.advice.find("redis-cli "), std::string::npos) << label;
  }
  EXPECT_EQ(only(facts, "server").verdict, FactVerdict::ok);
}

TEST(SharedFacts, probes_are_compared_with_the_time_that_a_request_waits) {
  SharedFacts facts = good();
  EXPECT_EQ(only(facts, "probes").text, "1.00 ms in the median, 1.00 ms in the 99th percentile, of 100 probes");
  std::fill_n(facts.round_trips.begin(), 2, 0.025);
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::warning);
  facts.round_trips.assign(100, 0.025);
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
  facts.round_trips.clear();
  facts.probes_failed = 60;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
}

TEST(SharedFacts, loading_pays_if_it_is_faster_than_computing_and_from_the_block_on_that_makes_up_for_the_round_trip) {
  SharedFacts facts = good();
  facts.round_trips.assign(100, 0.005);  // 10 ms for two, and each block saves 3 ms
  EXPECT_EQ(only(facts, "pays").text, "loading a block takes 1.00 ms, computing it 4.00 ms: it pays from 4 blocks on");
  facts.round_trips.assign(100, 0.0001);
  EXPECT_TRUE(only(facts, "pays").text.ends_with("it pays from 1 block on"));
  SharedNeeds fast = needs();
  fast.compute_seconds = 0.0005;
  EXPECT_EQ(only(facts, "pays", fast).verdict, FactVerdict::warning);
  fast.compute_seconds = 0;
  EXPECT_EQ(only(facts, "pays", fast).verdict, FactVerdict::unknown);
  facts.reads->failed = 1;
  EXPECT_TRUE(of(judge(facts, fast), "pays").empty()) << "no block was read";
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "write").verdict, FactVerdict::ok);
}

TEST(SharedFacts, a_command_that_is_forbidden_is_a_warning_if_blocks_come_and_go_all_the_same) {
  SharedFacts facts = good();
  facts.trouble = "a:1 forbids something: NOPERM";
  facts.not_removed = 2;
  EXPECT_EQ(only(facts, "client").verdict, FactVerdict::warning);
  EXPECT_EQ(only(facts, "left").text, "2 values of this check could not be removed");
  facts.writes = facts.reads = std::nullopt;
  EXPECT_EQ(only(facts, "client").verdict, FactVerdict::failed);
}

TEST(SharedFacts, where_no_block_is_written_nothing_is_said_about_probes_and_reads) {
  SharedFacts facts = good();
  facts.round_trips.clear();
  facts.probes_failed = 60;
  facts.reads->failed = facts.reads->blocks;
  facts.writes->failed = facts.writes->blocks - 1;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::failed);
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::failed);
  ++facts.writes->failed;
  EXPECT_EQ(only(facts, "probes").verdict, FactVerdict::unknown);
  EXPECT_EQ(only(facts, "read").verdict, FactVerdict::unknown);
  EXPECT_EQ(only(facts, "write").verdict, FactVerdict::failed);
}

TEST(SharedFacts, a_quantile_is_one_of_the_times) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 1), 4);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 0), 1);
}

}  // namespace
}  // namespace terrace::tools
