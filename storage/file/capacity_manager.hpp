#pragma once

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "storage/file/file_set.hpp"
#include "storage/file/superblock_io.hpp"
#include "storage/index/store_operations.hpp"
#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <vector>

namespace terrace {

/// How much of the disk a serving FileStore has: makes it larger and smaller, and stops it where the disk would become too full.
///
/// Larger: slots are numbered first (a data file made where one is full, the catalog longer, the superblock written), closed;
/// then their room is taken, a piece at a time, and each piece is opened when it is there. Where the disk has no room for a
/// piece, half of it is tried, down to one slot; then the growth has stopped: the store keeps what it has, and stat() says why.
///
/// Smaller: the index closes slots, wherever they lie, as their blocks are given up (least recently used first), so that no
/// block moves and the most useful ones stay; the room of each slot is given back to the disk as it closes, by a hole in its
/// data file. Once that is done the data take no more than the limit's slots; until then those that are closing come on top.
/// Files keep their length, and the catalog its size. Where the file system has no holes the room stays taken: stat() counts the
/// slots.
///
/// A start whose files have holes (FileSet::has_holes()) closes its free slots in the same way, and takes their room again.
///
/// Floor: before room is taken the engine looks at the free space, and what would go below the floor is not taken. Room that was
/// taken ahead is the store's, and needs no look. Where a file system cannot take room ahead, blocks take it as they are
/// written: then slots are opened only as they are needed, every look_every first writes the engine looks again, and below the
/// floor free slots without room are closed: writes re-use slots that have room. It tries again after retry_writes writes.
///
/// A store may lie on several disks (FileSet). A piece of growth, and a hole, lie side by side in one file, and the floor is each
/// file system's. Where slots are lost the store grows no further than to the slots that it has: the other disks are not to take
/// more than their shares.
///
/// At most one piece of growth and one hole are under way. No call blocks. Threads: the store's.
class CapacityManager {
 public:
  static constexpr std::uint64_t token = std::uint64_t{1} << 61;  ///< in all of its operations

  /// All outlive it.
  CapacityManager(const FileStoreConfig& config, StoreOperations& operations, FileSet& files, IoEngine& engine);

  /// Called once, when the index has been restored from the catalog. Closes the slots that must not be used. If blocks must go
  /// for that, no event reports them, because nobody has been told of them yet; their slots are appended to `gone`.
  void start(std::vector<SlotId>& gone);
  [[nodiscard]] Result<void> resize(std::uint32_t slots);
  /// Begins what there is to do. After each call and completion; costs nothing where there is nothing.
  void pump();
  void ended(const IoCompletion& completion);
  /// A block's write of this slot has ended well.
  void wrote(SlotId slot);
  /// The slot is lost, and was not closed.
  void lost(SlotId slot) { closed(slot); }
  /// What is under way ends, nothing more begins.
  void stop() { stopped_ = true; }
  /// Whether the superblock on the disk has the current number of open slots. While it does not, a restart with a smaller
  /// capacity would cut the data files, and lose the blocks at their end. So a flush waits until the number is written, and
  /// fails if it cannot be written.
  enum class Note : unsigned char { written, waiting, failed };
  [[nodiscard]] Note note() const;
  [[nodiscard]] bool writes_superblock() const { return step_ == Step::writing_superblock; }
  /// Tries again what could not be written.
  void retry_note();
  /// Has it say so now. Blocks; nothing is under way, and it was stopped. False where it could not be written.
  [[nodiscard]] bool write_note();
  void add_to(StoreStat& stat) const;
  void check_invariants() const;

 private:
  static constexpr std::uint64_t hole_token = token | 1;
  static constexpr std::uint64_t growth_token = token | 2;
  static constexpr std::uint32_t evictions_max = 256;  ///< a pump
  static constexpr std::uint64_t look_every = 32;
  static constexpr std::uint64_t retry_writes = 64;
  static constexpr std::uint32_t slots_max = 0xFFFF'FFFE;

  ///   idle --> looking --> opening_file --> lengthening --> writing_superblock --> idle     (numbers slots)
  ///     |  \-> looking --> allocating --> idle                                              (opens slots)
  ///     |                      \-- no room --> giving_back --> idle
  ///     \----> writing_superblock, looking                                                  (for themselves)
  enum class Step : unsigned char { idle, looking, opening_file, lengthening, writing_superblock, allocating, giving_back };
  /// Slots that lie side by side in one data file.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  [[nodiscard]] StoreIndex& index() { return operations_.index(); }
  [[nodiscard]] const StoreIndex& index() const { return static_cast<const StoreOperations&>(operations_).index(); }
  /// Neither closed nor closing.
  [[nodiscard]] std::uint32_t open_slots() const;
  [[nodiscard]] std::uint32_t lost_slots() const { return index().count(StoreIndex::State::lost); }
  [[nodiscard]] bool on_demand() const { return config_floor_ > 0 && sparse_; }
  [[nodiscard]] std::uint64_t block_bytes() const { return files_.block_bytes(); }
  [[nodiscard]] std::uint64_t noted_slots() const;

  void shrink();
  void punch();
  void hole_ended(const IoCompletion& completion);
  void next_step();
  void grow();
  void step_ended(const IoCompletion& completion);
  void looked(const IoCompletion& completion);
  void number_slots();
  void lengthen();
  void write_superblock(std::uint32_t slots);
  [[nodiscard]] Superblock superblock_with(std::uint32_t slots, std::uint64_t open_slots) const;
  void superblock_step(const IoCompletion& completion);
  void superblock_written(bool whole);
  void take_run(std::uint32_t slots_max);
  void put_back(std::uint32_t from);
  void allocate();
  void allocated(int error);
  /// Closes the free slots that take their room when they are written, in the directory that was looked at.
  void close_unwritten();
  void opened(SlotId slot);
  void closed(SlotId slot);
  void fail(ErrorCode error);
  void submit(Step step, IoOperation operation);

  StoreOperations& operations_;
  FileSet& files_;
  IoEngine& engine_;
  const std::uint64_t config_floor_;
  const std::uint32_t piece_slots_;
  const std::uint32_t ahead_;  ///< free slots to have ready where they are opened on demand

  bool stopped_ = false;
  bool sparse_ = false;

  std::vector<SlotId> closing_;  ///< waiting for their hole, in order
  std::vector<SlotId> scratch_;
  Run hole_;  ///< under way

  Step step_ = Step::idle;
  Run run_;                      ///< taken from the closed slots, to be opened
  std::uint32_t numbering_ = 0;  ///< slots to come to; 0: not numbering
  std::uint32_t tried_ = 0;      ///< how much of a piece to try next; 0: all
  bool halted_ = false;          ///< growth has failed
  FileId new_file_;
  SuperblockWrite superblock_write_;
  std::uint64_t noting_ = 0;
  std::uint64_t note_failed_ = ~std::uint64_t{0};  ///< what could not be written, not to be tried again

  // Of slots that take their room when they are written; only where there is a floor.
  std::vector<bool> has_room_;  ///< FileSet counts those that are not closed and have none
  std::uint64_t writes_ = 0;
  std::uint64_t first_writes_ = 0;
  std::uint64_t looked_at_ = 0;  ///< first_writes_ at the last look
  std::uint64_t retry_at_ = 0;   ///< writes_ at which a halted growth on demand goes on

  StoreStat counted_;  ///< only what add_to() adds
};

}  // namespace terrace
