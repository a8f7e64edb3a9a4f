#pragma once

#include "base/slab.hpp"
#include "storage/index/store_index.hpp"
#include "terrace/block_store.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The rules of BlockStore without its I/O. It turns calls and the results of I/O into changes of the index and into events. A
/// store calls start_read() or start_write(), does the I/O, and reports the result with end_read() or end_write(). All other
/// calls need no I/O and are complete when they return.
///
/// Threads: one. It allocates memory only when more operations are under way than ever before.
class StoreOperations {
 public:
  using Id = StrongId<struct StoreOperationTag>;  // dense from 0, so that a store can use it as an index into its own tables
  struct Started {
    Id id;
    SlotId slot;
  };

  /// `lost`: the device of the slot is known to be gone, and no I/O was tried.
  enum class ReadOutcome : unsigned char { verified, corrupt, io_failed, lost };
  enum class WriteOutcome : unsigned char { done, no_space, io_failed, lost };

  /// `writes_max` limits the writes under way; further writes end with `refused`. Reads have no bound, because each of them
  /// brings its own buffer.
  StoreOperations(std::uint32_t capacity_blocks, Bytes block_bytes, std::uint32_t writes_max);
  StoreOperations(const StoreOperations&) = delete;
  StoreOperations& operator=(const StoreOperations&) = delete;

  /// Must be the first call in every call of the store. All blocks named in one call of the store are equally old.
  void begin_call() { index_.advance(); }

  /// Returns the read to do, or nothing if the event is already there.
  [[nodiscard]] std::optional<Started> start_read(const StoreRead& read);
  /// Returns the write to do. Returns nothing if the event is already there, or if an earlier write of the same key is under way;
  /// then one I/O serves both, and each gets its event.
  [[nodiscard]] std::optional<Started> start_write(const StoreWrite& write);
  /// The slot of a started operation.
  [[nodiscard]] SlotId slot_of(Id id) const { return operations_.at(id.value()).slot; }
  [[nodiscard]] bool is_write(Id id) const { return operations_.at(id.value()).kind == Kind::write; }
  /// Reports that the I/O of a started operation has ended. It must not access its buffer or its slot any more.
  void end_read(Id id, ReadOutcome outcome);
  void end_write(Id id, WriteOutcome outcome);

  void remove(std::span<const BlockKey> keys, std::uint64_t token);
  /// Returns true if the block is readable.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  void touch(std::span<const BlockKey> keys);
  void adopt_all(const BlockStore::Adopt& adopt);
  /// Emits the event of a flush() that has ended.
  void end_flush(std::uint64_t token, ErrorCode error) { emit(StoreEvent::Kind::flushed, token, {}, error); }

  /// Closes at most `slots_max` slots in excess of the index's limit, and emits the events of the evicted blocks. Returns how
  /// many it closed. Blocks that operations hold are evicted in a later call.
  std::size_t shrink(std::uint32_t slots_max);
  /// Reports that the device of the slot is gone. A readable block in it is dropped, with its descendants. Returns false if the
  /// slot is not lost yet, because an operation or the caller of take_closed() still has it.
  bool lose(SlotId slot);
  /// See StoreIndex::extend().
  void extend(std::uint32_t slots);

  std::size_t poll(std::vector<StoreEvent>& out);
  /// Operations under way, plus events that wait for poll().
  [[nodiscard]] std::size_t in_flight() const { return operations_.size() + events_.size(); }
  /// Returns true if poll() would return any events.
  [[nodiscard]] bool has_events() const { return !events_.empty(); }

  /// Visits every readable block, depth first.
  void for_each(const std::function<void(const StoredBlock&)>& visit) const;
  [[nodiscard]] StoreStat stat() const;
  /// Returns the same without `orphans`, which avoids a visit of every block.
  [[nodiscard]] StoreStat quick_stat() const;
  [[nodiscard]] const StoreIndex& index() const { return index_; }
  /// For use while the index is restored from a catalog.
  [[nodiscard]] StoreIndex& index() { return index_; }
  /// Counts a failure of I/O that belongs to no operation, for example a write of the catalog.
  void count_io_error() { ++counted_.io_errors; }

  /// Returns the slots whose block became readable or stopped being readable since the last call, in order; a slot may appear
  /// more than once. The catalog records of these slots must be written. The vectors are swapped.
  void take_changed(std::vector<SlotId>& changed);

  void check_invariants() const;

 private:
  static constexpr std::uint32_t none = StoreIndex::none;
  enum class Kind : unsigned char { read, write };
  struct Operation {
    Kind kind = Kind::read;
    SlotId slot;
    std::uint64_t token = 0;
    BlockKey key;
    std::uint32_t next = none;  ///< the next write of the same block, which waits for the same I/O
  };

  Id begin(Kind kind, SlotId slot, std::uint64_t token, const BlockKey& key);
  void emit(StoreEvent::Kind kind, std::uint64_t token, const BlockKey& key, ErrorCode error = {}, std::uint64_t write_token = 0);
  /// Records that the slot's block changes, and emits the event of the block that was evicted, if any.
  void note_freed(const StoreIndex::Freed& freed);
  /// Emits the events of all writes of the block in this slot.
  void finish_writes(SlotId slot, ErrorCode error);
  void write_succeeded(SlotId slot);
  void write_failed(SlotId slot, WriteOutcome outcome);
  /// Drops a block and its descendants. A readable block gets an event of `kind`; a write ends with parent_missing.
  void give_up(SlotId slot, StoreEvent::Kind kind, std::uint64_t token);

  StoreIndex index_;
  Bytes block_bytes_;
  std::uint32_t writes_max_;
  Slab<Operation> operations_;
  std::vector<std::uint32_t, LargeAllocator<std::uint32_t>> write_of_;  ///< by slot: the first write of its block, or none
  std::uint32_t writes_ = 0;
  /// slot -> token of the remove() that waits for the write to end
  boost::unordered_flat_map<std::uint32_t, std::uint64_t> to_remove_;
  boost::unordered_flat_set<std::uint32_t> suspected_;  ///< slots whose last read failed with an I/O error
  boost::unordered_flat_set<std::uint32_t> named_;      ///< slots that the current remove() names
  std::vector<StoreEvent> events_;
  std::vector<SlotId> changed_;
  std::vector<SlotId> became_ready_;       ///< scratch
  std::vector<StoreIndex::Dropped> gone_;  ///< scratch
  StoreStat counted_;                      ///< only its totals since construction
};

}  // namespace terrace
