#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/orders/transfer_table.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/shared_writer.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "runtime/cache/pool/stored_reads.hpp"
#include "terrace/offload_orders.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Copies blocks between the cache and device slots or memory that a caller names (docs/design/offload-cache.md). A copy in a
/// named slot is not a copy of the device tier: the tree does not know it, and no request hits it.
///
///     load:   joined <--> reading ---> landed ---> crossing ---> ended
///                `----------------------^             `--------> unconfirmed --(confirmed)--> ended
///     store:  joined ----------------> landed ---> crossing, and on as above
///
/// joined: another job, or a load, fills the host copy. reading: StoredReads brings the block, from storage or from the shared
/// store. landed: a slot of the host arena is ready for the copy. crossing: a transfer, or for named memory a MemoryCopy, copies
/// the block. unconfirmed: the transfer was abandoned, and may still be under way; the block has no result yet. ended: the block
/// has its one result, and nothing touches its named slot. A block also ends before it crosses if it fails, is cancelled or late,
/// or needs no copy. A job pins its blocks from start to end.
///
/// Threads: the manager's.
class NamedCopies : PoolPart {
 public:
  NamedCopies(const PoolPart& part, const PoolSizes& sizes, StoredReads& reads, HostSlotAllocator& host_slots,
              StorageWriter& storage_writer, std::optional<SharedWriter>& shared_writer, OffloadTotals& totals)
      : PoolPart{part},
        reads_{reads},
        host_slots_{host_slots},
        storage_writer_{storage_writer},
        shared_writer_{shared_writer},
        totals_{totals},
        uses_(sizes.engine_blocks) {}

  /// The cached part of the keys: one prefix, or in flat order one prefix for each key (of length 0 if there is none).
  void find(std::span<const BlockKey> keys, KeyOrder order, std::vector<Prefix>& found) const;
  /// The state of a block of a prefix that find() returned.
  [[nodiscard]] OffloadHit look_up(BlockRef block) const;
  /// Returns true if keys in this order stand alone. In a flat cache, all keys stand alone.
  [[nodiscard]] bool flat(KeyOrder order) const { return config_.key_order == KeyOrder::flat || order == KeyOrder::flat; }

  /// The host slot of the block's copy; no_host_slot if the host has no usable copy.
  [[nodiscard]] SlotId host_slot(BlockRef block) const {
    const Copy in_host = residency_.copy(block, Tier::host);
    return in_host.usable() ? in_host.slot() : no_host_slot;
  }

  /// Checks the slots of an order. Fails: invalid_argument, in_use.
  [[nodiscard]] Result<void> check(const OffloadOrder& order, Direction direction) const;
  /// Begins a job that check() has accepted. `found` is what find() returns now for the keys, and is overwritten. `shared_until`:
  /// blocks that no tier has are read from the shared store until this time; without a value they are misses. `stamp`: the stamp
  /// of this use of the blocks.
  void load(const OffloadOrder& order, std::span<Prefix> found, std::optional<TimePoint> shared_until, std::uint64_t stamp,
            GroupId group);
  void store(const OffloadOrder& order, std::uint64_t stamp);
  /// Blocks whose host copies the caller fills itself, after reserve() and before publish().
  struct Reserved {
    std::vector<Prefix> pins;  ///< one prefix, or in flat order one for each block
    std::vector<BlockRef> blocks;
    bool flat = false;
  };
  /// Begins host copies of the blocks of an order that check() has accepted (OffloadCache::reserve). If no copy was begun, no pin
  /// is kept.
  [[nodiscard]] Reserved reserve(const OffloadOrder& order, std::uint64_t stamp, std::span<SlotId> slots);
  /// The caller has filled the copies, or does not want them any more.
  void publish(const Reserved& reserved, bool filled);
  /// Blocks that have not begun to cross the link end now; the others end when their transfer has ended. Returns false if there
  /// is no such job.
  bool cancel(OffloadJobId id);
  /// Appends the transfers for which a stream must wait before it reads the leading `layers` layers of a load's slots, or before
  /// it writes to the slots of a store. The job has this direction, and its `ended` event was not taken yet. Fails: not_ready
  /// (blocks have not begun to cross the link, or copies out of the slots of a store are unconfirmed); for a load, the error of
  /// the first block that failed.
  [[nodiscard]] Result<void> transfers_for(OffloadJobId id, Direction direction, std::uint32_t layers,
                                           std::vector<TransferId>& out) const;

  void on_read(const StoredReads::Result& result);
  /// Returns false if the event is not about a transfer of this object.
  bool on_event(const TransferEvent& event);
  /// A MemoryCopy has ended. `token` is that of the order.
  void on_copied(std::uint64_t token);
  /// The deadline of the job has passed: its blocks that have not begun to cross the link end with Errc::deadline_exceeded.
  void on_late(std::uint32_t job);
  /// Continues with blocks whose host copies other jobs or loads have filled. Returns true if anything changed.
  bool pump();
  void start_transfers(std::uint64_t& last_transfer);

  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// Appends the events since the last call.
  void take_events(std::vector<OffloadEvent>& events);

  [[nodiscard]] std::uint32_t blocks_in_flight() const { return in_flight_; }
  /// Number of blocks whose transfer was abandoned and may still be under way.
  [[nodiscard]] std::uint32_t unconfirmed() const { return unconfirmed_blocks_; }
  /// Neither pump() nor start_transfers() would change anything.
  [[nodiscard]] bool rests() const { return joined_.empty() && landed_.empty(); }
  [[nodiscard]] bool idle() const { return by_id_.empty(); }
  void check_invariants() const;

