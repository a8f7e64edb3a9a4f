#include "storage/resilience/scrub.hpp"

#include "storage/memory/memory_store.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = StoreEvent::Kind;

constexpr std::uint32_t capacity = 1200;  // more than a step of the walk looks at
/// A block takes 10 ms.
constexpr Bytes pace = Bytes{block_size} * 100;
constexpr Duration block_time = milliseconds{10};
constexpr std::uint32_t reads_max = Scrub::reads_max(Bytes{block_size});

/// Behind a guard, over a file store on a disk in memory.
class ScrubTest : public testing::Test {
 protected:
  static GuardOptions guard_options() {
    GuardOptions options;
    options.read_retries = 0;
    options.back_off_first = options.back_off_max = milliseconds{35};
    options.breaker = {.failures_max = 4, .window = seconds{10}, .probe_first = milliseconds{100}};
    return options;
  }

  void start(const ScrubOptions& options = {pace, seconds{60}}) {
    scrub.set(options, clock.now());
    scrub.start(guard, clock.now());
  }
  void store(const std::vector<StoredBlock>& blocks) {
    std::vector<StoreWrite> batch;
    for (const StoredBlock& block : blocks) {
      buffers_.push_back(content_of(block.key));
      batch.push_back({1, block, buffers_.back().span()});
    }
    guard.write(batch);
    settle();
    ASSERT_GE(guard.stat().blocks, blocks.size());
  }
  void start_read(const BlockKey& key) {
    buffers_.emplace_back(block_size);
    const StoreRead read{9, key, buffers_.back().span()};
    guard.read({&read, 1});
  }
  void poll() {
    guard.poll(events);
    guard.check_invariants();
  }
  /// All I/O under way; time stands still.
  void settle() {
    do {
      while (io.queued() > 0) io.step(0);
      poll();
    } while (io.queued() > 0);
  }
  /// Time goes on by as much, from one deadline to the next; the disk takes none.
  void pass_time(Duration time) {
    const TimePoint end = clock.now() + time;
    for (settle(); clock.now() < end; settle()) {
      const TimePoint next = std::min(end, guard.next_deadline());
      ASSERT_GT(next, clock.now()) << "a deadline that has passed would keep its owner awake";
      clock.advance(next - clock.now());
    }
  }
  /// Until a pass has ended, within a minute.
  void end_pass() {
    const std::uint64_t before = scrub.health().passes;
    for (int i = 0; i < 6000 && scrub.health().passes == before; ++i) pass_time(block_time);
    ASSERT_EQ(scrub.health().passes, before + 1);
  }
  void damage(const BlockKey& key) {
    const auto at = file.location(key);
    ASSERT_TRUE(at.has_value());
    io.files().content(at->file)[at->offset + 77] ^= std::byte{16};
  }

  std::vector<AlignedBuffer> buffers_;
  SteppedIo io;
  ManualClock clock;
  Scrub scrub{Bytes{block_size}, ScrubOptions{}};
  FileStore file{config_for("/store", capacity), io};
  GuardedStore guard{file, clock, guard_options()};
  std::vector<StoreEvent> events;
};

TEST_F(ScrubTest, reads_every_block_once_a_pass_and_says_how_far_it_is) {
  store(path_of(1, 6));
  start();
  EXPECT_EQ(guard.next_deadline(), clock.now()) << "an owner that sleeps is to come at once";
  pass_time(3 * block_time - milliseconds{1});
  ScrubHealth health = scrub.health();
  EXPECT_EQ(health.state, ScrubState::running);
  EXPECT_EQ(health.bandwidth, pace);
  EXPECT_EQ(health.blocks, 3U);
  EXPECT_EQ(health.place, 3U);
  EXPECT_EQ(health.places, capacity);
  EXPECT_EQ(health.last_pass_ended, never);
  const TimePoint began = clock.now() - (3 * block_time - milliseconds{1});
  end_pass();
  health = scrub.health();
  EXPECT_EQ(health.state, ScrubState::resting);
  EXPECT_EQ(health.blocks, 6U);
  EXPECT_EQ(health.read, Bytes{block_size} * 6);
  EXPECT_EQ(file.stat().reads, 6U);
  EXPECT_GT(health.last_pass_took, 5 * block_time);
  EXPECT_EQ(health.last_pass_ended, began + health.last_pass_took);
  EXPECT_EQ(health.next_pass, began + seconds{60});
  EXPECT_EQ(guard.next_deadline(), health.next_pass);
  pass_time(seconds{59});
  EXPECT_EQ(scrub.health().blocks, 6U) << "it rests";
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 12U);
  EXPECT_TRUE(keys_of(events, Kind::read).empty()) << "what it reads is nobody else's";
}

