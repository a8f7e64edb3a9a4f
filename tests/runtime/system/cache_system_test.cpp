// A CacheSystem as a whole: its end, its file I/O, its log messages and its traces.

#include "runtime/system/cache_system_watch.hpp"
#include "storage/file/file_store.hpp"
#include "storage/format/format.hpp"
#include "storage/io/uring_io.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/log.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/request.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint in(Duration time) { return std::chrono::steady_clock::now() + time; }

class CacheSystemClose : public testing::Test {
 protected:
  /// `bandwidth`: of the disk; 0: no limit.
  [[nodiscard]] CacheSystemOptions options(BytesPerSecond bandwidth = {}) const {
    CacheSystemOptions options;
    options.pools[0].block_bytes = KiB * 4;
    options.pools[0].device_blocks = 16;
    options.write_policy = WritePolicy::write_through;
    FileStorage file;
    file.directories = {directory.path() / "store"};
    file.capacity = capacity_for(16, options.pools[0].block_bytes);
    file.io = IoChoice::threads;
    file.bandwidth = bandwidth;
    options.storage = file;
    return options;
  }
  /// Makes a system of which freed() tells when all its memory has been freed.
  void make(CacheSystemOptions options) {
    auto promise = std::make_shared<std::promise<void>>();
    freed_ = promise->get_future();
    const std::shared_ptr<void> token{nullptr, [promise](void*) { promise->set_value(); }};
    options.memory_limits = [token] { return read_memory_limits(); };
    system.emplace(options);
  }
  [[nodiscard]] bool freed(Duration wait = {}) const { return freed_.wait_for(wait) == std::future_status::ready; }

  static Lease acquire(Cache& cache, const std::vector<BlockKey>& keys) { return cache.acquire(request_for(1, keys)).value(); }
  static void serve(Cache& cache, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(cache, keys);
    ASSERT_TRUE(cache.wait(lease).has_value());
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    cache.release(std::move(lease), no_longer_used);
  }

  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4, 5, 6, 7, 8});
  TemporaryDirectory directory;
  std::optional<CacheSystem> system;

 private:
  std::future<void> freed_;
};

TEST_F(CacheSystemClose, returns_in_time_and_what_is_left_ends_behind_it) {
  make(options(per_second(KiB * 32)));  // an eighth of a second for each block
  serve(system->cache(), keys);
  const CloseReport report = system->close(in(milliseconds{20}));
  EXPECT_FALSE(report.closed);
  EXPECT_EQ(report.left.leases, 0U);
  EXPECT_TRUE(report.left.under_way);
  EXPECT_GT(report.left.transfers + report.left.writes, 0U);
  EXPECT_FALSE(freed());
  system.reset();
  EXPECT_FALSE(freed()) << "its destructor does nothing after that";
  EXPECT_TRUE(freed(seconds{60}));
  make(options());
  EXPECT_EQ(system->cache().match(keys).found[Source::storage], 8U) << "nothing was lost";
}

TEST_F(CacheSystemClose, frees_everything_if_there_is_time) {
  make(options());
  serve(system->cache(), keys);
  const CloseReport report = system->close(in(seconds{60}));
  EXPECT_TRUE(report.closed);
  EXPECT_TRUE(report.left.none());
  EXPECT_TRUE(freed());
}

TEST_F(CacheSystemClose, ends_jobs_and_pauses) {
  CacheSystemOptions held = options();
  held.write_policy = WritePolicy::none;
  make(held);
  serve(system->cache(), keys);
  system->cache().pause_transfers();
  ASSERT_TRUE(system->cache().start_write_back({}).has_value());
  EXPECT_TRUE(system->close(in(seconds{60})).closed);
}

TEST_F(CacheSystemClose, does_nothing_while_there_are_leases) {
  make(options());
  Cache& cache = system->cache();
  Lease lease = acquire(cache, keys);
  const CloseReport report = system->close(in(seconds{60}));
  EXPECT_FALSE(report.closed);
  EXPECT_EQ(report.left.leases, 1U);
  ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
  cache.release(std::move(lease), no_longer_used);
  EXPECT_TRUE(system->close(in(seconds{60})).closed);
}

// ---- how a CacheSystem does its file I/O

class CacheSystemIo : public testing::Test {
 protected:
  CacheSystemOptions options(IoChoice io) const {
    CacheSystemOptions options;
    options.pools = {{.device_blocks = 8, .host_blocks = 8}};
    options.storage = FileStorage{.directories = {directory_.path() / "store"}, .capacity = MiB, .io = io};
    return options;
  }

  TemporaryDirectory directory_;
};

TEST_F(CacheSystemIo, is_done_by_what_was_named) {
  EXPECT_EQ(CacheSystem{options(IoChoice::threads)}.io(), "4 threads");
  CacheSystemOptions none = options(IoChoice::threads);
  none.storage = NoStorage{};
  EXPECT_EQ(CacheSystem{none}.io(), "");
}

