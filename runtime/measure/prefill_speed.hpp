#pragma once

#include "base/clock.hpp"
#include "base/strong_id.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/circular_buffer.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <functional>

namespace terrace {

/// Learns how long the engine takes to compute a unit of a prompt while it serves: units committed, by the time until compute has
/// reached the point at which they are there. The time begins when a request became ready while no other had units to compute, or
/// when the units before were there, whichever is later. So it does not matter whether blocks are committed as their compute is
/// launched or when it is done.
///
/// Small pieces of prompts share their steps with other work, and look slower than they are. So pieces of about one size are
/// measured together, and the fastest size counts: what computing a hit instead of loading it costs is a larger piece. Nothing is
/// said before eight pieces of a size were seen. Threads: one.
class PrefillSpeed {
 public:
  /// The request is ready, and so many units of its prompt are to be computed for it.
  void on_ready(RequestId request, std::uint32_t units_left, TimePoint now);
  /// So many are left after a commit; those committed are there when compute reaches `written`. Points ascend.
  void on_commit(RequestId request, std::uint32_t units_left, Fence written);
  /// The request has ended. What it committed still counts.
  void on_released(RequestId request) { left_.erase(request); }
  /// Whether on_commit() of this request is waited for.
  [[nodiscard]] bool computes(RequestId request) const { return left_.contains(request); }
  /// Compute has reached this point.
  void on_reached(Fence reached, TimePoint now);

  /// 0: not known.
  [[nodiscard]] double unit_seconds() const;

 private:
  struct Piece {
    Fence written;
    std::uint32_t units = 0;
  };
  /// On their way at a time; of more the last ones are measured as one.
  static constexpr std::size_t pieces_max = 1024;
  struct Shape {
    double units = 0;    ///< recent
    double seconds = 0;  ///< recent
    std::uint64_t pieces = 0;
  };

  TimePoint since_{};
  boost::unordered_flat_map<RequestId, std::uint32_t, std::hash<RequestId>> left_;  ///< requests with units to compute
  boost::circular_buffer<Piece> computing_{pieces_max};
  std::array<Shape, 33> shapes_{};  ///< by the bits of their units
};

}  // namespace terrace
