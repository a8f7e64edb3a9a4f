#pragma once

#include "base/fifo.hpp"
#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/actions.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "runtime/tiering/transfer_table.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// A block to be brought up into a device slot.
struct LoadPart {
  BlockRef block;
  SlotId device_slot;  ///< held by the caller; goes over to the copy
  Tier source = Tier::host;
};

/// Copies on their way up to the device.
///
///     storage --read--> landing slot (a host copy, or staging) --+
///                                                                +--link--> device copy, published with its load
///     host copy --------------------------------------------------+
///
/// A load is what one request asked for in one group: blocks of one prefix in order, or prefixes of one block each. Its device
/// copies become ready together, of each prefix up to the first that did not arrive; that one and those after it give their slots
/// back. Others that want the same blocks join it. What is under way for a load that nobody waits for any more goes on, and is
/// cached.
///
/// If a waiter asks for loading by layer, the load's next transfers go by layer, and its waiters are told how many leading
/// layers all blocks of the load have. A transfer made before that reports no layers until it has ended. Threads: the
/// manager's.
class Loads {
 public:
  using LoadId = std::uint32_t;
  /// Whether blocks did not arrive because storage did not give them within their time.
  enum class Late : bool { no, yes };
  /// News of a load, for those who wait for it. They are handled in order, and before anything else is asked of this object.
  struct Event {
    enum class Kind : std::uint8_t {
      layers,   ///< layers() has grown
      missing,  ///< `block` did not arrive, the first of its prefix: whoever counts on it must let go of the prefix
      ended,    ///< the load has ended; comes last, after those of `missing`. The caller calls close() then
    };
    Kind kind = Kind::ended;
    LoadId load = 0;
    BlockRef block;
    Late late = Late::no;
  };
  struct Deadlines {
    TimePoint copies = never;
    /// What storage has not given by then is not waited for: the load ends without it, and gives its device slots back. What
    /// comes later goes no further than the host tier.
    TimePoint reads = never;
  };
  /// What layers() says of blocks that are there.
  static constexpr std::uint32_t all_layers = 0xFFFF'FFFF;

  Loads(const ManagerConfig& config, Residency& residency, DeferredEviction& deferred_eviction, HostSlotAllocator& host_slots,
        Actions& actions, ManagerStats& stats);

  /// `parts` in prefix order, prefix by prefix, each without a device copy and with a usable copy at its source.
  [[nodiscard]] LoadId start(std::span<const LoadPart> parts, std::uint32_t waiter, Deadlines deadlines, bool by_layer);
  /// Adds a waiter to the load. Returns false if it waits for this load already. If `by_layer`, the load goes by layer from now
  /// on.
  bool join(LoadId load, std::uint32_t waiter, bool by_layer);
  /// How many leading layers all blocks of this load have; the load must not have ended. 0 if one of its blocks did not arrive.
  [[nodiscard]] std::uint32_t layers(LoadId load) const;
  /// The load that is filling the block's device copy. There must be one.
  [[nodiscard]] LoadId load_of(BlockRef block) const;
  /// The waiter does not wait any more. When nobody waits for the load, the parts of it that have not started are dropped.
  void leave(LoadId load, std::uint32_t waiter);
  /// Where the block's bytes come from.
  [[nodiscard]] Tier source_of(BlockRef block) const {
    return residency_.pool(Tier::device).source(residency_.copy(block, Tier::device).slot());
  }

  void on_read(std::uint64_t token, ErrorCode error);
  /// Ends what storage has kept waiting too long.
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// True where the event is of a transfer of this object.
  bool on_event(const TransferEvent& event);
  /// Gives landing slots to blocks that wait for one. True where anything changed.
  bool pump();
  /// Makes transfers of what can cross the link now.
  void flush(std::uint64_t& last_transfer, PoolId pool);

  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// The events since the last call, in order. Swaps the vectors, so that their memory is reused.
  void take_events(std::vector<Event>& events) {
    events.clear();
    events.swap(events_);
  }
  /// Those who wait for the load, or waited for it when it ended. Valid until the next call that changes the load.
  [[nodiscard]] std::span<const std::uint32_t> waiters(LoadId load) const { return loads_[load].waiters; }
  /// Lets go of the load's prefixes, after its `ended` event. Its id may be used again.
  void close(LoadId load);

