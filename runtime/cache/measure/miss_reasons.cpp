#include "runtime/cache/measure/miss_reasons.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <string_view>
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
  // A block behind a damaged one may still arrive in memory, by a read that began before.
  const bool is_new = block->copies == 0 || tier == Tier::storage;
  block->copies |= bit_of(tier);
  if (is_new && block->reason == MissReason::damaged) block->reason = MissReason::evicted_device;
}

void MissReasons::went(const BlockKey& key, Tier tier) {
  Block* const block = block_of(key);  // nullptr if it was cached before begin()
  if (block == nullptr || (block->copies == 0 && block->reason == MissReason::cleared)) return;
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
