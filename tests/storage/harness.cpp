#include "tests/storage/harness.hpp"

#include "base/check.hpp"
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/resilient_store.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <system_error>

namespace terrace::test {
namespace {

class MemoryHarness final : public StoreHarness {
 public:
  explicit MemoryHarness(std::uint32_t capacity) : store_{capacity, Bytes{block_size}} {}
  BlockStore& store() override { return store_; }
  void advance() override {}
  void fail_write_of(const BlockKey&) override { store_.fail_next_write(); }
  void damage(const BlockKey& key) override {
    ASSERT_FALSE(store_.raw(key).empty());
    store_.raw(key)[1234] ^= std::byte{4};
  }

 private:
  MemoryStore store_;
};

/// A harness together with what it needs.
template <class Setup>
class PlainHarness final : public StoreHarness {
 public:
  explicit PlainHarness(std::uint32_t capacity) : setup_{capacity} {}
  BlockStore& store() override { return setup_.harness.store(); }
  void advance() override { setup_.harness.advance(); }
  void fail_write_of(const BlockKey& key) override { setup_.harness.fail_write_of(key); }
  void damage(const BlockKey& key) override { setup_.harness.damage(key); }

 private:
  Setup setup_;
};

struct SimulatedSetup {
  explicit SimulatedSetup(std::uint32_t capacity) : harness{io, config_for("/store", capacity)} {}
  SimulatedIo io;
  SimulatedHarness harness;
};

struct MemorySetup {
  explicit MemorySetup(std::uint32_t capacity) : harness{capacity} {}
  MemoryHarness harness;
};

/// A harness behind a ResilientStore that does not retry writes, because the contract tests count each write and its slot.
template <class Setup>
class ResilientHarness final : public StoreHarness {
 public:
  explicit ResilientHarness(std::uint32_t capacity) : setup_{capacity}, resilient_{setup_.harness.store(), clock_, options()} {}
  /// Time passes between calls, so that an operation that a test repeats is outside of its back-off.
  BlockStore& store() override {
    clock_.advance(std::chrono::seconds{1});
    return resilient_;
  }
  /// Advances the I/O of the store, or otherwise the time up to the next retry.
  void advance() override {
    const StoreStat stat = setup_.harness.store().stat();
    if (setup_.harness.store().in_flight() > 0 || stat.capacity_blocks != stat.wanted_blocks) return setup_.harness.advance();
    if (resilient_.next_deadline() != never) clock_.advance(resilient_.next_deadline() - clock_.now());
  }
  void fail_write_of(const BlockKey& key) override { setup_.harness.fail_write_of(key); }
  void damage(const BlockKey& key) override { setup_.harness.damage(key); }

 private:
  static ResilienceOptions options() {
    ResilienceOptions options;
    options.write_retries = 0;
    options.breaker.failures_max = 1000;
    return options;
  }

