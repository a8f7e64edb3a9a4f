#include "runtime/cache/measure/residency_sample.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace terrace {
std::uint64_t Histogram::total() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }

void ResidencySample::follow(std::uint32_t one_in, std::uint64_t blocks) {
  places_.clear();
  if (one_in == 0) return places_.shrink_to_fit();
  const std::uint64_t share = std::bit_ceil(std::uint64_t{one_in});
  // The upper bits of a key decide whether it is followed, and the lower bits decide its bucket. The two must be independent.
  mask_ = std::rotr(share - 1, std::countr_zero(share));
  const std::uint64_t expected = blocks / share + 1;
  places_.resize(std::bit_ceil(2 * expected + bucket_places - 1));
}

std::size_t ResidencySample::bucket_of(const BlockKey& key) const {
  return key.prefix64() * bucket_places & (places_.size() - 1);
}

ResidencySample::Place* ResidencySample::find(const BlockKey& key) {
  const auto bucket = places_.begin() + static_cast<std::ptrdiff_t>(bucket_of(key));
  const auto end = bucket + bucket_places;
  const auto place = std::find_if(bucket, end, [&](const Place& p) { return !p.free() && p.name == key.prefix64(); });
  return place == end ? nullptr : &*place;
}

ResidencySample::Place* ResidencySample::find_free(const BlockKey& key) {
  const auto bucket = places_.begin() + static_cast<std::ptrdiff_t>(bucket_of(key));
  const auto end = bucket + bucket_places;
  const auto place = std::find_if(bucket, end, [](const Place& p) { return p.free(); });
  return place == end ? nullptr : &*place;
}

void ResidencySample::came(const BlockKey& key, Tier tier) {
  TERRACE_CHECK(tier != Tier::storage);
  Place* place = find(key);
  if (place == nullptr) {
    place = find_free(key);
    if (place == nullptr) {
      ++totals_.overlooked;
      return;
    }
    *place = {key.prefix64(), now_};
  }
  place->since[index(tier)] = now_;
}

void ResidencySample::went(const BlockKey& key, Tier tier) {
  Place* const place = find(key);
  if (place == nullptr || place->since[index(tier)] == absent) return;  // it was cached before sampling began, or had no place
  ResidencyTotals::OfTier& totals = tier == Tier::device ? totals_.device : totals_.host;
  const std::uint64_t since = std::exchange(place->since[index(tier)], absent);
  totals.lifetime.add(now_ - since);
  totals.idle.add(now_ - std::max(since, place->last_use));
}

void ResidencySample::used(std::span<const BlockKey> keys) {
  if (!on()) return;
  for (const BlockKey& key : keys) {
    Place* const place = follows(key) ? find(key) : nullptr;
    if (place == nullptr) continue;
    totals_.gaps.add(now_ - place->last_use);
    place->last_use = now_;
  }
}

void ResidencySample::forget() { std::ranges::fill(places_, Place{}); }

}  // namespace terrace
