#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Which uses were before a time: last uses are counted, not timed, since nothing else needs their time. Notes the count every
/// second; where many notes have come together, every other one is forgotten, and they become half as frequent: what it says is
/// exact to about a two-thousandth of the time that it has been told of. Reads no clock. Threads: one.
class UseClock {
 public:
  static constexpr std::size_t notes_max = 4096;

  UseClock() { notes_.reserve(notes_max); }

  /// `stamp`: of the latest use so far. Neither goes back.
  void note(TimePoint now, std::uint64_t stamp) {
    if (!notes_.empty() && now < notes_.back().at + step_) return;
    if (notes_.size() == notes_max) {
      for (std::size_t i = 0; 2 * i < notes_.size(); ++i) notes_[i] = notes_[2 * i];
      notes_.resize((notes_.size() + 1) / 2);
      step_ *= 2;
    }
    notes_.push_back({now, stamp});
  }
  /// A use with this stamp, or an earlier one, was surely at `time` or before; 0: none that is known of.
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
