#include "storage/resilience/resilient_store.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using Kind = StoreEvent::Kind;

/// A ResilientStore in front of a file store on a disk whose operations fail when the test says so.
class ResilientStoreTest : public testing::Test {
 protected:
  static ResilienceOptions options() {
    ResilienceOptions options;
    options.back_off_first = milliseconds{20};
    options.back_off_max = milliseconds{80};
    options.waiting_max = 4;
    options.breaker = {.failures_max = 4, .window = std::chrono::seconds{10}, .probe_first = milliseconds{100}};
    return options;
  }

  void write(const StoredBlock& block, std::uint64_t token) {
    buffers_.push_back(content_of(block.key));
    const StoreWrite write{token, block, buffers_.back().span()};
    guard.write({&write, 1});
  }
  std::span<const std::byte> read(const BlockKey& key, std::uint64_t token) {
    buffers_.emplace_back(block_size);
    const StoreRead read{token, key, buffers_.back().span()};
    guard.read({&read, 1});
    return buffers_.back().span();
  }
  /// Makes the next operations fail.
  void fail_next(int operations = 1) {
    for (int i = 0; i < operations; ++i) {
      io.files().inject(io.files().next_number() + static_cast<std::uint64_t>(i), {.error = EIO});
    }
  }
  /// Completes all I/O under way, without advancing the time.
  std::vector<StoreEvent> settle() {
    std::vector<StoreEvent> events;
    do {
      while (io.queued() > 0) io.step(0);
      guard.poll(events);
      guard.check_invariants();
    } while (io.queued() > 0);
    return events;
  }
  std::vector<StoreEvent> after(Duration time) {
    clock.advance(time);
    return settle();
  }
  void store(const std::vector<StoredBlock>& blocks) {
    for (const StoredBlock& block : blocks) write(block, 1);
    settle();
    ASSERT_GE(guard.stat().blocks, blocks.size());
  }
  /// Writes root blocks that fail, one after the other, until the breaker of writes is open.
  void open_write_breaker() {
    for (std::uint64_t n = 900; guard.write_breaker().state() == CircuitBreaker::State::closed; ++n) {
      fail_next();
      write(root_block(n), n);
      settle();
    }
  }
  /// Opens the breaker of reads as well, with reads of blocks that are stored for it.
  void open_breakers() {
    for (std::uint64_t n = 950; n < 954; ++n) write(root_block(n), n);
    settle();
    for (std::uint64_t n = 950; guard.read_breaker().state() == CircuitBreaker::State::closed; ++n) {
      fail_next();
      read(key_of(n), n);
      settle();
    }
    open_write_breaker();
  }

  SimulatedIo io;
  ManualClock clock;
  FileStore file{config_for("/store", 32), io};
  ResilientStore guard{file, clock, options()};
  std::vector<AlignedBuffer> buffers_;
};

TEST_F(ResilientStoreTest, reads_again_after_a_back_off_and_the_content_is_right) {
  store({root_block(1)});
  fail_next();
  const auto content = read(key_of(1), 7);
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(guard.in_flight(), 1U);
  EXPECT_EQ(guard.next_deadline(), clock.now() + milliseconds{20});
  EXPECT_TRUE(after(milliseconds{19}).empty());
  EXPECT_EQ(guard.health().retried, 0U) << "inside the back-off";
  const auto events = after(milliseconds{1});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, 7U);
  EXPECT_FALSE(events[0].error);
  EXPECT_TRUE(holds(content, key_of(1)));
  EXPECT_EQ(guard.next_deadline(), never);
  const StoreHealth health = guard.health();
  EXPECT_EQ(health.state, StoreState::well);
  EXPECT_EQ(health.retried, 1U);
  EXPECT_EQ(health.recovered, 1U);
  EXPECT_EQ(health.failed[static_cast<std::size_t>(ErrorClass::transient)], 1U);
}

TEST_F(ResilientStoreTest, hands_no_key_to_the_store_inside_its_back_off) {
  store({root_block(1)});
  fail_next();
  read(key_of(1), 7);
  settle();
  const std::uint64_t operations = io.files().next_number();
  read(key_of(1), 8);
  const auto events = settle();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, 8U);
  EXPECT_EQ(events[0].error, Errc::io_failed);
  EXPECT_EQ(io.files().next_number(), operations);
  EXPECT_EQ(guard.health().held_back, 1U);
}

