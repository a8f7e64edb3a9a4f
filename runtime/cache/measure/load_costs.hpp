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
  /// Returns true if compute has not reached a point that on_reached() waits for.
  [[nodiscard]] bool computing() const { return !computing_.empty(); }
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
