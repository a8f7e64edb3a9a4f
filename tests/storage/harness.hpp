#pragma once

#include "storage/file/file_store.hpp"
#include "storage/index/block_store.hpp"
#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/simulated/simulated_io.hpp"

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
  int fallocate(int fd, off_t offset, off_t bytes) override;

  /// What the members below make of an io_uring request's result.
  int uring_ended(const IoOperation& operation, int fd, int result);

  /// Writes that start with this key's block fail with EIO, once.
  void fail_write_of(const BlockKey& key);

  int open_error = 0;  ///< of opens that may create
  int opens = 0;
  std::atomic<int> fallocate_error{0};  ///< having taken a page more than there was
  std::atomic<int> fallocates{0};
  bool no_direct_open = false;                 ///< O_DIRECT is refused by open()
  bool no_direct_io = false;                   ///< O_DIRECT is refused by the first read or write
  std::barrier<>* refused_together = nullptr;  ///< where several threads are refused at the same moment
  std::size_t piece = 0;                       ///< at most so many bytes a call, and every other call is interrupted
  std::atomic<int> interrupts{0};

 private:
  [[nodiscard]] bool refuses(int fd) const;
  [[nodiscard]] bool interrupted();
  [[nodiscard]] bool fails(std::span<const std::byte> from);

  std::atomic<std::uint64_t> failing_{0};  ///< what the content starts with, which is its key
};

/// io_uring with the faults of FaultyCalls, and some of its own. The members are for before the first call.
class FaultyUring final : public UringCalls {
 public:
  explicit FaultyUring(FaultyCalls& calls) : calls_{calls} {}
  int setup(unsigned entries, io_uring& ring, io_uring_params& params) override;
  int register_buffer(io_uring& ring, unsigned place, const iovec& memory) override;
  int ended(const IoOperation& operation, int fd, std::uint64_t asked, int result) override;

  int setup_error = 0;
  int flags_refused = 0;   ///< so many times EINVAL before each ring, as of older kernels that know fewer flags
  int register_error = 0;  ///< of the second piece of memory and those after it
  std::atomic<int> registered{0};
  std::atomic<int> next_result{0};  ///< of the next request of a block, once; 0: what it was

 private:
  FaultyCalls& calls_;
  int refusals_ = 0;
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

enum class StoreKind {
  memory,
  file_threads,
  file_uring,
  file_simulated,
  resilient_memory,
  resilient_file,
  striped_threads,
  striped_simulated
};
/// All of them that there can be here: without io_uring, all but that.
[[nodiscard]] std::vector<StoreKind> store_kinds();
[[nodiscard]] std::string to_string(StoreKind kind);
[[nodiscard]] std::unique_ptr<StoreHarness> make_harness(StoreKind kind, std::uint32_t capacity_blocks);

/// A file store on a disk in memory. Operations end in an order that the seed decides.
class SimulatedHarness final : public StoreHarness {
 public:
  SimulatedHarness(SimulatedIo& io, const FileStoreConfig& config, std::uint64_t seed = 1);
  [[nodiscard]] FileStore& store() override { return store_; }
  void advance() override;
  void fail_write_of(const BlockKey& key) override;
  void damage(const BlockKey& key) override;

 private:
  SimulatedIo& io_;
  FileStore store_;
  std::uint64_t random_;
};

/// A file store in a real directory.
class DiskHarness : public StoreHarness {
 public:
  [[nodiscard]] FileStore& store() override { return store_; }
  void advance() override { io_->wait(); }
  void fail_write_of(const BlockKey& key) override { calls_.fail_write_of(key); }
  void damage(const BlockKey& key) override;

 protected:
  DiskHarness(const FileStoreConfig& config, FaultyCalls& calls, std::unique_ptr<IoEngine> io)
      : calls_{calls}, io_{std::move(io)}, store_{config, *io_} {}
  static NullWaker nobody;

 private:
  FaultyCalls& calls_;
  std::unique_ptr<IoEngine> io_;
  FileStore store_;
};

class ThreadsHarness final : public DiskHarness {
 public:
  ThreadsHarness(const FileStoreConfig& config, FaultyCalls& calls, unsigned threads = 4);
};

class UringHarness final : public DiskHarness {
 public:
  UringHarness(const FileStoreConfig& config, FaultyCalls& calls, FaultyUring& uring);
};

[[nodiscard]] FileStoreConfig config_for(const std::filesystem::path& directory, std::uint32_t blocks);

/// Striped over /store, /store-1, ..., or the same beside `directory`, with stripes of so many blocks.
[[nodiscard]] FileStoreConfig striped_config_for(const std::filesystem::path& directory, std::uint32_t blocks,
                                                 std::uint32_t directories, std::uint32_t stripe_blocks);

/// Every readable block, as for_each() visits them.
[[nodiscard]] std::vector<StoredBlock> blocks_in(const BlockStore& store);

// What events say.
[[nodiscard]] std::vector<BlockKey> keys_of(const std::vector<StoreEvent>& events, StoreEvent::Kind kind);
[[nodiscard]] ErrorCode outcome(const std::vector<StoreEvent>& events, StoreEvent::Kind kind, const BlockKey& key);

}  // namespace terrace::test
