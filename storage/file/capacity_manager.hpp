#pragma once

#include "storage/file/file_set.hpp"
#include "storage/file/superblock_io.hpp"
#include "storage/index/store_operations.hpp"
#include "storage/io/io_engine.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <vector>

namespace terrace {

/// Controls how much of the disk a serving FileStore uses. It makes the store larger or smaller, and keeps a minimum of free
/// space on the disk (FileStoreConfig::floor).
///
/// A store becomes larger in two steps. First the new slots get numbers and are closed: a new data file is made if the last one
/// is full, the catalog is extended, and the superblock is written. Then disk space is allocated piece by piece, and the slots of
/// each piece are opened after its allocation. If the disk has no space for a piece, half of the size is tried, down to one slot.
/// If that fails too, growth stops: the store keeps its current size, and stat() has the reason.
///
/// To make a store smaller, the index closes slots at any position when their blocks are evicted (least recently used first). So
/// no block moves, and the most useful blocks stay. When a slot closes, punching a hole in its data file returns its space to the
/// disk. At the end the data take no more space than the new number of slots; until then the space of closing slots is still in
/// use. Data files keep their length, and the catalog keeps its size. If the file system does not support holes, the space is not
/// returned; stat() counts these slots.
///
/// If the files have holes at the start (FileSet::has_holes()), the free slots are closed in the same way, and their space is
/// allocated again.
///
/// Floor: before it allocates space, the engine asks for the free space, and allocates nothing that would leave less than the
/// floor. Space that is allocated in advance belongs to the store and needs no later check. On file systems that cannot allocate
/// in advance, a block takes its space when it is written. There, slots are opened only when they are needed, and the engine
/// queries the free space after every look_every first writes. If the free space is below the floor, free slots without space are
/// closed, so that writes use slots that have space. Growth is tried again after retry_writes writes.
///
/// A store may lie on several disks (FileSet). A piece of growth and a hole always lie within one file, and the floor holds for
/// each file system. If slots are lost with a disk, the store gets no new slots in their place, because the other disks must not
/// exceed their shares.
///
/// Ownership: see the constructor. Threads: the thread of the store. No call blocks, except write_note(). At most one growth step
/// and one hole are under way at a time.
class CapacityManager {
 public:
  static constexpr std::uint64_t token = std::uint64_t{1} << 61;  ///< part of the tokens of all its operations

  /// All arguments must outlive this object.
  CapacityManager(const FileStoreConfig& config, StoreOperations& operations, FileSet& files, IoEngine& engine);

  /// Call it once, after the index has been restored from the catalog. It closes the slots that must not be used. If blocks must
  /// be evicted for that, their slots are appended to `gone`. No event reports these blocks, because the owner does not know them
  /// yet.
  void start(std::vector<SlotId>& gone);
  [[nodiscard]] Result<void> resize(std::uint32_t slots);
  /// Begins the work that is due. Call it after each call and each completion. It returns quickly if no work is due.
  void pump();
  void ended(const IoCompletion& completion);
  /// Reports that a block was written to this slot successfully.
  void wrote(SlotId slot);
  /// Reports that the slot is lost. It must not have been closed.
  void lost(SlotId slot) { closed(slot); }
  /// Lets operations under way finish, and begins nothing new.
  void stop() { stopped_ = true; }
  /// The state of the number of open slots in the superblock on disk. While that number is not current, a restart with a smaller
  /// capacity would truncate the data files and lose the blocks at their end. So a flush waits until the number is written, and
  /// fails if it cannot be written.
  enum class Note : unsigned char { written, waiting, failed };
  [[nodiscard]] Note note() const;
  [[nodiscard]] bool writes_superblock() const { return step_ == Step::writing_superblock; }
  /// Tries again to write a number whose write has failed.
  void retry_note();
  /// Writes the number now. Blocks. Call it after stop(), while nothing is under way. Returns false if it cannot be written.
  [[nodiscard]] bool write_note();
  void add_to(StoreStat& stat) const;
  void check_invariants() const;

 private:
  static constexpr std::uint64_t hole_token = token | 1;
  static constexpr std::uint64_t growth_token = token | 2;
  static constexpr std::uint32_t evictions_max = 256;  ///< in each pump()
  static constexpr std::uint64_t look_every = 32;
  static constexpr std::uint64_t retry_writes = 64;
  static constexpr std::uint32_t slots_max = 0xFFFF'FFFE;

  ///   idle --> looking --> opening_file --> lengthening --> writing_superblock --> idle     (numbers slots)
  ///     |  \-> looking --> allocating --> idle                                              (opens slots)
  ///     |                      \-- no room --> giving_back --> idle
  ///     \----> writing_superblock, looking                                                  (without growth)
  enum class Step : unsigned char { idle, looking, opening_file, lengthening, writing_superblock, allocating, giving_back };
  /// Adjacent slots in one data file.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  [[nodiscard]] StoreIndex& index() { return operations_.index(); }
  [[nodiscard]] const StoreIndex& index() const { return static_cast<const StoreOperations&>(operations_).index(); }
  /// Slots that are neither closed nor closing.
  [[nodiscard]] std::uint32_t open_slots() const { return index().capacity() - index().count(StoreIndex::State::closing); }
  [[nodiscard]] std::uint32_t lost_slots() const { return index().count(StoreIndex::State::lost); }
  [[nodiscard]] bool on_demand() const { return config_floor_ > 0 && sparse_; }
  [[nodiscard]] std::uint64_t block_bytes() const { return files_.layout().block_bytes; }
  [[nodiscard]] std::uint64_t noted_slots() const;

  void shrink();
  void punch();
  void hole_ended(const IoCompletion& completion);
  void next_step();
  void grow();
  void looked(const IoCompletion& completion);
  void number_slots();
  void lengthen();
  void write_superblock(std::uint32_t slots);
  [[nodiscard]] Superblock superblock_with(std::uint32_t slots, std::uint64_t open_slots) const;
  void superblock_written(bool whole);
  void take_run(std::uint32_t slots_max);
  void put_back(std::uint32_t from);
  void allocate();
  void allocated(int error);
  /// Closes the free slots without disk space in the directory whose free space was queried last.
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
  const std::uint32_t ahead_;  ///< how many free slots to keep open when slots are opened on demand

  bool stopped_ = false;
  bool sparse_ = false;

  std::vector<SlotId> closing_;  ///< slots that wait for their hole, sorted
  std::vector<SlotId> scratch_;
  Run hole_;  ///< the hole under way

  Step step_ = Step::idle;
  Run run_;                      ///< slots that were taken from the closed slots and will be opened
  std::uint32_t numbering_ = 0;  ///< the number of slots after the growth step; 0: the step adds no slots
  std::uint32_t tried_ = 0;      ///< number of slots to try next; 0: a whole piece
  bool halted_ = false;          ///< growth has failed
  FileId new_file_;
  SuperblockWrite superblock_write_;
  std::uint64_t noting_ = 0;
  std::uint64_t note_failed_ = ~std::uint64_t{0};  ///< the number whose write failed and is not retried

  // For slots that take their disk space when they are written; used only if there is a floor.
  std::vector<bool> has_room_;  ///< by slot; FileSet counts the slots that are not closed and have no space
  std::uint64_t writes_ = 0;
  std::uint64_t first_writes_ = 0;
  std::uint64_t looked_at_ = 0;  ///< the value of first_writes_ when the free space was last asked for
  std::uint64_t retry_at_ = 0;   ///< the value of writes_ at which stopped growth is tried again

  StoreStat counted_;  ///< only the fields that add_to() sets
};

}  // namespace terrace
