#include "tests/redis/client_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace terrace::test {
namespace {

using std::chrono::seconds;

/// Three nodes; each has a third of the slots, and says so.
class RedisClusterTest : public RedisClientTest {
 protected:
  void SetUp() override { begin("redis://host:1,host:2?cluster=1"); }
  void start_cluster() {
    for (std::uint16_t port = 1; port <= 3; ++port) set_answers(port);
    start();
  }
  void set_answers(std::uint16_t port) {
    server(port).special = [this, port](const Words& words) -> std::string {
      if (words[0] == "CLUSTER") {
        ++map_questions_;
        return map();
      }
      if (words.size() < 2 || words[0] == "HELLO") return "";
      const bool may_import = std::exchange(asked_[port], false);
      if (words[1].ends_with(":health")) return "";
      const std::uint32_t slot = redis_slot(words[1]);
      if (const auto importing = importing_.find(slot); importing != importing_.end()) {
        if (port == owner_[slot] && !server(port).values.contains(words[1])) {
          return fmt::format("-ASK {} host:{}\r\n", slot, importing->second);
        }
        if (port == importing->second && may_import) return "";
      }
      if (port != owner_[slot]) return fmt::format("-MOVED {} host:{}\r\n", slot, owner_[slot]);
      return "";
    };
    const auto usual = server(port).special;
    server(port).special = [this, port, usual](const Words& words) -> std::string {
      if (words[0] == "ASKING") asked_[port] = true;
      return words[0] == "ASKING" ? "+OK\r\n" : usual(words);
    };
  }
  [[nodiscard]] std::string map() const {
    std::string text;
    std::size_t ranges = 0;
    for (std::uint32_t first = 0; first < redis_slot_count;) {
      std::uint32_t last = first;
      while (last + 1 < redis_slot_count && owner_[last + 1] == owner_[first]) ++last;
      if (owner_[first] != 0) {
        ++ranges;
        text += "*3\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(last) +
                "\r\n*2\r\n$4\r\nhost\r\n:" + std::to_string(owner_[first]) + "\r\n";
      }
      first = last + 1;
    }
    return fmt::format("*{}\r\n{}", ranges, text);
  }
  static std::vector<std::uint16_t> thirds() {
    std::vector<std::uint16_t> owners(redis_slot_count);
    for (std::size_t slot = 0; slot < owners.size(); ++slot)
      owners[slot] = static_cast<std::uint16_t>(1 + slot * 3 / redis_slot_count);
    return owners;
  }
  [[nodiscard]] std::uint32_t slot(const StoredBlock& block) const { return redis_slot(name(block)); }
  /// A block that this node has.
  [[nodiscard]] StoredBlock block_at(std::uint16_t port, std::uint64_t n = 1) const {
    while (owner_[slot(root_block(n))] != port) ++n;
    return root_block(n);
  }

  std::vector<std::uint16_t> owner_ = thirds();       ///< by slot: port of the node; 0: none
  std::map<std::uint32_t, std::uint16_t> importing_;  ///< slots on their way, and the port where to
  std::map<std::uint16_t, bool> asked_{};
  int map_questions_ = 0;
};

TEST_F(RedisClusterTest, finds_all_nodes_and_sends_each_block_to_its_own) {
  start_cluster();
  engine_->run();
  EXPECT_EQ(client().health().state, StoreState::well);
  EXPECT_EQ(client().health().nodes.size(), 3U);
  const auto prefix = prefix_of(1, 30);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(error(write(block, large_block)));
  for (std::uint16_t port = 1; port <= 3; ++port) {
    EXPECT_GT(server(port).values.size(), 4U);
    EXPECT_EQ(server(port).values.size() % 2, 0U);
  }
  EXPECT_EQ(event(probe(prefix)).leading, 30U);
  for (const StoredBlock& block : prefix) expect_well(read(block, large_block), block);
  EXPECT_EQ(map_questions_, 1);
  for (std::uint16_t port = 1; port <= 3; ++port) EXPECT_EQ(node(port).redirections, 0U);
}

TEST_F(RedisClusterTest, operations_wait_for_the_first_map) {
  for (std::uint16_t port = 1; port <= 3; ++port) set_answers(port);
  engine_->begin();
  EXPECT_TRUE(client().usable());
  const StoredBlock block = block_at(3);
  const std::uint64_t written = write(block);
  EXPECT_FALSE(error(written));
  expect_well(read(block), block);
}

TEST_F(RedisClusterTest, follows_moved_slots_and_asks_for_the_map_once_a_second_at_most) {
  start_cluster();
  std::vector<StoredBlock> blocks;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    blocks.push_back(root_block(n));
    ASSERT_FALSE(error(write(blocks.back(), large_block)));
  }
  // All that node 1 had is at node 2.
  std::ranges::replace(owner_, std::uint16_t{1}, std::uint16_t{2});
  server(2).values.merge(server(1).values);
  server(1).values.clear();
  engine_->pass(seconds{2});
  map_questions_ = 0;
  for (const StoredBlock& block : blocks) expect_well(read(block, large_block), block);
  EXPECT_EQ(map_questions_, 1);
  EXPECT_GE(node(2).redirections + node(3).redirections, 0U);
  EXPECT_EQ(event(probe(blocks)).leading, 40U);
  EXPECT_EQ(client().health().nodes.size(), 2U);
}

