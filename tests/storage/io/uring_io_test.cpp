// Properties of io_uring alone: a kernel that may forbid it, tables of registered memory and files, and its own results.

#include "storage/io/uring_io.hpp"
#include "storage/io/make_io_engine.hpp"

#include "tests/patience.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class UringIoTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = UringIo::unavailable()) GTEST_SKIP() << *why;
  }
  std::unique_ptr<IoEngine> make(UringIo::Config config = {.rings = 1, .depth = 8}) {
    return UringIo::make(config, waker_, uring_, calls_);
  }
  FileId open(IoEngine& engine, Direct direct = Direct::yes) {
    return engine.files().open(directory_.path() / "file", Create::if_missing, direct).value().id;
  }
  static IoOperation write(FileId file, std::span<const std::byte> from, std::uint64_t offset = 0) {
    return {.kind = IoOperation::Kind::write, .token = 1, .file = file, .offset = offset, .from = from};
  }
  static IoOperation read(FileId file, std::span<std::byte> into, std::uint64_t offset = 0) {
    return {.kind = IoOperation::Kind::read, .token = 2, .file = file, .offset = offset, .into = into};
  }

  TemporaryDirectory directory_;
  FaultyCalls calls_;
  FaultyUring uring_{calls_};
  EventFdWaker waker_;
};

// ---- whether it is available

TEST_F(UringIoTest, is_not_there_where_the_kernel_forbids_it) {
  const std::vector<std::pair<int, std::string>> reasons{
      {ENOSYS, "this kernel has none"}, {EPERM, "forbidden here"}, {ENOMEM, "ulimit -l"}, {EMFILE, "Too many open files"}};
  for (const auto& [error, part] : reasons) {
    uring_.setup_error = error;
    EXPECT_TRUE(says(UringIo::unavailable(uring_).value(), part)) << *UringIo::unavailable(uring_);
    IoOptions options;
    options.threads.threads = 2;
    EXPECT_EQ(make_io_engine(options, waker_, uring_)->describe(), "2 threads") << "where nobody insists";
    options.choice = IoChoice::uring;
    try {
      (void)make_io_engine(options, waker_, uring_);
      ADD_FAILURE() << "made nevertheless";
    } catch (const std::runtime_error& refused) {
      EXPECT_TRUE(says(refused.what(), part)) << refused.what();
    }
  }
}

TEST_F(UringIoTest, is_what_a_kernel_that_has_it_gets) {
  IoOptions options;
  options.uring.rings = 1;
  EXPECT_EQ(make_io_engine(options, waker_)->describe(), "io_uring, 1 ring");
  options.choice = IoChoice::threads;
  options.threads.threads = 2;
  EXPECT_EQ(make_io_engine(options, waker_)->describe(), "2 threads");
}

TEST_F(UringIoTest, has_no_pace) {
  IoOptions options;
  options.threads.threads = 2;
  options.threads.bandwidth = per_second(MiB);
  EXPECT_EQ(make_io_engine(options, waker_)->describe(), "2 threads, at 1MiB a second");
  options.choice = IoChoice::uring;
  EXPECT_THROW((void)make_io_engine(options, waker_), std::invalid_argument);
}

TEST_F(UringIoTest, serves_with_whatever_flags_the_kernel_takes) {
  for (int refused = 1; refused <= 2; ++refused) {
    const AlignedBuffer block = content_of(key_of(1));
    AlignedBuffer back{block_size};
    FaultyUring kernel{calls_};
    kernel.flags_refused = refused;
    const auto made = UringIo::make({.rings = 1, .depth = 8}, waker_, kernel, calls_);
    IoEngine& engine = *made;
    const FileId file = open(engine);
    EXPECT_EQ(run_alone(engine, write(file, block.span())).bytes, block_size);
    EXPECT_EQ(run_alone(engine, read(file, back.span())).bytes, block_size);
    EXPECT_TRUE(holds(back.span(), key_of(1)));
  }
}

// ---- registered memory and files

TEST_F(UringIoTest, reads_and_writes_registered_memory_while_more_comes_and_goes) {
  const auto engine = make();
  const FileId file = open(*engine);
  for (int round = 0; round < 20; ++round) {
    AlignedBuffer chunk{4 * block_size};
    AlignedBuffer other{block_size};
    engine->register_memory(chunk.span());
    engine->register_memory(other.span());
    EXPECT_EQ(engine->describe(), "io_uring, 1 ring, 2 of 2 pieces of memory registered");
    for (std::uint64_t n = 0; n < 2; ++n) fill(chunk.span(n * block_size, block_size), key_of(n + 1));
    std::vector<IoOperation> batch;
    for (std::uint64_t n = 0; n < 2; ++n) batch.push_back(write(file, chunk.span(n * block_size, block_size), n * block_size));
    engine->submit(batch);
    engine->forget_memory(other.span());  // no operation uses it
    std::vector<IoCompletion> completed;
    while (engine->in_flight() > 0) {
      engine->wait();
      engine->poll(completed);
    }
    for (const IoCompletion& done : completed) EXPECT_EQ(done.error, 0);
    for (std::uint64_t n = 0; n < 2; ++n) {
      const auto into = chunk.span((n + 2) * block_size, block_size);
      EXPECT_EQ(run_alone(*engine, read(file, into, n * block_size)).bytes, block_size);
      EXPECT_TRUE(holds(into, key_of(n + 1)));
    }
    engine->forget_memory(chunk.span());
    EXPECT_EQ(engine->describe(), "io_uring, 1 ring");
  }
  EXPECT_EQ(uring_.registered, 40);
}

