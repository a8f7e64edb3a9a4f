#pragma once

#include "storage/file/file_store.hpp"
#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_io.hpp"
#include "terrace/block_store.hpp"
#include "tests/simulated/simulated_io.hpp"

#include "tests/storage/blocks.hpp"

#include <atomic>
#include <barrier>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {

/// A directory of its own, which is removed with the object.
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

/// System calls with faults that a test chooses. Members that are not atomic must be set before the first call.
class FaultyCalls : public PosixCalls {
 public:
  int open(const char* path, int flags, unsigned mode) override;
  ssize_t pread(int fd, void* into, std::size_t bytes, off_t offset) override;
  ssize_t pwrite(int fd, const void* from, std::size_t bytes, off_t offset) override;
  int fallocate(int fd, off_t offset, off_t bytes) override;
  int punch_hole(int fd, off_t offset, off_t bytes) override;

  /// The result of an io_uring request after the faults below.
  int uring_ended(const IoOperation& operation, int fd, int result);

  /// The next write that begins with the block of this key fails with EIO.
  void fail_write_of(const BlockKey& key);

  int open_error = 0;  ///< for calls of open() that may create a file
  int opens = 0;
  std::atomic<int> fallocate_error{0};  ///< after it has allocated one page
  std::atomic<int> fallocates{0};
  bool no_holes = false;                       ///< the file system cannot punch holes
  bool no_direct_open = false;                 ///< open() refuses O_DIRECT
  bool no_direct_io = false;                   ///< the first read or write refuses O_DIRECT
  std::barrier<>* refused_together = nullptr;  ///< for several threads that are refused at the same time
  std::size_t piece = 0;                       ///< at most this many bytes per call, and every second call is interrupted
  std::atomic<int> interrupts{0};

 private:
  [[nodiscard]] bool refuses(int fd) const;
  [[nodiscard]] bool interrupted();
  [[nodiscard]] bool fails(std::span<const std::byte> from);

  std::atomic<std::uint64_t> failing_{0};  ///< the first bytes of the content, which are those of its key
};

/// io_uring with the faults of FaultyCalls, and some of its own. Set the members before the first call.
class FaultyUring final : public UringCalls {
 public:
  explicit FaultyUring(FaultyCalls& calls) : calls_{calls} {}
  int setup(unsigned entries, io_uring& ring, io_uring_params& params) override;
  int register_buffer(io_uring& ring, unsigned place, const iovec& memory) override;
  int ended(const IoOperation& operation, int fd, std::uint64_t asked, int result) override;

  int setup_error = 0;
  int flags_refused = 0;   ///< fails this many times with EINVAL before each ring, as older kernels that know fewer flags
  int register_error = 0;  ///< for the second piece of memory and later ones
  std::atomic<int> registered{0};
  std::atomic<int> next_result{0};  ///< result of the next request of a block, once; 0: the real result

 private:
  FaultyCalls& calls_;
  int refusals_ = 0;
};

/// A store under test, with the controls that a test needs.
class StoreHarness {
 public:
  virtual ~StoreHarness() = default;
  [[nodiscard]] virtual BlockStore& store() = 0;
  /// Lets at least one I/O operation end, if any is under way.
  virtual void advance() = 0;
  /// Makes the next submitted write fail. It must be the write of this key.
  virtual void fail_write_of(const BlockKey& key) = 0;
  /// Flips one bit of a readable block.
  virtual void damage(const BlockKey& key) = 0;

  /// Advances and polls until nothing is in flight. Returns the events in their order.
  std::vector<StoreEvent> drain();

  // Each of these makes one call and returns its events. Tokens count up. Buffers live as long as the harness.
  std::vector<StoreEvent> write(const std::vector<StoredBlock>& blocks);
  void start_write(const std::vector<StoredBlock>& blocks);
  /// Starts a read into its own buffer; see content().
  std::uint64_t start_read(const BlockKey& key);
  [[nodiscard]] std::span<const std::byte> content(std::uint64_t token) const;
  /// True if the block is read with the right content, false if it is not stored. Anything else fails the test.
  [[nodiscard]] bool reads_back(const BlockKey& key);
  /// The result of one read.
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
/// All kinds that this machine supports: without io_uring, all except that.
[[nodiscard]] std::vector<StoreKind> store_kinds();
/// The kinds whose files a test may look at.
[[nodiscard]] std::vector<StoreKind> kinds_on_disk();
[[nodiscard]] std::string to_string(StoreKind kind);
[[nodiscard]] std::unique_ptr<StoreHarness> make_harness(StoreKind kind, std::uint32_t capacity_blocks);

/// A file store on a disk in memory. The seed decides the order in which operations end.
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

/// Striped over /store, /store-1, ..., or the same next to `directory`, with this many blocks per stripe.
[[nodiscard]] FileStoreConfig striped_config_for(const std::filesystem::path& directory, std::uint32_t blocks,
                                                 std::uint32_t directories, std::uint32_t stripe_blocks);

/// All readable blocks, in the order of for_each().
[[nodiscard]] std::vector<StoredBlock> blocks_in(const BlockStore& store);

// Helpers to evaluate events.
[[nodiscard]] std::vector<BlockKey> keys_of(const std::vector<StoreEvent>& events, StoreEvent::Kind kind);
[[nodiscard]] ErrorCode outcome(const std::vector<StoreEvent>& events, StoreEvent::Kind kind, const BlockKey& key);

}  // namespace terrace::test