TEST_F(RedisClusterTest, follows_a_probe_and_a_write_to_another_node) {
  start_cluster();
  const StoredBlock block = block_at(1);
  ASSERT_FALSE(error(write(block)));
  owner_[slot(block)] = 3;
  server(3).values.merge(server(1).values);
  EXPECT_EQ(event(probe({block})).leading, 1U);
  const StoredBlock other = block_at(1, 1000);
  owner_[slot(other)] = 2;
  EXPECT_FALSE(error(write(other, large_block)));
  EXPECT_EQ(server(2).values.size(), 2U);
  expect_well(read(other, large_block), other);
}

TEST_F(RedisClusterTest, asks_the_importing_node_while_a_slot_moves) {
  start_cluster();
  const StoredBlock block = block_at(1);
  ASSERT_FALSE(error(write(block, large_block)));
  importing_[slot(block)] = 3;
  expect_well(read(block, large_block), block);  // all is where it was
  // The first part has moved, the second has not.
  server(3).values.insert(server(1).values.extract(name(block, 0)));
  expect_well(read(block, large_block), block);
  EXPECT_EQ(event(probe({block})).leading, 1U);
  server(3).values.insert(server(1).values.extract(name(block, 1)));
  expect_well(read(block, large_block), block);
  EXPECT_FALSE(error(write(block, large_block)));
  EXPECT_TRUE(server(1).values.empty());
  expect_well(read(block, large_block), block);
}

TEST_F(RedisClusterTest, gives_up_on_endless_redirections) {
  start_cluster();
  const StoredBlock block = block_at(1);
  for (std::uint16_t port = 1; port <= 3; ++port) {
    server(port).special = [this, port, block](const Words& words) -> std::string {
      if (words[0] == "CLUSTER") return map();
      if (words[0] != "GET" && words[0] != "EXISTS") return "";
      if (words[1].ends_with(":health")) return "";
      return fmt::format("-MOVED {} host:{}\r\n", slot(block), port % 3 + 1);
    };
  }
  EXPECT_EQ(error(read(block)), Errc::io_failed);
  EXPECT_EQ(event(probe({block})).leading, 0U);
}

TEST_F(RedisClusterTest, goes_on_with_the_nodes_that_are_left) {
  start_cluster();
  const auto prefix = prefix_of(1, 30);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(error(write(block)));
  server(2).reachable = false;
  engine_->cut(2);
  for (int i = 0; i < 10; ++i) engine_->pass(milliseconds{100});
  EXPECT_EQ(client().health().state, StoreState::degraded);
  EXPECT_TRUE(client().usable());
  for (const StoredBlock& block : prefix) {
    const std::uint64_t token = read(block);
    if (owner_[slot(block)] == 2) EXPECT_EQ(error(token), Errc::refused);
    else expect_well(token, block);
  }
  const auto first = std::ranges::find_if(prefix, [&](const StoredBlock& block) { return owner_[slot(block)] == 2; });
  const SharedEvent probed = event(probe(prefix));
  EXPECT_FALSE(probed.error);
  EXPECT_EQ(probed.leading, static_cast<std::uint32_t>(first - prefix.begin()));
  EXPECT_EQ(node(1).breaker, BreakerState::closed);
}

TEST_F(RedisClusterTest, follows_a_promotion) {
  start_cluster();
  const StoredBlock block = block_at(2);
  ASSERT_FALSE(error(write(block)));
  server(2).reachable = false;
  engine_->cut(2);
  engine_->run();
  // Its replica, port 4, takes over some seconds later.
  engine_->pass(seconds{3});
  std::ranges::replace(owner_, std::uint16_t{2}, std::uint16_t{4});
  server(4).values = server(2).values;
  set_answers(4);
  EXPECT_EQ(error(read(block)), Errc::refused);
  engine_->pass(seconds{1});
  expect_well(read(block), block);
}

TEST_F(RedisClusterTest, finds_a_cluster_again_whose_nodes_were_all_lost) {
  start_cluster();
  for (std::uint16_t port = 1; port <= 3; ++port) {
    server(port).reachable = false;
    engine_->cut(port);
  }
  for (int i = 0; i < 100; ++i) engine_->pass(milliseconds{100});
  EXPECT_FALSE(client().usable());
  EXPECT_EQ(error(read(root_block(1))), Errc::refused);
  EXPECT_EQ(error(probe({root_block(1), root_block(2)})), Errc::refused);
  for (std::uint16_t port = 1; port <= 3; ++port) server(port).reachable = true;
  engine_->pass(seconds{30});
  engine_->pass(seconds{1});
  EXPECT_EQ(client().health().state, StoreState::well);
  EXPECT_FALSE(error(write(root_block(1))));
}

