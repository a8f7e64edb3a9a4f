#pragma once

#include "terrace/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Tells which uses of blocks were before a given time. The tree only counts uses (PrefixTree::touch); write-back jobs that
/// select blocks by age need times.
///
/// The clock notes the count of uses at most once a second. When it has notes_max notes, it erases every other one, and notes the
/// count half as often from then on. So an answer is exact to a second, or to about 1/2000 of the time since the first note if
/// that is more. It reads no clock: its owner gives it the time.
///
/// Threads: one.
class UseClock {
 public:
  static constexpr std::size_t notes_max = 4096;

  UseClock() { notes_.reserve(notes_max); }

  /// `stamp` is the stamp of the latest use so far. Neither argument may be less than in the call before.
  void note(TimePoint now, std::uint64_t stamp) {
    if (!notes_.empty() && now < notes_.back().at + step_) return;
    if (notes_.size() == notes_max) {
      for (std::size_t i = 0; 2 * i < notes_.size(); ++i) notes_[i] = notes_[2 * i];
      notes_.resize((notes_.size() + 1) / 2);
      step_ *= 2;
    }
    notes_.push_back({now, stamp});
  }
  /// Returns a stamp such that the use with this stamp, and all earlier ones, were at `time` or before. Returns 0 if no such use
  /// is known.
  [[nodiscard]] std::uint64_t stamp_at(TimePoint time) const {
    const auto later = std::ranges::upper_bound(notes_, time, {}, &Note::at);
    return later == notes_.begin() ? 0 : std::prev(later)->stamp;
  }

 private:
  struct Note {
    TimePoint at;
    std::uint64_t stamp;
  };
  Duration step_ = std::chrono::seconds{1};
  std::vector<Note> notes_;
};

}  // namespace terrace