TEST_F(ScrubTest, finds_a_flipped_bit_that_nobody_asks_for_and_what_builds_on_the_block_goes_with_it) {
  const auto path = path_of(1, 8);
  store(path);
  store({root_block(50)});
  start();
  end_pass();
  ASSERT_EQ(scrub.health().corrupt, 0U);
  damage(path[5].key);
  events.clear();
  pass_time(seconds{60});
  end_pass();
  EXPECT_EQ(scrub.health().corrupt, 1U);
  EXPECT_EQ(file.stat().corrupt, 1U);
  EXPECT_EQ(file.stat().blocks, 6U);
  const std::vector expected{path[7].key, path[6].key, path[5].key};
  EXPECT_EQ(keys_of(events, Kind::evicted), expected);
  for (const StoreEvent& event : events) EXPECT_EQ(event.write_token, 1U);
  start_read(path[5].key);
  settle();
  EXPECT_EQ(outcome(events, Kind::read, path[5].key), Errc::not_found);
}

TEST_F(ScrubTest, keeps_to_its_rate_however_late_or_often_it_is_polled) {
  store(path_of(1, 400));
  start();
  std::vector<TimePoint> read_at;
  for (const int step_ms : {1, 0, 3, 17, 500, 4}) {
    for (int i = 0; i < 60; ++i) {
      clock.advance(milliseconds{step_ms});
      settle();
      read_at.resize(file.stat().reads, clock.now());
    }
  }
  for (std::size_t first = 0; first < read_at.size(); ++first) {
    for (std::size_t last = first; last < read_at.size(); ++last) {
      const auto allowed = static_cast<std::uint64_t>((read_at[last] - read_at[first]) / block_time) + reads_max + 1;
      ASSERT_LE(last - first + 1, allowed) << first;
    }
  }
  EXPECT_LE(scrub.health().passes, 1U);
  EXPECT_EQ(scrub.health().blocks, 400U);
}

TEST_F(ScrubTest, reaches_its_rate) {
  store(path_of(1, 400));
  start();
  pass_time(seconds{2});
  EXPECT_GE(scrub.health().blocks, 199U);
  EXPECT_LE(scrub.health().blocks, 202U);
}

TEST_F(ScrubTest, reaches_its_rate_under_an_owner_that_polls_once_a_step_of_many_blocks) {
  store(path_of(1, 1000));
  start({pace * 4, seconds{60}});
  for (int step = 0; step < 80; ++step) {
    clock.advance(milliseconds{25});  // ten blocks
    while (io.queued() > 0) io.step(0);
    poll();
    ASSERT_LE(io.queued(), 11U);
  }
  settle();
  EXPECT_GE(scrub.health().blocks, 780U) << "of 800";
  EXPECT_LE(scrub.health().blocks, 801U);
}

TEST_F(ScrubTest, has_no_more_under_way_than_it_may_and_begins_the_next_when_all_have_ended) {
  store(path_of(1, 200));
  start();
  poll();
  EXPECT_EQ(io.queued(), 1U) << "there is nothing yet to make up for";
  for (int i = 0; i < 10; ++i) {
    clock.advance(seconds{1});
    poll();
    EXPECT_EQ(io.queued(), 1U);
    EXPECT_EQ(guard.next_deadline(), never) << "the end of the read wakes";
  }
  io.step(0);
  poll();
  EXPECT_EQ(io.queued(), reads_max);
  EXPECT_EQ(guard.next_deadline(), never);
  while (io.queued() > 1) {
    io.step(io.queued() / 2);
    poll();
  }
  EXPECT_EQ(scrub.health().blocks, reads_max) << "all but the last, and the one before";
  io.step(0);
  poll();
  EXPECT_EQ(io.queued(), 1U) << "what it missed beyond that is not made up for";
  settle();
  EXPECT_EQ(scrub.health().blocks, reads_max + 2);
  EXPECT_EQ(guard.next_deadline(), clock.now() + block_time);
}

