#pragma once

#include "base/indexed_heap.hpp"
#include "base/slab.hpp"
#include "runtime/orders/actions.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/host_slot_allocator.hpp"
#include "terrace/statistics.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// The name that a value of the shared store has for this block.
[[nodiscard]] StoredBlock shared_block(const PrefixTree& tree, BlockRef block);

/// Reads blocks from storage, or from the shared store, into slots of the host arena, for the loads and the named copies of a
/// pool.
///
///     waiting --(a landing slot)--> being read --> result: landed or failed
///       |  \--> result: given back      \--(cancelled)--> no result; a host copy that arrives stays one
///       \--(cancelled)--> nothing
///
/// Blocks get landing slots in the order of their urgency, and those of one urgency in the order in which they came. If there is
/// no slot for the first block, the others wait behind it. A block lands in a host copy if it can, because that serves later
/// loads, too, and otherwise in a staging slot, unless the reader wants nothing but the host copy. A slot into which a block is
/// read is not used for anything else before the read has ended, whoever has cancelled it. The shared store is told of a
/// cancelled read, so that it ends soon; reads from storage end by themselves.
///
/// Readers have deadlines, too. This class says which have passed. The reader then cancels its reads.
///
/// Threads: the manager's.
class StoredReads {
 public:
  /// A load or a job of NamedCopies, by the number that its class has given it. Blocks are read for it.
  struct Reader {
    enum class Kind : std::uint8_t { load, named_copy };
    Kind kind = Kind::load;
    std::uint32_t number = 0;

    friend bool operator==(const Reader&, const Reader&) = default;
  };
  /// Says what happens to a block that came to the host, or went from storage, before it has a landing slot.
  enum class Overtaken : bool { is_read, is_given_back };
  struct Order {
    Reader reader;
    std::uint32_t part = 0;           ///< the reader's own number for the block
    BlockRef block;                   ///< pinned by the reader until the result or cancel()
    Source source = Source::storage;  ///< storage or shared
    TenantId tenant;                  ///< asks for the host slot
    Urgency urgency = Urgency::request;
    Overtaken overtaken = Overtaken::is_read;
    /// If the host tier has no slot for a copy: failed, with Errc::full. If the device gets the block meanwhile: given back.
    bool only_host_copy = false;
    TimePoint deadline = never;  ///< of a read from the shared store, beside that of the reader
  };
  /// The slot of the host arena that has a block's bytes: a staging slot of the reader's, or that of a host copy, which is held.
  struct Landing {
    SlotId slot;
    bool staging = false;
  };
  struct Result {
    enum class Kind : std::uint8_t {
      landed,      ///< the bytes are in `landing`, until the reader calls release()
      failed,      ///< see `error`
      given_back,  ///< Overtaken::is_given_back: the reader decides anew what to do
    };
    Kind kind = Kind::landed;
    Reader reader;
    std::uint32_t part = 0;
    Landing landing;
    ErrorCode error;
  };
  using ReadId = std::uint32_t;

  StoredReads(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency, DeferredEviction& deferred_eviction,
              HostSlotAllocator& host_slots, Actions& actions, SharedTotals& shared);

  /// The id is valid until the result or cancel().
  [[nodiscard]] ReadId add(const Order& order);
  /// The reader does not want the block any more, and gets no result.
  void cancel(ReadId id);
  /// A read has ended. `token` is that of the ReadOrder, or of the SharedActions::Read.
  void on_read(std::uint64_t token, ErrorCode error);
  /// Gives landing slots to blocks that wait for one, and orders their reads. Returns true if anything changed.
  bool pump() { return reads_.size() > under_way_ && pump_queues(); }
  /// pump() would change nothing, and there are no results.
  [[nodiscard]] bool rests() const { return reads_.size() == under_way_ && results_.empty(); }
  /// The results since the last call, in order. Swaps the vectors, so that their memory is used again. The caller hands them out
  /// before it calls cancel().
  void take_results(std::vector<Result>& results) {
    results.clear();
    results.swap(results_);
  }
  /// The reader has copied the block on, or does not need it any more.
  void release(BlockRef block, Landing landing);

  /// Sets when the reader is late, in place of what was set before. `never`: it has no deadline.
  void set_deadline(Reader reader, TimePoint deadline);
  [[nodiscard]] TimePoint next_deadline() const { return deadlines_.empty() ? never : deadlines_.top().priority; }
  /// Replaces the contents of `late` with the readers whose deadline has passed. They have none any more.
  void take_late(TimePoint now, std::vector<Reader>& late);

  /// Number of blocks that wait or are being read, those included whose reads are cancelled.
  [[nodiscard]] std::size_t size() const { return reads_.size(); }
  [[nodiscard]] std::size_t size(Source source) const {
    return source == Source::shared ? from_shared_ : reads_.size() - from_shared_;
  }
  void check_invariants() const;

 private:
  static constexpr ReadId none = 0xFFFF'FFFF;
  enum class State : std::uint8_t { waiting, reading, cancelled };
  struct Read {
    Order order;
    Landing landing;  ///< not in state waiting
    State state = State::waiting;
    ReadId before = none;  ///< neighbours in its queue, in state waiting
    ReadId after = none;
  };
  struct Queue {
    ReadId first = none;
    ReadId last = none;
  };

  [[nodiscard]] Queue& queue_of(const Read& read) { return waiting_[static_cast<std::size_t>(read.order.urgency)]; }
  bool pump_queues();
  Read take(ReadId id);
  void order(ReadId id, SlotId into);
  void count_failure(const Read& read, ErrorCode error);
  void leave_queue(ReadId id);
  void end_waiting(ReadId id, Result::Kind kind, ErrorCode error);
  [[nodiscard]] bool land(ReadId id);
  [[nodiscard]] static std::uint32_t handle(Reader reader) {
    return reader.number << 1U | static_cast<std::uint32_t>(reader.kind);
  }

  bool exclusive_;       ///< no block is on the device and in the host
  bool lazy_exclusive_;  ///< a block that goes on to the device would be a duplicate in the host
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  HostSlotAllocator& host_slots_;
  Actions& actions_;
  SharedTotals& shared_;
  Slab<Read> reads_;
  std::array<Queue, urgency_count> waiting_;  ///< by urgency. Lists, because blocks leave them at any place.
  std::vector<Result> results_;               ///< not taken yet
  IndexedHeap<TimePoint> deadlines_;          ///< by handle()
  std::size_t under_way_ = 0;                 ///< reads that have been ordered and have not ended
  std::size_t from_shared_ = 0;               ///< entries of reads_ whose source is the shared store
};

}  // namespace terrace
