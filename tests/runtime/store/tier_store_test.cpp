#include "terrace/tier_store.hpp"

#include "storage/io/uring_io.hpp"
#include "terrace/keys.hpp"
#include "tests/patience.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/store/child.hpp"
#include "tests/runtime/store/gated_stores.hpp"
#include "tests/runtime/store/keys_and_rows.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;
using test::Child;
using test::GatedStore;
using test::keys_of;
using test::rows_from;
using test::TemporaryDirectory;

constexpr Bytes block{8192};

TierStoreOptions options_in(const TemporaryDirectory& directory) {
  TierStoreOptions options;
  options.directories = {directory.path() / "disk"};
  options.capacity = MiB * 4;
  options.block_bytes = block;
  options.key_namespace = "model, rank 0";
  options.io = IoChoice::threads;
  return options;
}

TimePoint in(Duration time) { return std::chrono::steady_clock::now() + time; }

void fill(const HostRows& rows, std::span<const BlockKey> keys) {
  for (std::uint32_t i = 0; i < keys.size(); ++i) test::fill(rows.row(i), keys[i]);
}

/// Waits as an embedder does: for the descriptor, until the next deadline.
BatchResult wait(TierStore& store) {
  std::vector<BatchResult> results;
  while (store.poll(results) == 0) {
    pollfd descriptor{store.wake_fd(), POLLIN, 0};
    EXPECT_LE(::poll(&descriptor, 1, 10000), 1);
  }
  EXPECT_EQ(results.size(), 1U);
  return results.front();
}

BatchResult put(TierStore& store, HostRegionId region, std::span<const BlockKey> keys) {
  const auto rows = rows_from(0, keys.size());
  EXPECT_TRUE(store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows}));
  return wait(store);
}

BatchResult get(TierStore& store, HostRegionId region, std::span<const BlockKey> keys) {
  const auto rows = rows_from(0, keys.size());
  EXPECT_TRUE(store.submit_get({.id = BatchId{2}, .keys = keys, .region = region, .rows = rows}));
  return wait(store);
}

void expect_content(const HostRows& rows, std::span<const BlockKey> keys) {
  for (std::uint32_t i = 0; i < keys.size(); ++i) EXPECT_TRUE(test::holds(rows.row(i), keys[i])) << i;
}

void zero(const HostRows& rows) {
  for (std::uint32_t i = 0; i < rows.count; ++i) std::ranges::fill(rows.row(i), std::byte{0});
}

class TierStoreIo : public ::testing::TestWithParam<IoChoice> {};

TEST_P(TierStoreIo, finds_its_blocks_again_after_a_restart) {
  if (GetParam() == IoChoice::uring && UringIo::unavailable()) GTEST_SKIP() << *UringIo::unavailable();
  const TemporaryDirectory directory;
  TierStoreOptions options = options_in(directory);
  options.io = GetParam();
  const PrivateRegion memory{16, block, MemoryCheck::no};
  std::vector<BlockKey> keys;
  {
    TierStore store{options};
    keys = keys_of(store, 0, 16);
    const std::uint32_t three = 3;
    EXPECT_EQ(keys[3], opaque_key(std::as_bytes(std::span{options.key_namespace}), std::as_bytes(std::span{&three, 1})));
    const HostRegionId region = store.register_region(memory.rows()).value();
    fill(memory.rows(), keys);
    EXPECT_EQ(put(store, region, keys).succeeded, 16U);
    EXPECT_EQ(store.statistics().unaligned, 0U);
  }
  zero(memory.rows());
  TierStore store{options};
  const HostRegionId region = store.register_region(memory.rows()).value();
  EXPECT_EQ(store.leading(keys), 16U);
  const BatchResult result = get(store, region, keys);
  EXPECT_EQ(result.kind, BatchKind::get);
  EXPECT_EQ(result.bytes, block * 16);
  EXPECT_GT(result.duration, Duration::zero());
  expect_content(memory.rows(), keys);
  EXPECT_EQ(store.stat().blocks, 16U);
  EXPECT_EQ(store.health().state, StoreState::well);
  EXPECT_FALSE(store.io().empty());
  EXPECT_TRUE(store.close(test::give_up_at()).closed);
}