TEST_F(ScrubTest, makes_up_for_nothing_that_it_missed_while_it_was_off) {
  store(path_of(1, 200));
  start();
  pass_time(2 * block_time);
  scrub.set({Bytes{}, seconds{60}}, clock.now());
  clock.advance(seconds{5});
  poll();
  scrub.set({pace, seconds{60}}, clock.now());
  poll();
  EXPECT_EQ(io.queued(), 1U);
  settle();
}

TEST_F(ScrubTest, is_set_and_turned_off_while_several_reads_are_under_way) {
  store(path_of(1, 200));
  start();
  poll();
  clock.advance(seconds{1});
  settle();
  clock.advance(seconds{1});
  poll();
  ASSERT_EQ(io.queued(), reads_max);
  const std::uint64_t before = scrub.health().blocks;
  scrub.set({pace * 2, seconds{60}}, clock.now());
  EXPECT_EQ(guard.next_deadline(), never) << "the end of a read wakes";
  clock.advance(seconds{1});
  poll();
  EXPECT_EQ(io.queued(), reads_max);
  scrub.set({Bytes{}, seconds{60}}, clock.now());
  EXPECT_EQ(scrub.health().state, ScrubState::off);
  for (std::uint32_t n = 0; n < reads_max / 2; ++n) io.step(0);
  poll();
  EXPECT_EQ(scrub.health().blocks, before + reads_max / 2);
  scrub.set({pace, seconds{60}}, clock.now());
  EXPECT_EQ(guard.next_deadline(), never) << "others are under way still";
  poll();
  EXPECT_EQ(io.queued(), reads_max / 2);
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 200U) << "each once";
}

TEST_F(ScrubTest, ends_a_pass_when_its_last_reads_have_ended) {
  store(path_of(1, 20));
  start();
  poll();
  for (int i = 0; i < 10; ++i) {
    clock.advance(seconds{1});
    poll();
  }
  io.step(0);
  poll();
  ASSERT_EQ(io.queued(), 19U) << "all that are left";
  for (int i = 0; i < 10; ++i) {
    clock.advance(seconds{1});
    poll();
  }
  EXPECT_EQ(scrub.health().passes, 0U);
  EXPECT_EQ(scrub.health().state, ScrubState::running);
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 20U);
}

TEST_F(ScrubTest, finds_what_rotted_among_several_reads_and_what_builds_on_it_may_be_one_of_them) {
  const auto path = path_of(1, 20);
  store(path);
  start();
  poll();
  clock.advance(seconds{1});
  damage(path[9].key);
  while (io.queued() > 0) io.step(0);
  poll();
  ASSERT_EQ(io.queued(), 19U);
  io.step(8);  // path[9]
  poll();
  EXPECT_EQ(file.stat().blocks, 9U);
  EXPECT_EQ(scrub.health().corrupt, 1U);
  while (io.queued() > 0) io.step(io.queued() - 1);
  end_pass();
  EXPECT_EQ(keys_of(events, Kind::evicted).size(), 11U);
  EXPECT_EQ(scrub.health().corrupt, 1U);
  EXPECT_EQ(scrub.health().io_failed, 0U);
  EXPECT_TRUE(keys_of(events, Kind::read).empty());
}

