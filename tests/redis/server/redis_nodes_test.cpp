// Real clusters whose slots move and whose nodes die.

#include "storage/redis/slot_map.hpp"
#include "storage/shared/shared_value.hpp"
#include "tests/redis/server/redis_user.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace terrace::test {
namespace {

using std::chrono::seconds;

constexpr std::size_t block_bytes = std::size_t{32} << 10;

class RedisNodes : public testing::Test {
 protected:
  void SetUp() override { TERRACE_NEEDS_REDIS(); }
};

std::string value_name(const StoredBlock& block, std::uint32_t part = 0) {
  return SharedValueNames{"terrace"}.name(block.key, block.group, part);
}
std::uint32_t slot_of(const StoredBlock& block) { return redis_slot(value_name(block)); }
/// With so many nodes, each has the slots of its place.
std::size_t node_of(const StoredBlock& block, std::size_t masters = 3) {
  const std::size_t per_node = redis_slot_count / masters;
  return std::min<std::size_t>(slot_of(block) / (per_node + 1), masters - 1);
}

TEST_F(RedisNodes, blocks_of_a_slot_that_moves_are_found_all_the_time) {
  RealCluster cluster;
  RedisUser user{cluster.url()};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, block_bytes));
  const std::string slot = std::to_string(slot_of(block));
  std::size_t source = 0;
  while (cluster.node(source).command({"EXISTS", value_name(block)}).integer != 1) ++source;
  const std::size_t target = (source + 1) % 3;
  const std::string source_id = cluster.id(source);
  const std::string target_id = cluster.id(target);
  const std::string target_port = std::to_string(cluster.node(target).port());
  ASSERT_EQ(cluster.node(target).command({"CLUSTER", "SETSLOT", slot, "IMPORTING", source_id}).text, "OK");
  ASSERT_EQ(cluster.node(source).command({"CLUSTER", "SETSLOT", slot, "MIGRATING", target_id}).text, "OK");
  EXPECT_FALSE(user.read(block, block_bytes));
  // One part is here, one there; then both are there.
  for (const std::uint32_t part : {0U, 1U}) {
    const RespValue moved =
        cluster.node(source).command({"MIGRATE", "127.0.0.1", target_port, value_name(block, part), "0", "5000", "REPLACE"});
    ASSERT_EQ(moved.text, "OK");
    EXPECT_FALSE(user.read(block, block_bytes));
    EXPECT_EQ(user.probe({block}).leading, 1U);
  }
  EXPECT_FALSE(user.write(block, block_bytes));
  for (std::size_t n = 0; n < 3; ++n) {
    ASSERT_EQ(cluster.node(n).command({"CLUSTER", "SETSLOT", slot, "NODE", target_id}).text, "OK");
  }
  EXPECT_FALSE(user.read(block, block_bytes));
  EXPECT_EQ(user.probe({block}).leading, 1U);
  EXPECT_TRUE(comes_true([&] {
    const SharedHealth health = user.store().health();
    return std::ranges::any_of(health.nodes, [](const SharedNode& node) { return node.redirections > 0; });
  }));
  EXPECT_EQ(user.store().stat().failed, 0U);
  EXPECT_EQ(user.store().stat().corrupt(), 0U);
}

TEST_F(RedisNodes, one_lost_node_of_three_costs_its_own_blocks_alone) {
  RealCluster cluster{3, false, {"--cluster-require-full-coverage", "no"}};
  RedisUser user{cluster.url()};
  const auto prefix = prefix_of(1, 90);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(user.write(block, block_bytes));
  cluster.node(1).kill();
  // The others know it when all blocks of the lost node are refused at once.
  ASSERT_TRUE(comes_true([&] {
    return std::ranges::all_of(prefix, [&](const StoredBlock& block) {
      return node_of(block) != 1 || user.read(block, block_bytes, seconds{1}) == Errc::refused;
    });
  }));
  std::size_t hits = 0;
  std::size_t others = 0;
  for (const StoredBlock& block : prefix) {
    const bool lost = node_of(block) == 1;
    const ErrorCode error = user.read(block, block_bytes, seconds{1});
    EXPECT_TRUE(error || !lost);
    if (!lost) ++others;
    if (!error) ++hits;
  }
  EXPECT_GT(others, 40U);
  EXPECT_GE(hits * 100, others * 95);
  EXPECT_EQ(user.store().health().state, StoreState::degraded);
  cluster.node(1).start();
  ASSERT_TRUE(user.becomes(StoreState::well)) << user.store().health().reason;
}

