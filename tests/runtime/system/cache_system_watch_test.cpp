// The log messages of a CacheSystem: each is logged once.

#include "runtime/system/cache_system_watch.hpp"

#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/system.hpp"
#include "tests/simulated/simulated_io.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
  settle();
  watch_->on_polled(clock_.now());  // too soon to look
  EXPECT_TRUE(said().empty());
}

TEST(CacheSystemLog, tells_its_embedder_how_storage_is_reached_and_nobody_who_did_not_ask) {
  std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  Collected sink;
  {
    CacheSystemOptions options;
    options.pools[0].device_blocks = 8;
    options.pools[0].host_blocks = 8;
    options.storage = FileStorage{.directories = {name + "/store"}, .capacity = MiB, .io = IoChoice::threads};
    { const CacheSystem silent{options}; }
    options.log = {.sink = &sink, .least = LogLevel::info};
    const CacheSystem stack{options};
  }
  EXPECT_EQ(sink.lines, std::vector<std::string>{"info: storage is read and written by 4 threads"});
  std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace terrace::test
