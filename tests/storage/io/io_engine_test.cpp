#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/simulated/simulated_io.hpp"

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <memory>
#include <ostream>
#include <set>

/// Makes a failed allocation throw std::bad_alloc with sanitizers, too.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace terrace::test {
namespace {

enum class EngineKind { threads, uring };
std::string to_string(EngineKind kind) { return kind == EngineKind::threads ? "threads" : "uring"; }
void PrintTo(EngineKind kind, std::ostream* out) { *out << to_string(kind); }

std::vector<EngineKind> engine_kinds() {
  std::vector<EngineKind> kinds{EngineKind::threads};
  if (!UringIo::unavailable()) kinds.push_back(EngineKind::uring);
  return kinds;
}

/// The contract in storage/io/io_engine.hpp, for all engines for real disks.
class IoEngineContract : public testing::TestWithParam<EngineKind> {
 protected:
  IoEngineContract() : engine_ptr_{make(waker_)}, engine_{*engine_ptr_} {}

  std::unique_ptr<IoEngine> make(Waker& waker) {
    if (GetParam() == EngineKind::threads) {
      return std::make_unique<ThreadedIo>(ThreadedIo::Config{.threads = 3}, waker, calls_);
    }
    // There are fewer slots than some tests have operations, so some operations wait.
    return UringIo::make(UringIo::Config{.rings = 2, .depth = 8}, waker, uring_, calls_);
  }

  FileId open(Direct direct) { return engine_.files().open(directory_.path() / "file", Create::if_missing, direct).value().id; }
  IoCompletion run(const IoOperation& operation) { return run_alone(engine_, operation); }
  static IoOperation write(FileId file, std::span<const std::byte> from, std::uint64_t offset = 0) {
    return {.kind = IoOperation::Kind::write, .token = 1, .file = file, .offset = offset, .from = from};
  }
  static IoOperation read(FileId file, std::span<std::byte> into, std::uint64_t offset = 0) {
    return {.kind = IoOperation::Kind::read, .token = 2, .file = file, .offset = offset, .into = into};
  }
  /// Writes a block and reads it back.
  void expect_round_trip(FileId file) {
    const AlignedBuffer block = content_of(key_of(1));
    const IoCompletion written = run(write(file, block.span(), 4096));
    EXPECT_EQ(written.error, 0);
    EXPECT_EQ(written.bytes, block_size);
    AlignedBuffer back{block_size};
    const IoCompletion got = run(read(file, back.span(), 4096));
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(got.bytes, block_size);
    EXPECT_TRUE(holds(back.span(), key_of(1)));
  }

