#pragma once

#include "base/waker.hpp"
#include "lab/storage/storage.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/make_io_engine.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/scratch_directory.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tools {

enum class StorageWay : unsigned char { read, write };
[[nodiscard]] std::string_view to_string(StorageWay way);

/// Shared by all subjects of `terrace-lab storage`: their directories, and the memory that they read and write.
struct StorageGround {
  std::vector<std::filesystem::path> directories;  ///< used only by this bench; a store is striped over all of them
  Bytes block_bytes{};
  std::uint32_t blocks = 0;  ///< the number of blocks in the file
  unsigned depth_max = 1;
  IoChoice io = IoChoice::automatic;
  const Interrupt& interrupt;
  EventFdWaker& waker;    ///< woken by the interrupt, too
  AlignedBuffer buffers;  ///< depth_max blocks of noise

  [[nodiscard]] std::span<std::byte> buffer(std::uint64_t n) const {
    return buffers.span(n * count(block_bytes), count(block_bytes));
  }
};

/// The temporary directories of the bench, one in each given directory. The destructor removes them. Throws as ScratchDirectory
/// does.
class StorageDirectories {
 public:
  explicit StorageDirectories(const StorageBenchOptions& options);
  [[nodiscard]] std::vector<std::filesystem::path> paths() const;

 private:
  std::vector<std::unique_ptr<ScratchDirectory>> directories_;
};
[[nodiscard]] StorageGround make_ground(const StorageBenchOptions& options, const StorageDirectories& directories,
                                        Bytes block_bytes, const Interrupt& interrupt, EventFdWaker& waker);

/// Returns bytes that a disk cannot store as a range of zeros or compress.
[[nodiscard]] AlignedBuffer noise(std::uint64_t bytes);

/// The files that the compared subjects read and write. They read the same bytes of the same files as the store does, because the
/// place of a file on the disk, and what a lower cache holds of it, may matter more than who reads it.
struct StorageFiles {
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  std::vector<std::filesystem::path> to_read;
  std::vector<Place> places;                    ///< by block: the place in to_read
  std::vector<std::filesystem::path> to_write;  ///< one for each directory; blocks go to them in turn

  [[nodiscard]] Place place(StorageWay way, std::uint32_t block, Bytes block_bytes) const {
    if (way == StorageWay::read) return places[block];
    const auto files = static_cast<std::uint32_t>(to_write.size());
    return {block % files, block / files * count(block_bytes)};
  }
};

/// Reads or writes blocks. Threads: one.
class StorageSubject {
 public:
  virtual ~StorageSubject() = default;
  /// Called before move(). Only move() is timed.
  virtual void prepare(StorageWay) {}
  /// Moves the blocks in this order, `depth` of them at a time. After an interrupt it waits for the operations under way and
  /// begins no others. Throws std::runtime_error if I/O fails.
  virtual void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) = 0;
};

/// A whole FileStore. The constructor makes it and fills it.
class StoreSubject final : public StorageSubject {
 public:
  explicit StoreSubject(StorageGround& ground);
  ~StoreSubject() override;
  /// Lists the blocks that can be read.
  void prepare(StorageWay way) override;
  /// For writes the store chooses the places: it evicts the blocks in the order of their last use.
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override;
  [[nodiscard]] std::string engine() const { return io_->describe(); }
  [[nodiscard]] bool is_direct() const { return store_->is_direct(); }
  /// The store's files to read, and the names of files to write in the same directories.
  [[nodiscard]] StorageFiles files();

 private:
  void start(StorageWay way, std::uint64_t buffer, std::uint32_t block);
  /// All stored blocks, sorted by place. Records the files in which they lie.
  [[nodiscard]] std::vector<std::pair<StorageFiles::Place, BlockKey>> stored();

  StorageGround& ground_;
  std::unique_ptr<IoEngine> io_;
  std::unique_ptr<FileStore> store_;
  std::vector<std::filesystem::path> files_;
  /// keys of the stored blocks by place, set by prepare(); so a block's number means the same place for all subjects
  std::vector<BlockKey> keys_;
  std::uint64_t next_key_ = 0;
  std::vector<StoreEvent> events_;
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
};

/// The I/O engine alone, on files with the same blocks.
class EngineSubject final : public StorageSubject {
 public:
  /// The files must exist and have their sizes.
  EngineSubject(StorageGround& ground, StorageFiles files);
  ~EngineSubject() override;
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override;

 private:
  StorageGround& ground_;
  std::unique_ptr<IoEngine> io_;
  StorageFiles files_;
  std::vector<FileId> to_read_;
  std::vector<FileId> to_write_;
  std::vector<IoOperation> batch_;
  std::vector<IoCompletion> completed_;
};

}  // namespace terrace::tools
