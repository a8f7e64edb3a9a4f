#pragma once

#include "base/indexed_heap.hpp"
#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "base/waker.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace terrace {

struct RankedTransfersOptions {
  RankPayload payload = RankPayload::sharded;
  /// How long after the deadline of a transfer a rank may still report that it cancelled the transfer in time. If a rank has not
  /// reported by then, its copies count as under way.
  Duration report_grace = std::chrono::milliseconds{10};
  /// A rank is slow while it has not ended a transfer that a rank finished at least this long ago.
  Duration slow_after = std::chrono::seconds{1};
  /// A rank is failing after this many transfers in a row in which copies failed and no block arrived.
  std::uint32_t failures_max = 5;
};

[[nodiscard]] std::string_view to_string(RankHealth::State state);

/// Runs the transfers of one control plane on several transfer engines, one for each rank. A transfer goes to every rank, and is
/// done when all ranks have reported it. (If all ranks have the same bytes, a swap-out goes to one rank only.) Ranks do not wait
/// for each other.
///
///     a block is   done         if it is done on every rank
///                  unconfirmed  if any rank may still touch its slots; `confirmed` follows when none does
///                  cancelled    if no rank began it
///                  failed       otherwise
///
/// A layer of a transfer by layer has arrived when it has arrived on every rank.
///
/// If a rank does not report, its open transfers are delayed, up to their deadline. All other transfers continue, and health()
/// reports the rank; it also reports a rank whose copies fail. If the process of a rank has ended, call lose(). Then the open
/// transfers of the rank fail, and all new transfers are refused, because they cannot be done on all ranks.
///
/// Ownership: the ports must outlive this object. Threads: one, the control plane's. No call blocks. After the first calls,
/// step-path calls allocate no memory.
class RankedTransfers final : public TransferPort {
 public:
  static constexpr std::size_t ranks_max = terrace::ranks_max;

  struct Rank {
    std::string name;  ///< for messages and reports
    TransferPort* port = nullptr;
  };

  /// The ports must outlive this object, and must wake the control plane as `waker` does. Throws std::invalid_argument if there
  /// is no rank or there are more than ranks_max.
  RankedTransfers(std::vector<Rank> ranks, const Clock& clock, Waker& waker, RankedTransfersOptions options = {});

  void submit(Transfer transfer) override;
  void raise(TransferId id, Urgency urgency) override;
  void postpone(TransferId id, TimePoint deadline) override;
  void cancel(TransferId id) override;
  /// Each rank gets this limit for the bytes of its own share.
  void limit(Urgency urgency, BytesPerSecond per_second) override;
  void wake_transfers() override;
  std::size_t poll(std::vector<TransferEvent>& out) override;
  [[nodiscard]] Result<void> await(TransferId id, std::uint32_t layers, StreamRef stream, std::uint32_t rank) override;
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank) override;
  [[nodiscard]] TimePoint next_deadline() const override;
  [[nodiscard]] TimePoint oldest_copy() const override;
  [[nodiscard]] Fence reached() const override;
  [[nodiscard]] Fence after_all_work() const override;
  [[nodiscard]] bool given_out(Fence point) const override;

  /// Reports that the process of a rank has ended, and with it all copies of its device: it does not access any slot any more.
  void lose(std::uint32_t rank);
  [[nodiscard]] RankHealth health(std::uint32_t rank) const;
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  /// Returns true if no transfer is open and no event waits for poll().
  [[nodiscard]] bool idle() const { return open_.empty() && events_.empty(); }
  void check_invariants() const;

 private:
  using Mask = std::uint64_t;  ///< one bit for each rank
  using Handle = std::uint32_t;

  struct Member : Rank {
    bool lost = false;
    std::uint32_t owed = 0;  ///< number of transfers for which the rank has not reported `finished` yet
    std::uint32_t failures_in_row = 0;
  };

  struct Entry {
    Transfer transfer;
    Mask working = 0;     ///< ranks that have not reported `finished` yet
    Mask confirming = 0;  ///< ranks that have still to report `confirmed`
    bool reported = false;
    TransferEvent result;  ///< the events of the ranks that have finished, combined; its error stays when it is reported
    /// Only for a transfer by layer: number of layers that have arrived, by rank; all_layers if all have, or the rank takes no
    /// part.
    std::vector<std::uint32_t> layers;
    std::uint32_t reported_layers = 0;
    TimePoint submitted;
    std::optional<TimePoint> first_finish;
  };

  [[nodiscard]] Mask bit(std::uint32_t rank) const { return Mask{1} << rank; }
  [[nodiscard]] Mask recipients(const Transfer& transfer);
  template <class Call>
  void for_each_working(const Entry& entry, Call call) const;
  void on_event(std::uint32_t rank, TransferEvent event);
  static void note_outcome(Member& member, const TransferEvent& event);
  void on_layers(Entry& entry, std::uint32_t rank, std::uint32_t layers);
  void on_finished(Entry& entry, TransferEvent& event, Mask rank);
  void settle(Handle handle);
  void expire(TimePoint now);
  void report(Entry& entry, TransferEvent::Kind kind);
  void end(Handle handle);

  const Clock& clock_;
  Waker& waker_;
  RankedTransfersOptions options_;
  std::vector<Member> ranks_;
  Mask lost_ = 0;

  Slab<Entry> entries_;
  std::unordered_map<TransferId, Handle> open_;
  /// nodes of open_ for reuse, because a map allocates a node for each entry
  std::vector<std::unordered_map<TransferId, Handle>::node_type> spare_nodes_;
  IndexedHeap<TimePoint> deadlines_;  ///< deadlines of transfers that have not been reported, plus the grace time
  VectorPool<SlotRun> spare_runs_;
  VectorPool<std::uint32_t> spare_layers_;
  std::vector<TransferEvent> events_;     ///< not reported yet
  std::vector<TransferEvent> collected_;  ///< scratch memory of poll()
};

}  // namespace terrace
