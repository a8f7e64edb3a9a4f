#pragma once

#include "base/indexed_heap.hpp"
#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "terrace/statistics.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

/// Reads blocks from storage, or from the shared store, into slots of the host arena, for the loads and the named copies of a
/// pool.
///
///     waiting --(a landing slot)--> being read --> result: landed or failed
///       |  \--> result: given back      \--(cancelled)--> no result; a host copy that arrives stays one
///       \--(cancelled)--> nothing
///
/// Blocks get landing slots in order of urgency, and within one urgency in order of arrival. If there is no slot for the first
/// block, all others wait, too. If possible, a block lands in a host copy, because that serves later loads, too. Otherwise it
/// lands in a staging slot, unless the reader accepts only a host copy. A slot into which a block is read is not used for
/// anything else before the read has ended, even if the read is cancelled. A cancelled read of the shared store is cancelled
/// there, too, so that it ends soon. A cancelled read from storage runs to its end.
///
/// Readers can have deadlines. take_late() returns the readers whose deadline has passed. These then cancel their reads.
///
/// Threads: the manager's.
class StoredReads : PoolPart {
 public:
  /// The load, or the job of NamedCopies, for which blocks are read. `number` is its number in its class.
  struct Reader {
    enum class Kind : std::uint8_t { load, named_copy };
    Kind kind = Kind::load;
    std::uint32_t number = 0;

    friend bool operator==(const Reader&, const Reader&) = default;
  };
  /// The outcome for a block whose copies have changed while it waited for a landing slot: it has a host copy now, or storage has
  /// lost it or got it.
  enum class Overtaken : bool { is_read, is_given_back };
  struct Order {
    Reader reader;
    std::uint32_t part = 0;           ///< the reader's own number for the block
    BlockRef block;                   ///< pinned by the reader until the result or cancel()
    Source source = Source::storage;  ///< storage or shared
    TenantId tenant;                  ///< the tenant for which the host slot is taken
    Urgency urgency = Urgency::request;
    Overtaken overtaken = Overtaken::is_read;
    /// The block must land in a host copy. If the host tier has no slot, the result is `failed` with Errc::full. If the block
    /// gets a device copy while it waits, the result is `given_back`.
    bool only_host_copy = false;
    TimePoint deadline = never;  ///< of a read from the shared store, in addition to the deadline of the reader
  };
  /// The slot of the host arena that has a block's bytes: a staging slot, which the reader owns, or the slot of a host copy,
  /// which is held (Residency::hold).
  struct Landing {
    SlotId slot;
    bool staging = false;
  };
  struct Result {
    enum class Kind : std::uint8_t {
      landed,      ///< the bytes are in `landing`, until the reader calls release()
      failed,      ///< see `error`
      given_back,  ///< Overtaken::is_given_back: the reader decides again what to do
    };
    Kind kind = Kind::landed;
    Reader reader;
    std::uint32_t part = 0;
    Landing landing;
    ErrorCode error;
  };
  using ReadId = std::uint32_t;

  StoredReads(const PoolPart& part, const PoolSizes& sizes, HostSlotAllocator& host_slots, SharedTotals& shared);

  /// The id is valid until the result or cancel().
  [[nodiscard]] ReadId add(const Order& order);
  /// The reader does not want the block any more, and gets no result.
  void cancel(ReadId id);
  /// A read has ended. `token` is that of the ReadOrder, or of the SharedActions::Read.
  void on_read(std::uint64_t token, ErrorCode error);
  /// The block of a read that is under way.
  [[nodiscard]] BlockRef block_of(std::uint64_t token) const { return reads_.find(static_cast<ReadId>(token))->order.block; }
  /// Gives landing slots to blocks that wait for one, and orders their reads. Returns true if anything changed.
  bool pump();
  /// pump() would change nothing, and there are no results.
  [[nodiscard]] bool rests() const { return waiting_.empty() && results_.empty(); }
  /// The results since the last call, in order. The caller hands them out before it calls cancel().
  void take_results(std::vector<Result>& results) { take_all(results_, results); }
  /// Ends the use of the landing slot: the reader has copied the block to its destination, or does not need it any more.
  void release(BlockRef block, Landing landing);

  /// Sets the deadline of the reader, and replaces an earlier one. `never`: it has no deadline.
  void set_deadline(Reader reader, TimePoint deadline);
  [[nodiscard]] TimePoint next_deadline() const { return deadlines_.empty() ? never : deadlines_.top().priority; }
  /// Replaces the contents of `late` with the readers whose deadline has passed, and removes these deadlines.
  void take_late(TimePoint now, std::vector<Reader>& late);

  /// Number of blocks that wait or are being read. Cancelled reads that have not ended are included.
  [[nodiscard]] std::size_t size() const { return reads_.size(); }
  [[nodiscard]] std::size_t size(Source source) const {
    return source == Source::shared ? from_shared_ : reads_.size() - from_shared_;
  }
  void check_invariants() const;

 private:
  enum class State : std::uint8_t { waiting, reading, cancelled };
  struct Read {
    Order order;
    Landing landing;  ///< not in state waiting
    State state = State::waiting;
  };

  Read take(ReadId id);
  void count_failure(const Read& read, ErrorCode error);
  void end_waiting(ReadId id, Result::Kind kind, ErrorCode error);
  [[nodiscard]] bool land(ReadId id);
  [[nodiscard]] static std::uint32_t handle(Reader reader) {
    return reader.number << 1U | static_cast<std::uint32_t>(reader.kind);
  }

  bool exclusive_;       ///< a block is never on the device and in the host at the same time
  bool lazy_exclusive_;  ///< a host copy of a block that a load brings to the device would be a duplicate
  HostSlotAllocator& host_slots_;
  SharedTotals& shared_;
  Slab<Read> reads_;
  IndexedHeap<std::pair<Urgency, std::uint64_t>> waiting_;  ///< by urgency, and then by arrival
  std::uint64_t arrivals_ = 0;
  std::vector<Result> results_;       ///< not taken yet
  IndexedHeap<TimePoint> deadlines_;  ///< by handle()
  std::size_t from_shared_ = 0;       ///< entries of reads_ whose source is the shared store
};

}  // namespace terrace
