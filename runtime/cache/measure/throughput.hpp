#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <cstdint>

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

}  // namespace terrace
