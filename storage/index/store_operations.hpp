#pragma once

#include "base/strong_id.hpp"
#include "storage/index/block_store.hpp"
#include "storage/index/store_index.hpp"

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The rules of BlockStore without its I/O: turns calls, and what became of the I/O they needed, into changes of the index
/// and into events. A store asks start_read() or start_write() what to move, moves it, and reports with end_read() or
/// end_write(); everything else needs no bytes and is done here.
///
/// Threads: one. Allocates nothing once as many operations were under way before.
class StoreOperations {
 public:
  using Id = StrongId<struct StoreOperationTag>;  // dense from 0: a store may index its own table with it
  struct Started {
    Id id;
    SlotId slot;
  };

  /// `lost`: its slot's device is gone, as is known, and nothing was tried.
  enum class ReadOutcome : unsigned char { verified, corrupt, io_failed, lost };
  enum class WriteOutcome : unsigned char { done, no_space, io_failed, lost };

  /// `writes_max`: writes under way beyond which further ones are `refused`. Reads need no bound of ours: each brings a
  /// block's buffer of its caller's.
  StoreOperations(std::uint32_t capacity_blocks, Bytes block_bytes, std::uint32_t writes_max);

  /// Call it first in every call of the store: what one call names is equally old.
  void begin_call() { index_.advance(); }

  /// What has to be read, or nothing where the event is there already.
  [[nodiscard]] std::optional<Started> start_read(const StoreRead& read);
  /// What has to be written, or nothing where the event is there already, or comes with that of an earlier write of this key.
  [[nodiscard]] std::optional<Started> start_write(const StoreWrite& write);
  /// The I/O of a started operation has ended; nothing touches its buffer or its slot any more.
  void end_read(Id id, ReadOutcome outcome);
  void end_write(Id id, WriteOutcome outcome);

  void remove(std::span<const BlockKey> keys, std::uint64_t token);
  /// Whether the block is readable.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  void touch(std::span<const BlockKey> keys);
  void adopt_all(const BlockStore::Adopt& adopt);
  /// A flush() has ended.
  void end_flush(std::uint64_t token, ErrorCode error) { emit(StoreEvent::Kind::flushed, token, {}, error); }

  /// Closes slots beyond the index's limit, with the events of who had to go, at most so many; returns how many. Blocks that
  /// operations hold go with a later call.
  std::size_t shrink(std::uint32_t slots_max);
  /// The slot's device is gone: a readable block in it is given up with its descendants. False where the slot is not lost by
  /// that yet: an operation, or who has taken it, lets go of it later.
  bool lose(SlotId slot);
  /// As StoreIndex's.
  void extend(std::uint32_t slots);

  std::size_t poll(std::vector<StoreEvent>& out);
  /// Operations under way and events not yet polled.
  [[nodiscard]] std::size_t in_flight() const { return operations_.size() - free_ids_.size() + events_.size(); }
  /// True where poll() has something to give.
  [[nodiscard]] bool has_events() const { return !events_.empty(); }

  /// Every readable block, depth first.
  void for_each(const std::function<void(const StoredBlock&)>& visit) const;
  [[nodiscard]] StoreStat stat() const;
  /// Without the orphans: costs no look at the blocks.
  [[nodiscard]] StoreStat quick_stat() const;
  [[nodiscard]] const StoreIndex& index() const { return index_; }
  /// For restoring from a catalog.
  [[nodiscard]] StoreIndex& index() { return index_; }
  /// For I/O that no operation asked for, such as a catalog's.
  void count_io_error() { ++counted_.io_errors; }

  /// Slots whose block became readable or ceased to be since the last call, in order, perhaps more than once: what a catalog
  /// has to write down. Swaps, so that the caller's vector is re-used.
  void take_changed(std::vector<SlotId>& changed);

  void check_invariants() const;

 private:
  static constexpr std::uint32_t none = StoreIndex::none;
  enum class Kind : unsigned char { idle, read, write };
  struct Operation {
    Kind kind = Kind::idle;
    SlotId slot;
    std::uint64_t token = 0;
    BlockKey key;
    std::uint32_t next = none;  ///< the next write of the same block, which waits for the same I/O
  };

  Id begin(Kind kind, SlotId slot, std::uint64_t token, const BlockKey& key);
  void finish(std::uint32_t id);
  void emit(StoreEvent::Kind kind, std::uint64_t token, const BlockKey& key, ErrorCode error = {}, std::uint64_t write_token = 0);
  /// The events of every write of this slot's block.
  void finish_writes(SlotId slot, ErrorCode error);
  void write_succeeded(SlotId slot);
  void write_failed(SlotId slot, WriteOutcome outcome);
  /// Drops a block and its descendants: those that were readable leave with an event of `kind`, writes with parent_missing.
  void give_up(SlotId slot, StoreEvent::Kind kind, std::uint64_t token);

  StoreIndex index_;
  Bytes block_bytes_;
  std::uint32_t writes_max_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_ids_;
  std::vector<std::uint32_t> write_of_;  ///< by slot: the first write of its block, or none
  std::uint32_t writes_ = 0;
  boost::unordered_flat_map<std::uint32_t, std::uint64_t> to_remove_;  ///< slot to the token of the remove() that waits
  boost::unordered_flat_set<std::uint32_t> suspected_;                 ///< slots whose last read failed with an I/O error
  boost::unordered_flat_set<std::uint32_t> named_;                     ///< slots that the remove() at hand names
  std::vector<StoreEvent> events_;
  std::vector<SlotId> changed_;
  std::vector<SlotId> became_ready_;       ///< scratch
  std::vector<StoreIndex::Dropped> gone_;  ///< scratch
  StoreStat counted_;                      ///< only its totals since construction
};

}  // namespace terrace