TEST_F(CacheSystemIo, is_resilient_unless_told_otherwise) {
  CacheSystemOptions guarded = options(IoChoice::threads);
  {
    CacheSystem stack{guarded};
    ASSERT_TRUE(stack.storage_health().has_value());
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_NE(dynamic_cast<ResilientStore*>(stack.store()), nullptr);
  }
  guarded.storage_guard.reset();
  CacheSystem stack{guarded};
  EXPECT_FALSE(stack.storage_health().has_value());
  EXPECT_NE(stack.store(), nullptr);
}

TEST_F(CacheSystemIo, has_the_host_tiers_memory_registered) {
  if (const auto why = UringIo::unavailable()) GTEST_SKIP() << *why;
  CacheSystem stack{options(IoChoice::automatic)};
  const std::string said = stack.io();
  EXPECT_TRUE(said.starts_with("io_uring, ")) << said;
  EXPECT_TRUE(said.ends_with(" pieces of memory registered") || said.find(" pieces of memory registered (") != std::string::npos)
      << said;
}

TEST_F(CacheSystemIo, has_no_pace_with_io_uring) {
  CacheSystemOptions paced = options(IoChoice::automatic);
  std::get<FileStorage>(paced.storage).bandwidth = per_second(MiB);
  EXPECT_EQ(CacheSystem{paced}.io(), "4 threads, at 1MiB a second");
  std::get<FileStorage>(paced.storage).io = IoChoice::uring;
  EXPECT_THROW(CacheSystem{paced}, std::invalid_argument);
}

TEST_F(CacheSystemIo, has_a_store_of_its_own_by_its_name) {
  CacheSystemOptions one = options(IoChoice::threads);
  CacheSystemOptions two = one;
  std::get<FileStorage>(one.storage).name = "rank-0";
  std::get<FileStorage>(two.storage).name = "rank-1";
  const CacheSystem first{one};
  const CacheSystem second{two};
  EXPECT_THROW(CacheSystem{two}, std::system_error) << "that one is in use";
  for (const char* name : {"rank-0", "rank-1"})
    EXPECT_TRUE(std::filesystem::exists(directory_.path() / "store" / name / "catalog"));
  std::get<FileStorage>(two.storage).name = "Rank";
  EXPECT_THROW(CacheSystem{two}, std::system_error);
}

TEST_F(CacheSystemIo, says_that_it_has_lost_a_directory) {
  CacheSystemOptions striped = options(IoChoice::threads);
  auto& file = std::get<FileStorage>(striped.storage);
  file.directories.push_back(directory_.path() / "second");
  file.capacity = capacity_for(64, striped.pools[0].block_bytes, 2);
  file.stripe_bytes = striped.pools[0].block_bytes;
  {
    CacheSystem stack{striped};
    EXPECT_EQ(stack.storage_health()->state, StoreState::well);
    EXPECT_EQ(stack.store()->stat().directories, 2U);
  }
  std::filesystem::remove_all(directory_.path() / "second");
  EXPECT_THROW(CacheSystem{striped}, std::system_error);
  file.accept_lost_directories = true;
  CacheSystem stack{striped};
  const std::optional<StoreHealth> health = stack.storage_health();
  ASSERT_TRUE(health.has_value());
  EXPECT_EQ(health->state, StoreState::degraded);
  EXPECT_EQ(health->lost_directories, std::vector<std::filesystem::path>{directory_.path() / "second" / "store"});
  EXPECT_NE(health->reason.find((directory_.path() / "second").string()), std::string::npos) << health->reason;
  EXPECT_EQ(stack.store()->stat().capacity_blocks, 32U);
}

// ---- the log messages of a CacheSystem: each is logged once

class Collected final : public LogSink {
 public:
  void write(LogLevel level, std::string_view sentence) override {
    lines.push_back(std::string{to_string(level)} + ": " + std::string{sentence});
  }
  std::vector<std::string> lines;
};

constexpr Bytes block_bytes = KiB * 4;

BlockKey key_of_block(unsigned char n) {
  BlockKey key{};
  key.bytes.fill(static_cast<std::byte>(n));
  return key;
}

/// A resilient store on a simulated disk, and a log that is read after it has ended.
class CacheSystemWatchTest : public testing::Test {
 protected:
  CacheSystemWatchTest() {
    FileStoreConfig config;
    config.directory = "/store";
    config.name.clear();
    config.block_bytes = block_bytes;
    config.capacity = capacity_for(4, block_bytes);
    file_.emplace(config, io_);
    ResilienceOptions options;
    options.read_retries = options.write_retries = 0;
    options.back_off_first = options.back_off_max = milliseconds{1};
    options.breaker.failures_max = 2;
    guard_.emplace(*file_, clock_, options);
    log_.emplace(LogOptions{.sink = &sink_, .least = LogLevel::info}, clock_);
    watch_.emplace(*log_);
    watch_->begin({nullptr, {{&*guard_, &*file_}}, nullptr});
  }

