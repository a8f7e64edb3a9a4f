#pragma once

#include "base/vector_pool.hpp"
#include "runtime/cache/orders/transfer_table.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/stored_reads.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Neighbouring blocks to load from one source.
struct LoadRun {
  Run blocks;
  Source source = Source::host;
};

/// Copies blocks up to the device: from the host, or from storage or the shared store through the host arena.
///
/// A load brings the blocks that one request asks for in one group: the blocks of one prefix in order, or unchained blocks. Each
/// block is a part of the load:
///
///     storage, shared:  reading ---> landed ---> crossing ---> arrived
///                          |           ^            |--------> failed
///                          v           |            `--------> unconfirmed --(confirmed)--> failed
///                        failed    host copy
///
/// reading: StoredReads brings the block to its landing slot: a host copy, or staging. landed: the landing slot has the bytes.
/// crossing: a transfer copies them. arrived, failed (cancelled, too) and unconfirmed: the part has ended. unconfirmed: the
/// transfer was abandoned and may still be under way. The landing slot is kept until the device confirms the end. If the load
/// ends before that, the device slot is in quarantine until then.
///
/// Other requests that need the same blocks join the load. When all its parts have ended, its device copies become ready
/// together. If a block did not arrive, it and the blocks after it in its prefix fail, and their slots become free. When the last
/// waiter has left, its queued transfers are cancelled, and its parts that are reading fail. A block whose read still succeeds is
/// kept in the host tier, and is not copied to the device. Copies to the device that are under way go on, and the load ends with
/// them. Without such copies its device slots are free at once. A request that still waits for device slots is a waiter, too, if
/// the load is filling blocks for which it has not asked for slots.
///
/// If a waiter asks for loading by layer, the load's next transfers go by layer, and events report to its waiters the number of
/// leading layers that have arrived for all blocks of the load. An earlier transfer reports no layers until it has ended.
///
/// Threads: the manager's.
class Loads : PoolPart {
 public:
  using LoadId = std::uint32_t;
  /// An event of a load. The caller handles the events in order. Meanwhile it may call waiters(), layers(), leave() and close(),
  /// but not start() or join(). leave() may add events of the load that is left.
  struct Event {
    enum class Kind : std::uint8_t {
      layers,   ///< layers() has grown
      missing,  ///< `block`, the first missing one of its prefix, did not arrive: waiters that need it must unpin the prefix
      ended,    ///< the load has ended. It is the last event of a load; the caller then calls close()
    };
    Kind kind = Kind::ended;
    LoadId load = 0;
    BlockRef block{};
    bool late = false;             ///< missing: because the deadline for reads has passed
    Source source = Source::host;  ///< missing: from which the block should have come
  };
  /// The deadlines of one waiter. A load has the latest deadlines of all its waiters, including those that have left.
  struct Deadlines {
    /// At this time the transfers of the load that have not ended fail, for all waiters.
    TimePoint copies = never;
    /// At this time the load ends without the blocks that have not been read yet, and their device slots become free. A block
    /// that arrives later is kept in the host tier, and is not copied to the device.
    TimePoint reads = never;
    /// The present time. The time until `reads` counts from the start of the load. Example: a load starts at 0 ms, and its
    /// starter allows 40 ms. A request that joins at 30 ms and allows 100 ms moves the deadline to 100 ms. If it allows 40 ms,
    /// too, the deadline stays. So waiters that join one after the other cannot delay the first one for ever if storage does not
    /// answer.
    TimePoint now{};
  };
  /// The value of layers() when all blocks have arrived.
  static constexpr std::uint32_t all_layers = LayersBrought::all_layers;

  /// `now`: the latest time that the owner of the manager has given.
  Loads(const PoolPart& part, StoredReads& reads, const TimePoint& now) : PoolPart{part}, reads_{reads}, now_{now} {}

  /// Starts a load. `runs` are in order, prefix by prefix. Their blocks have usable copies in their source, and no device copies.
  /// `device_slots` has a slot for each block; the caller holds these slots, and the load takes them over.
  [[nodiscard]] LoadId start(std::span<const LoadRun> runs, std::span<const SlotId> device_slots, std::uint32_t waiter,
                             Deadlines deadlines, bool by_layer);
  /// Adds a waiter, which must not wait for this load yet, and postpones the deadlines of the load to those of the waiter. If
  /// `by_layer`, the load goes by layer from now on.
  void join(LoadId load, std::uint32_t waiter, Deadlines deadlines, bool by_layer);
  /// Number of leading layers that have arrived for all blocks of this load; 0 if one of its blocks did not arrive. The load must
  /// not have ended.
  [[nodiscard]] std::uint32_t layers(LoadId load) const;
  /// Appends the transfers that have not reported these leading layers yet. Returns false, and leaves `out` as it was, if some
  /// blocks are not in a transfer yet, or if a block did not arrive.
  [[nodiscard]] bool transfers_for(LoadId load, std::uint32_t layers, std::vector<TransferId>& out) const;
  /// The load that is filling the block's device copy. There must be one.
  [[nodiscard]] LoadId load_of(BlockRef block) const;
  /// The waiter does not wait any more. If it was the last one, the load may end in this call.
  void leave(LoadId load, std::uint32_t waiter);
  /// The source from which a load is bringing the block to the device. There must be such a load.
  [[nodiscard]] Source source_of(BlockRef block) const {
    return residency_.slots_of(Tier::device).source(residency_.copy(block, Tier::device).slot());
  }

