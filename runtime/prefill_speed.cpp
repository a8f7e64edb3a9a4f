#include "runtime/prefill_speed.hpp"

#include <bit>
#include <chrono>

namespace terrace {
namespace {

constexpr std::uint64_t pieces_known = 8;
/// What a piece leaves of the weight of those before it.
constexpr double fading = 0.9;

}  // namespace

void PrefillSpeed::on_commit(std::uint32_t units, Fence written) {
  if (computing_.empty() || (computing_.back().written != written && !computing_.full())) {
    computing_.push_back({written, units});
  } else {
    computing_.back() = {written, computing_.back().units + units};
  }
}

void PrefillSpeed::on_reached(Fence reached, TimePoint now) {
  std::uint32_t units = 0;
  for (; !computing_.empty() && computing_.front().written <= reached; computing_.pop_front()) units += computing_.front().units;
  if (units == 0) return;
  Shape& shape = shapes_[static_cast<std::size_t>(std::bit_width(units))];
  shape.units = shape.units * fading + units;
  shape.seconds = shape.seconds * fading + std::chrono::duration<double>(now - since_).count();
  ++shape.pieces;
  since_ = now;
}

double PrefillSpeed::unit_seconds() const {
  double least = 0;
  for (const Shape& shape : shapes_) {
    if (shape.pieces < pieces_known) continue;
    const double seconds = shape.seconds / shape.units;
    if (least == 0 || seconds < least) least = seconds;
  }
  return least;
}

}  // namespace terrace
