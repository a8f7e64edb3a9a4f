#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"

#include <cstdint>

namespace terrace {

/// How fast a link or a disk has lately been, measured as it serves: bytes moved by the time during which anything was under way,
/// or, where who moves them tells, by the time that this took: a transfer is under way also while it waits for compute. What is
/// slow because it is shared counts as slow; what waited because nothing was asked for does not.
///
/// - Old figures fade: half of their weight in ten seconds, so that a link that has changed is soon known again.
/// - Who finds a link too slow to use would never learn that it has recovered. So a link that is idle counts as twice as fast
///   with each ten seconds, until somebody tries it.
/// - Whoever tries an unknown link risks little: trusted() says how much may be asked of it at once, a MiB at first, and
///   more as it delivers.
/// - A link on which nothing ends any more counts as slower the longer that lasts (not where times are told).
///
/// Threads: one.
class Throughput {
 public:
  enum class Times : bool { seen, told };
  /// What is risked on a link that is not known.
  static constexpr Bytes trusted_unseen = MiB;
  explicit Throughput(Times times = Times::seen) : told_{times == Times::told} {}

  void began(std::uint64_t operations, TimePoint now);
  /// `moved`: by all of them, of those that failed nothing. `took`: where times are told.
  void ended(std::uint64_t operations, Bytes moved, TimePoint now, Duration took = {});

  [[nodiscard]] std::uint64_t under_way() const { return under_way_; }
  /// During which anything was under way, since construction, up to the last end.
  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }
  /// 0 where nothing has been measured yet.
  [[nodiscard]] double seconds_per_byte(TimePoint now) const;
  /// How much may be asked of the link at once, on the strength of what it has lately moved.
  [[nodiscard]] Bytes trusted(TimePoint now) const;

 private:
  /// The share of a weight that is left.
  [[nodiscard]] double faded(TimePoint now) const;

  bool told_;
  std::uint64_t under_way_ = 0;
  double busy_seconds_ = 0;
  double bytes_ = 0;    ///< recent, as of mark_
  double seconds_ = 0;  ///< recent, during which those moved
  TimePoint mark_{};    ///< the last end, or the beginning of what is under way
};

}  // namespace terrace