  void on_read(const StoredReads::Result& result);
  /// Ends the load: its deadline for reads has passed.
  void on_late(LoadId load) { abandon_reads(load); }
  /// Returns false if the event is not about a transfer of this object.
  bool on_event(const TransferEvent& event);
  /// Makes transfers of the parts that have landed in the host arena, one for each load. `last_transfer` is the last transfer id
  /// in use; it grows.
  void start_transfers(std::uint64_t& last_transfer);

  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// The events since the last call, in order.
  void take_events(std::vector<Event>& events) { take_all(events_, events); }
  /// The requests that wait for the load, or waited for it when it ended. Valid until the next call that changes the load.
  [[nodiscard]] std::span<const std::uint32_t> waiters(LoadId load) const { return loads_[load].waiters; }
  /// The time at which the last block from the source arrived. TimePoint{} if none did. Valid as waiters().
  [[nodiscard]] TimePoint arrived(LoadId load, Source source) const { return loads_[load].arrived[source]; }
  /// Unpins the load's prefixes after its `ended` event. Another load can get its id then.
  void close(LoadId load);

  /// Number of blocks whose bytes are in the host arena and that still have to be copied to the device.
  [[nodiscard]] std::size_t links_waiting() const { return landed_blocks_ + crossing_; }

  /// start_transfers() would change nothing.
  [[nodiscard]] bool rests() const { return landed_.empty(); }
  /// Returns true if a load may be filling device copies.
  [[nodiscard]] bool any() const { return open_ > 0; }
  [[nodiscard]] bool idle() const { return open_ == 0 && unconfirmed_.empty(); }
  void check_invariants() const;

 private:
  enum class State : std::uint8_t { reading, landed, crossing, arrived, failed, unconfirmed };
  struct Part {
    BlockRef block;
    SlotId device_slot;
    StoredReads::Landing landing;
    Source source = Source::host;
    State state = State::landed;
    StoredReads::ReadId read = 0;  ///< in state reading
  };
  static_assert(sizeof(Part) <= 32);  // a load of a long prompt writes and reads thousands of them
  /// The parts of a load that belong to one prefix.
  struct PinnedPrefix {
    Prefix pin;
    std::uint32_t end = 0;            ///< one past the index of its last part
    std::optional<BlockRef> missing;  ///< the first block that did not arrive
    Source missing_from = Source::host;
  };
  struct Load {
    std::vector<PinnedPrefix> prefixes;
    std::vector<Part> parts;
    std::vector<std::uint32_t> waiters;
    LayersBrought transfers;
    Deadlines deadlines;
    PerSource<TimePoint> arrived;
    std::uint32_t unfinished = 0;   ///< parts that have not ended; 0: the load has ended
    std::uint32_t unread = 0;       ///< parts that are reading
    std::uint32_t unsubmitted = 0;  ///< parts that are reading or landed
    bool by_layer = false;
    bool lost = false;  ///< a part did not arrive
    bool late = false;  ///< the deadline for reads has passed while requests waited
    bool in_use = false;

    /// The vectors keep their memory.
    void clear() {
      prefixes.clear();
      parts.clear();
      waiters.clear();
      transfers.clear();
      deadlines = {};
      arrived = {};
      by_layer = lost = late = in_use = false;
    }
  };
  /// The unconfirmed parts of a transfer.
  struct Unconfirmed {
    LoadId load = 0;
    bool has_ended = false;
    std::vector<std::pair<std::uint32_t, Part>> parts;  ///< with their index in the load
  };
  /// Neighbouring parts of one load: those from `begin` to before `end`.
  struct PartRange {
    LoadId load = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;

    [[nodiscard]] std::uint32_t size() const { return end - begin; }
  };

  [[nodiscard]] LoadId new_load();
  void begin_run(LoadId load, const LoadRun& run, std::span<const SlotId> device_slots);
  void add_landed(PartRange parts);
  void abandon_reads(LoadId load);
  void set_deadline(LoadId load);
  [[nodiscard]] bool on_confirmed(TransferId id);
  void set_layers(LoadId load, TransferId transfer, std::uint32_t layers);
  [[nodiscard]] Run neighbours(LoadId load, std::uint32_t first, std::uint32_t end) const;
  void end_arrived(PartRange parts);
  void end_crossing(LoadId load, std::uint32_t part, BlockOutcome outcome, TransferId transfer);
  void end_part(LoadId load, std::uint32_t part, State state);
  void finish(LoadId load);

  StoredReads& reads_;
  const TimePoint& now_;
  std::vector<Load> loads_;
  std::vector<Event> events_;  ///< not taken yet
  std::vector<LoadId> free_;
  std::vector<PartRange> landed_;                    ///< parts for the next transfers
  std::size_t landed_blocks_ = 0;                    ///< number of these parts
  TransferTable<std::vector<PartRange>> transfers_;  ///< the parts of each transfer; all belong to one load
  boost::unordered_flat_map<TransferId, Unconfirmed, std::hash<TransferId>> unconfirmed_;
  VectorPool<PartRange> spare_ranges_;
  std::uint32_t open_ = 0;
  std::uint32_t crossing_ = 0;  ///< parts in transfers under way
};

}  // namespace terrace