  TemporaryDirectory directory_;
  FaultyCalls calls_;
  FaultyUring uring_{calls_};
  EventFdWaker waker_;
  std::unique_ptr<IoEngine> engine_ptr_;
  IoEngine& engine_;
};
INSTANTIATE_TEST_SUITE_P(Engines, IoEngineContract, testing::ValuesIn(engine_kinds()),
                         [](const auto& param) { return to_string(param.param); });

TEST_P(IoEngineContract, carries_out_what_is_submitted_and_wakes_its_owner) {
  const FileId file = open(Direct::yes);
  std::vector<AlignedBuffer> blocks;
  std::vector<IoOperation> batch;
  for (std::uint64_t n = 0; n < 100; ++n) {
    blocks.push_back(content_of(key_of(n)));
    batch.push_back(write(file, blocks.back().span(), n * block_size));
    batch.back().token = n;
  }
  engine_.submit(batch);
  EXPECT_EQ(engine_.in_flight(), 100U);
  std::vector<IoCompletion> completed;
  while (engine_.in_flight() > 0) {
    waker_.wait(-1);
    waker_.acknowledge();
    engine_.poll(completed);
  }
  std::set<std::uint64_t> tokens;
  for (const IoCompletion& c : completed) {
    EXPECT_EQ(c.error, 0);
    EXPECT_EQ(c.bytes, block_size);
    tokens.insert(c.token);
  }
  EXPECT_EQ(tokens.size(), 100U);
  EXPECT_EQ(run({.kind = IoOperation::Kind::sync, .file = file}).error, 0);
  for (std::uint64_t n = 0; n < 100; ++n) {
    AlignedBuffer back{block_size};
    (void)run(read(file, back.span(), n * block_size));
    EXPECT_TRUE(holds(back.span(), key_of(n)));
  }
}

TEST_P(IoEngineContract, operations_whose_threads_find_no_memory_fail_and_the_threads_live_on) {
  const FileId file = open(Direct::yes);
  // A buffer that is not aligned is copied, and no machine has memory for a copy of this size. Nothing accesses the buffer.
  AlignedBuffer block{block_size};
  const std::span<std::byte> too_much{block.data() + 1, std::size_t{1} << 46};
  std::vector<IoOperation> batch;
  for (std::uint64_t n = 0; n < 20; ++n) batch.push_back(n % 2 == 0 ? read(file, too_much) : write(file, too_much));
  engine_.submit(batch);
  std::vector<IoCompletion> completed;
  while (engine_.in_flight() > 0) {
    engine_.wait();
    engine_.poll(completed);
  }
  ASSERT_EQ(completed.size(), 20U) << "more than there are threads";
  for (const IoCompletion& c : completed) {
    EXPECT_EQ(c.error, ENOMEM);
    EXPECT_EQ(c.bytes, 0U);
  }
  expect_round_trip(file);
}

TEST_P(IoEngineContract, seals_what_it_writes_and_what_it_has_read) {
  const FileId file = open(Direct::yes);
  const Fingerprint fingerprint = key_of(5).bytes;
  const AlignedBuffer block = content_of(key_of(1));
  const std::uint64_t sum = payload_checksum(key_of(1), fingerprint, block.span());
  IoOperation sealed = write(file, block.span());
  sealed.fingerprint = &fingerprint;
  sealed.key = key_of(1);
  EXPECT_EQ(run(sealed).checksum, sum);
  AlignedBuffer back{block_size};
  sealed = read(file, back.span());
  sealed.fingerprint = &fingerprint;
  sealed.key = key_of(1);
  EXPECT_EQ(run(sealed).checksum, sum);
  sealed.key = key_of(2);
  EXPECT_NE(run(sealed).checksum, sum);
}

TEST_P(IoEngineContract, goes_on_after_partial_progress_and_interruptions) {
  calls_.piece = 3000;
  expect_round_trip(open(Direct::no));
  EXPECT_GT(calls_.interrupts, 6);
}

TEST_P(IoEngineContract, reading_past_the_end_moves_what_there_is) {
  const FileId file = open(Direct::no);
  const AlignedBuffer block = content_of(key_of(1));
  (void)run(write(file, block.span().first(5000)));
  AlignedBuffer back{block_size};
  const IoCompletion completion = run(read(file, back.span()));
  EXPECT_EQ(completion.error, 0);
  EXPECT_EQ(completion.bytes, 5000U);
}

TEST_P(IoEngineContract, takes_buffers_that_are_not_aligned) {
  const FileId file = open(Direct::yes);
  const Direct before = engine_.files().direct(file);
  AlignedBuffer odd{2 * block_size};
  const auto from = odd.span(1, block_size);
  fill(from, key_of(1));
  EXPECT_EQ(run(write(file, from)).bytes, block_size);
  AlignedBuffer odd_too{2 * block_size};
  const auto into = odd_too.span(3, block_size);
  EXPECT_EQ(run(read(file, into)).bytes, block_size);
  EXPECT_TRUE(holds(into, key_of(1)));
  EXPECT_EQ(engine_.files().direct(file), before) << "and does not take them for a file system's refusal";
}

TEST_P(IoEngineContract, direct_io_refused_at_open_goes_through_the_cache) {
  calls_.no_direct_open = true;
  const FileId file = open(Direct::yes);
  EXPECT_EQ(engine_.files().direct(file), Direct::no);
  expect_round_trip(file);
}

TEST_P(IoEngineContract, direct_io_refused_at_the_first_write_goes_through_the_cache) {
  calls_.no_direct_io = true;
  const FileId file = open(Direct::yes);
  EXPECT_EQ(engine_.files().direct(file), Direct::yes);
  expect_round_trip(file);
  EXPECT_EQ(engine_.files().direct(file), Direct::no);
}

TEST_P(IoEngineContract, several_operations_may_find_out_at_once_that_direct_io_is_refused) {
  calls_.no_direct_io = true;
  std::barrier<> together{3};
  if (GetParam() == EngineKind::threads) calls_.refused_together = &together;
  const AlignedBuffer block = content_of(key_of(1));
  for (int round = 0; round < 50; ++round) {
    const FileId file = open(Direct::yes);
    const std::vector<IoOperation> batch(3, write(file, block.span()));  // one for each thread
    engine_.submit(batch);
    std::vector<IoCompletion> completed;
    while (engine_.in_flight() > 0) {
      engine_.wait();
      engine_.poll(completed);
    }
    for (const IoCompletion& c : completed) EXPECT_EQ(c.error, 0);
    engine_.files().close(file);
  }
}

TEST_P(IoEngineContract, says_what_the_system_says) {
  calls_.fail_write_of(key_of(1));
  const FileId file = open(Direct::yes);
  const AlignedBuffer block = content_of(key_of(1));
  EXPECT_EQ(run(write(file, block.span())).error, EIO);
  EXPECT_EQ(run(write(file, block.span())).error, 0);
}

TEST_P(IoEngineContract, waiting_for_nothing_returns) {
  engine_.wait();
  EXPECT_EQ(engine_.in_flight(), 0U);
}

TEST_P(IoEngineContract, begins_what_goes_ahead_before_what_waits) {
  NullWaker waker;
  std::unique_ptr<IoEngine> one;  // one engine at a time
  if (GetParam() == EngineKind::threads) {
    one = std::make_unique<ThreadedIo>(ThreadedIo::Config{.threads = 1}, waker, calls_);
  } else {
    one = UringIo::make(UringIo::Config{.rings = 1, .depth = 1}, waker, uring_, calls_);
  }
  const FileId file = one->files().open(directory_.path() / "other", Create::if_missing, Direct::no).value().id;
  const AlignedBuffer block = content_of(key_of(1));
  for (int round = 0; round < 20; ++round) {
    std::vector<IoOperation> batch(40, write(file, block.span()));
    batch.push_back({.kind = IoOperation::Kind::sync, .token = 7, .file = file, .ahead = true});
    one->submit(batch);
    std::vector<IoCompletion> done;
    while (one->in_flight() > 0) {
      one->wait();
      one->poll(done);
    }
    ASSERT_EQ(done.size(), 41U);
    EXPECT_EQ(done.front().token, 7U);
  }
}

TEST_P(IoEngineContract, ends_with_work_under_way) {
  NullWaker waker;
  const AlignedBuffer block = content_of(key_of(1));
  auto engine = make(waker);
  const FileId file = engine->files().open(directory_.path() / "other", Create::if_missing, Direct::no).value().id;
  for (std::uint64_t n = 0; n < 50; ++n) {
    const IoOperation one = write(file, block.span(), n * block_size);
    engine->submit({&one, 1});
  }
  engine.reset();
  EXPECT_EQ(std::filesystem::file_size(directory_.path() / "other"), 50 * block_size) << "what was submitted was done";
}

TEST(ThreadedIo, is_no_faster_than_its_bandwidth) {
  constexpr std::uint64_t blocks = 20;
  const TemporaryDirectory directory;
  EventFdWaker waker;
  // All of them would take a tenth of a second however fast the disk is. (A test can only check: not less.)
  ThreadedIo slow{{.threads = 3, .bandwidth = BytesPerSecond{blocks * block_size * 10}}, waker};
  const FileId file = slow.files().open(directory.path() / "paced", Create::if_missing, Direct::no).value().id;
  const AlignedBuffer block = content_of(key_of(1));
  std::vector<IoOperation> batch;
  for (std::uint64_t n = 0; n < blocks; ++n) {
    batch.push_back({.kind = IoOperation::Kind::write, .file = file, .offset = n * block_size, .from = block.span()});
  }
  const auto begin = std::chrono::steady_clock::now();
  slow.submit(batch);
  std::vector<IoCompletion> completed;
  while (slow.in_flight() > 0) {
    slow.wait();
    slow.poll(completed);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds{99});
  for (const IoCompletion& done : completed) EXPECT_EQ(done.error, 0);
}

TEST(PosixFiles, a_lock_on_a_file_that_has_lost_its_name_is_no_lock) {
  const TemporaryDirectory directory;
  PosixFiles files;
  const auto path = directory.path() / "lock";
  const FileId ours = files.open(path, Create::if_missing, Direct::no).value().id;
  ASSERT_FALSE(files.remove_file(path).has_error());
  EXPECT_EQ(files.lock(ours).error(), Errc::in_use);
  const FileId theirs = files.open(path, Create::if_missing, Direct::no).value().id;
  EXPECT_EQ(files.lock(ours).error(), Errc::in_use) << "the name belongs to another file now";
  EXPECT_FALSE(files.lock(theirs).has_error());
}

TEST(FileStoreOnThreads, works_where_direct_io_is_refused) {
  for (const bool at_open : {true, false}) {
    const TemporaryDirectory directory;
    FaultyCalls calls;
    calls.no_direct_open = at_open;
    calls.no_direct_io = !at_open;
    ThreadsHarness h{config_for(directory.path() / "store", 20), calls};
    const auto prefix = prefix_of(1, 20);
    h.write(prefix);
    for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key));
    EXPECT_FALSE(h.store().is_direct());
    EXPECT_EQ(h.store().stat().quarantined, 0U);
  }
}