TEST_F(RedisNodes, a_cluster_that_wants_all_its_nodes_is_down_without_one) {
  RealCluster cluster;
  RedisUser user{cluster.url()};
  const auto block_at = [](std::size_t node) {
    std::uint64_t n = 1;
    while (node_of(root_block(n)) != node) ++n;
    return root_block(n);
  };
  const StoredBlock here = block_at(0);
  ASSERT_FALSE(user.write(here, block_bytes));
  cluster.node(2).kill();
  // The others notice it, and answer CLUSTERDOWN for every key.
  ASSERT_TRUE(comes_true([&] { return static_cast<bool>(user.read(here, block_bytes, seconds{1})); }));
  ASSERT_TRUE(comes_true([&] {
    for (const std::size_t node : {0U, 1U}) (void)user.read(block_at(node), block_bytes, seconds{1});
    return !user.store().usable();
  }));
  EXPECT_NE(user.store().health().reason.find(":"), std::string::npos);
  cluster.node(2).start();
  ASSERT_TRUE(comes_true([&] { return !user.read(here, block_bytes, seconds{1}); }));
}

TEST_F(RedisNodes, a_replica_that_is_promoted_serves_the_blocks_of_its_master) {
  RealCluster cluster{3, true};
  RedisUser user{cluster.url()};
  const auto prefix = prefix_of(1, 30);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(user.write(block, block_bytes));
  ASSERT_TRUE(comes_true([&] {
    for (std::size_t n = 0; n < cluster.size(); ++n) {
      const std::string info = cluster.node(n).command({"INFO", "replication"}).text;
      if (info.find("role:slave") != std::string::npos && info.find("master_link_status:up") == std::string::npos) return false;
    }
    return true;
  }));
  const RespValue waited = cluster.node(0).command({"WAIT", "1", "5000"});
  EXPECT_EQ(waited.integer, 1);
  cluster.node(0).kill();
  ASSERT_TRUE(comes_true([&] {
    return std::ranges::all_of(prefix, [&](const StoredBlock& block) { return !user.read(block, block_bytes, seconds{1}); });
  }));
  EXPECT_EQ(user.probe(prefix).leading, 30U);
}

TEST_F(RedisNodes, all_lost_nodes_are_found_again) {
  RealCluster cluster;
  RedisUser user{cluster.url()};
  ASSERT_FALSE(user.write(root_block(1), block_bytes));
  for (std::size_t n = 0; n < 3; ++n) cluster.node(n).stop();
  for (int i = 0; i < 40 && user.store().usable(); ++i) {
    const SharedEvent event = user.probe(prefix_of(1, 30), milliseconds{20});
    EXPECT_TRUE(event.error);
  }
  EXPECT_FALSE(user.store().usable());
  for (std::size_t n = 0; n < 3; ++n) cluster.node(n).go_on();
  ASSERT_TRUE(user.becomes_usable());
  ASSERT_TRUE(comes_true([&] { return !user.read(root_block(1), block_bytes, seconds{1}); }));
}

TEST_F(RedisNodes, a_server_of_a_cluster_needs_the_option) {
  RealCluster cluster;
  RedisUser user{"redis://" + cluster.node(0).host()};
  ASSERT_TRUE(user.becomes_usable(false));
  EXPECT_NE(user.store().health().reason.find("cluster=1"), std::string::npos) << user.store().health().reason;
}

}  // namespace
}  // namespace terrace::test