TEST_F(ScrubTest, takes_another_rate_while_it_serves_and_stops_at_none) {
  store(path_of(1, 400));
  start({Bytes{1}, seconds{60}});
  pass_time(seconds{10});
  EXPECT_EQ(scrub.health().blocks, 1U);
  scrub.set({pace * 10, seconds{60}}, clock.now());
  EXPECT_EQ(guard.next_deadline(), clock.now());
  pass_time(milliseconds{100});
  EXPECT_GE(scrub.health().blocks, 100U);
  EXPECT_LE(scrub.health().blocks, 103U);
  clock.advance(block_time);
  poll();
  scrub.set({Bytes{}, seconds{60}}, clock.now());
  EXPECT_EQ(scrub.health().state, ScrubState::off);
  settle();  // a read was under way
  const std::uint64_t blocks = scrub.health().blocks;
  EXPECT_EQ(guard.next_deadline(), never);
  clock.advance(seconds{1});
  settle();
  EXPECT_EQ(scrub.health().blocks, blocks);
  scrub.set({pace, seconds{60}}, clock.now());
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 400U) << "it went on where it was";
  scrub.set({pace, seconds{5}}, clock.now());
  EXPECT_LE(scrub.health().next_pass, clock.now() + seconds{5});
}

TEST_F(ScrubTest, walks_over_free_places_in_steps) {
  start();
  const TimePoint began = clock.now();
  end_pass();
  EXPECT_EQ(scrub.health().last_pass_took, 2 * Scrub::look_pause) << capacity << " places are three steps";
  EXPECT_EQ(scrub.health().next_pass, began + seconds{60});
  EXPECT_EQ(scrub.health().place, capacity);
}

TEST_F(ScrubTest, begins_passes_a_while_apart_also_where_none_is_asked_for) {
  start({pace, {}});
  end_pass();
  EXPECT_EQ(scrub.health().next_pass, scrub.health().last_pass_ended - scrub.health().last_pass_took + Scrub::period_min);
  EXPECT_THROW(scrub.set({pace, seconds{-1}}, clock.now()), std::invalid_argument);
  EXPECT_THROW(Scrub(Bytes{block_size}, {pace, seconds{-1}}), std::invalid_argument);
}

TEST_F(ScrubTest, changes_nothing_in_who_makes_room) {
  std::vector<StoredBlock> roots;
  for (std::uint64_t n = 0; n < capacity; ++n) roots.push_back(root_block(n));
  for (const StoredBlock& root : roots) store({root});
  start();
  pass_time(block_time * 10);
  ASSERT_GE(scrub.health().blocks, 10U);
  scrub.set({Bytes{}, {}}, clock.now());
  events.clear();
  for (std::uint64_t n = 0; n < 20; ++n) store({root_block(5000 + n)});
  std::vector<BlockKey> oldest;
  for (std::size_t n = 0; n < 20; ++n) oldest.push_back(roots[n].key);
  EXPECT_EQ(keys_of(events, Kind::evicted), oldest);
}

TEST_F(ScrubTest, lets_the_owners_operations_go_first_and_is_not_starved_by_them) {
  store(path_of(1, 400));
  start();
  pass_time(block_time);
  const std::uint64_t before = scrub.health().blocks;
  start_read(key_of(1));
  clock.advance(block_time);
  poll();
  const TimePoint due = clock.now();
  EXPECT_EQ(io.queued(), 1U) << "only the owner's";
  EXPECT_EQ(guard.next_deadline(), due + 9 * block_time);
  settle();  // the owner's ends
  EXPECT_EQ(scrub.health().blocks, before + 1) << "and the scrub's turn has come";

  // An owner that always has something under way.
  const std::uint64_t reads = scrub.health().blocks;
  for (int i = 0; i < 2000; ++i) {
    start_read(key_of(1));
    clock.advance(milliseconds{1});
    while (io.queued() > 1) io.step(0);
    poll();
  }
  EXPECT_GE(scrub.health().blocks - reads, 15U) << "of 200, a tenth";
  EXPECT_LE(scrub.health().blocks - reads, 21U);
}

