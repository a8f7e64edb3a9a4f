#pragma once

#include "base/clock.hpp"
#include "transfer/plan.hpp"

#include <boost/circular_buffer.hpp>

#include <array>
#include <cstdint>

namespace terrace {

/// How long the engine takes to compute a unit of a prompt, learned as it serves: units committed, by the time until compute has
/// reached the point at which they are there. The time begins when a request became ready, or when the units before were there,
/// whichever is later; so it does not matter whether blocks are committed as their compute is launched or when it is done.
///
/// Small pieces of prompts share their steps with other work, and look slower than they are. So pieces of about one size are
/// measured together, and the fastest size counts: what computing a hit instead of loading it costs is a larger piece. Nothing is
/// said before eight pieces of a size were seen. Threads: one.
class PrefillSpeed {
 public:
  /// A request that may have something to compute is ready.
  void on_ready(TimePoint now) {
    if (computing_.empty()) since_ = now;
  }
  /// So many units of a prompt, more than 0, are there when compute reaches `written`. Points ascend.
  void on_commit(std::uint32_t units, Fence written);
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
  boost::circular_buffer<Piece> computing_{pieces_max};
  std::array<Shape, 33> shapes_{};  ///< by the bits of their units
};

}  // namespace terrace
