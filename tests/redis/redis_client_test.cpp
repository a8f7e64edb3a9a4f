#include "storage/redis/redis_client.hpp"

#include "tests/redis/client_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace terrace::test {
namespace {

using std::chrono::seconds;

TEST_F(RedisClientTest, writes_and_reads_blocks_of_one_and_two_values) {
  start();
  EXPECT_EQ(client().health().state, StoreState::well);
  for (const std::size_t bytes : {small_block, large_block}) {
    const StoredBlock block = root_block(bytes);
    EXPECT_FALSE(error(write(block, bytes)));
    expect_well(read(block, bytes), block);
    EXPECT_EQ(server().values.size(), bytes == small_block ? 1U : 3U);
  }
  EXPECT_EQ(client().stat().reads, 2U);
  EXPECT_EQ(client().stat().writes, 2U);
}

TEST_F(RedisClientTest, reads_a_block_however_its_bytes_arrive) {
  start();
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(error(write(block, large_block)));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{127}, std::size_t{128}, std::size_t{4'097}}) {
    engine_->bytes_at_once = bytes;
    expect_well(read(block, large_block), block);
  }
}

TEST_F(RedisClientTest, writes_the_last_part_first_and_lets_it_expire) {
  start();
  StoredBlock block = root_block(1);
  block.depth = 10;
  ASSERT_FALSE(error(write(block, large_block)));
  const std::vector<Words>& commands = server().commands;
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0][1], name(block, 1));
  EXPECT_EQ(commands[1][1], name(block, 0));
  for (const Words& words : commands) {
    ASSERT_EQ(words.size(), 5U);
    EXPECT_EQ(words[3], "PX");
    EXPECT_EQ(words[4], std::to_string(24 * 3600 * 1000 - 10 * 200));
  }
  server().commands.clear();
  client().renew({block}, *names_);
  engine_->run();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(commands[0], (Words{"PEXPIRE", name(block), std::to_string(24 * 3600 * 1000 - 10 * 200)}));
}

TEST_F(RedisClientTest, asks_for_all_keys_at_once) {
  start();
  const auto prefix = prefix_of(1, 100);
  for (std::size_t n = 0; n < 60; ++n) keep(prefix[n]);
  keep(prefix[61]);
  EXPECT_EQ(event(probe(prefix)).leading, 60U);
  EXPECT_EQ(server().commands.size(), 100U);
  EXPECT_EQ(event(probe({prefix[0]})).leading, 1U);
  EXPECT_EQ(event(probe({})).leading, 0U);
  EXPECT_EQ(client().stat().keys_there, 61U);
}

TEST_F(RedisClientTest, says_of_each_key_whether_it_is_there) {
  start();
  const auto prefix = prefix_of(1, 5);
  keep(prefix[1]);
  keep(prefix[4]);
  std::vector<std::uint8_t> there(5, 0);
  EXPECT_EQ(event(probe(prefix, never, there)).leading, 2U) << "all that are there";
  EXPECT_EQ(there, (std::vector<std::uint8_t>{0, 1, 0, 0, 1}));
  EXPECT_EQ(server().commands.size(), 5U);
}

TEST_F(RedisClientTest, greets_with_user_database_and_a_question) {
  begin("redis://user:word@host:1/3");
  std::vector<Words> greeting;
  server().special = [&](const Words& words) {
    greeting.push_back(words);
    return std::string{};
  };
  connections_ = 1;
  start();
  ASSERT_GE(greeting.size(), 3U);
  EXPECT_EQ(greeting[0], (Words{"HELLO", "3", "AUTH", "user", "word", "SETNAME", "terrace"}));
  EXPECT_EQ(greeting[1], (Words{"SELECT", "3"}));
  EXPECT_EQ(greeting[2], (Words{"EXISTS", "terrace:health"}));
}