  void settle() {
    std::vector<StoreEvent> events;
    for (int i = 0; i < 50; ++i) {
      while (io_.queued() > 0) io_.step(0);
      guard_->poll(events);
    }
  }
  /// Polls as often as a cache does.
  void poll() {
    for (int i = 0; i < 3; ++i) {
      clock_.advance(milliseconds{250});
      watch_->on_polled(clock_.now());
    }
  }
  void write(unsigned char n) {
    StoredBlock block;
    block.key = key_of_block(n);
    const StoreWrite order{n, block, buffer_};
    guard_->write(std::span{&order, 1});
    settle();
  }
  void read(unsigned char n, int error = 0) {
    if (error != 0) io_.files().inject(io_.files().next_number(), {.error = error});
    const StoreRead order{n, key_of_block(n), buffer_};
    guard_->read(std::span{&order, 1});
    settle();
  }
  const std::vector<std::string>& said() {
    log_.reset();
    return sink_.lines;
  }

  ManualClock clock_;
  SimulatedIo io_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(count(block_bytes));
  Collected sink_;
  std::optional<FileStore> file_;
  std::optional<ResilientStore> guard_;
  std::optional<Log> log_;
  std::optional<CacheSystemWatch> watch_;
};

TEST_F(CacheSystemWatchTest, says_nothing_while_all_is_well) {
  write(1);
  read(1);
  watch_->on_flushed({}, PoolId{});
  poll();
  EXPECT_TRUE(said().empty());
}

TEST_F(CacheSystemWatchTest, says_once_that_storage_is_not_used_in_full_and_that_it_is_again) {
  for (unsigned char n = 1; n <= 3; ++n) write(n);
  read(1, EAGAIN);
  read(2, EAGAIN);
  poll();
  poll();
  clock_.advance(seconds{60});
  read(3);  // the probe
  poll();
  const auto& lines = said();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("warning: storage is not used in full: ")) << lines[0];
  EXPECT_EQ(lines[1], "warning: storage is used in full again");
}

TEST_F(CacheSystemWatchTest, says_once_that_storage_stopped_growing_and_why) {
  io_.files().set_disk_bytes(Bytes{count(io_.files().used_bytes()) + 3 * count(block_bytes)});
  ASSERT_TRUE(file_->resize(60).has_value());
  settle();
  poll();
  const auto& lines = said();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("warning: storage stopped growing at ")) << lines[0];
  EXPECT_NE(lines[0].find("No space left on device"), std::string::npos) << lines[0];
}

TEST_F(CacheSystemWatchTest, says_at_the_first_of_several_failed_flushes_that_a_power_failure_may_cost_blocks) {
  const ErrorCode error{EIO, boost::system::generic_category()};
  watch_->on_flushed(error, PoolId{});
  watch_->on_flushed(error, PoolId{});
  watch_->on_flushed({}, PoolId{});
  watch_->on_flushed(error, PoolId{});
  const auto& lines = said();
  ASSERT_EQ(lines.size(), 2U) << "and again after one that went well";
  EXPECT_TRUE(lines[0].starts_with("error: storage could not be flushed: Input/output error")) << lines[0];
}

TEST_F(CacheSystemWatchTest, says_once_that_files_of_the_store_have_been_taken_away) {
  write(1);
  ASSERT_TRUE(io_.files().remove_file("/store/catalog"));
  for (int n = 0; n < 2; ++n) {
    guard_->flush(7);
    settle();
    poll();
  }
  const auto& lines = said();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("error: /store/catalog cannot be found any more")) << lines[0];
}

TEST_F(CacheSystemWatchTest, says_at_most_once_in_a_minute_that_blocks_did_not_verify) {
  for (unsigned char n = 1; n <= 4; ++n) write(n);
  for (unsigned char n = 1; n <= 3; ++n) {
    const auto at = file_->location(key_of_block(n));
    io_.files().content(at->file)[at->offset] ^= std::byte{1};
    read(n);
    poll();
  }
  clock_.advance(seconds{60});
  poll();
  poll();
  const auto& lines = said();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "warning: 1 stored blocks did not verify and were given up; 1 since the start");
  EXPECT_EQ(lines[1], "warning: 2 stored blocks did not verify and were given up; 3 since the start");
}