INSTANTIATE_TEST_SUITE_P(Engines, TierStoreIo, ::testing::Values(IoChoice::threads, IoChoice::uring),
                         [](const auto& param) { return std::string{to_string(param.param)}; });

TEST(TierStore, answers_what_is_there_one_leading_or_by_bits) {
  const TemporaryDirectory directory;
  TierStore store{options_in(directory)};
  const PrivateRegion memory{3, block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  const auto all = keys_of(store, 0, 70);
  const std::vector<BlockKey> some{all[0], all[1], all[66]};
  fill(memory.rows(), some);
  EXPECT_EQ(put(store, region, some).succeeded, 3U);
  EXPECT_TRUE(store.contains(all[66]));
  EXPECT_FALSE(store.contains(all[2]));
  EXPECT_EQ(store.leading(all), 2U);
  EXPECT_EQ(store.leading({}), 0U);
  std::vector<std::uint64_t> bits{~0ULL, ~0ULL, ~0ULL};
  EXPECT_TRUE(store.look_up(all, bits));
  EXPECT_EQ(bits, (std::vector<std::uint64_t>{3, 4, ~0ULL}));
  EXPECT_EQ(store.look_up(all, std::span{bits}.first(1)).error(), Errc::invalid_argument);
  EXPECT_TRUE(store.look_up({}, {}));
  EXPECT_EQ(store.stat().reads, 0U);
}

TEST(TierStore, separates_namespaces_and_refuses_another_fingerprint) {
  const TemporaryDirectory directory;
  TierStoreOptions options = options_in(directory);
  BlockKey of_first;
  {
    TierStore store{options};
    of_first = keys_of(store, 0, 1)[0];
  }
  options.key_namespace = "model, rank 1";
  {
    TierStore store{options};
    EXPECT_NE(keys_of(store, 0, 1)[0], of_first);
  }
  options.fingerprint[0] = std::byte{1};
  EXPECT_THROW(TierStore{options}, std::system_error);
}

TEST(TierStore, copies_unaligned_rows_correctly_and_counts_them) {
  const TemporaryDirectory directory;
  TierStore store{options_in(directory)};
  std::vector<std::byte> memory(4 * 9000 + 4096, std::byte{7});
  std::byte* const odd = memory.data() + (reinterpret_cast<std::uintptr_t>(memory.data()) % 2 == 0 ? 1 : 0);
  const HostRows rows{odd, 4, block, Bytes{9000}};
  const HostRegionId region = store.register_region(rows).value();
  const auto keys = keys_of(store, 0, 4);
  fill(rows, keys);
  EXPECT_EQ(put(store, region, keys).succeeded, 4U);
  EXPECT_EQ(store.statistics().unaligned, 4U);
  zero(rows);
  EXPECT_EQ(get(store, region, keys).succeeded, 4U);
  expect_content(rows, keys);
  EXPECT_EQ(store.statistics().unaligned, 8U);
  EXPECT_EQ(store.statistics().unaligned_bytes, block * 8);
  EXPECT_EQ(odd[8192], std::byte{7}) << "the gap between rows";
  EXPECT_EQ(odd[8999], std::byte{7});
}

TEST(TierStore, reads_and_writes_the_rows_of_a_shared_region) {
  const TemporaryDirectory directory;
  const SharedLayout layout{.rows = 4, .row_bytes = block};
  const SharedRegion created = SharedRegion::create(layout);
  const auto joined = std::make_shared<SharedRegion>(SharedRegion::join(created.descriptor(), created.nonce(), layout));
  TierStore store{options_in(directory)};
  const HostRegionId region = store.register_region(joined->rows(), joined).value();
  const auto keys = keys_of(store, 0, 4);
  fill(created.rows(), keys);
  EXPECT_EQ(put(store, region, keys).succeeded, 4U);
  zero(created.rows());
  EXPECT_EQ(get(store, region, keys).succeeded, 4U);
  expect_content(created.rows(), keys);
  EXPECT_EQ(joined.use_count(), 2);
  EXPECT_TRUE(store.unregister_region(region));
  EXPECT_EQ(joined.use_count(), 1);
}

TEST(TierStore, evicts_when_it_is_full_and_tells_of_it) {
  const TemporaryDirectory directory;
  TierStoreOptions options = options_in(directory);
  options.capacity = KiB * 256;
  TierStore store{options};
  const std::uint64_t capacity = store.stat().capacity_blocks;
  ASSERT_GT(capacity, 8U);
  const PrivateRegion memory{1, block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  const auto keys = keys_of(store, 0, static_cast<std::uint32_t>(capacity) + 3);
  for (const BlockKey& key : keys) {
    fill(memory.rows(), {&key, 1});
    ASSERT_EQ(put(store, region, {&key, 1}).succeeded, 1U);
    store.touch({keys.data(), 1});
  }
  EXPECT_TRUE(store.contains(keys[0])) << "it was used in a tier above";
  for (std::size_t n = 1; n < keys.size(); ++n) EXPECT_EQ(store.contains(keys[n]), n > 3) << n;
  std::vector<TierEvent> events;
  store.poll_events(events);
  std::vector<BlockKey> evicted;
  for (const TierEvent& event : events) {
    if (event.kind == TierEvent::Kind::evicted) evicted.push_back(event.key);
  }
  EXPECT_EQ(evicted, (std::vector<BlockKey>{keys[1], keys[2], keys[3]}));
  EXPECT_TRUE(store.clear());
  EXPECT_EQ(store.stat().blocks, 0U);
}

TEST(TierStore, serves_no_damaged_block) {
  const TemporaryDirectory directory;
  const TierStoreOptions options = options_in(directory);
  const PrivateRegion memory{4, block, MemoryCheck::no};
  std::vector<BlockKey> keys;
  {
    TierStore store{options};
    keys = keys_of(store, 0, 4);
    fill(memory.rows(), keys);
    EXPECT_EQ(put(store, store.register_region(memory.rows()).value(), keys).succeeded, 4U);
  }
  // The bytes of the third block are found in the files, and one of them is changed.
  std::size_t damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{directory.path()}) {
    if (!entry.is_regular_file()) continue;
    std::fstream file{entry.path(), std::ios::binary | std::ios::in | std::ios::out};
    std::vector<char> page(4096);
    for (std::streamoff at = 0; file.read(page.data(), 4096); at += 4096) {
      if (std::memcmp(page.data(), memory.rows().row(2).data(), 4096) != 0) continue;
      file.seekp(at + 100);
      file.put(static_cast<char>(page[100] ^ 1));
      file.flush();
      file.seekg(at + 4096);
      ++damaged;
    }
  }
  ASSERT_EQ(damaged, 1U);
  TierStore store{options};
  const BatchResult result = get(store, store.register_region(memory.rows()).value(), keys);
  EXPECT_EQ(result.succeeded, 3U);
  EXPECT_EQ(result.errors[2], Errc::corrupt);
  EXPECT_FALSE(store.contains(keys[2]));
  EXPECT_EQ(store.statistics().corrupt, 1U);
}

TEST(TierStore, has_after_a_kill_what_was_durable_before) {
  const TemporaryDirectory directory;
  TierStoreOptions options;
  options.directories = {directory.path() / "disk"};
  options.capacity = MiB * 8;
  options.block_bytes = block;
  options.key_namespace = "crash";
  for (int round = 0; round < 3; ++round) {
    std::uint32_t durable = 0;
    {
      Child child{{"store", options.directories[0].string()}};
      while (durable < 20U * static_cast<unsigned>(round + 1)) {
        const std::string line = child.line();
        ASSERT_FALSE(line.empty());
        durable = static_cast<std::uint32_t>(std::stoul(line));
      }
      child.kill();
    }
    TierStore store{options};
    const PrivateRegion memory{1, block, MemoryCheck::no};
    const HostRegionId region = store.register_region(memory.rows()).value();
    for (std::uint32_t n = 0; n < durable; ++n) {
      const auto key = keys_of(store, n, 1);
      ASSERT_EQ(get(store, region, key).succeeded, 1U) << n;
      const auto expected = std::byte(n * 7 + 1);
      EXPECT_TRUE(std::ranges::all_of(memory.rows().row(0), [&](std::byte byte) { return byte == expected; })) << n;
    }
  }
}

TEST(TierStore, refuses_options_that_cannot_be_with_one_sentence) {
  const TemporaryDirectory directory;
  const TierStoreOptions good = options_in(directory);
  const auto refused = [](const TierStoreOptions& options) {
    return test::refusal_of<std::exception>([&] { const TierStore store{options}; });
  };
  TierStoreOptions options = good;
  options.directories.clear();
  EXPECT_EQ(refused(options), "tier store: at least one directory is needed");
  for (const auto member :
       {&TierStoreOptions::blocks_max, &TierStoreOptions::gets_under_way_max, &TierStoreOptions::puts_under_way_max}) {
    options = good;
    options.*member = 0;
    EXPECT_NE(refused(options).find("must be at least 1"), std::string::npos);
  }
  options = good;
  options.events_max = 0;
  EXPECT_NE(refused(options).find("must be at least 1"), std::string::npos);
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4097}, ~std::uint64_t{0}}) {
    options = good;
    options.block_bytes = Bytes{bytes};
    EXPECT_FALSE(refused(options).empty()) << bytes;
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8192}, ~std::uint64_t{0}}) {
    options = good;
    options.capacity = Bytes{bytes};
    EXPECT_FALSE(refused(options).empty()) << bytes;
  }
  options = good;
  options.name = "../elsewhere";
  EXPECT_FALSE(refused(options).empty());
  options = good;
  options.flush_interval = -1s;
  EXPECT_FALSE(refused(options).empty());
  options = good;
  options.store = std::make_shared<GatedStore>(4, KiB * 4);
  EXPECT_EQ(refused(options), "tier store: blocks of 8KiB, in a store of blocks of 4KiB");
  const TierStore store{good};
  EXPECT_NE(refused(good).find("process"), std::string::npos) << "the directory is in use";
}