TEST_F(ResilientStoreTest, goes_on_with_the_back_off_after_the_last_try_and_doubles_it) {
  fail_next();
  write(root_block(1), 7);
  settle();
  fail_next();
  EXPECT_EQ(outcome(after(milliseconds{20}), Kind::written, key_of(1)), Errc::io_failed);
  write(root_block(1), 8);
  EXPECT_EQ(outcome(settle(), Kind::written, key_of(1)), Errc::refused);
  clock.advance(milliseconds{39});
  write(root_block(1), 9);
  EXPECT_EQ(outcome(settle(), Kind::written, key_of(1)), Errc::refused);
  clock.advance(milliseconds{1});
  write(root_block(1), 10);
  EXPECT_FALSE(outcome(settle(), Kind::written, key_of(1)));
}

TEST_F(ResilientStoreTest, keeps_writes_in_order_behind_one_that_is_tried_again) {
  const auto prefix = prefix_of(1, 3);
  fail_next();
  write(prefix[0], 10);
  write(prefix[1], 11);
  EXPECT_TRUE(settle().empty());
  write(prefix[2], 12);
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(guard.health().waiting, 3U);
  EXPECT_EQ(keys_of(after(milliseconds{20}), Kind::written), (std::vector{prefix[0].key, prefix[1].key, prefix[2].key}));
  for (const StoredBlock& block : prefix) {
    const auto content = read(block.key, 1);
    EXPECT_FALSE(outcome(settle(), Kind::read, block.key));
    EXPECT_TRUE(holds(content, block.key));
  }
}

TEST_F(ResilientStoreTest, ends_what_builds_on_a_write_that_failed_for_good) {
  const auto prefix = prefix_of(1, 2);
  fail_next();
  write(prefix[0], 10);
  write(prefix[1], 11);
  settle();
  fail_next();
  const auto events = after(milliseconds{20});
  EXPECT_EQ(outcome(events, Kind::written, prefix[0].key), Errc::io_failed);
  EXPECT_EQ(outcome(events, Kind::written, prefix[1].key), Errc::parent_missing);
  EXPECT_EQ(guard.in_flight(), 0U);
}

TEST_F(ResilientStoreTest, brings_nothing_back_that_was_removed_meanwhile) {
  fail_next();
  write(root_block(1), 10);
  settle();
  const BlockKey key = key_of(1);
  guard.remove({&key, 1}, 5);
  EXPECT_EQ(outcome(settle(), Kind::written, key), Errc::io_failed);
  after(std::chrono::seconds{1});
  EXPECT_EQ(guard.stat().blocks, 0U);

  fail_next();
  write(root_block(1), 11);
  guard.remove({&key, 1}, 5);
  EXPECT_EQ(outcome(settle(), Kind::written, key), Errc::io_failed) << "its only try was under way";
  after(std::chrono::seconds{1});
  EXPECT_EQ(guard.stat().blocks, 0U);
}

TEST_F(ResilientStoreTest, ends_a_waiting_write_whose_parent_the_store_gives_up) {
  const auto prefix = prefix_of(1, 2);
  store({prefix[0]});
  fail_next();
  write(prefix[1], 10);
  settle();
  const auto at = file.location(prefix[0].key);
  io.files().content(at->file)[at->offset + 100] ^= std::byte{1};
  read(prefix[0].key, 11);
  const auto events = settle();
  EXPECT_EQ(outcome(events, Kind::read, prefix[0].key), Errc::corrupt);
  EXPECT_EQ(outcome(events, Kind::written, prefix[1].key), Errc::parent_missing);
  EXPECT_EQ(guard.in_flight(), 0U);
}