  Setup setup_;
  ManualClock clock_;
  ResilientStore resilient_;
};

struct ThreadsSetup {
  explicit ThreadsSetup(std::uint32_t capacity) : harness{config_for(directory.path() / "store", capacity), calls} {}
  TemporaryDirectory directory;
  FaultyCalls calls;
  ThreadsHarness harness;
};

struct StripedThreadsSetup {
  explicit StripedThreadsSetup(std::uint32_t capacity)
      : harness{striped_config_for(directory.path() / "store", capacity, 3, 2), calls} {}
  TemporaryDirectory directory;
  FaultyCalls calls;
  ThreadsHarness harness;
};

struct StripedSimulatedSetup {
  explicit StripedSimulatedSetup(std::uint32_t capacity) : harness{io, striped_config_for("/store", capacity, 3, 2)} {}
  SimulatedIo io;
  SimulatedHarness harness;
};

struct UringSetup {
  explicit UringSetup(std::uint32_t capacity) : harness{config_for(directory.path() / "store", capacity), calls, uring} {}
  TemporaryDirectory directory;
  FaultyCalls calls;
  FaultyUring uring{calls};
  UringHarness harness;
};

}  // namespace

NullWaker DiskHarness::nobody;

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::system_error{errno, std::generic_category(), name};
  path_ = name;
  // Files that a test creates in place of a store are private, as the store's own files are.
  (void)::umask(077);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int FaultyCalls::open(const char* path, int flags, unsigned mode) {
  ++opens;
  if (open_error != 0 && (flags & O_CREAT) != 0) {
    errno = open_error;
    return -1;
  }
  if (no_direct_open && (flags & O_DIRECT) != 0) {
    errno = EINVAL;
    return -1;
  }
  return PosixCalls::open(path, flags, mode);
}

bool FaultyCalls::refuses(int fd) const {
  if (!no_direct_io || (::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return false;
  if (refused_together != nullptr) refused_together->arrive_and_wait();
  errno = EINVAL;
  return true;
}

bool FaultyCalls::interrupted() {
  if (piece == 0 || interrupts.fetch_add(1) % 2 == 0) return false;
  errno = EINTR;
  return true;
}

ssize_t FaultyCalls::pread(int fd, void* into, std::size_t bytes, off_t offset) {
  if (refuses(fd) || interrupted()) return -1;
  return PosixCalls::pread(fd, into, piece == 0 ? bytes : std::min(piece, bytes), offset);
}

ssize_t FaultyCalls::pwrite(int fd, const void* from, std::size_t bytes, off_t offset) {
  if (refuses(fd) || interrupted()) return -1;
  if (fails({static_cast<const std::byte*>(from), bytes})) {
    errno = EIO;
    return -1;
  }
  return PosixCalls::pwrite(fd, from, piece == 0 ? bytes : std::min(piece, bytes), offset);
}

bool FaultyCalls::fails(std::span<const std::byte> from) {
  std::uint64_t prefix = 0;
  std::memcpy(&prefix, from.data(), from.size() == block_size ? sizeof prefix : 0);
  return prefix != 0 && failing_.compare_exchange_strong(prefix, 0);
}

int FaultyCalls::uring_ended(const IoOperation& operation, int fd, int result) {
  if (operation.kind == IoOperation::Kind::sync) return result;
  if (refuses(fd)) return -EINVAL;
  if (interrupted()) return -EINTR;
  if (operation.kind == IoOperation::Kind::write && fails(operation.from)) return -EIO;
  return piece == 0 ? result : std::min(static_cast<int>(piece), result);
}

int FaultyUring::setup(unsigned entries, io_uring& ring, io_uring_params& params) {
  if (setup_error != 0) return -setup_error;
  if (refusals_++ < flags_refused) return -EINVAL;
  refusals_ = 0;
  return UringCalls::setup(entries, ring, params);
}

int FaultyUring::register_buffer(io_uring& ring, unsigned place, const iovec& memory) {
  if (registered++ > 0 && register_error != 0) return -register_error;
  return UringCalls::register_buffer(ring, place, memory);
}

int FaultyUring::ended(const IoOperation& operation, int fd, std::uint64_t asked, int result) {
  if (asked == block_size) {  // a block, not a page of the catalog
    if (const int other = next_result.exchange(0)) return other;
  }
  return calls_.uring_ended(operation, fd, result);
}

int FaultyCalls::fallocate(int fd, off_t offset, off_t bytes) {
  ++fallocates;
  if (fallocate_error == 0) return PosixCalls::fallocate(fd, offset, bytes);
  const off_t before = ::lseek(fd, 0, SEEK_END);
  EXPECT_EQ(::ftruncate(fd, std::min(before + 4096, std::max(before, offset + bytes))), 0);
  errno = fallocate_error;
  return -1;
}

int FaultyCalls::punch_hole(int fd, off_t offset, off_t bytes) {
  if (!no_holes) return PosixCalls::punch_hole(fd, offset, bytes);
  errno = EOPNOTSUPP;
  return -1;
}

void FaultyCalls::fail_write_of(const BlockKey& key) { failing_ = key.prefix64(); }

std::vector<StoreEvent> StoreHarness::drain() {
  std::vector<StoreEvent> events;
  store().poll(events);
  while (store().in_flight() > 0) {
    advance();
    store().poll(events);
  }
  store().check_invariants();
  return events;
}

void StoreHarness::start_write(const std::vector<StoredBlock>& blocks) {
  std::vector<StoreWrite> batch;
  for (const StoredBlock& block : blocks) {
    buffers_.emplace_back(next_token_, content_of(block.key));
    batch.push_back({next_token_++, block, buffers_.back().second.span()});
  }
  store().write(batch);
}

std::vector<StoreEvent> StoreHarness::write(const std::vector<StoredBlock>& blocks) {
  start_write(blocks);
  return drain();
}

std::uint64_t StoreHarness::start_read(const BlockKey& key) {
  buffers_.emplace_back(next_token_, AlignedBuffer{block_size});
  const StoreRead read{next_token_, key, buffers_.back().second.span()};
  store().read({&read, 1});
  return next_token_++;
}

std::span<const std::byte> StoreHarness::content(std::uint64_t token) const {
  for (const auto& [of, buffer] : buffers_) {
    if (of == token) return buffer.span();
  }
  return {};
}

ErrorCode StoreHarness::read(const BlockKey& key) {
  start_read(key);
  const ErrorCode error = outcome(drain(), StoreEvent::Kind::read, key);
  EXPECT_TRUE(error || holds(buffers_.back().second.span(), key)) << "a wrong block was served";
  return error;
}

bool StoreHarness::reads_back(const BlockKey& key) {
  const ErrorCode error = read(key);
  EXPECT_TRUE(!error || error == Errc::not_found) << error.message();
  return !error;
}

bool StoreHarness::has(const BlockKey& key) {
  drain();
  return store().contains(key);
}

std::vector<StoreKind> store_kinds() {
  std::vector<StoreKind> kinds{StoreKind::memory,           StoreKind::file_threads,   StoreKind::file_simulated,
                               StoreKind::resilient_memory, StoreKind::resilient_file, StoreKind::striped_threads,
                               StoreKind::striped_simulated};
  if (!UringIo::unavailable()) kinds.push_back(StoreKind::file_uring);
  return kinds;
}

std::vector<StoreKind> kinds_on_disk() {
  std::vector<StoreKind> kinds{StoreKind::file_threads};
  if (!UringIo::unavailable()) kinds.push_back(StoreKind::file_uring);
  return kinds;
}

std::string to_string(StoreKind kind) {
  switch (kind) {
    case StoreKind::memory: return "memory";
    case StoreKind::file_threads: return "file_threads";
    case StoreKind::file_uring: return "file_uring";
    case StoreKind::file_simulated: return "file_simulated";
    case StoreKind::resilient_memory: return "resilient_memory";
    case StoreKind::resilient_file: return "resilient_file";
    case StoreKind::striped_threads: return "striped_threads";
    case StoreKind::striped_simulated: return "striped_simulated";
  }
  return "?";
}

std::unique_ptr<StoreHarness> make_harness(StoreKind kind, std::uint32_t capacity_blocks) {
  switch (kind) {
    case StoreKind::memory: return std::make_unique<MemoryHarness>(capacity_blocks);
    case StoreKind::file_threads: return std::make_unique<PlainHarness<ThreadsSetup>>(capacity_blocks);
    case StoreKind::file_uring: return std::make_unique<PlainHarness<UringSetup>>(capacity_blocks);
    case StoreKind::file_simulated: return std::make_unique<PlainHarness<SimulatedSetup>>(capacity_blocks);
    case StoreKind::resilient_memory: return std::make_unique<ResilientHarness<MemorySetup>>(capacity_blocks);
    case StoreKind::resilient_file: return std::make_unique<ResilientHarness<SimulatedSetup>>(capacity_blocks);
    case StoreKind::striped_threads: return std::make_unique<PlainHarness<StripedThreadsSetup>>(capacity_blocks);
    case StoreKind::striped_simulated: return std::make_unique<PlainHarness<StripedSimulatedSetup>>(capacity_blocks);
  }
  return nullptr;
}

SimulatedHarness::SimulatedHarness(SimulatedIo& io, const FileStoreConfig& config, std::uint64_t seed)
    : io_{io}, store_{config, io}, random_{seed} {}

void SimulatedHarness::advance() {
  if (io_.queued() == 0) {
    io_.wait();
    return;
  }
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  io_.step((random_ >> 33) % io_.queued());
}

void SimulatedHarness::fail_write_of(const BlockKey&) { io_.files().inject(io_.files().next_number(), {.error = EIO}); }

void SimulatedHarness::damage(const BlockKey& key) {
  const auto at = store_.location(key);
  ASSERT_TRUE(at.has_value());
  io_.files().content(at->file)[at->offset + 1234] ^= std::byte{4};
}

ThreadsHarness::ThreadsHarness(const FileStoreConfig& config, FaultyCalls& calls, unsigned threads)
    : DiskHarness{config, calls, std::make_unique<ThreadedIo>(ThreadedIo::Config{.threads = threads}, nobody, calls)} {}

UringHarness::UringHarness(const FileStoreConfig& config, FaultyCalls& calls, FaultyUring& uring)
    : DiskHarness{config, calls, UringIo::make(UringIo::Config{.rings = 2, .depth = 8}, nobody, uring, calls)} {}

void DiskHarness::damage(const BlockKey& key) {
  const auto at = store_.location(key);
  ASSERT_TRUE(at.has_value());
  std::fstream file{at->file, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(static_cast<std::streamoff>(at->offset + 1234));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at->offset + 1234));
  file.put(static_cast<char>(byte ^ 4));
  ASSERT_TRUE(file.good());
}

FileStoreConfig config_for(const std::filesystem::path& directory, std::uint32_t blocks) {
  FileStoreConfig config;
  config.directory = directory;
  config.name.clear();
  config.block_bytes = Bytes{block_size};
  config.capacity = capacity_for(blocks, config.block_bytes);
  config.fingerprint = key_of(4711).bytes;
  return config;
}

FileStoreConfig striped_config_for(const std::filesystem::path& directory, std::uint32_t blocks, std::uint32_t directories,
                                   std::uint32_t stripe_blocks) {
  FileStoreConfig config = config_for(directory, blocks);
  for (std::uint32_t n = 1; n < directories; ++n) {
    config.more_directories.push_back(directory.parent_path() / (directory.filename().string() + "-" + std::to_string(n)));
  }
  config.capacity = capacity_for(blocks, config.block_bytes, directories);
  config.stripe_bytes = config.block_bytes * stripe_blocks;
  config.id = 4712;
  return config;
}

std::vector<StoredBlock> blocks_in(const BlockStore& store) {
  std::vector<StoredBlock> blocks;
  store.for_each([&](const StoredBlock& block) { blocks.push_back(block); });
  return blocks;
}

std::vector<BlockKey> keys_of(const std::vector<StoreEvent>& events, StoreEvent::Kind kind) {
  std::vector<BlockKey> keys;
  for (const StoreEvent& event : events) {
    if (event.kind == kind) keys.push_back(event.key);
  }
  return keys;
}

ErrorCode outcome(const std::vector<StoreEvent>& events, StoreEvent::Kind kind, const BlockKey& key) {
  std::size_t found = 0;
  ErrorCode error;
  for (const StoreEvent& event : events) {
    if (event.kind != kind || event.key != key) continue;
    ++found;
    error = event.error;
  }
  EXPECT_EQ(found, 1U) << "events of this kind for this key";
  return error;
}

}  // namespace terrace::test
