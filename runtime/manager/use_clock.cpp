#include "runtime/manager/use_clock.hpp"

#include <algorithm>
#include <iterator>

namespace terrace {

UseClock::UseClock() { notes_.reserve(notes_max); }

void UseClock::note(TimePoint now, std::uint64_t stamp) {
  if (!notes_.empty() && now < notes_.back().at + step_) return;
  if (notes_.size() == notes_max) {
    for (std::size_t i = 0; 2 * i < notes_.size(); ++i) notes_[i] = notes_[2 * i];
    notes_.resize((notes_.size() + 1) / 2);
    step_ *= 2;
  }
  notes_.push_back({now, stamp});
}

std::uint64_t UseClock::stamp_at(TimePoint time) const {
  const auto later = std::ranges::upper_bound(notes_, time, {}, &Note::at);
  return later == notes_.begin() ? 0 : std::prev(later)->stamp;
}

}  // namespace terrace
