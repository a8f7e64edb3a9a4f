#pragma once

#include "storage/block_store.hpp"
#include "storage/file_store.hpp"
#include "storage/stepped_io.hpp"
#include "storage/thread_pool_io.hpp"

#include "tests/storage/blocks.hpp"

#include <atomic>
#include <barrier>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {

/// A directory of its own, gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The system's calls, and what a test makes of them. The plain members are for before the first call.
class FaultyCalls : public PosixCalls {
 public:
  int open(const char* path, int flags, unsigned mode) override;
  ssize_t pread(int fd, void* into, std::size_t bytes, off_t offset) override;
  ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t offset) override;
  int fallocate(int fd, off_t bytes) override;

  /// Writes that start with this key's block fail with EIO, once.
  void fail_write_of(const BlockKey& key);

  int open_error = 0;             ///< of opens that may create
  int opens = 0;
  int fallocate_error = 0;  ///< having taken a page more than there was
  int fallocates = 0;
  bool no_direct_open = false;    ///< O_DIRECT is refused by open()
  bool no_direct_io = false;      ///< O_DIRECT is refused by the first read or write
  std::barrier<>* refused_together = nullptr;  ///< where several threads are refused at the same moment
  std::size_t piece = 0;          ///< at most so many bytes a call, and every other call is interrupted
  std::atomic<int> interrupts{0};

 private:
  [[nodiscard]] bool refuses(int fd) const;
  [[nodiscard]] bool interrupted();

  std::atomic<std::uint64_t> failing_{0};  ///< what the content starts with, which is its key
};

/// A store under test, with the handles that a test needs to make things happen.
class StoreHarness {
 public:
  virtual ~StoreHarness() = default;
  [[nodiscard]] virtual BlockStore& store() = 0;
  /// Lets at least one piece of I/O end, where any is under way.
  virtual void advance() = 0;
  /// The write that is submitted next, which is of this key, fails.
  virtual void fail_write_of(const BlockKey& key) = 0;
  /// Flips one bit of a readable block's bytes.
  virtual void damage(const BlockKey& key) = 0;

  /// Advances and polls until nothing is in flight; the events in their order.
  std::vector<StoreEvent> drain();

  // One call and its events, with tokens counted up. Buffers live until the harness ends.
  std::vector<StoreEvent> write(const std::vector<StoredBlock>& blocks);
  void start_write(const std::vector<StoredBlock>& blocks);
  /// Starts a read into a buffer of its own; see content().
  std::uint64_t start_read(const BlockKey& key);
  [[nodiscard]] std::span<const std::byte> content(std::uint64_t token) const;
  /// True where the block is read and is what was written; false where it is not there. Anything else fails the test.
  [[nodiscard]] bool reads_back(const BlockKey& key);
  /// The outcome of one read.
  [[nodiscard]] ErrorCode read(const BlockKey& key);
  [[nodiscard]] bool has(const BlockKey& key);

 private:
  std::uint64_t next_token_ = 1;
  std::vector<std::pair<std::uint64_t, AlignedBuffer>> buffers_;
};

enum class StoreKind { memory, file_threads, file_stepped };
[[nodiscard]] std::string to_string(StoreKind kind);
[[nodiscard]] std::unique_ptr<StoreHarness> make_harness(StoreKind kind, std::uint32_t capacity_blocks);

/// A file store on a disk in memory. Operations end in an order that the seed decides.
class SteppedHarness final : public StoreHarness {
 public:
  SteppedHarness(SteppedIo& io, const FileStoreConfig& config, std::uint64_t seed = 1);
  [[nodiscard]] FileStore& store() override { return store_; }
  void advance() override;
  void fail_write_of(const BlockKey& key) override;
  void damage(const BlockKey& key) override;

 private:
  SteppedIo& io_;
  FileStore store_;
  std::uint64_t random_;
};

/// A file store in a real directory, on threads.
class ThreadsHarness final : public StoreHarness {
 public:
  ThreadsHarness(const FileStoreConfig& config, FaultyCalls& calls, unsigned threads = 4);
  [[nodiscard]] FileStore& store() override { return store_; }
  void advance() override { io_.wait(); }
  void fail_write_of(const BlockKey& key) override { calls_.fail_write_of(key); }
  void damage(const BlockKey& key) override;

 private:
  FaultyCalls& calls_;
  NullWaker waker_;
  ThreadPoolIo io_;
  FileStore store_;
};

[[nodiscard]] FileStoreConfig config_for(const std::filesystem::path& directory, std::uint32_t blocks);

/// Every readable block, as for_each() visits them.
[[nodiscard]] std::vector<StoredBlock> blocks_in(const BlockStore& store);

// What events say.
[[nodiscard]] std::vector<BlockKey> keys_of(const std::vector<StoreEvent>& events, StoreEvent::Kind kind);
[[nodiscard]] ErrorCode outcome(const std::vector<StoreEvent>& events, StoreEvent::Kind kind, const BlockKey& key);

}  // namespace terrace::test
