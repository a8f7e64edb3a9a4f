#pragma once

#include "base/clock.hpp"
#include "base/indexed_heap.hpp"
#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "base/waker.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace terrace {

/// What ranks keep in a host slot.
enum class RankPayload : unsigned char {
  sharded,     ///< each its own share: a block is down when every rank has copied its part
  replicated,  ///< all the same bytes, as with one latent head for all (MLA): one rank copies down, all copy up
};

struct RankedTransfersOptions {
  RankPayload payload = RankPayload::sharded;
  /// How long after a transfer's deadline a rank may still report what it has cancelled in time. A rank that has not reported by
  /// then counts as one whose copies are under way.
  Duration report_grace = std::chrono::milliseconds{10};
  /// A rank is slow while it owes a transfer that another finished so long ago.
  Duration slow_after = std::chrono::seconds{1};
};

/// How a rank does. Asked for now and then, by whoever watches: costs a look at every transfer under way.
struct RankHealth {
  enum class State : unsigned char {
    well,
    slow,  ///< owes what another rank has finished, or was itself given up on, RankedTransfersOptions::slow_after ago or longer
    lost,  ///< lose() was called: its process is gone
  };
  std::string_view name;
  State state = State::well;
  std::uint32_t transfers = 0;  ///< that it owes a report of, or the end of what was under way at the deadline
  Duration oldest{};            ///< how long it has owed the oldest of them
  Duration behind{};            ///< how long ago the first of them was finished elsewhere, or given up on
};

[[nodiscard]] std::string_view to_string(RankPayload payload);
[[nodiscard]] std::string_view to_string(RankHealth::State state);

/// One control plane over several transfer engines, one per rank: a transfer goes to every rank, and is done when all have
/// acknowledged. Ranks do not wait for each other: each works through its transfers at its own pace.
///
///     a block is   done         where it is done on every rank
///                  unconfirmed  where any rank may still touch its slots; `confirmed` follows when none does
///                  cancelled    where no rank began it
///                  failed       otherwise
///
/// Of a transfer by layer, a layer is there when it is on every rank.
///
/// A rank that says nothing holds up the transfers it owes, up to their deadline, and nothing else: the other ranks work on,
/// transfers without it end, and health() names it. A rank whose process is gone is lost (lose()): what it owes has failed, and
/// no transfer is taken any more, since none can be done by all.
///
/// Threads: one, the control plane's. No call blocks. Step-path calls allocate nothing once warm.
class RankedTransfers final : public TransferPort {
 public:
  static constexpr std::size_t ranks_max = 64;

  struct Rank {
    std::string name;  ///< for people
    TransferPort* port = nullptr;
  };

  /// The ports outlive this, and wake the control plane as `waker` does. Throws std::invalid_argument where there is no rank or
  /// more than ranks_max.
  RankedTransfers(std::vector<Rank> ranks, const Clock& clock, Waker& waker, RankedTransfersOptions options = {});

  void submit(Transfer transfer) override;
  void raise(TransferId id, Urgency urgency) override;
  void cancel(TransferId id) override;
  /// Each rank's, of its own share.
  void limit(Urgency urgency, Bytes per_second) override;
  std::size_t poll(std::vector<TransferEvent>& out) override;
  [[nodiscard]] TimePoint next_deadline() const override;
  [[nodiscard]] Fence reached() const override;
  [[nodiscard]] Fence after_all_work() const override;

  /// The rank's process has ended, and with it every copy of its device: nothing touches slots for it any more.
  void lose(std::uint32_t rank);
  [[nodiscard]] RankHealth health(std::uint32_t rank) const;
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  /// Nothing owed, nothing unreported.
  [[nodiscard]] bool idle() const { return open_.empty() && refused_.empty(); }
  void check_invariants() const;

 private:
  using Mask = std::uint64_t;  ///< a bit a rank
  using Handle = std::uint32_t;

  struct Entry {
    Transfer transfer;
    Mask working = 0;     ///< owe `finished`
    Mask confirming = 0;  ///< owe `confirmed`
    bool reported = false;
    std::vector<BlockOutcome> outcomes;  ///< of the ranks that have finished
    Bytes moved{};
    Duration took{};
    Duration copying{};
    ErrorCode error;
    std::vector<std::uint32_t> layers;  ///< by layer: by rank, what has arrived
    std::uint32_t told_layers = 0;
    TimePoint submitted;
    std::optional<TimePoint> first_finish;
  };

  [[nodiscard]] Mask bit(std::uint32_t rank) const { return Mask{1} << rank; }
  [[nodiscard]] Mask recipients(const Transfer& transfer);
  void on_event(std::uint32_t rank, TransferEvent event);
  void on_layers(Entry& entry, std::uint32_t rank, std::uint32_t layers);
  void on_finished(Entry& entry, TransferEvent& event, Mask rank);
  void settle(Handle handle);
  void expire(TimePoint now);
  void report(Entry& entry, TransferEvent::Kind kind);
  void end(Handle handle);

  struct Member {
    std::string name;
    TransferPort* port;
    bool lost = false;
    std::uint32_t owed = 0;  ///< transfers
  };

  const Clock& clock_;
  Waker& waker_;
  RankedTransfersOptions options_;
  std::vector<Member> ranks_;
  Mask lost_ = 0;

  Slab<Entry> entries_;
  std::unordered_map<TransferId, Handle> open_;
  std::vector<std::unordered_map<TransferId, Handle>::node_type> spare_nodes_;  ///< of open_: a map allocates one a transfer
  IndexedHeap<TimePoint> deadlines_;                                            ///< of unreported transfers, the grace included
  VectorPool<SlotRun> spare_runs_;
  VectorPool<std::uint32_t> spare_layers_;
  std::vector<TransferEvent> events_;
  std::vector<TransferEvent> refused_;
  std::vector<TransferEvent> collected_;  ///< scratch
};

}  // namespace terrace