TEST_F(UringIoTest, a_block_that_ends_beyond_what_is_registered_is_served) {
  const auto engine = make();
  const FileId file = open(*engine);
  AlignedBuffer memory{2 * block_size};
  const auto first = memory.span(0, block_size + io_alignment);
  engine->register_memory(first);
  const auto straddling = memory.span(2 * io_alignment, block_size);
  fill(straddling, key_of(1));
  EXPECT_EQ(run_alone(*engine, write(file, straddling)).bytes, block_size);
  AlignedBuffer back{block_size};
  EXPECT_EQ(run_alone(*engine, read(file, back.span())).bytes, block_size);
  EXPECT_TRUE(holds(back.span(), key_of(1)));
  engine->forget_memory(first);
}

TEST_F(UringIoTest, goes_on_without_what_cannot_be_registered_and_says_so) {
  uring_.register_error = ENOMEM;
  const auto engine = make();
  const FileId file = open(*engine);
  AlignedBuffer one{block_size};
  AlignedBuffer two{block_size};
  engine->register_memory(one.span());
  engine->register_memory(two.span());
  EXPECT_EQ(engine->describe(), "io_uring, 1 ring, 1 of 2 pieces of memory registered (Cannot allocate memory)");
  fill(one.span(), key_of(1));
  EXPECT_EQ(run_alone(*engine, write(file, one.span())).bytes, block_size);
  EXPECT_EQ(run_alone(*engine, read(file, two.span())).bytes, block_size);
  EXPECT_TRUE(holds(two.span(), key_of(1)));
  engine->forget_memory(two.span());
  EXPECT_EQ(engine->describe(), "io_uring, 1 ring, 1 of 1 pieces of memory registered");
  engine->forget_memory(one.span());
}

/// Runs in a child process without privileges, because the memory of an administrator is not limited.
[[noreturn]] void serve_below_memlock(const std::filesystem::path& directory) {
  const rlimit low{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
  const bool is_limited = ::setrlimit(RLIMIT_MEMLOCK, &low) == 0 && (::geteuid() != 0 || ::setresuid(65534, 65534, 65534) == 0);
  NullWaker waker;
  std::string said;
  bool wrote = false;
  {
    const auto made = UringIo::make({.rings = 1, .depth = 8}, waker);
    IoEngine& engine = *made;
    AlignedBuffer chunk{16 * block_size + (std::size_t{1} << 20)};
    engine.register_memory(chunk.span());
    said = engine.describe();
    const FileId file = engine.files().open(directory / "file", Create::if_missing, Direct::yes).value().id;
    wrote = run_alone(engine, {.kind = IoOperation::Kind::write, .file = file, .from = chunk.span(0, block_size)}).error == 0;
    engine.forget_memory(chunk.span());
  }
  std::fprintf(stderr, "%s\n", said.c_str());
  ::_exit(is_limited && wrote && says(said, "0 of 1 pieces") ? 0 : 1);
}

TEST_F(UringIoTest, serves_where_memory_may_not_be_locked) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  EXPECT_EXIT(serve_below_memlock(directory_.path()), testing::ExitedWithCode(0), "Cannot allocate memory");
}

TEST_F(UringIoTest, lets_go_of_a_file_that_is_closed) {
  const auto engine = make();
  const AlignedBuffer block = content_of(key_of(1));
  for (int n = 0; n < 100; ++n) {  // more than there are places in the table
    const FileId file = open(*engine, Direct::no);
    // If a table still named the last file, that file would keep its lock. The kernel may let go of it a moment later.
    ASSERT_TRUE(comes_true([&] { return !engine->files().lock(file).has_error(); })) << n;
    EXPECT_EQ(run_alone(*engine, write(file, block.span())).bytes, block_size);
    engine->files().close(file);
  }
}

TEST_F(UringIoTest, more_files_than_places_are_served) {
  const auto engine = make();
  std::vector<FileId> files;
  for (std::uint64_t n = 0; n < 70; ++n) {
    files.push_back(engine->files().open(directory_.path() / std::to_string(n), Create::if_missing, Direct::no).value().id);
    const AlignedBuffer block = content_of(key_of(n + 1));
    EXPECT_EQ(run_alone(*engine, write(files.back(), block.span())).bytes, block_size);
  }
  for (std::uint64_t n = 0; n < files.size(); ++n) {
    AlignedBuffer back{block_size};
    EXPECT_EQ(run_alone(*engine, read(files[n], back.span())).bytes, block_size);
    EXPECT_TRUE(holds(back.span(), key_of(n + 1)));
  }
}

