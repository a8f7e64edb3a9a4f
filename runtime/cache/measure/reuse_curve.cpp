#include "runtime/cache/measure/reuse_curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

namespace terrace {

void ReuseCurve::use(std::span<const ReuseSample> request, TimePoint now) {
  turn(now);
  Window& window = windows_.front();
  for (const ReuseSample& sample : request) {
    if (!sample.asked) continue;
    window.asked += sample.weight;
    const auto found = items_.find(sample.block);
    if (found == items_.end()) continue;
    // The blocks that the sample stands for lie around its own position.
    const std::uint32_t position = stack_.position(found->second);
    const double distance = std::max(1.0, static_cast<double>(position) - (sample.weight - 1) / 2.0);
    const auto bucket = static_cast<std::size_t>(std::log2(distance) * static_cast<double>(buckets_per_octave));
    window.hits[std::min(bucket, buckets - 1)] += sample.weight;
  }
  for (const ReuseSample& sample : std::views::reverse(request)) stack_.use(item_of(sample.block), sample.weight);
}

double ReuseCurve::hit_ratio(double blocks) const {
  if (asked() == 0 || blocks < 1) return 0;
  // Between the distances that the cache hits and the next one.
  const double place = std::log2(std::min(blocks, covered()) + 0.5) * static_cast<double>(buckets_per_octave);
  double hits = 0;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const double part = std::clamp(place - static_cast<double>(bucket), 0.0, 1.0);
    if (part == 0) break;
    hits += part * (windows_[0].hits[bucket] + windows_[1].hits[bucket]);
  }
  return hits / asked();
}

double ReuseCurve::covered() const { return forgot_ ? covered_ : std::numeric_limits<std::uint32_t>::max(); }

void ReuseCurve::turn(TimePoint now) {
  if (!begun_) turned_ = now;
  begun_ = true;
  if (now - turned_ < half_window) return;
  windows_[1] = now - turned_ < 2 * half_window ? windows_[0] : Window{};
  windows_[0] = Window{};
  turned_ = now;
}

LruStack::Item ReuseCurve::item_of(std::uint64_t block) {
  const auto [found, is_new] = items_.try_emplace(block, 0);
  if (!is_new) return found->second;
  if (free_.empty() && blocks_.size() < items_max) {
    free_.push_back(static_cast<LruStack::Item>(blocks_.size()));
    blocks_.push_back(0);
  } else if (free_.empty()) {
    const LruStack::Item last = stack_.drop_last();
    items_.erase(blocks_[last]);
    free_.push_back(last);
    covered_ = forgot_ ? std::min(covered_, stack_.weight()) : stack_.weight();
    forgot_ = true;
  }
  const LruStack::Item item = free_.back();
  free_.pop_back();
  blocks_[item] = block;
  items_.find(block)->second = item;  // an erase may have moved it
  return item;
}

}  // namespace terrace