TEST(TierStore, survives_every_call_with_senseless_arguments) {
  const TemporaryDirectory directory;
  const TierStoreOptions options = options_in(directory);
  TierStore store{options};
  const std::vector<BlockKey> keys(3);
  const std::vector<std::uint32_t> rows{0, ~0U, 7};
  for (const std::uint32_t region : {0U, 1U, ~0U}) {
    EXPECT_FALSE(store.submit_put({.id = {}, .keys = keys, .region = HostRegionId{region}, .rows = rows}));
    EXPECT_FALSE(store.submit_get({.id = {}, .keys = keys, .region = HostRegionId{region}, .rows = rows}));
    EXPECT_EQ(store.unregister_region(HostRegionId{region}).error(), Errc::not_found);
  }
  std::byte one{};
  for (const std::uint32_t count : {0U, 1U, ~0U}) {
    for (const std::uint64_t stride : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      if (count == 1 && stride != 1) continue;  // a valid description of memory that is not there
      if (count == ~0U && stride == 0) continue;
      EXPECT_FALSE(store.register_region({&one, count, block, Bytes{stride}}));
    }
  }
  EXPECT_FALSE(store.cancel({}));
  EXPECT_TRUE(store.remove(keys));
  EXPECT_TRUE(store.remove({}));
  store.touch(keys);
  EXPECT_EQ(store.key({}), opaque_key(std::as_bytes(std::span{options.key_namespace}), {}));
  EXPECT_TRUE(store.submit_flush({}));
  EXPECT_FALSE(wait(store).errors[0]);
}

