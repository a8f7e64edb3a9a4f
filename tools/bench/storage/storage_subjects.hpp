#pragma once

#include "base/bytes.hpp"
#include "base/waker.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_choice.hpp"
#include "tools/bench/storage/bench_directory.hpp"
#include "tools/bench/storage/storage.hpp"
#include "tools/replay/engine/interrupt.hpp"

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

/// What the subjects of `bench storage` share: where they are, and the memory that they move.
struct StorageGround {
  std::vector<std::filesystem::path> directories;  ///< theirs alone; a store is striped over several
  Bytes block_bytes{};
  std::uint32_t blocks = 0;  ///< of the file
  unsigned depth_max = 1;
  IoChoice io = IoChoice::automatic;
  const Interrupt& interrupt;
  EventFdWaker& waker;    ///< the interrupt wakes it, too
  AlignedBuffer buffers;  ///< depth_max blocks of noise

  [[nodiscard]] std::span<std::byte> buffer(std::uint64_t n) const {
    return buffers.span(n * count(block_bytes), count(block_bytes));
  }
};

/// Directories of a bench's own in those of the options; gone with the object. Throws as BenchDirectory.
class StorageDirectories {
 public:
  explicit StorageDirectories(const StorageBenchOptions& options);
  [[nodiscard]] std::vector<std::filesystem::path> paths() const;

 private:
  std::vector<std::unique_ptr<BenchDirectory>> directories_;
};
[[nodiscard]] StorageGround make_ground(const StorageBenchOptions& options, const StorageDirectories& directories,
                                        Bytes block_bytes, const Interrupt& interrupt, EventFdWaker& waker);

/// Bytes that no disk below takes for a row of zeros.
[[nodiscard]] AlignedBuffer noise(std::uint64_t bytes);

/// What those read and write that are compared with a store. They read the same bytes of the same files as the store does, for
/// where a file lies on its disk, and what of it a cache below has kept, may matter more than who reads it.
struct StorageFiles {
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  std::vector<std::filesystem::path> to_read;
  std::vector<Place> places;                    ///< in these, by block
  std::vector<std::filesystem::path> to_write;  ///< one a directory, to which blocks go in turn

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
  /// Before move(), which is timed.
  virtual void prepare(StorageWay) {}
  /// Moves the blocks of this order, `depth` of them under way at once. After an interrupt, what is under way ends, and
  /// nothing else begins. Throws std::runtime_error where I/O fails.
  virtual void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) = 0;
};

/// A whole FileStore. Its own, and made full at construction.
class StoreSubject final : public StorageSubject {
 public:
  explicit StoreSubject(StorageGround& ground);
  ~StoreSubject() override;
  /// Which blocks there are to be read.
  void prepare(StorageWay way) override;
  /// Of what is written the store chooses the places: the order is that in which blocks were used last.
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override;
  [[nodiscard]] std::string engine() const { return io_->describe(); }
  [[nodiscard]] bool is_direct() const { return store_->is_direct(); }
  /// Its own, to be read; and names for what is to be written beside it.
  [[nodiscard]] StorageFiles files();

 private:
  void start(StorageWay way, std::uint64_t buffer, std::uint32_t block);
  /// All that is stored, by place. Notes the files in which it lies.
  [[nodiscard]] std::vector<std::pair<StorageFiles::Place, BlockKey>> stored();

  StorageGround& ground_;
  std::unique_ptr<IoEngine> io_;
  std::unique_ptr<FileStore> store_;
  std::vector<std::filesystem::path> files_;
  std::vector<BlockKey> keys_;  ///< of what is stored, as of prepare(), by place: a block's number is the same for all subjects
  std::uint64_t next_key_ = 0;
  std::vector<StoreEvent> events_;
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
};

/// The engine alone, on files of the blocks.
class EngineSubject final : public StorageSubject {
 public:
  /// The files are there, and have their sizes.
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