TEST_F(CacheSystemWatchTest, looks_only_now_and_then) {
  io_.files().set_disk_bytes(io_.files().used_bytes());
  ASSERT_TRUE(file_->resize(60).has_value());
  watch_->on_polled(clock_.now());  // it looks
  EXPECT_EQ(watch_->next_deadline(), never);
  settle();
  watch_->on_polled(clock_.now());  // too soon to look
  EXPECT_EQ(watch_->next_deadline(), clock_.now() + milliseconds{250}) << "nothing else may make the cache poll again";
  EXPECT_TRUE(said().empty());
}

TEST(CacheSystemLog, tells_its_embedder_how_storage_is_reached_and_nobody_who_did_not_ask) {
  const TemporaryDirectory directory;
  Collected sink;
  {
    CacheSystemOptions options;
    options.pools = {{.device_blocks = 8, .host_blocks = 8}};
    options.storage = FileStorage{.directories = {directory.path() / "store"}, .capacity = MiB, .io = IoChoice::threads};
    { const CacheSystem silent{options}; }
    options.log = {.sink = &sink, .least = LogLevel::info};
    const CacheSystem stack{options};
  }
  EXPECT_EQ(sink.lines, std::vector<std::string>{"info: storage is read and written by 4 threads"});
}

// ---- traces of a whole run, in a file

/// The messages may be read after the system has ended.
struct Messages final : LogSink {
  void write(LogLevel, std::string_view sentence) override { all.emplace_back(sentence); }
  std::vector<std::string> all;
};

CacheSystemOptions options_with(const std::filesystem::path& file, Messages& messages) {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 8, .host_blocks = 8}};
  options.ranks[0].device = EmulatedGpu{};
  options.memory_limits = nullptr;
  options.trace_out = file;
  options.log.sink = &messages;
  return options;
}

void serve(CacheSystem& system, std::uint64_t requests) {
  for (std::uint64_t id = 1; id <= requests; ++id) {
    const std::vector<BlockKey> keys = keys_of({static_cast<std::uint32_t>(id), 2, 3});
    Lease lease = system.cache().acquire({.id = RequestId{id}, .keys = keys}).value();
    ASSERT_TRUE(system.cache().wait(lease).has_value());
    ASSERT_TRUE(system.cache().commit(lease, keys, Fence{}).has_value());
    system.cache().release(std::move(lease), no_longer_used);
    (void)system.cache().poll();
  }
}

TEST(TraceFile, has_the_whole_run_for_a_viewer) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  Messages messages;
  {
    CacheSystem system{options_with(file, messages)};
    serve(system, 5);
  }
  const boost::json::value trace = boost::json::parse(read_file(file));
  int acquires = 0;
  int holds = 0;
  int swaps = 0;
  for (const boost::json::value& event : trace.at("traceEvents").as_array()) {
    acquires += event.at("name") == "acquire" ? 1 : 0;
    holds += event.at("name") == "hold" && event.at("ph") == "b" ? 1 : 0;
    swaps += event.at("name") == "swap_out" && event.at("ph") == "b" ? 1 : 0;
  }
  EXPECT_EQ(acquires, 5);
  EXPECT_EQ(holds, 5);
  EXPECT_GT(swaps, 0);
}

TEST(TraceFile, that_has_ended_is_whole_and_takes_nothing_more) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  Messages messages;
  CacheSystem system{options_with(file, messages)};
  serve(system, 5);
  ASSERT_TRUE(system.end_trace().has_value());
  const std::string text = read_file(file);
  EXPECT_NO_THROW((void)boost::json::parse(text));
  ASSERT_NO_FATAL_FAILURE(serve(system, 1));
  EXPECT_TRUE(system.end_trace().has_value());
  EXPECT_EQ(read_file(file), text);
}

TEST(TraceFile, that_cannot_be_made_is_refused_with_its_name) {
  Messages messages;
  const std::string said =
      refusal_of<std::system_error>([&] { const CacheSystem system{options_with("/proc/trace.json", messages)}; });
  EXPECT_NE(said.find("trace-out: /proc/trace.json"), std::string::npos) << said;
}

TEST(TraceFile, that_is_a_pipe_is_refused_and_not_waited_for) {
  const TemporaryDirectory directory;
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Messages messages;
  EXPECT_EQ(refusal_of<std::invalid_argument>([&] { const CacheSystem system{options_with(pipe, messages)}; }),
            "trace-out: " + pipe + " is no ordinary file");
}

TEST(TraceFile, on_a_full_disk_ends_and_the_cache_goes_on) {
  Messages messages;
  {
    CacheSystem system{options_with("/dev/full", messages)};
    serve(system, 5);
    EXPECT_EQ(system.end_trace().error(), boost::system::errc::no_space_on_device);
  }
  ASSERT_EQ(messages.all.size(), 1U);
  EXPECT_NE(messages.all.front().find("the trace /dev/full ends early"), std::string::npos) << messages.all.front();
}

}  // namespace
}  // namespace terrace::test
