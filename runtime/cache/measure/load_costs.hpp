#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <limits>
#include <span>

namespace terrace {

/// The recent speed of a link or a disk, measured while it serves: the time during which at least one operation was under way,
/// per byte moved. For transfers, the caller reports the copy time instead (Times::told), because a transfer is also under way
/// while it waits for compute. A link that is slow because it is shared counts as slow. Time without any request does not count.
///
/// - Old measurements lose half of their weight every ten seconds, so that a change of the link shows soon.
/// - A cache that finds a link too slow stops using it, and would never see that it has recovered. So an idle link counts as
///   twice as fast after every ten seconds, until it is used again.
/// - The first use of an unknown link risks little: trusted() limits the bytes that may be requested at a time. The limit is 1
///   MiB at first, and grows with the bytes that the link delivers.
/// - If no operation ends, the link counts as slower the longer this lasts (but not with Times::told).
///
/// Threads: one.
class Throughput {
 public:
  enum class Times : bool { seen, told };
  /// The most bytes to request from a link that has not been measured.
  static constexpr Bytes trusted_unseen = MiB;
  explicit Throughput(Times times = Times::seen) : told_{times == Times::told} {}

  void began(std::uint64_t operations, TimePoint now);
  /// `moved`: bytes of all operations; failed operations count 0. `took`: only with Times::told.
  void ended(std::uint64_t operations, Bytes moved, TimePoint now, Duration took = {});

  [[nodiscard]] std::uint64_t under_way() const { return under_way_; }
  /// Seconds during which any operation was under way, from construction up to the last end.
  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }
  /// 0 if nothing has been measured yet.
  [[nodiscard]] double seconds_per_byte(TimePoint now) const;
  /// The most bytes that may be requested at a time, given what the link has moved recently.
  [[nodiscard]] Bytes trusted(TimePoint now) const;

 private:
  /// The fraction of a weight that is left at `now`, after fading.
  [[nodiscard]] double faded(TimePoint now) const;

  bool told_;
  std::uint64_t under_way_ = 0;
  double busy_seconds_ = 0;
  double bytes_ = 0;    ///< bytes moved recently, weighted as of mark_
  double seconds_ = 0;  ///< time in which bytes_ were moved
  TimePoint mark_{};    ///< when the last operation ended, or when those under way began
};

/// Measured cost of loading one block of a pool (see Throughput). 0: nothing has been measured, and the block counts as free of
/// cost.
struct LoadCosts {
  double link_seconds = 0;  ///< from host to device
  double read_seconds = 0;  ///< from storage to the host
  /// The most blocks that may be requested from storage at a time.
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
  double shared_seconds = 0;  ///< from the shared store to the host
  /// The time until the shared store answers, even for the smallest question.
  double shared_round_trip = 0;
  std::uint32_t shared_max = std::numeric_limits<std::uint32_t>::max();  ///< the same as reads_max, for the shared store
};

/// Cost of one hash unit of a hit: how long its blocks keep disk and link busy.
struct UnitCost {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads = 0;  ///< blocks to read from storage
  double shared_seconds = 0;
  std::uint32_t shared = 0;  ///< blocks to read from the shared store
  /// Another request already reads blocks of this unit from storage (joins_read) or from the shared store (joins_shared), or
  /// copies them from the host (joins_link).
  bool joins_read = false;
  bool joins_link = false;
  bool joins_shared = false;
};

/// Load work that is queued already, and a limit for new work.
struct LoadQueues {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
  double shared_seconds = 0;  ///< with its round trip
  std::uint32_t shared_max = std::numeric_limits<std::uint32_t>::max();
};

/// Number of leading units of a hit to load, chosen so that the request has its whole prompt as early as possible. Units that are
/// loaded wait behind the work in `queues`. Units that are not loaded are computed, in `unit_prefill_seconds` each. If two
/// choices are equally good, the function returns the one that computes less.
///
/// The times of storage, shared store and link are added, although reads and copies overlap. So a hit is loaded only if that pays
/// off even without overlap.
[[nodiscard]] std::uint32_t units_worth_loading(std::span<const UnitCost> units, const LoadQueues& queues,
                                                double unit_prefill_seconds);

}  // namespace terrace