TEST_F(RedisClientTest, greets_an_old_server_again_without_hello) {
  begin("redis://:word@host:1");
  std::vector<std::string> greeting;
  server().special = [&](const Words& words) {
    greeting.push_back(words[0]);
    return std::string{words[0] == "HELLO" ? "-ERR unknown command 'HELLO'\r\n" : ""};
  };
  start();
  EXPECT_TRUE(std::ranges::find(greeting, "AUTH") != greeting.end());
  EXPECT_EQ(client().health().state, StoreState::well);
}

TEST_F(RedisClientTest, says_why_a_server_refuses_it) {
  for (const auto& [what, answer, why] : {std::tuple{"HELLO", "-WRONGPASS invalid username-password pair\r\n", "WRONGPASS"},
                                          std::tuple{"EXISTS", "-NOPERM this user has no permissions\r\n", "NOPERM"},
                                          std::tuple{"EXISTS", "-LOADING Redis is loading the dataset in memory\r\n", "LOADING"},
                                          std::tuple{"HELLO", "%1\r\n+mode\r\n+cluster\r\n", "?cluster=1"}}) {
    engine_.reset();
    begin("redis://host:1");
    server().special = [what = what, answer = answer](const Words& words) { return std::string{words[0] == what ? answer : ""}; };
    start();
    EXPECT_EQ(client().health().state, StoreState::down);
    EXPECT_NE(client().health().reason.find(why), std::string::npos) << client().health().reason;
    EXPECT_FALSE(client().usable());
    EXPECT_EQ(error(read(root_block(1))), Errc::refused);
  }
}

TEST_F(RedisClientTest, greets_with_the_password_of_now) {
  begin("redis://:old@host:1");
  std::string right = "old";
  server().special = [&](const Words& words) {
    const bool wrong = words[0] == "HELLO" && words.at(4) != right;
    return std::string{wrong ? "-WRONGPASS invalid username-password pair\r\n" : ""};
  };
  start();
  EXPECT_EQ(client().health().state, StoreState::well);
  right = "new";
  engine_->cut(1);
  engine_->pass(seconds{1});
  EXPECT_NE(client().health().reason.find("WRONGPASS"), std::string::npos) << client().health().reason;
  engine_->password = "new";
  engine_->pass(seconds{30});
  EXPECT_EQ(client().health().state, StoreState::well);
}

TEST_F(RedisClientTest, connects_anew_where_it_is_not_known_any_more) {
  start();
  server().special = [](const Words& words) {
    return std::string{words[0] == "GET" ? "-NOAUTH Authentication required.\r\n" : ""};
  };
  EXPECT_EQ(error(read(root_block(1))), Errc::io_failed);
  server().special = {};
  engine_->pass(seconds{1});
  EXPECT_EQ(engine_->connects(), 4U);
  EXPECT_EQ(error(read(root_block(1))), Errc::not_found);
}

TEST_F(RedisClientTest, connects_anew_to_a_server_that_has_become_a_replica_but_not_all_the_time) {
  start();
  server().special = [](const Words& words) {
    return std::string{words[0] == "SET" ? "-READONLY You can't write against a read only replica.\r\n" : ""};
  };
  EXPECT_EQ(error(write(root_block(1))), Errc::io_failed);
  EXPECT_EQ(engine_->connects(), 2U) << "these connections are new";
  for (int i = 0; i < 120; ++i) {
    engine_->pass(seconds{1});
    (void)write(root_block(1));
  }
  EXPECT_GE(engine_->connects(), 6U);
  EXPECT_LE(engine_->connects(), 10U);
  EXPECT_EQ(error(read(root_block(1))), Errc::not_found) << "it may be read meanwhile";
  server().special = {};
  engine_->pass(seconds{1});
  EXPECT_FALSE(error(write(root_block(1))));
}

