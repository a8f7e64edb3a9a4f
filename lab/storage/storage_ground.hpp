#pragma once

#include "base/waker.hpp"
#include "lab/benches.hpp"
#include "lab/rows.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/scratch_directory.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace terrace::tools {

enum class StorageWay : unsigned char { read, write };

/// Shared by the compared subjects: their directories, and the memory that they read and write. The destructor removes the
/// directories.
struct StorageGround {
  /// Throws as ScratchDirectory does.
  StorageGround(const StorageBenchOptions& options, Bytes block_bytes, const Interrupt& interrupt, EventFdWaker& waker);

  std::vector<std::unique_ptr<ScratchDirectory>> scratch;  ///< one in each given directory
  std::vector<std::filesystem::path> directories;          ///< their paths; a store is striped over all of them
  Bytes block_bytes;
  std::uint32_t blocks;  ///< the number of blocks in the file
  unsigned depth_max;
  IoChoice io;
  const Interrupt& interrupt;
  EventFdWaker& waker;    ///< woken by the interrupt, too
  AlignedBuffer buffers;  ///< depth_max blocks of noise

  [[nodiscard]] std::span<std::byte> buffer(std::uint64_t n) const {
    return buffers.span(n * count(block_bytes), count(block_bytes));
  }
};

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

/// Keeps `depth` operations under way until all blocks of the order have begun and ended; after an error or an interrupt it
/// begins no others. `start(buffer, block)` begins one. `collect(ended)` waits for some, and calls `ended(buffer, is_well)` for
/// each.
template <class Start, class Collect>
void keep_under_way(const StorageGround& ground, unsigned depth, std::span<const std::uint32_t> order, Start start,
                    Collect collect) {
  std::size_t begun = 0;
  std::size_t under_way = 0;
  bool failed = false;
  for (; begun < std::min<std::size_t>(depth, order.size()); ++begun, ++under_way) start(begun, order[begun]);
  const auto ended = [&](std::uint64_t buffer, bool is_well) {
    --under_way;
    failed = failed || !is_well;
    if (begun == order.size() || failed || ground.interrupt.requested()) return;
    start(buffer, order[begun++]);
    ++under_way;
  };
  const auto goes_on = [&] { return under_way > 0; };
  while (goes_on()) collect(ended);
}
/// Writes as many blocks as the ground has, for a store that begins empty.
void fill(const StorageGround& ground, StorageSubject& store);

/// The baseline: direct reads and writes of the files, as a program issues them that does nothing else. It uses io_uring without
/// registered memory or files if io_uring is available; otherwise pread and pwrite, with a thread for each operation under way.
/// Makes the files to write, with all their blocks. Throws std::system_error, and Interrupted.
[[nodiscard]] std::unique_ptr<StorageSubject> make_plain_subject(StorageGround& ground, const StorageFiles& files);

/// Calls `measure` with a new ground for each size of block. Throws as bench_storage().
void at_each_size(const StorageBenchOptions& options, const std::function<void(StorageGround&)>& measure);

struct NamedSubject {
  const char* name;
  StorageSubject& subject;
};
/// Moves the same number of blocks by each subject, in turns, `options.rounds` times. The row has the block size, the depth, and
/// by subject the medians NAME_gb_per_s, NAME_ratio (relative to the last subject in the same round) and NAME_cpu_us
/// (microseconds of the calling thread for each block). Throws what StorageSubject::move() throws; Interrupted.
[[nodiscard]] Row measure_in_turns(const StorageBenchOptions& options, const StorageGround& ground, unsigned depth,
                                   StorageWay way, std::span<const NamedSubject> subjects);

}  // namespace terrace::tools