TEST(TierStore, keeps_a_region_that_is_in_use) {
  std::shared_ptr<GatedStore> gate;
  TierStoreOptions options;
  options.block_bytes = block;
  options.store = gate = std::make_shared<GatedStore>(8, block);
  TierStore store{options};
  const PrivateRegion memory{2, block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  gate->held = true;
  const auto keys = keys_of(store, 0, 2);
  const auto rows = rows_from(0, 2);
  ASSERT_TRUE(store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows}));
  EXPECT_EQ(store.unregister_region(region).error(), Errc::in_use);
  EXPECT_FALSE(store.drain(in(5ms)));
  gate->held = false;
  EXPECT_TRUE(store.drain(test::give_up_at()));
  EXPECT_EQ(wait(store).succeeded, 2U) << "drain() has kept the result";
  EXPECT_TRUE(store.unregister_region(region));
}

TEST(TierStore, closes_in_time_although_the_disk_hangs_and_keeps_memory_until_it_answers) {
  std::shared_ptr<GatedStore> gate;
  TierStoreOptions options;
  options.block_bytes = block;
  options.store = gate = std::make_shared<GatedStore>(8, block);
  auto memory = std::make_shared<PrivateRegion>(2, block, MemoryCheck::no);
  const std::weak_ptr<PrivateRegion> watched = memory;
  {
    TierStore store{options};
    const HostRows described = memory->rows();
    const HostRegionId region = store.register_region(described, std::move(memory)).value();
    const auto keys = keys_of(store, 0, 2);
    const auto rows = rows_from(0, 2);
    ASSERT_TRUE(
        store.submit_put({.id = BatchId{1}, .keys = std::span{keys}.first(1), .region = region, .rows = {rows.data(), 1}}));
    ASSERT_TRUE(store.drain(test::give_up_at()));
    gate->held = true;
    ASSERT_TRUE(store.submit_get({.id = BatchId{2}, .keys = keys, .region = region, .rows = rows}));
    const TierCloseReport report = store.close(in(50ms));
    EXPECT_TRUE(gate->held) << "it did not wait for the disk";
    EXPECT_FALSE(report.closed);
    EXPECT_EQ(report.batches_left, 1U);

    std::vector<BatchResult> results;
    EXPECT_EQ(store.poll(results), 1U) << "of the put";
    EXPECT_EQ(results.at(0).id, BatchId{1});
    std::vector<TierEvent> events;
    EXPECT_EQ(store.poll_events(events), 1U);
    EXPECT_EQ(store.submit_put({}).error(), Errc::stopped);
    EXPECT_EQ(store.submit_flush({}).error(), Errc::stopped);
    EXPECT_EQ(store.register_region(described).error(), Errc::stopped);
    EXPECT_FALSE(store.contains(keys[0]));
    EXPECT_EQ(store.statistics().batches, 1U);
    EXPECT_EQ(store.health().state, StoreState::down);
    EXPECT_EQ(store.wake_fd(), -1);
    EXPECT_FALSE(store.close(in(1s)).closed) << "the disk may still use the memory";
  }
  EXPECT_FALSE(watched.expired()) << "the disk may still write to it";
  gate->held = false;
  gate.reset();
  EXPECT_TRUE(test::comes_true([&] { return watched.expired(); }));
}