TEST_F(ResilientStoreTest, is_degraded_for_an_hour_after_a_block_that_did_not_verify) {
  store({root_block(1), root_block(2)});
  const auto damage = [this](const BlockKey& key) {
    const auto at = file.location(key);
    io.files().content(at->file)[at->offset + 100] ^= std::byte{1};
    read(key, 11);
    settle();
  };
  EXPECT_EQ(guard.health().state, StoreState::well);
  damage(root_block(1).key);
  clock.advance(std::chrono::minutes{40});
  damage(root_block(2).key);
  clock.advance(std::chrono::minutes{59});
  StoreHealth health = guard.health();
  EXPECT_EQ(health.state, StoreState::degraded);
  EXPECT_TRUE(health.used_in_full) << "the other blocks are used";
  EXPECT_EQ(health.damaged, 2U);
  EXPECT_TRUE(health.reason.starts_with("2 stored blocks did not verify and were given up, the last one 59 minutes ago"))
      << health.reason;
  clock.advance(std::chrono::minutes{1});
  health = guard.health();
  EXPECT_EQ(health.state, StoreState::well);
  EXPECT_EQ(health.damaged, 0U);
}

TEST_F(ResilientStoreTest, lets_no_more_wait_than_its_bound) {
  store({root_block(1)});
  ResilienceOptions wide = options();
  wide.breaker.failures_max = 100;
  ResilientStore bounded{file, clock, wide};
  for (std::uint64_t n = 10; n < 16; ++n) {
    fail_next();
    buffers_.push_back(content_of(key_of(n)));
    const StoreWrite one{n, root_block(n), buffers_.back().span()};
    bounded.write({&one, 1});
  }
  while (io.queued() > 0) io.step(0);
  std::vector<StoreEvent> events;
  bounded.poll(events);
  bounded.check_invariants();
  EXPECT_EQ(bounded.health().waiting, 4U);
  ASSERT_EQ(events.size(), 2U);
  for (const StoreEvent& event : events) EXPECT_EQ(event.error, Errc::io_failed);
}

TEST_F(ResilientStoreTest, declines_while_the_breaker_is_open_and_probes_with_one_operation) {
  store({root_block(1), root_block(2)});
  open_breakers();
  StoreHealth health = guard.health();
  EXPECT_EQ(health.state, StoreState::degraded);
  EXPECT_EQ(health.next_probe, clock.now() + milliseconds{100});
  EXPECT_EQ(health.waiting, 0U) << "what waited has ended";
  EXPECT_EQ(guard.in_flight(), 0U);

  const std::uint64_t operations = io.files().next_number();
  read(key_of(1), 7);
  write(root_block(3), 8);
  auto events = settle();
  EXPECT_EQ(outcome(events, Kind::read, key_of(1)), Errc::not_found);
  EXPECT_EQ(outcome(events, Kind::written, key_of(3)), Errc::refused);
  EXPECT_EQ(io.files().next_number(), operations);
  EXPECT_EQ(guard.health().declined, 2U);

  clock.advance(milliseconds{100});
  const auto content = read(key_of(1), 9);
  read(key_of(2), 10);
  events = settle();
  EXPECT_FALSE(outcome(events, Kind::read, key_of(1)));
  EXPECT_TRUE(holds(content, key_of(1)));
  EXPECT_EQ(outcome(events, Kind::read, key_of(2)), Errc::not_found) << "only one was let through";
  EXPECT_EQ(guard.health().state, StoreState::degraded) << "of writes nothing is known yet";
  write(root_block(3), 12);
  write(root_block(4), 13);
  events = settle();
  EXPECT_FALSE(outcome(events, Kind::written, key_of(3)));
  EXPECT_EQ(outcome(events, Kind::written, key_of(4)), Errc::refused) << "nor of these";
  health = guard.health();
  EXPECT_EQ(health.state, StoreState::well);
  EXPECT_EQ(health.next_probe, never);
  read(key_of(2), 11);
  EXPECT_FALSE(outcome(settle(), Kind::read, key_of(2)));
}

TEST_F(ResilientStoreTest, is_down_when_probes_go_on_failing) {
  store({root_block(1), root_block(2)});
  open_breakers();
  for (const std::uint64_t n : {1, 2}) {
    clock.advance(guard.read_breaker().next_probe() - clock.now());
    fail_next();
    read(key_of(n), 20 + n);
    EXPECT_EQ(outcome(settle(), Kind::read, key_of(n)), Errc::io_failed) << "a probe is not tried again";
  }
  EXPECT_EQ(guard.health().state, StoreState::down);
  EXPECT_EQ(guard.read_breaker().next_probe(), clock.now() + milliseconds{400});
  EXPECT_LE(guard.health().next_probe, clock.now()) << "a write may try at once";
}

