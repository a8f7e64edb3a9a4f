#include "runtime/cache/measure/load_costs.hpp"

#include <bit>
#include <chrono>
#include <utility>

namespace terrace {
namespace {

constexpr std::uint64_t pieces_known = 8;
/// Factor by which each new sample reduces the weight of the earlier ones.
constexpr double fading = 0.9;

}  // namespace

std::uint32_t units_worth_loading(std::span<const UnitCost> units, const LoadQueues& queues, double unit_prefill_seconds) {
  std::uint32_t best = 0;
  double best_gain = 0;
  double read = 0;
  double link = 0;
  double shared = 0;
  std::uint64_t reads = 0;
  std::uint64_t shared_reads = 0;
  bool waits_for_read = false;
  bool waits_for_link = false;
  bool waits_for_shared = false;
  for (std::uint32_t taken = 1; taken <= units.size(); ++taken) {
    const UnitCost& unit = units[taken - 1];
    read += unit.read_seconds;
    link += unit.link_seconds;
    reads += unit.reads;
    shared += unit.shared_seconds;
    shared_reads += unit.shared;
    if (reads > queues.reads_max || shared_reads > queues.shared_max) break;
    waits_for_read |= unit.reads > 0 || unit.joins_read;
    waits_for_link |= unit.link_seconds > 0 || unit.joins_link;
    waits_for_shared |= unit.shared > 0 || unit.joins_shared;
    double wait = read + shared + link;
    if (waits_for_read) wait += queues.read_seconds;
    if (waits_for_link) wait += queues.link_seconds;
    if (waits_for_shared) wait += queues.shared_seconds;
    const double gain = taken * unit_prefill_seconds - wait;
    if (gain < best_gain) continue;
    best = taken;
    best_gain = gain;
  }
  return best;
}

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