 private:
  static constexpr std::uint32_t all_layers = LayersBrought::all_layers;
  static constexpr std::uint16_t being_written = 0xFFFF;
  static constexpr SlotId no_slot{0xFFFF'FFFF};
  enum class State : std::uint8_t { joined, reading, landed, crossing, unconfirmed, ended };
  struct Part {
    BlockRef block;
    SlotId slot = no_slot;        ///< the named slot
    std::byte* memory = nullptr;  ///< the named memory, in place of a slot
    StoredReads::Landing landing;
    StoredReads::ReadId read = 0;  ///< in state reading
    Source source = Source::host;
    State state = State::ended;

    [[nodiscard]] bool to_host_only() const { return slot == no_slot && memory == nullptr; }
  };
  struct Job {
    OffloadJobId id;
    Direction direction = Direction::swap_in;
    Urgency urgency = Urgency::request;
    TimePoint deadline = never;
    std::optional<TimePoint> shared_until;  ///< of a load: the end of the reads from the shared store; see load()
    Fence after;
    TenantId tenant;
    std::uint32_t first = 0;
    bool flat = false;  ///< its blocks stand alone, and each has its own pin
    bool by_layer = false;
    bool cancelled = false;
    ErrorCode error;  ///< the error of the first part that failed
    std::vector<Prefix> pins;
    std::vector<Part> parts;
    LayersBrought transfers;
    std::uint32_t unfinished = 0;
    std::uint32_t unsubmitted = 0;  ///< parts that have not begun to cross
    std::uint32_t parents = 0;      ///< of a store: the parts before this one need a host copy, because later parts depend on it
    std::uint32_t failed = 0;
  };
  using JobIndex = std::uint32_t;
  struct PartRef {
    JobIndex job = 0;
    std::uint32_t part = 0;
  };

  /// Returns the number of leading blocks that need a host copy even if storage has them, because new blocks of the order follow
  /// them. In flat order no block needs one.
  [[nodiscard]] std::uint32_t parents(std::span<const BlockRef> blocks, bool flat) const;
  void tie(const OffloadOrder& order, std::span<const BlockRef> companions);
  void pin_keys(const OffloadOrder& order, std::uint64_t stamp, std::vector<Prefix>& pins, std::vector<BlockRef>& blocks);
  /// Updates the last use of the pinned blocks. There is one stamp for each pin, and `stamp` is the first. The first blocks of an
  /// order get the latest stamps, so that the last blocks are evicted first.
  void touch(std::span<const Prefix> pins, std::uint64_t stamp) {
    for (std::size_t i = pins.size(); i-- > 0;) residency_.touch(pins[i], stamp++);
  }
  /// The first blocks of an order are unpinned last. So if the blocks stand alone, the last ones are evicted first.
  void unpin(std::span<const Prefix> pins) {
    for (std::size_t i = pins.size(); i-- > 0;) residency_.unpin_incomplete(pins[i]);
  }
  [[nodiscard]] JobIndex add(const OffloadOrder& order, Direction direction);
  [[nodiscard]] Part& part(PartRef ref) { return jobs_.at(ref.job).parts[ref.part]; }
  void use(const Part& part, Direction direction);
  void unuse(const Part& part, Direction direction);
  void resolve_load(PartRef ref);
  void resolve_store(PartRef ref);
  [[nodiscard]] Result<SlotId> begin_host_fill(BlockRef block, TenantId tenant);
  void publish_host(BlockRef block);
  void land(PartRef ref, StoredReads::Landing landing);
  void join(PartRef ref);
  void end_part(PartRef ref, ErrorCode error);
  void end_waiting(JobIndex index, ErrorCode error);
  void finish_copy(PartRef ref, ErrorCode error);
  /// A part has begun to cross the link, or has ended before that. When no part is left that has not, the job needs no deadline
  /// here: its transfers have their own.
  void submitted(JobIndex index) {
    if (--jobs_.at(index).unsubmitted == 0) reads_.set_deadline({StoredReads::Reader::Kind::named_copy, index}, never);
  }
  void set_layers(JobIndex index, TransferId transfer, std::uint32_t layers);
  [[nodiscard]] std::uint32_t layers(const Job& job) const {
    return job.unsubmitted > 0 || job.failed > 0 ? 0 : job.transfers.least();
  }
  void count(const Job& job, const Part& part, ErrorCode error);
  [[nodiscard]] std::uint64_t& loaded(Source source);
  void offer_ended(const Job& job);
  void offer_new(std::span<const Prefix> pins, bool flat, std::uint32_t from);
  [[nodiscard]] Prefix leading_in_host(Prefix whole, std::uint32_t from) const;
  void end_finished();

  StoredReads& reads_;
  HostSlotAllocator& host_slots_;
  StorageWriter& storage_writer_;
  std::optional<SharedWriter>& shared_writer_;
  OffloadTotals& totals_;
  std::vector<std::uint16_t> uses_;  ///< by device slot: the number of stores that read it, or being_written
  Slab<Job> jobs_;
  boost::unordered_flat_map<OffloadJobId, JobIndex, std::hash<OffloadJobId>> by_id_;
  std::vector<OffloadEvent> events_;  ///< not taken yet
  std::vector<PartRef> joined_;
  std::vector<PartRef> landed_;
  Slab<PartRef> memory_copies_;
  TransferTable<std::vector<PartRef>> transfers_;
  boost::unordered_flat_map<TransferId, std::vector<PartRef>, std::hash<TransferId>> unconfirmed_;
  std::uint32_t unconfirmed_blocks_ = 0;
  std::uint32_t in_flight_ = 0;
  std::vector<JobIndex> finished_;  ///< jobs that end_finished() has to end
  VectorPool<PartRef> spare_refs_;
  std::vector<SlotPair> pairs_;  ///< scratch
  std::vector<PartRef> scratch_;
  std::vector<BlockRef> named_;  ///< scratch
};

}  // namespace terrace