TEST_F(RedisClientTest, shows_no_password_that_a_server_repeats) {
  for (const char* answer : {"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `geheim`\r\n",
                             "-NOPERM geheimgeheim\r\n", "-ERR cut off: gehei\r\n", "!10\r\nERR geheim\r\n"}) {
    for (const char* command : {"HELLO", "SET"}) {
      engine_.reset();
      begin("redis://:geheim@host:1");
      server().special = [&](const Words& words) { return std::string{words[0] == command || words[0] == "AUTH" ? answer : ""}; };
      start();
      for (int i = 0; i < 5; ++i) (void)write(root_block(1));
      EXPECT_NE(client().health().reason, "");
      EXPECT_EQ(client().health().reason.find("gehe"), std::string::npos) << client().health().reason;
    }
  }
}

TEST_F(RedisClientTest, passes_on_few_and_plain_words_of_a_server) {
  const std::string words = "NOPERM \x1b[31m\xff\xc3" + std::string(3'000, 'w') + "\x01";
  for (const std::string& answer : {"-" + words + "\r\n", fmt::format("!{}\r\n{}\r\n", words.size(), words)}) {
    for (const char* command : {"HELLO", "SET"}) {
      engine_.reset();
      begin("redis://host:1");
      server().special = [&](const Words& all) { return all[0] == command ? answer : std::string{}; };
      start();
      (void)write(root_block(1));
      const std::string reason = client().health().reason;
      EXPECT_NE(reason.find("NOPERM ?[31m??www"), std::string::npos) << reason;
      EXPECT_LT(reason.size(), 600U);
      EXPECT_TRUE(std::ranges::all_of(reason, [](char c) { return c >= ' ' && c <= '~'; })) << reason;
    }
  }
}

// ---- deadlines -----------------------------------------------------------------------------------------------------------

TEST_F(RedisClientTest, ends_each_operation_at_its_deadline_and_drops_what_comes_later) {
  start();
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(error(write(block, large_block)));
  server().answer_max = 30'000;  // in the middle of the first part
  const std::uint64_t late = read(block, large_block, in(milliseconds{20}));
  EXPECT_FALSE(has_event(late));
  engine_->pass(milliseconds{19});
  EXPECT_FALSE(has_event(late));
  engine_->pass(milliseconds{1});
  EXPECT_EQ(error(late), Errc::deadline_exceeded);
  std::ranges::fill(memory(late), std::byte{0x11});
  server().answer_max = SIZE_MAX;
  expect_well(read(block, large_block), block);
  EXPECT_TRUE(std::ranges::all_of(memory(late), [](std::byte byte) { return byte == std::byte{0x11}; }));
  EXPECT_EQ(engine_->connects(), 2U) << "the connections were kept";
  EXPECT_EQ(client().stat().timed_out, 1U);
}

TEST_F(RedisClientTest, sends_nothing_for_a_write_that_has_ended_before_its_turn) {
  connections_ = 1;
  window_ = Bytes{large_block};
  start();
  server().silent = true;
  const std::uint64_t first = write(root_block(1), large_block);
  const std::uint64_t second = write(root_block(2), large_block, in(milliseconds{10}));
  engine_->pass(milliseconds{10});
  EXPECT_EQ(error(second), Errc::deadline_exceeded);
  server().silent = false;
  engine_->run();
  EXPECT_FALSE(error(first));
  EXPECT_EQ(server().values.size(), 2U);
  EXPECT_EQ(node().failed, 0U) << "it waited for the window, not for the server";
}

TEST_F(RedisClientTest, keeps_within_the_window) {
  connections_ = 1;
  window_ = Bytes{3 * small_block};
  start();
  for (std::uint64_t n = 1; n <= 6; ++n) keep(root_block(n));
  server().silent = true;
  for (std::uint64_t n = 1; n <= 6; ++n) (void)read(root_block(n));
  EXPECT_EQ(client().health().nodes.at(0).in_flight, Bytes{2 * (small_block + 128)});
  server().silent = false;
  engine_->run();
  EXPECT_EQ(engine_->events().size(), 6U);
}

TEST_F(RedisClientTest, cancels_at_once) {
  start();
  server().silent = true;
  const std::uint64_t first = read(root_block(1));
  const std::uint64_t second = probe({root_block(1)});
  client().cancel(first);
  client().cancel(second);
  client().cancel(99);
  engine_->run();
  EXPECT_EQ(error(first), Errc::cancelled);
  EXPECT_EQ(error(second), Errc::cancelled);
}

// ---- failures ------------------------------------------------------------------------------------------------------------

TEST_F(RedisClientTest, ends_what_was_on_a_connection_that_breaks_and_connects_again) {
  start();
  server().silent = true;
  const std::uint64_t lost = read(root_block(1));
  engine_->cut(1);
  engine_->run();
  EXPECT_EQ(error(lost), Errc::io_failed);
  server().silent = false;
  engine_->pass(seconds{1});
  EXPECT_FALSE(error(write(root_block(1))));
  EXPECT_EQ(node().reconnects, 2U);
}

TEST_F(RedisClientTest, starts_without_a_server_and_finds_it_later) {
  begin("redis://host:1");
  server().reachable = false;
  start();
  EXPECT_FALSE(client().usable());
  EXPECT_EQ(error(read(root_block(1))), Errc::refused);
  EXPECT_EQ(error(probe({root_block(1)})), Errc::refused);
  for (int i = 0; i < 1000; ++i) engine_->pass(milliseconds{100});
  EXPECT_LT(engine_->connects(), 40U);
  EXPECT_EQ(node().breaker, BreakerState::open);
  EXPECT_EQ(client().health().state, StoreState::down);
  EXPECT_NE(client().health().reason.find("connection refused"), std::string::npos);
  server().reachable = true;
  engine_->pass(seconds{30});
  EXPECT_TRUE(client().usable());
  EXPECT_EQ(client().health().state, StoreState::well);
  EXPECT_FALSE(error(write(root_block(1))));
}

TEST_F(RedisClientTest, leaves_a_silent_server_alone_after_some_failures) {
  start();
  server().silent = true;
  std::vector<std::uint64_t> tokens;
  for (int i = 0; i < 5; ++i) {
    tokens.push_back(probe({root_block(1)}, in(milliseconds{20})));
    engine_->pass(milliseconds{20});
  }
  for (const std::uint64_t token : tokens) EXPECT_EQ(error(token), Errc::deadline_exceeded);
  EXPECT_EQ(node().breaker, BreakerState::open);
  EXPECT_EQ(engine_->open_links(), 0U);
  EXPECT_FALSE(client().usable());
  EXPECT_EQ(error(probe({root_block(1)}, in(milliseconds{20}))), Errc::refused);
  // The probe of the breaker is a greeting, which ends in time, too.
  engine_->pass(milliseconds{500});
  EXPECT_EQ(engine_->open_links(), 1U);
  engine_->pass(seconds{1});
  EXPECT_EQ(engine_->open_links(), 0U);
  server().silent = false;
  engine_->pass(seconds{2});
  EXPECT_TRUE(client().usable());
  EXPECT_EQ(error(read(root_block(1))), Errc::not_found);
}

TEST_F(RedisClientTest, waits_only_once_and_briefly_for_a_server_that_stands_still) {
  start();
  server().silent = true;
  const std::uint64_t waits = write(root_block(1), large_block, in(seconds{5}));
  // Bytes that the kernel of the server takes for it are no sign of life.
  for (int i = 0; i < 4; ++i) {
    engine_->pass(milliseconds{100});
    (void)probe({root_block(1)}, in(milliseconds{20}));
  }
  engine_->pass(milliseconds{99});
  EXPECT_FALSE(has_event(waits));
  engine_->pass(milliseconds{1});
  EXPECT_EQ(error(waits), Errc::io_failed);
  EXPECT_EQ(node().breaker, BreakerState::open);
  EXPECT_FALSE(client().usable());
  EXPECT_EQ(client().health().state, StoreState::down);
  EXPECT_NE(client().health().reason.find("stands still"), std::string::npos) << client().health().reason;
  // Nothing waits for it any more, whatever the breaker tries.
  for (std::uint64_t n = 2; n < 100; ++n) {
    EXPECT_EQ(error(write(root_block(n), large_block, in(seconds{5}))), Errc::refused);
    engine_->pass(milliseconds{100});
  }
  server().silent = false;
  engine_->pass(seconds{30});
  EXPECT_EQ(client().health().state, StoreState::well);
  EXPECT_FALSE(error(write(root_block(1), large_block)));
}

TEST_F(RedisClientTest, takes_its_own_absence_for_no_silence_of_the_server) {
  start();
  ASSERT_FALSE(error(write(root_block(1))));
  server().silent = true;
  const std::uint64_t late = read(root_block(1));
  engine_->clock().advance(seconds{60});
  client().tick();  // something else is due first
  EXPECT_FALSE(has_event(late));
  server().silent = false;
  engine_->run();
  expect_well(late, root_block(1));
}

TEST_F(RedisClientTest, takes_bytes_that_a_silent_server_accepts_for_no_sign_of_life) {
  start();
  ASSERT_FALSE(error(write(root_block(1))));
  server().silent = true;
  const std::uint64_t first = read(root_block(1));
  for (int i = 0; i < 20 && !has_event(first); ++i) {
    (void)read(root_block(1));
    engine_->pass(milliseconds{100});
  }
  EXPECT_TRUE(has_event(first)) << "its deadline is later";
}

TEST_F(RedisClientTest, waits_only_once_for_a_server_that_cannot_be_connected) {
  begin("redis://host:1");
  server().silent = true;
  start();
  const std::uint64_t waits = write(root_block(1), large_block, in(seconds{5}));
  engine_->pass(seconds{1});
  EXPECT_EQ(error(waits), Errc::io_failed);
  for (std::uint64_t n = 2; n < 100; ++n) {
    EXPECT_EQ(error(write(root_block(n), large_block, in(seconds{5}))), Errc::refused);
    engine_->pass(milliseconds{100});
  }
}

TEST_F(RedisClientTest, has_patience_with_a_server_that_is_slow_and_with_one_that_has_nothing_to_say) {
  start();
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(error(write(block, large_block)));
  engine_->pass(seconds{60});
  server().answer_max = 0;
  const std::uint64_t slow = read(block, large_block);
  for (int i = 0; i < 20; ++i) {
    server().answer_max = 1'000;
    engine_->pass(milliseconds{400});
  }
  EXPECT_FALSE(has_event(slow));
  server().answer_max = SIZE_MAX;
  engine_->run();
  expect_well(slow, block);
  EXPECT_EQ(engine_->connects(), 2U);
}

TEST_F(RedisClientTest, does_not_connect_in_a_loop_to_a_server_that_hangs_up) {
  start();
  for (int i = 0; i < 100; ++i) {
    engine_->cut(1);
    engine_->pass(milliseconds{10});
  }
  EXPECT_LT(engine_->connects(), 20U);
}

TEST_F(RedisClientTest, takes_a_full_server_as_full_and_rests) {
  start();
  int sets = 0;
  server().special = [&](const Words& words) {
    if (words[0] != "SET") return std::string{};
    ++sets;
    return std::string{words[1].ends_with(":0") ? "-OOM command not allowed when used memory > 'maxmemory'.\r\n" : ""};
  };
  EXPECT_EQ(error(write(root_block(1), large_block)), Errc::full);
  EXPECT_EQ(server().values.size(), 0U) << "the other part was removed";
  EXPECT_EQ(error(write(root_block(2), large_block)), Errc::full);
  EXPECT_EQ(sets, 2) << "the second write was not sent";
  engine_->pass(seconds{1});
  server().special = {};
  EXPECT_FALSE(error(write(root_block(2), large_block)));
  EXPECT_EQ(client().stat().full, 2U);
  EXPECT_EQ(node().breaker, BreakerState::closed);
  EXPECT_EQ(node().failed, 0U);
}

TEST_F(RedisClientTest, goes_on_reading_where_it_may_not_write) {
  start();
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(error(write(block)));
  server().special = [](const Words& words) {
    const bool reads = words[0] == "GET" || words[0] == "EXISTS";
    return reads ? std::string{} : "-NOPERM the command '" + words[0] + "' is forbidden\r\n";
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(error(write(block)), Errc::io_failed);
  expect_well(read(block), block);
  const std::uint64_t changes = client().health_changes();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(error(write(block)), Errc::io_failed);
  EXPECT_EQ(client().health_changes(), changes) << "it is known already";
  client().remove({block.key}, GroupId{}, *names_);
  engine_->run();
  EXPECT_EQ(client().health().state, StoreState::degraded);
  EXPECT_EQ(node().breaker, BreakerState::closed);
  const std::string all = "NOPERM the command 'SET' is forbidden; NOPERM the command 'UNLINK' is forbidden";
  EXPECT_TRUE(client().health().reason.ends_with(all)) << client().health().reason;
}

TEST_F(RedisClientTest, knows_what_is_forbidden_until_the_node_is_connected_anew) {
  start();
  server().special = [](const Words& words) { return words[0] == "SET" ? std::string{"-NOPERM no\r\n"} : std::string{}; };
  EXPECT_EQ(error(write(root_block(1))), Errc::io_failed);
  ASSERT_EQ(client().health().state, StoreState::degraded);
  engine_->cut(1, 1);
  engine_->pass(seconds{1});
  EXPECT_EQ(node().connections, 2U);
  EXPECT_EQ(client().health().state, StoreState::degraded);
  engine_->cut(1);
  engine_->pass(seconds{1});
  EXPECT_EQ(client().health().state, StoreState::well);
}

TEST_F(RedisClientTest, takes_values_that_are_no_values_as_corrupt_and_removes_them) {
  start();
  const StoredBlock block = root_block(1);
  const auto corrupt = [&](const std::string& answer, SharedMismatch why) {
    server().special = [&](const Words& words) { return words[0] == "GET" ? answer : std::string{}; };
    server().commands.clear();
    const std::uint64_t before = client().stat().mismatches[static_cast<std::size_t>(why)];
    EXPECT_EQ(error(read(block)), Errc::corrupt) << answer.substr(0, 20);
    EXPECT_EQ(client().stat().mismatches[static_cast<std::size_t>(why)], before + 1);
    EXPECT_TRUE(std::ranges::any_of(server().commands, [](const Words& words) { return words[0] == "UNLINK"; }));
  };
  corrupt(bulk_of(""), SharedMismatch::format);
  corrupt(bulk_of("short"), SharedMismatch::format);
  corrupt(bulk_of(std::string(127, 'x')), SharedMismatch::format);
  corrupt(bulk_of(std::string(small_block + 128, 'x')), SharedMismatch::format);
  corrupt(bulk_of(std::string(10 * small_block, 'x')), SharedMismatch::format);
  corrupt("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", SharedMismatch::format);
  corrupt("*2\r\n$3\r\nabc\r\n:1\r\n", SharedMismatch::format);
  corrupt(":1\r\n", SharedMismatch::format);
  EXPECT_EQ(node().breaker, BreakerState::closed);
}

TEST_F(RedisClientTest, breaks_a_connection_that_speaks_another_language) {
  start();
  server().special = [](const Words& words) { return std::string{words[0] == "GET" ? "HTTP/1.1 400 Bad Request\r\n" : ""}; };
  EXPECT_EQ(error(read(root_block(1))), Errc::io_failed);
  server().special = {};
  engine_->pass(seconds{1});
  EXPECT_EQ(error(read(root_block(1))), Errc::not_found);
}

TEST_F(RedisClientTest, bounds_the_orders_that_nobody_waits_for) {
  connections_ = 1;
  start();
  server().silent = true;
  for (int i = 0; i < 1000; ++i) client().renew({root_block(1)}, *names_);
  engine_->run();
  server().silent = false;
  engine_->run();
  EXPECT_EQ(server().commands.size(), 2U * RedisClient::orders_max);
}

}  // namespace
}  // namespace terrace::test