TEST(FileStoreOnUring, works_where_direct_io_is_refused) {
  if (const auto why = UringIo::unavailable()) GTEST_SKIP() << *why;
  for (const bool at_open : {true, false}) {
    const TemporaryDirectory directory;
    FaultyCalls calls;
    FaultyUring uring{calls};
    calls.no_direct_open = at_open;
    calls.no_direct_io = !at_open;
    UringHarness h{config_for(directory.path() / "store", 20), calls, uring};
    const auto prefix = prefix_of(1, 20);
    h.write(prefix);
    for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key));
    EXPECT_FALSE(h.store().is_direct());
    EXPECT_EQ(h.store().stat().quarantined, 0U);
  }
}

/// A disk with one file of two blocks. All of it is durable, and the first block has content.
struct SyncedFile {
  SyncedFile() {
    EXPECT_FALSE(io.files().make_directory("/d").has_error());
    file = io.files().open("/d/f", Create::if_missing, Direct::no).value().id;
    EXPECT_FALSE(io.files().resize(file, Bytes{2 * block_size}).has_error());
    (void)run_alone(io, write(0, one));
    (void)run_alone(io, {.kind = IoOperation::Kind::sync, .file = file});
    EXPECT_FALSE(io.files().sync_directory("/d").has_error());
    EXPECT_FALSE(io.files().sync_directory("/").has_error());
  }
  [[nodiscard]] IoOperation write(std::uint64_t offset, const AlignedBuffer& from) const {
    return {.kind = IoOperation::Kind::write, .file = file, .offset = offset, .from = from.span()};
  }

