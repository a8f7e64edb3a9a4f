// Real servers that stop, die, refuse and come back, and a proxy that does harm to their answers.

#include "storage/redis/slot_map.hpp"
#include "storage/shared/shared_value.hpp"
#include "tests/redis/server/redis_user.hpp"
#include "tests/redis/server/test_proxy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

namespace terrace::test {
namespace {

using std::chrono::seconds;

constexpr std::size_t tiny_block = 1'000;
constexpr std::size_t large_block = std::size_t{1} << 20;

/// Tries again at once, and never stops trying.
RedisOptions stubborn(const std::string& url, const std::string& ca_file = "") {
  RedisOptions options = parse_redis_url(url);
  options.ca_file = ca_file;
  options.connections = 1;
  options.retry_first = milliseconds{1};
  options.retry_max = milliseconds{2};
  options.breaker.failures_max = 1'000'000;
  options.silence_max = patience;
  return options;
}

class RedisFaults : public testing::Test {
 protected:
  void SetUp() override { TERRACE_NEEDS_REDIS(); }
};

TEST_F(RedisFaults, a_connection_that_is_cut_at_any_byte_costs_a_miss_and_no_descriptor) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, tiny_block));
  ASSERT_FALSE(user.read(block, tiny_block));
  const std::uint64_t before = proxy.passed();
  ASSERT_FALSE(user.read(block, tiny_block));
  const auto answer = static_cast<std::int64_t>(proxy.passed() - before);
  ASSERT_GT(answer, 1'128);
  const std::size_t descriptors = open_descriptors();
  int cuts = 0;
  for (std::int64_t bytes = 1; bytes < answer; ++bytes) {
    ASSERT_TRUE(user.becomes_usable());
    proxy.cut_after(bytes);
    const ErrorCode error = user.read(block, tiny_block);
    // The greeting of a connection that comes late may be what was cut.
    proxy.cut_after(TestProxy::nowhere);
    if (error) ++cuts;
    EXPECT_TRUE(!error || error == Errc::io_failed || error == Errc::refused) << bytes << ": " << error.message();
  }
  EXPECT_GT(cuts, 1'000);
  ASSERT_TRUE(user.becomes_usable());
  EXPECT_FALSE(user.read(block, tiny_block));
  EXPECT_EQ(user.store().stat().corrupt(), 0U);
  EXPECT_GT(proxy.connections(), 1'000U);
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors + 2; })) << open_descriptors() << " of " << descriptors;
}

TEST_F(RedisFaults, a_bit_that_flips_anywhere_in_an_answer_is_never_served) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  const StoredBlock block = root_block(1);
  int corrupt = 0;
  for (std::int64_t bytes = 0; bytes < 1'130; ++bytes) {
    ErrorCode error;
    // A length that is too large swallows the answers that follow. The breaker would end that, and this user has none. On a busy
    // machine an answer may come late, too: then it gets more time.
    for (const milliseconds time : {milliseconds{50}, milliseconds{1000}}) {
      ASSERT_TRUE(user.becomes_usable());
      error = user.write(block, tiny_block, seconds{1});
      for (int i = 0; i < 100 && error; ++i) error = user.write(block, tiny_block, seconds{1});
      ASSERT_FALSE(error) << error.message();
      proxy.flip_after(bytes);
      error = user.read(block, tiny_block, time);
      proxy.flip_after(TestProxy::nowhere);
      EXPECT_TRUE(error) << "a damaged byte was served: " << bytes;
      if (error != Errc::deadline_exceeded) break;
      proxy.cut_now();
    }
    if (error == Errc::corrupt) ++corrupt;
  }
  EXPECT_GT(corrupt, 1'100);
}