TEST(TierStore, says_that_a_full_disk_takes_nothing_and_goes_on) {
  // A store in memory has no disk; its blocks are all in use by gets that hang, so that none may go.
  std::shared_ptr<GatedStore> gate;
  TierStoreOptions options;
  options.block_bytes = block;
  options.resilience.reset();
  options.store = gate = std::make_shared<GatedStore>(2, block);
  TierStore store{options};
  const PrivateRegion memory{8, block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  const auto keys = keys_of(store, 0, 3);
  fill(memory.rows(), keys);
  gate->writes_fail = true;
  EXPECT_EQ(put(store, region, keys).errors[0], Errc::io_failed);
  gate->writes_fail = false;
  // Three writes at once into two slots: the third finds no slot that may be given up.
  const BatchResult result = put(store, region, keys);
  EXPECT_EQ(result.succeeded, 2U);
  EXPECT_EQ(result.errors[2], Errc::full);
  EXPECT_EQ(put(store, region, {&keys[2], 1}).succeeded, 1U);
}

TEST(TierStore, refuses_a_capacity_that_the_disk_does_not_have) {
  const TemporaryDirectory directory;
  TierStoreOptions options = options_in(directory);
  options.floor = Bytes{std::uint64_t{1} << 60};
  EXPECT_THROW(TierStore{options}, std::system_error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "nothing is left behind";
}

/// A limit on the size of the files that this process writes.
class FileLimit {
 public:
  explicit FileLimit(Bytes bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    struct rlimit now = before_;
    now.rlim_cur = count(bytes);
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FileLimit() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  struct rlimit before_ {};
};

TEST_P(TierStoreIo, is_refused_by_a_limit_of_file_sizes_in_one_sentence_and_no_signal_ends_the_process) {
  if (GetParam() == IoChoice::uring && UringIo::unavailable()) GTEST_SKIP() << *UringIo::unavailable();
  const TemporaryDirectory directory;
  TierStoreOptions options = options_in(directory);
  options.io = GetParam();
  options.resilience.reset();
  const auto refused = [&options] {
    const FileLimit limit{MiB * 1};
    try {
      const TierStore store{options};
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code(), std::errc::file_too_large);
      EXPECT_NE(std::string{error.what()}.find("may only write files of up to 1MiB: raise the limit (ulimit -f)"),
                std::string::npos)
          << error.what();
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "nothing is left behind";
  {
    // A limit that comes while the store serves costs the blocks behind it, and nothing else.
    TierStore store{options};
    const PrivateRegion memory{200, block, MemoryCheck::no};
    const HostRegionId region = store.register_region(memory.rows()).value();
    const auto keys = keys_of(store, 0, 200);
    fill(memory.rows(), keys);
    {
      const FileLimit limit{MiB * 1};
      const BatchResult result = put(store, region, keys);
      EXPECT_EQ(result.succeeded, 128U);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        EXPECT_EQ(store.contains(keys[i]), !result.errors[i]);
        EXPECT_TRUE(!result.errors[i] || result.errors[i] == Errc::io_failed) << result.errors[i].message();
      }
    }
    EXPECT_EQ(put(store, region, keys).succeeded, 200U) << "the limit is gone";
  }
  EXPECT_TRUE(refused()) << "a store that is there already";
  const TierStore again{options};
  EXPECT_EQ(again.stat().blocks, 200U);
}

struct Sink final : LogSink {
  void write(LogLevel, std::string_view sentence) override {
    if (sentence.find("not used in full") != std::string_view::npos) seen = true;
  }
  std::atomic<bool> seen{false};
};

TEST(TierStore, logs_that_the_disk_is_not_used) {
  Sink sink;
  std::shared_ptr<GatedStore> gate;
  TierStoreOptions options;
  options.block_bytes = block;
  options.log.sink = &sink;
  options.resilience->breaker.failures_max = 1;
  options.resilience->write_retries = 0;
  options.store = gate = std::make_shared<GatedStore>(2, block);
  TierStore store{options};
  const PrivateRegion memory{8, block, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  gate->writes_fail = true;
  EXPECT_EQ(put(store, region, keys_of(store, 0, 1)).errors[0], Errc::io_failed);
  EXPECT_EQ(store.health().state, StoreState::degraded);
  EXPECT_EQ(put(store, region, keys_of(store, 1, 1)).errors[0], Errc::refused);
  EXPECT_TRUE(store.close(test::give_up_at()).closed);
  EXPECT_TRUE(sink.seen);
}

}  // namespace
}  // namespace terrace
