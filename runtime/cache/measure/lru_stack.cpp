#include "runtime/cache/measure/lru_stack.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstddef>

namespace terrace {

std::uint32_t LruStack::position(Item item) const {
  if (item >= place_of_.size() || place_of_[item] == no_place) return unknown;
  std::uint32_t before = 0;  // the weight of earlier places
  for (std::uint32_t i = place_of_[item]; i > 0; i &= i - 1) before += sums_[i];
  return weight_ - before;
}

void LruStack::use(Item item, std::uint32_t weight) {
  if (item >= place_of_.size()) place_of_.resize(item + std::size_t{1}, no_place);
  if (next_place_ == places_.size()) make_places();
  std::uint32_t& place = place_of_[item];
  if (place == no_place) {
    weight_ += weight;
  } else {
    weight = places_[place].weight;
    add(place, 0U - weight);
  }
  place = next_place_++;
  places_[place] = {item, weight};
  add(place, weight);
}

LruStack::Item LruStack::drop_last() {
  while (first_place_ < next_place_ && !in_use(first_place_)) ++first_place_;
  TERRACE_CHECK(first_place_ < next_place_);
  const Place last = places_[first_place_];
  add(first_place_, 0U - last.weight);
  place_of_[last.item] = no_place;
  weight_ -= last.weight;
  ++first_place_;
  return last.item;
}

/// A negative weight is its complement: sums of unsigned numbers wrap.
void LruStack::add(std::uint32_t place, std::uint32_t weight) {
  // Sums are numbered from 1, places from 0.
  for (std::size_t i = place + std::size_t{1}; i < sums_.size(); i += i & (~i + 1)) sums_[i] += weight;
}

void LruStack::make_places() {
  constexpr std::uint32_t places_min = 1024;
  std::uint32_t kept = 0;
  for (std::uint32_t place = 0; place < next_place_; ++place) {
    if (!in_use(place)) continue;
    places_[kept] = places_[place];
    place_of_[places_[kept].item] = kept;
    ++kept;
  }
  first_place_ = 0;
  next_place_ = kept;
  places_.resize(std::max<std::size_t>(places_min, std::size_t{2} * kept));
  sums_.assign(places_.size() + 1, 0);
  for (std::uint32_t place = 0; place < kept; ++place) add(place, places_[place].weight);
}

}  // namespace terrace