TEST_F(RedisFaults, a_server_that_stops_in_the_middle_of_an_answer_costs_the_deadline) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{"redis://" + proxy.host()};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  proxy.throttle(1'000'000);
  const std::uint64_t before = proxy.passed();
  const std::uint64_t late = user.start_read(block, large_block, milliseconds{200});
  ASSERT_TRUE(comes_true([&] { return proxy.passed() > before + 1'000; }));
  server.stop();
  proxy.stall(true);
  EXPECT_EQ(user.wait(late).error, Errc::deadline_exceeded);
  std::ranges::fill(user.memory(late), std::byte{0x11});
  // Each operation ends at its deadline, and after some failures the node is not asked any more.
  for (int i = 0; i < 10; ++i) {
    const SharedEvent event = user.probe({block}, milliseconds{20});
    EXPECT_TRUE(event.error == Errc::deadline_exceeded || event.error == Errc::io_failed || event.error == Errc::refused);
  }
  EXPECT_FALSE(user.store().usable());
  server.go_on();
  proxy.stall(false);
  proxy.throttle(0);
  ASSERT_TRUE(user.becomes_usable());
  EXPECT_FALSE(user.read(block, large_block));
  EXPECT_TRUE(std::ranges::all_of(user.memory(late), [](std::byte byte) { return byte == std::byte{0x11}; }));
}

TEST_F(RedisFaults, the_rest_of_a_late_answer_is_dropped_and_the_connection_kept) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  const std::size_t connections = proxy.connections();
  const std::uint64_t before = proxy.passed();
  proxy.throttle(1'000'000);
  const std::uint64_t late = user.start_read(block, large_block, milliseconds{30});
  ASSERT_TRUE(comes_true([&] { return proxy.passed() > before + 1'000; }));
  proxy.stall(true);
  EXPECT_EQ(user.wait(late).error, Errc::deadline_exceeded);
  std::ranges::fill(user.memory(late), std::byte{0x11});
  proxy.stall(false);
  proxy.throttle(0);
  EXPECT_FALSE(user.read(block, large_block));
  EXPECT_EQ(proxy.connections(), connections);
  EXPECT_TRUE(std::ranges::all_of(user.memory(late), [](std::byte byte) { return byte == std::byte{0x11}; }));
}

TEST_F(RedisFaults, a_write_that_is_given_up_halfway_leaves_nothing) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  ASSERT_TRUE(user.becomes(StoreState::well));
  proxy.stall_client(true);
  constexpr std::size_t huge = std::size_t{64} << 20;  // more than all sockets in between take
  EXPECT_EQ(user.write(root_block(1), huge, milliseconds{100}), Errc::deadline_exceeded);
  proxy.stall_client(false);
  ASSERT_TRUE(user.becomes_usable());
  EXPECT_EQ(user.read(root_block(1), huge), Errc::not_found);
  EXPECT_EQ(user.probe({root_block(1)}).leading, 0U);
}

TEST_F(RedisFaults, a_cancelled_read_ends_while_its_answer_arrives) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  proxy.throttle(1'000'000);
  const std::uint64_t before = proxy.passed();
  const std::uint64_t token = user.start_read(block, large_block);
  ASSERT_TRUE(comes_true([&] { return proxy.passed() > before + 1'000; }));
  user.store().cancel(token);
  EXPECT_EQ(user.wait(token).error, Errc::cancelled);
  std::ranges::fill(user.memory(token), std::byte{0x11});
  proxy.throttle(0);
  EXPECT_FALSE(user.read(block, large_block));
  EXPECT_TRUE(std::ranges::all_of(user.memory(token), [](std::byte byte) { return byte == std::byte{0x11}; }));
}

TEST_F(RedisFaults, a_server_that_stands_still_costs_one_write_its_patience) {
  RealServer server;
  RedisUser user{"redis://" + server.host()};
  ASSERT_FALSE(user.write(root_block(1), large_block));
  server.stop();
  EXPECT_EQ(user.write(root_block(2), large_block), Errc::io_failed) << "long before its deadline";
  EXPECT_FALSE(user.store().usable());
  EXPECT_TRUE(user.becomes(StoreState::down));
  for (std::uint64_t n = 3; n < 100; ++n) EXPECT_EQ(user.write(root_block(n), large_block), Errc::refused);
  server.go_on();
  ASSERT_TRUE(user.becomes_usable());
  EXPECT_FALSE(user.write(root_block(2), large_block));
  EXPECT_TRUE(user.becomes(StoreState::well));
}

TEST_F(RedisFaults, a_killed_server_that_comes_back_empty_is_used_again) {
  RealServer server;
  RedisUser user{"redis://" + server.host()};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  server.kill();
  const ErrorCode error = user.read(block, large_block);
  EXPECT_TRUE(error == Errc::io_failed || error == Errc::refused) << error.message();
  EXPECT_TRUE(user.becomes(StoreState::down));
  server.start();
  ASSERT_TRUE(user.becomes_usable());
  ASSERT_TRUE(user.becomes(StoreState::well));
  EXPECT_EQ(user.read(block, large_block), Errc::not_found);
  EXPECT_FALSE(user.write(block, large_block));
}

TEST_F(RedisFaults, a_store_starts_although_no_server_answers) {
  RealServer server;
  server.kill();
  RedisUser user{"redis://" + server.host()};
  ASSERT_TRUE(user.becomes_usable(false));
  EXPECT_EQ(user.probe({root_block(1)}).error, Errc::refused);
  EXPECT_EQ(user.write(root_block(1), large_block), Errc::refused);
  EXPECT_NE(user.store().health().reason.find("refused"), std::string::npos) << user.store().health().reason;
  server.start();
  ASSERT_TRUE(user.becomes_usable());
  EXPECT_FALSE(user.write(root_block(1), large_block));
}

TEST_F(RedisFaults, a_host_without_a_name_is_no_reason_not_to_start) {
  RedisUser user{"redis://host.invalid"};
  ASSERT_TRUE(user.becomes_usable(false));
  EXPECT_EQ(user.store().health().state, StoreState::down);
  EXPECT_NE(user.store().health().reason.find("the name of the host"), std::string::npos) << user.store().health().reason;
}

TEST_F(RedisFaults, answers_that_are_none_break_the_connection_and_nothing_else) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{stubborn("redis://" + proxy.host())};
  const StoredBlock block = root_block(1);
  for (const char* junk : {"HTTP/1.1 400 Bad Request\r\n\r\n", "$-5\r\n", "$99999999999\r\n", "*9999999\r\n", "+no end", "\r\n",
                           ":x\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"}) {
    SCOPED_TRACE(junk);
    ASSERT_TRUE(user.becomes(StoreState::well));
    proxy.inject(junk);
    const ErrorCode error = user.read(block, tiny_block, milliseconds{100});
    EXPECT_TRUE(error == Errc::io_failed || error == Errc::corrupt || error == Errc::deadline_exceeded) << error.message();
    proxy.cut_now();
  }
  ASSERT_TRUE(comes_true([&] { return !user.write(block, tiny_block); }));
  EXPECT_FALSE(user.read(block, tiny_block));
}

TEST_F(RedisFaults, a_slow_way_is_slow_and_works) {
  RealServer server;
  TestProxy proxy{server.port()};
  RedisUser user{"redis://" + proxy.host()};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  proxy.throttle(8'000'000);
  EXPECT_FALSE(user.read(block, large_block));
}

// ---- users and certificates ----------------------------------------------------------------------------------------------

TEST_F(RedisFaults, a_user_who_is_refused_hears_why) {
  RealServer server;
  (void)server.command({"ACL", "SETUSER", "reader", "on", ">right", "~terrace:*", "-@all", "+get", "+exists"});
  (void)server.command({"ACL", "SETUSER", "nobody", "on", ">right", "~other:*", "+@all"});
  for (const auto& [user, password, why] :
       {std::tuple{"reader", "wrong", "WRONGPASS"}, std::tuple{"missing", "right", "WRONGPASS"},
        std::tuple{"nobody", "right", "NOPERM"}}) {
    RedisUser refused{std::string{"redis://"} + user + ":" + password + "@" + server.host()};
    ASSERT_TRUE(refused.becomes_usable(false));
    const SharedHealth health = refused.store().health();
    EXPECT_EQ(health.state, StoreState::down);
    EXPECT_NE(health.reason.find(why), std::string::npos) << health.reason;
    EXPECT_EQ(health.reason.find("right"), std::string::npos) << health.reason;
  }
  RedisUser writer{"redis://" + server.host()};
  ASSERT_FALSE(writer.write(root_block(1), tiny_block));
  RedisUser reader{"redis://reader:right@" + server.host()};
  EXPECT_EQ(reader.write(root_block(2), tiny_block), Errc::io_failed);
  reader.store().renew(std::vector<StoredBlock>{root_block(1)});
  EXPECT_FALSE(reader.read(root_block(1), tiny_block));
  EXPECT_TRUE(reader.becomes(StoreState::degraded));
  EXPECT_TRUE(reader.store().usable());
}

TEST_F(RedisFaults, a_password_that_changes_is_read_again) {
  RealServer server{{"--requirepass", "first"}};
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "password").string();
  std::ofstream{file} << "first\n";
  RedisOptions options = parse_redis_url("redis://" + server.host());
  options.password_file = file;
  RedisUser user{options};
  ASSERT_FALSE(user.write(root_block(1), tiny_block));
  RawClient operations{server.port()};
  (void)operations.command({"AUTH", "first"});
  (void)operations.command({"CONFIG", "SET", "requirepass", "second"});
  (void)operations.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_TRUE(comes_true([&] { return user.store().health().reason.find("WRONGPASS") != std::string::npos; }));
  std::ofstream{file} << "second\n";
  ASSERT_TRUE(user.becomes(StoreState::well));
  EXPECT_FALSE(user.read(root_block(1), tiny_block));
  // While the file cannot be read, no connection is made, and it is said why.
  std::filesystem::remove(file);
  (void)operations.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_TRUE(comes_true([&] { return user.store().health().reason.find("cannot be read") != std::string::npos; }));
  std::ofstream{file} << "second\n";
  ASSERT_TRUE(user.becomes(StoreState::well));
}

TEST_F(RedisFaults, an_authority_that_changes_is_read_again) {
  const Certificates first;
  const Certificates second;
  const std::uint16_t port = free_port();
  RealServer server{{"--tls-port", std::to_string(port), "--tls-cert-file", second.file("server.pem"), "--tls-key-file",
                     second.file("server.key"), "--tls-ca-cert-file", second.file("ca.pem"), "--tls-auth-clients", "no"}};
  const TemporaryDirectory directory;
  const std::filesystem::path ca = directory.path() / "ca.pem";
  std::filesystem::copy_file(first.file("ca.pem"), ca);
  RedisOptions options = parse_redis_url("rediss://127.0.0.1:" + std::to_string(port));
  options.ca_file = ca.string();
  options.connect_timeout = patience;  // the machine may be busy
  RedisUser user{options};
  EXPECT_TRUE(comes_true([&] { return user.store().health().reason.find("not good") != std::string::npos; }));
  std::filesystem::copy_file(second.file("ca.pem"), ca, std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(user.becomes(StoreState::well));
  EXPECT_FALSE(user.write(root_block(1), tiny_block));
}

TEST_F(RedisFaults, a_certificate_that_is_not_good_is_not_accepted) {
  const Certificates certificates;
  const auto tls = [&](std::uint16_t port, const char* certificate) {
    return std::vector<std::string>{"--tls-port",         std::to_string(port),
                                    "--tls-cert-file",    certificates.file(certificate),
                                    "--tls-key-file",     certificates.file("server.key"),
                                    "--tls-ca-cert-file", certificates.file("ca.pem"),
                                    "--tls-auth-clients", "optional"};
  };
  const std::uint16_t good_port = free_port();
  const std::uint16_t old_port = free_port();
  RealServer good{tls(good_port, "server.pem")};
  RealServer old{tls(old_port, "old.pem")};
  const std::string good_host = "127.0.0.1:" + std::to_string(good_port);
  const std::string old_host = "127.0.0.1:" + std::to_string(old_port);
  const auto with_ca = [&](const std::string& url, const std::string& ca_file) {
    RedisOptions options = parse_redis_url(url);
    options.ca_file = ca_file;
    return options;
  };
  const std::string ca = certificates.file("ca.pem");

  for (const std::string& url : {"rediss://" + good_host, "rediss://localhost:" + std::to_string(good_port),
                                 "rediss://" + good_host + "?cert_file=" + certificates.file("server.pem") +
                                     "&key_file=" + certificates.file("server.key"),
                                 "rediss://" + good_host + "?verify=0", "rediss://" + old_host + "?verify=0"}) {
    RedisOptions options = url.ends_with("verify=0") ? parse_redis_url(url) : with_ca(url, ca);
    options.connect_timeout = patience;  // the machine may be busy
    RedisUser user{options};
    EXPECT_FALSE(user.write(root_block(1), large_block)) << url;
    EXPECT_FALSE(user.read(root_block(1), large_block)) << url;
  }
  for (const auto& [url, authority, why] :
       {std::tuple{"rediss://" + old_host, ca, "expired"}, std::tuple{"rediss://" + good_host, std::string{}, "certificate"},
        std::tuple{"rediss://127.0.0.2:" + std::to_string(good_port), ca, "refused"},
        std::tuple{"rediss://" + good.host(), ca, "in time"}}) {
    RedisOptions options = with_ca(url, authority);
    if (why != std::string_view{"in time"}) options.connect_timeout = patience;
    RedisUser user{options};
    ASSERT_TRUE(user.becomes_usable(false)) << url;
    EXPECT_NE(user.store().health().reason.find(why), std::string::npos) << url << ": " << user.store().health().reason;
    EXPECT_EQ(user.write(root_block(1), tiny_block), Errc::refused);
  }
  EXPECT_THROW(RedisUser{"redis://user@" + good_host}, std::invalid_argument);
  EXPECT_THROW(RedisUser{with_ca("rediss://" + good_host, "/nowhere/ca.pem")}, std::invalid_argument);
  EXPECT_THROW(RedisUser{"rediss://" + good_host + "?cert_file=" + certificates.file("ca.key")}, std::invalid_argument);
}

TEST_F(RedisFaults, tls_survives_late_answers_and_writes_given_up_halfway) {
  const Certificates certificates;
  const std::uint16_t port = free_port();
  RealServer server{{"--tls-port", std::to_string(port), "--tls-cert-file", certificates.file("server.pem"), "--tls-key-file",
                     certificates.file("server.key"), "--tls-ca-cert-file", certificates.file("ca.pem"), "--tls-auth-clients",
                     "no"}};
  TestProxy proxy{port};
  RedisUser user{stubborn("rediss://" + proxy.host(), certificates.file("ca.pem"))};
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(user.write(block, large_block));
  proxy.throttle(1'000'000);
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t late = user.start_read(block, large_block, milliseconds{20});
    EXPECT_EQ(user.wait(late).error, Errc::deadline_exceeded);
    std::ranges::fill(user.memory(late), std::byte{0x11});
  }
  proxy.throttle(0);
  EXPECT_FALSE(user.read(block, large_block));
  proxy.stall_client(true);
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t late = user.start_write(root_block(2), std::size_t{32} << 20, milliseconds{30});
    EXPECT_TRUE(user.wait(late).error);
    std::ranges::fill(user.memory(late), std::byte{0x22});
  }
  proxy.stall_client(false);
  ASSERT_TRUE(comes_true([&] { return !user.read(block, large_block, seconds{1}); }));
  EXPECT_EQ(user.read(root_block(2), std::size_t{32} << 20), Errc::not_found);
  // A flipped bit of TLS ends the connection.
  proxy.flip_after(1'000);
  EXPECT_EQ(user.read(block, large_block, seconds{1}), Errc::io_failed);
  ASSERT_TRUE(comes_true([&] { return !user.read(block, large_block, seconds{1}); }));
}

// ---- real clusters whose slots move and whose nodes die

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