TEST_F(ResilientStoreTest, learns_nothing_from_a_probe_without_io) {
  store({root_block(1)});
  open_breakers();
  clock.advance(milliseconds{100});
  write(root_block(1), 7);  // it is stored already
  EXPECT_FALSE(outcome(settle(), Kind::written, key_of(1)));
  EXPECT_EQ(guard.health().state, StoreState::degraded);
  read(key_of(55), 8);
  EXPECT_EQ(outcome(settle(), Kind::read, key_of(55)), Errc::not_found);
  EXPECT_EQ(guard.health().state, StoreState::degraded);
  read(key_of(1), 9);
  EXPECT_FALSE(outcome(settle(), Kind::read, key_of(1)));
  EXPECT_EQ(guard.health().state, StoreState::degraded);
  write(root_block(3), 10);
  EXPECT_FALSE(outcome(settle(), Kind::written, key_of(3)));
  EXPECT_EQ(guard.health().state, StoreState::well);
}

TEST_F(ResilientStoreTest, goes_on_reading_while_only_writes_fail) {
  store({root_block(1)});
  open_write_breaker();
  EXPECT_EQ(guard.health().state, StoreState::degraded);
  EXPECT_TRUE(guard.health().reason.starts_with("writes: ")) << guard.health().reason;
  write(root_block(2), 6);
  EXPECT_EQ(outcome(settle(), Kind::written, key_of(2)), Errc::refused);
  for (std::uint64_t n = 7; n < 10; ++n) {
    const auto content = read(key_of(1), n);
    EXPECT_FALSE(outcome(settle(), Kind::read, key_of(1)));
    EXPECT_TRUE(holds(content, key_of(1)));
  }
  EXPECT_EQ(guard.health().state, StoreState::degraded) << "that is no news of writes";
}

TEST_F(ResilientStoreTest, stops_reading_what_takes_everything_and_gives_nothing_back) {
  std::vector<StoredBlock> blocks;
  for (std::uint64_t n = 1; n <= 6; ++n) blocks.push_back(root_block(n));
  store(blocks);
  io.files().fail_reads(true);
  std::uint64_t n = 0;
  for (; n < 6 && guard.health().state == StoreState::well; ++n) {
    read(key_of(n + 1), n);
    settle();
    write(root_block(50 + n), n);  // between two reads a write succeeds
    EXPECT_FALSE(outcome(settle(), Kind::written, key_of(50 + n)));
  }
  EXPECT_EQ(n, 4U) << "as many failures in a row as it takes";
  EXPECT_EQ(guard.health().state, StoreState::degraded);
  EXPECT_TRUE(guard.health().reason.starts_with("reads: ")) << guard.health().reason;
  read(key_of(6), 60);
  EXPECT_EQ(outcome(settle(), Kind::read, key_of(6)), Errc::not_found);
  write(root_block(60), 61);
  EXPECT_FALSE(outcome(settle(), Kind::written, key_of(60)));
  io.files().fail_reads(false);
  clock.advance(milliseconds{100});
  read(key_of(6), 62);
  EXPECT_FALSE(outcome(settle(), Kind::read, key_of(6)));
  EXPECT_EQ(guard.health().state, StoreState::well);
}

TEST_F(ResilientStoreTest, refuses_options_that_make_no_sense) {
  ResilienceOptions wrong = options();
  wrong.back_off_first = {};
  EXPECT_THROW(ResilientStore(file, clock, wrong), std::invalid_argument);
}

TEST_F(ResilientStoreTest, stops_using_a_disk_that_takes_long_to_fail) {
  // Four failures within ten seconds would open the breaker, and there are never four.
  for (std::uint64_t n = 1; n <= 2; ++n) {
    EXPECT_EQ(guard.write_breaker().state(), BreakerState::closed);
    clock.advance(std::chrono::minutes{1});
    fail_next();
    write(root_block(n), n);
    after(std::chrono::seconds{6});
  }
  EXPECT_EQ(guard.write_breaker().state(), BreakerState::open);
}

}  // namespace
}  // namespace terrace::test
