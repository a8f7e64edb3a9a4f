#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/circular_buffer.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <functional>
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

/// Measures how long the engine takes to compute one hash unit of a prompt.
///
/// A sample is a number of committed units, and the time until compute reaches the fence at which they are written. The time
/// starts when a request becomes ready while no other request has units to compute, or when the units before were written,
/// whichever is later. So it does not matter whether the engine commits blocks when it launches their compute or when that is
/// done.
///
/// Short pieces of prompts share their steps with other work and look slower than they are. So pieces of similar size are
/// measured together, and the size with the shortest time per unit counts, because a hit that is not loaded makes a piece longer.
/// There is no result before eight pieces of one size have been measured. Threads: one.
class PrefillSpeed {
 public:
  /// The request is ready, and `units_left` units of its prompt must be computed.
  void on_ready(RequestId request, std::uint32_t units_left, TimePoint now);
  /// After a commit of the request, `units_left` units are left. The committed ones are written when compute reaches `written`.
  /// Fences ascend.
  void on_commit(RequestId request, std::uint32_t units_left, Fence written);
  /// The request has ended. The units that it has committed still count.
  void on_released(RequestId request) { left_.erase(request); }
  /// Returns true if the request still has units to compute. Then on_commit() must be called for it.
  [[nodiscard]] bool computes(RequestId request) const { return left_.contains(request); }
  /// Compute has reached this point.
  void on_reached(Fence reached, TimePoint now);

  /// Seconds per hash unit. 0: not known yet.
  [[nodiscard]] double unit_seconds() const;

 private:
  struct Piece {
    Fence written;
    std::uint32_t units = 0;
  };
  /// The most pieces that are in progress at a time. Beyond that, new pieces are added to the last one.
  static constexpr std::size_t pieces_max = 1024;
  struct Shape {
    double units = 0;    ///< recent
    double seconds = 0;  ///< recent
    std::uint64_t pieces = 0;
  };

  TimePoint since_{};
  /// units that each request still has to compute
  boost::unordered_flat_map<RequestId, std::uint32_t, std::hash<RequestId>> left_;
  boost::circular_buffer<Piece> computing_{pieces_max};
  std::array<Shape, 33> shapes_{};  ///< by the bit width of the number of units
};

}  // namespace terrace