TEST_F(RedisClusterTest, serves_what_a_map_with_gaps_has) {
  std::ranges::replace(owner_, std::uint16_t{3}, std::uint16_t{0});
  start_cluster();
  const StoredBlock here = root_block([&] {
    std::uint64_t n = 1;
    while (owner_[slot(root_block(n))] == 0) ++n;
    return n;
  }());
  const StoredBlock nowhere = block_at(0);
  EXPECT_FALSE(error(write(here)));
  EXPECT_EQ(error(write(nowhere)), Errc::refused);
  EXPECT_EQ(client().health().state, StoreState::degraded);
  EXPECT_NE(client().health().reason.find("slots"), std::string::npos);
}

TEST_F(RedisClusterTest, says_why_there_is_no_map) {
  for (std::uint16_t port = 1; port <= 2; ++port) {
    server(port).special = [](const Words& words) {
      return std::string{words[0] == "CLUSTER" ? "-ERR This instance has cluster support disabled\r\n" : ""};
    };
  }
  start();
  EXPECT_EQ(client().health().state, StoreState::down);
  EXPECT_NE(client().health().reason.find("cluster support disabled"), std::string::npos) << client().health().reason;
  EXPECT_FALSE(client().usable());
  EXPECT_EQ(error(read(root_block(1))), Errc::refused);
  for (std::uint16_t port = 1; port <= 3; ++port) set_answers(port);
  engine_->pass(seconds{1});
  EXPECT_TRUE(client().usable());
  EXPECT_FALSE(error(write(root_block(1))));
}

TEST_F(RedisClusterTest, one_silent_node_costs_the_others_nothing) {
  start_cluster();
  const StoredBlock here = block_at(1);
  const StoredBlock there = block_at(2);
  ASSERT_FALSE(error(write(here)));
  ASSERT_FALSE(error(write(there)));
  server(2).silent = true;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t late = read(there, small_block, in(milliseconds{20}));
    expect_well(read(here), here);
    engine_->pass(milliseconds{20});
    EXPECT_EQ(error(late), Errc::deadline_exceeded);
  }
  EXPECT_EQ(node(2).breaker, BreakerState::open);
  EXPECT_EQ(node(1).breaker, BreakerState::closed);
  EXPECT_EQ(event(probe({here, there})).leading, 1U);
  // A probe is answered as soon as it is known how many are there.
  EXPECT_EQ(event(probe({block_at(1, 5000), there})).leading, 0U);
}

TEST_F(RedisClusterTest, follows_the_cluster_however_many_addresses_it_had) {
  start_cluster();
  const StoredBlock block = block_at(1);
  for (std::uint16_t port = 100; port < 200 + RedisClient::nodes_max;) {
    for (std::uint32_t slot = 0; slot < 100; ++slot) {
      server(port).reachable = false;
      owner_[slot] = port++;
    }
    engine_->cut(1, 1);
    engine_->pass(seconds{1});  // the map is asked for
  }
  EXPECT_GT(engine_->connects(), RedisClient::nodes_max);
  owner_ = thirds();
  std::ranges::replace(owner_, std::uint16_t{1}, std::uint16_t{4});  // and one node more
  set_answers(4);
  (void)read(block);
  for (int i = 0; i < 10; ++i) engine_->pass(seconds{1});
  EXPECT_EQ(client().health().state, StoreState::well) << client().health().reason;
  EXPECT_EQ(client().health().nodes.size(), 3U);
  EXPECT_FALSE(error(write(block)));
  EXPECT_FALSE(error(write(block_at(4))));
  EXPECT_EQ(engine_->open_links(), 6U) << "nodes that are not used have no connections";
}

TEST_F(RedisClusterTest, has_few_connections_whatever_the_map_says) {
  for (std::uint16_t port = 1; port <= 2'048; ++port) set_answers(port);
  for (std::size_t slot = 0; slot < owner_.size(); ++slot) owner_[slot] = static_cast<std::uint16_t>(1 + slot / 8);
  start();
  engine_->pass(seconds{1});
  EXPECT_EQ(engine_->open_links(), 512U);
  EXPECT_EQ(client().health().state, StoreState::degraded);
  EXPECT_NE(client().health().reason.find("too many"), std::string::npos) << client().health().reason;
  const std::size_t links = engine_->open_links();
  const StoredBlock elsewhere = block_at(3);
  server(3).special = [&](const Words& words) {
    return words[0] == "GET" ? fmt::format("-MOVED {} host:5000\r\n", slot(elsewhere)) : std::string{};
  };
  EXPECT_EQ(error(read(elsewhere)), Errc::refused);
  EXPECT_LE(engine_->open_links(), links) << "no redirection adds one";
  EXPECT_FALSE(error(write(block_at(1))));
  // A large cluster that fits has one connection to each node.
  for (std::size_t slot = 0; slot < owner_.size(); ++slot)
    owner_[slot] = static_cast<std::uint16_t>(1 + slot * 400 / owner_.size());
  engine_->cut(1);
  for (int i = 0; i < 5; ++i) engine_->pass(seconds{1});
  EXPECT_EQ(client().health().state, StoreState::well) << client().health().reason;
  EXPECT_EQ(engine_->open_links(), 400U);
}

}  // namespace
}  // namespace terrace::test