// ---- results

TEST_F(UringIoTest, tries_again_what_was_interrupted_or_would_have_blocked) {
  const auto engine = make();
  const FileId file = open(*engine);
  const AlignedBuffer block = content_of(key_of(1));
  for (const int passing : {-EINTR, -EAGAIN}) {
    uring_.next_result = passing;
    const IoCompletion written = run_alone(*engine, write(file, block.span()));
    EXPECT_EQ(written.error, 0) << passing;
    EXPECT_EQ(written.bytes, block_size);
  }
}

TEST_F(UringIoTest, tells_what_the_kernel_tells) {
  const auto engine = make();
  const FileId file = open(*engine);
  const AlignedBuffer block = content_of(key_of(1));
  const Fingerprint fingerprint{};
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    uring_.next_result = -error;
    IoOperation sealed = write(file, block.span());
    sealed.fingerprint = &fingerprint;
    const IoCompletion failed = run_alone(*engine, sealed);
    EXPECT_EQ(failed.error, error);
    EXPECT_EQ(failed.bytes, 0U);
    EXPECT_EQ(failed.checksum, 0U) << "nothing to vouch for";
  }
}

TEST_F(UringIoTest, a_full_disk_is_full_and_costs_no_slot) {
  UringHarness h{config_for(directory_.path() / "store", 4), calls_, uring_};
  uring_.next_result = -ENOSPC;
  EXPECT_EQ(outcome(h.write({root_block(1)}), StoreEvent::Kind::written, key_of(1)), Errc::full);
  EXPECT_EQ(h.store().stat().free, 4U);
  EXPECT_FALSE(outcome(h.write({root_block(1)}), StoreEvent::Kind::written, key_of(1)));
}

TEST_F(UringIoTest, seals_blocks_of_several_pieces) {
  const auto engine = make();
  const FileId file = open(*engine);
  AlignedBuffer large{(std::size_t{1} << 20) + 3 * io_alignment};
  fill(large.span(), key_of(7));
  const Fingerprint fingerprint = key_of(5).bytes;
  const std::uint64_t sum = payload_checksum(key_of(7), fingerprint, large.span());
  IoOperation sealed = write(file, large.span());
  sealed.fingerprint = &fingerprint;
  sealed.key = key_of(7);
  EXPECT_EQ(run_alone(*engine, sealed).checksum, sum);
  AlignedBuffer back{large.size()};
  sealed = read(file, back.span());
  sealed.fingerprint = &fingerprint;
  sealed.key = key_of(7);
  EXPECT_EQ(run_alone(*engine, sealed).checksum, sum);
}

/// A pipe to which nobody writes stands for a disk that does not answer.
TEST_F(UringIoTest, one_stalled_operation_holds_up_nobody) {
  const auto pipe = directory_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto engine = make();
  // (An engine does not open pipes.)
  const FileId silent = engine->files().open(directory_.path() / "silent", Create::if_missing, Direct::no).value().id;
  const int end = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(::dup3(end, dynamic_cast<PosixFiles&>(engine->files()).file(silent).fd, O_CLOEXEC), 0);
  ::close(end);
  const FileId file = open(*engine);
  AlignedBuffer from_pipe{block_size};
  const IoOperation stalled = read(silent, from_pipe.span().first(5));
  engine->submit({&stalled, 1});
  std::vector<AlignedBuffer> blocks;
  std::vector<IoOperation> batch;
  for (std::uint64_t n = 0; n < 50; ++n) {
    blocks.push_back(content_of(key_of(n)));
    batch.push_back(write(file, blocks.back().span(), n * block_size));
  }
  engine->submit(batch);
  std::vector<IoCompletion> completed;
  while (completed.size() < 50) {
    engine->wait();
    engine->poll(completed);
  }
  EXPECT_EQ(engine->in_flight(), 1U);
  EXPECT_TRUE(std::ranges::all_of(completed, [](const IoCompletion& done) { return done.token == 1 && done.error == 0; }));
  std::ofstream{pipe} << "hello" << std::flush;
  engine->wait();
  completed.clear();
  EXPECT_EQ(engine->poll(completed), 1U);
  EXPECT_EQ(completed.at(0).token, 2U);
  EXPECT_EQ(completed.at(0).bytes, 5U);
}

/// Again and again, the owner submits while the rings are about to fall asleep. No operation is forgotten.
TEST_F(UringIoTest, no_wake_up_is_lost) {
  const auto engine = make({.rings = 2, .depth = 4});
  const FileId file = open(*engine, Direct::no);
  AlignedBuffer block = content_of(key_of(1));
  for (int n = 0; n < 3000; ++n) {
    if (n % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds{n % 120});
    ASSERT_EQ(run_alone(*engine, write(file, block.span().first(64))).bytes, 64U);
  }
}

}  // namespace
}  // namespace terrace::test