  SimulatedIo io;
  FileId file;
  AlignedBuffer one = content_of(key_of(1));
  AlignedBuffer two = content_of(key_of(2));
};

TEST(SimulatedIo, remembers_what_was_not_synced) {
  SyncedFile s;
  (void)run_alone(s.io, s.write(block_size, s.two));
  EXPECT_TRUE(holds(s.io.files().content("/d/f").subspan(block_size), key_of(2)));
  s.io.files().lose_unsynced();
  EXPECT_TRUE(holds(s.io.files().content("/d/f").first(block_size), key_of(1)));
  EXPECT_EQ(s.io.files().content("/d/f")[block_size], std::byte{0});
}

TEST(SimulatedIo, a_sync_covers_only_what_was_there_when_it_was_submitted) {
  SyncedFile s;
  const IoOperation sync{.kind = IoOperation::Kind::sync, .file = s.file};
  s.io.submit({&sync, 1});
  const IoOperation late = s.write(block_size, s.two);
  s.io.submit({&late, 1});
  s.io.step(1);
  s.io.step(0);
  s.io.files().lose_unsynced();
  EXPECT_EQ(s.io.files().content("/d/f")[block_size], std::byte{0});
}

TEST(SimulatedIo, loses_names_and_sizes_that_were_not_synced) {
  SyncedFile s;
  SimulatedFiles& files = s.io.files();
  ASSERT_FALSE(files.resize(s.file, Bytes{block_size}).has_error());
  (void)files.open("/d/g", Create::if_missing, Direct::no);
  ASSERT_FALSE(files.make_directory("/d/e").has_error());
  ASSERT_FALSE(files.make_directory("/h").has_error());
  EXPECT_EQ(files.after_power_failure([](bool) { return true; }).files_in("/d").size(), 2U);
  files.lose_unsynced();
  EXPECT_EQ(files.content("/d/f").size(), 2 * block_size);
  for (const char* name : {"/d/g", "/d/e", "/h"}) EXPECT_FALSE(files.exists(name)) << name;

  ASSERT_FALSE(files.remove_file("/d/f").has_error());
  files.lose_unsynced();
  EXPECT_TRUE(files.exists("/d/f")) << "nor had the name's end been synced";
  ASSERT_FALSE(files.remove_file("/d/f").has_error());
  ASSERT_FALSE(files.sync_directory("/d").has_error());
  files.lose_unsynced();
  EXPECT_FALSE(files.exists("/d/f"));
}

TEST(SimulatedIo, a_power_failure_tears_a_write_at_its_sectors) {
  SyncedFile s;
  (void)run_alone(s.io, s.write(0, s.two));
  std::size_t asked = 0;
  SimulatedFiles left = s.io.files().after_power_failure([&](bool whole) {
    EXPECT_EQ(whole, asked == 0);
    return asked++ % 2 == 0;
  });
  EXPECT_EQ(asked, block_size / 512);
  const auto bytes = left.content("/d/f");
  for (std::size_t at = 0; at < block_size; ++at) {
    ASSERT_EQ(bytes[at], at / 512 % 2 == 0 ? s.two.span()[at] : s.one.span()[at]) << at;
  }
}

}  // namespace
}  // namespace terrace::test
