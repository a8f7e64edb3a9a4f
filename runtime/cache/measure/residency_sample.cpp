#include "runtime/cache/measure/residency_sample.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <utility>

namespace terrace {
namespace {

std::uint8_t bit_of(Tier tier) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(tier)); }

MissReason evicted_from(Tier tier) {
  switch (tier) {
    case Tier::device: return MissReason::evicted_device;
    case Tier::host: return MissReason::evicted_host;
    case Tier::storage: return MissReason::evicted_storage;
  }
  return MissReason::evicted_device;
}

}  // namespace

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

std::string_view to_string(MissReason reason) {
  constexpr std::array<std::string_view, miss_reason_count> names{
      "unknown", "evicted from device", "evicted from host", "evicted from storage", "damaged",
      "cleared", "turned down",         "not used"};
  const auto place = static_cast<std::size_t>(reason);
  return place < names.size() ? names[place] : "?";
}

void MissReasons::begin(std::uint32_t one_in) {
  TERRACE_CHECK(std::has_single_bit(one_in));
  one_in_ = one_in;
}

/// Returns the record of the block; nullptr if the block is not followed.
MissReasons::Block* MissReasons::block_of(const BlockKey& key) {
  if (!follows(key)) return nullptr;
  if (blocks_.size() >= blocks_max && !blocks_.contains(key.prefix64())) make_room();
  return follows(key) ? &blocks_[key.prefix64()] : nullptr;  // the share may have become smaller
}

void MissReasons::came(const BlockKey& key, Tier tier) {
  Block* const block = block_of(key);
  if (block == nullptr) return;
  block->copies |= bit_of(tier);
  if (block->reason == MissReason::damaged) block->reason = MissReason::evicted_device;
}

void MissReasons::went(const BlockKey& key, Tier tier) {
  Block* const block = block_of(key);  // nullptr if it was cached before begin()
  if (block == nullptr) return;
  block->copies &= static_cast<std::uint8_t>(~bit_of(tier));
  if (block->copies != 0) return;
  if (block->reason != MissReason::damaged) block->reason = evicted_from(tier);
  block->gone = now_;
  if (gone_.size() >= 2 * blocks_max) forget_longest_gone();
  gone_.push_back({key.prefix64(), now_});
}

void MissReasons::damaged(const BlockKey& key) {
  const auto found = follows(key) ? blocks_.find(key.prefix64()) : blocks_.end();
  if (found != blocks_.end()) found->second.reason = MissReason::damaged;
}

void MissReasons::cleared() {
  for (auto& [name, block] : blocks_) {
    if (std::exchange(block.copies, std::uint8_t{0}) == 0) continue;
    block.reason = MissReason::cleared;
    block.gone = now_;
    gone_.push_back({name, now_});
  }
}

void MissReasons::missed(const BlockKey& key, std::uint32_t units) {
  if (!follows(key)) return;
  const std::uint64_t all = std::uint64_t{units} * one_in_;
  const auto found = blocks_.find(key.prefix64());
  if (found == blocks_.end()) {
    totals_[MissReason::unknown] += all;
    return;
  }
  const Block& block = found->second;
  if (block.copies != 0) {
    totals_[MissReason::not_used] += all;
    return;
  }
  totals_[block.reason] += all;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now_ - block.gone).count();
  totals_.gone_seconds.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, seconds)));
}

/// Forgets the block that was dropped longest ago. If few blocks were dropped, halves the share instead.
void MissReasons::make_room() {
  while (blocks_.size() >= blocks_max) {
    if (gone_.size() >= blocks_max / 4) {
      forget_longest_gone();
    } else {
      one_in_ *= 2;
      erase_if(blocks_, [this](const auto& each) { return (each.first & (one_in_ - 1)) != 0; });
    }
  }
}

void MissReasons::forget_longest_gone() {
  bool forgot = false;
  while (!gone_.empty() && !forgot) {
    const auto found = blocks_.find(gone_.front().name);
    forgot = found != blocks_.end() && found->second.copies == 0 && found->second.gone == gone_.front().when;
    if (forgot) blocks_.erase(found);
    gone_.pop_front();
  }
}

}  // namespace terrace
