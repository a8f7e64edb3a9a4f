#include "runtime/cache/measure/prefill_speed.hpp"

#include <bit>
#include <chrono>
#include <utility>

namespace terrace {
namespace {

constexpr std::uint64_t pieces_known = 8;
/// Factor by which each new sample reduces the weight of the earlier ones.
constexpr double fading = 0.9;

}  // namespace

void PrefillSpeed::on_ready(RequestId request, std::uint32_t units_left, TimePoint now) {
  if (units_left == 0) return;
  if (computing_.empty() && left_.empty()) since_ = now;
  left_[request] = units_left;
}

void PrefillSpeed::on_commit(RequestId request, std::uint32_t units_left, Fence written) {
  const auto open = left_.find(request);
  if (open == left_.end()) return;
  const std::uint32_t before = std::exchange(open->second, units_left);
  if (units_left == 0) left_.erase(open);
  if (units_left >= before) return;
  const std::uint32_t units = before - units_left;
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