TEST_F(ScrubTest, keeps_a_tenth_of_its_rate_beside_an_owner_that_is_always_busy_and_polls_seldom) {
  store(path_of(1, 1000));
  start({pace * 10, seconds{60}});  // a block in a millisecond
  for (int step = 0; step < 80; ++step) {
    start_read(key_of(1));
    clock.advance(milliseconds{25});
    poll();
    ASSERT_LE(io.queued(), 5U) << "two of the owner's, and three whose wait is over";
    while (io.queued() > 1) io.step(1);
    poll();
    start_read(key_of(1));
    while (io.queued() > 1) io.step(0);  // never nothing under way
    poll();
  }
  EXPECT_GE(scrub.health().blocks, 190U) << "of 2,000, a tenth";
  EXPECT_LE(scrub.health().blocks, 203U);
}

TEST_F(ScrubTest, makes_up_for_no_more_than_it_may_have_under_way_beside_an_owner_that_is_always_busy) {
  store(path_of(1, 1000));
  start();
  pass_time(block_time);
  start_read(key_of(1));
  poll();
  clock.advance(seconds{100});
  poll();
  EXPECT_EQ(io.queued(), 1 + reads_max);
  while (io.queued() > 1) io.step(1);
  const std::uint64_t before = scrub.health().blocks;
  for (int i = 0; i < 400; ++i) {
    clock.advance(milliseconds{1});
    while (io.queued() > 1) io.step(1);  // never the owner's
    poll();
  }
  EXPECT_LE(scrub.health().blocks - before, reads_max + 5) << "a block in ten times its time";
}

TEST_F(ScrubTest, pauses_while_the_breaker_is_not_closed) {
  store(path_of(1, 40));
  start();
  pass_time(5 * block_time);
  // Its own reads are what fails, one after the other.
  for (int i = 0; i < 4; ++i) {
    io.files().inject(io.files().next_number(), {.error = EIO});
    clock.advance(block_time);
    settle();
  }
  ASSERT_EQ(guard.read_breaker().state(), TierBreaker::State::open);
  const ScrubHealth health = scrub.health();
  EXPECT_EQ(health.state, ScrubState::paused);
  EXPECT_EQ(health.io_failed, 4U);
  EXPECT_EQ(guard.next_deadline(), never);
  for (int i = 0; i < 50; ++i) {
    clock.advance(milliseconds{100});
    settle();
  }
  EXPECT_EQ(scrub.health().place, health.place) << "no read, and no probe of its own";
  EXPECT_EQ(guard.read_breaker().state(), TierBreaker::State::open);
  start_read(key_of(1));
  settle();
  ASSERT_EQ(guard.read_breaker().state(), TierBreaker::State::closed);
  EXPECT_EQ(scrub.health().state, ScrubState::running);
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 36U);
}

TEST_F(ScrubTest, passes_over_a_block_inside_its_back_off) {
  store({root_block(1), root_block(2), root_block(3)});
  io.files().inject(io.files().next_number(), {.error = EIO});
  start_read(key_of(2));
  settle();
  start();
  end_pass();
  EXPECT_EQ(scrub.health().passed_over, 1U);
  EXPECT_EQ(scrub.health().blocks, 2U);
  EXPECT_EQ(file.stat().blocks, 3U);
}

TEST_F(ScrubTest, gives_up_a_block_that_cannot_be_read_in_two_passes) {
  store({root_block(1), root_block(2)});
  start();
  for (int pass = 0; pass < 2; ++pass) {
    io.files().inject(io.files().next_number(), {.error = EIO});
    end_pass();
    pass_time(seconds{59});
  }
  EXPECT_EQ(scrub.health().io_failed, 2U);
  EXPECT_EQ(file.stat().blocks, 1U);
  EXPECT_EQ(keys_of(events, Kind::evicted), std::vector{key_of(1)});
}

TEST_F(ScrubTest, does_not_make_its_owner_wait) {
  store(path_of(1, 5));
  start();
  poll();
  ASSERT_EQ(io.queued(), 1U);
  EXPECT_EQ(guard.in_flight(), 0U);
}

/// Stores a block, and begins the pass that reads it.
void begin_reading(GuardedStore& guard, SteppedIo& io, Scrub& scrub, TimePoint now) {
  const AlignedBuffer content = content_of(key_of(1));
  const StoreWrite write{1, root_block(1), content.span()};
  guard.write({&write, 1});
  std::vector<StoreEvent> events;
  while (guard.in_flight() > 0) {
    io.step(0);
    guard.poll(events);
  }
  scrub.start(guard, now);
  guard.poll(events);
}