  /// Blocks that storage has still to read, and that have still to cross the link.
  [[nodiscard]] std::size_t reads_waiting() const { return landing_.size() + reads_.size(); }
  [[nodiscard]] std::size_t links_waiting() const { return landed_.size() + crossing_; }

  [[nodiscard]] bool idle() const { return open_ == 0 && quarantined_.empty() && reads_.empty(); }

 private:
  enum class State : std::uint8_t { landing, reading, landed, crossing, arrived, failed, unconfirmed };
  struct Part {
    BlockRef block;
    SlotId device_slot;
    SlotId arena_slot;
    Tier source = Tier::host;
    bool arena_slot_is_ours = false;  ///< staging; else a host copy that is held
    TransferId id;                    ///< where unconfirmed: the transfer it crosses with
    std::uint64_t read = 0;           ///< where it is being read: its token
    State state = State::landed;
  };
  /// Parts of one prefix.
  struct PinnedPrefix {
    Prefix pin;
    std::uint32_t end = 0;  ///< one past its last part
    std::optional<BlockRef> missing;
  };
  struct Crossing {
    TransferId id;
    std::uint32_t layers = 0;  ///< that have arrived
  };
  struct Load {
    std::vector<PinnedPrefix> prefixes;
    std::vector<Part> parts;
    std::vector<std::uint32_t> waiters;
    std::vector<Crossing> transfers;
    Deadlines deadlines;
    std::uint32_t unfinished = 0;   ///< 0: it has ended
    std::uint32_t unread = 0;       ///< parts that storage has still to give
    std::uint32_t unsubmitted = 0;  ///< parts that are not in a transfer yet
    bool by_layer = false;
    bool lost = false;  ///< a part did not arrive
    bool late = false;  ///< storage was too slow
    bool in_use = false;

    /// Keeps the memory.
    void clear() {
      prefixes.clear();
      parts.clear();
      waiters.clear();
      transfers.clear();
      deadlines = {};
      unsubmitted = unread = 0;
      by_layer = lost = late = in_use = false;
    }
  };
  struct PartRef {
    LoadId load = 0;
    std::uint32_t part = 0;
  };

  /// Of a part, or, where its load has ended without it, of nothing but the slot that storage reads into.
  struct Read {
    PartRef part;
    BlockRef block;
    SlotId slot;
    bool slot_is_ours = false;
    bool abandoned = false;
  };

  [[nodiscard]] LoadId new_load();
  void abandon_reads(LoadId load);
  [[nodiscard]] bool lands_in_host() const { return !exclusive_ && residency_.host_blocks() > 0; }
  [[nodiscard]] bool on_confirmed(TransferId id);
  [[nodiscard]] bool on_layers(const TransferEvent& event);
  void set_layers(LoadId load, TransferId transfer, std::uint32_t layers);
  void end_part(LoadId load, std::uint32_t part, State state);
  void release_source(const Part& part);
  void finish(LoadId load);

  bool exclusive_;
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  HostSlotAllocator& host_slots_;
  Actions& actions_;
  ManagerStats& stats_;
  std::vector<Load> loads_;
  std::vector<Event> events_;  ///< that nobody has taken yet
  std::vector<LoadId> free_;
  Fifo<PartRef> landing_;        ///< wait for a landing slot
  std::vector<PartRef> landed_;  ///< to cross the link with the next transfer
  Slab<Read> reads_;             ///< by token
  TransferTable<std::vector<PartRef>> transfers_;
  /// By transfer: parts whose transfer may still be under way, while their load is open, and after it (their device slots are
  /// quarantined then).
  boost::unordered_flat_map<TransferId, std::vector<PartRef>, std::hash<TransferId>> unconfirmed_;
  boost::unordered_flat_map<TransferId, std::vector<Part>, std::hash<TransferId>> quarantined_;
  std::vector<SlotPair> pairs_;  ///< scratch
  VectorPool<PartRef> spare_refs_;
  std::uint32_t open_ = 0;
  std::uint32_t crossing_ = 0;  ///< parts of transfers under way
};

}  // namespace terrace