TEST(Scrub, is_taken_down_with_a_read_under_way) {
  SteppedIo io;
  const ManualClock clock;
  Scrub scrub{Bytes{block_size}, {pace, seconds{1}}};
  FileStore file{config_for("/store", 8), io};
  GuardedStore guard{file, clock};
  begin_reading(guard, io, scrub, clock.now());
  io.files().inject(io.files().next_number(), {.stall = true});
  ASSERT_GE(io.queued(), 1U);
}

/// Says what memory it was told of.
class TellingIo final : public IoEngine {
 public:
  explicit TellingIo(IoEngine& io) : io_{io} {}
  FileSystem& files() override { return io_.files(); }
  void submit(std::span<const IoOperation> batch) override {
    for (const IoOperation& operation : batch) {
      if (operation.kind == IoOperation::Kind::read && operation.into.data() == registered.data()) ++reads;
    }
    io_.submit(batch);
  }
  std::size_t poll(std::vector<IoCompletion>& out) override { return io_.poll(out); }
  void wait() override { io_.wait(); }
  [[nodiscard]] std::size_t in_flight() const override { return io_.in_flight(); }
  [[nodiscard]] Waker& waker() override { return io_.waker(); }
  void register_memory(std::span<std::byte> memory) override { registered = memory; }
  void forget_memory(std::span<std::byte> memory) override {
    EXPECT_EQ(memory.data(), registered.data());
    EXPECT_EQ(io_.in_flight(), 0U);
    registered = {};
  }
  [[nodiscard]] std::string describe() const override { return io_.describe(); }

  std::span<std::byte> registered;
  int reads = 0;

 private:
  IoEngine& io_;
};

TEST(Scrub, has_its_buffers_registered_with_the_engine_while_it_lives) {
  SteppedIo stepped;
  TellingIo io{stepped};
  {
    const ManualClock clock;
    Scrub scrub{Bytes{block_size}, {pace, seconds{1}}, &io};
    EXPECT_EQ(io.registered.size(), reads_max * block_size);
    EXPECT_TRUE(io_aligned(io.registered.data()));
    FileStore file{config_for("/store", 8), io};
    GuardedStore guard{file, clock};
    begin_reading(guard, stepped, scrub, clock.now());
    EXPECT_EQ(io.reads, 1);
  }
  EXPECT_TRUE(io.registered.empty());
}

TEST(Scrub, reads_a_mebibyte_together_or_32_blocks_and_one_at_least) {
  EXPECT_EQ(Scrub::reads_max(KiB * 4), 32U);
  EXPECT_EQ(Scrub::reads_max(KiB * 32), 32U);
  EXPECT_EQ(Scrub::reads_max(KiB * 64), 16U);
  EXPECT_EQ(Scrub::reads_max(KiB * 768), 1U);
  EXPECT_EQ(Scrub::reads_max(MiB * 4), 1U);
  EXPECT_THROW(Scrub(Bytes{}, {pace, seconds{1}}), std::invalid_argument);
}

TEST(Scrub, works_over_memory_as_well) {
  ManualClock clock;
  Scrub scrub{Bytes{block_size}, {pace, seconds{1}}};
  MemoryStore memory{16, Bytes{block_size}};
  GuardedStore guard{memory, clock};
  const AlignedBuffer content = content_of(key_of(3));
  const StoreWrite write{1, root_block(3), content.span()};
  guard.write({&write, 1});
  std::vector<StoreEvent> events;
  guard.poll(events);
  memory.raw(key_of(3))[5] ^= std::byte{1};
  scrub.start(guard, clock.now());
  for (int i = 0; i < 5; ++i) {
    guard.poll(events);
    clock.advance(block_time);
  }
  EXPECT_EQ(scrub.health().corrupt, 1U);
  EXPECT_EQ(memory.stat().blocks, 0U);
}

}  // namespace
}  // namespace terrace::test
