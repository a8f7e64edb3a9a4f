// The part of Residency for the sizes of both tiers, and for the roles of the slots of the host arena.

#include "base/check.hpp"
#include "runtime/cache/index/residency.hpp"

#include <algorithm>

namespace terrace {

void Residency::resize_device(std::uint32_t blocks) {
  device_.resize(blocks);
  list_retiring(Tier::device);
}

void Residency::list_retiring(Tier tier) {
  retiring_[index(tier)].clear();
  if (slots_of(tier).closed_ready() == 0) return;
  tree_.for_each([&](BlockRef block) {
    const Copy now = copy(block, tier);
    if (now.usable()) note_retiring(block, tier, now.slot());
  });
}

void Residency::note_retiring(BlockRef block, Tier tier, SlotId slot) {
  if (!slots_of(tier).closed(slot)) return;
  // `block.node` may be a descendant of the node that holds the block. The entry is kept for later, so it must name the node
  // itself.
  retiring_[index(tier)].push_back({tree_.at({block.node, block.depth + 1}, block.depth), slot});
}

std::uint64_t Residency::retiring_unpinned(Tier tier) const {
  const auto unpinned = [&](const Retiring& entry) {
    return slots_of(tier).state(entry.slot) == SlotState::ready && !tree_.pinned(entry.block);
  };
  return static_cast<std::uint64_t>(std::ranges::count_if(retiring(tier), unpinned));
}

void Residency::erase_retired(Tier tier, std::size_t entry) {
  auto& entries = retiring_[index(tier)];
  entries[entry] = entries.back();
  entries.pop_back();
}

void Residency::resize_host(std::uint32_t blocks) {
  host_blocks_wanted_ = blocks;
  follow_host_slots();
}

/// Sets host_blocks_ to the wanted size, limited by the slots that have memory, and takes the slots for it into use.
void Residency::follow_host_slots() {
  const std::uint64_t open = arena_.capacity() - arena_.closed_total();
  TERRACE_CHECK(open >= staging_blocks_);
  host_blocks_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(host_blocks_wanted_, open - staging_blocks_));
  while (arena_.in_use() < std::uint64_t{host_blocks_} + staging_blocks_) TERRACE_CHECK(arena_.unretire());
}

void Residency::open_host(SlotSpan slots) {
  arena_.extend(slots.end());
  arena_.open(slots);
  std::erase_if(retiring_[index(Tier::host)], [this](const Retiring& entry) { return !arena_.closed(entry.slot); });
  follow_host_slots();
}

void Residency::close_host(SlotSpan slots) {
  arena_.close(slots);
  follow_host_slots();
  list_retiring(Tier::host);
}

bool Residency::retire_host_slots() {
  const std::uint64_t needed = host_slots_needed();
  bool any = arena_.in_use() > needed;
  while (arena_.in_use() > needed) arena_.retire_free();
  // A closed slot may have been taken when an open one retired in its place. Now the closed one retires.
  while (arena_.retire_closed_instead()) any = true;
  return any;
}

std::optional<SlotId> Residency::take_host(PrefixOrder order) {
  if (host_free() == 0) return std::nullopt;
  for (;;) {
    const auto slot = order == PrefixOrder::from_end ? arena_.take_last(SlotState::held) : arena_.take(SlotState::held);
    if (slot || !arena_.retire_closed_instead()) return slot;
  }
}

void Residency::take_host(std::uint32_t count, std::vector<SlotId>& out) {
  const auto before = static_cast<std::ptrdiff_t>(out.size());
  auto left = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, host_free()));
  left -= arena_.take_last_many(left, SlotState::held, out);
  if (left == 0) return;
  while (left > 0 && arena_.retire_closed_instead()) left -= arena_.take_last_many(left, SlotState::held, out);
  std::sort(out.begin() + before, out.end());
}

std::optional<SlotId> Residency::take_staging() {
  if (staging_free() == 0) return std::nullopt;
  // While the host tier holds more blocks than its new size, all free slots may be closed ones. Staging uses such a slot only for
  // a short time.
  if (const auto slot = arena_.take(SlotState::held)) return slot;
  return arena_.take_closed(SlotState::held);
}

std::optional<SlotId> Residency::lend_host(BlockRef block) {
  const SlotId slot = copy(block, Tier::host).slot();
  if (!lent(slot)) {
    if (staging_free() == 0) return std::nullopt;
    if (slot.value() >= lent_.size()) {
      lent_.resize(std::size_t{slot.value()} + 1);
      borrowers_.resize(lent_.size());
    }
    lent_[slot.value()] = true;
    ++lent_count_;
  }
  ++borrowers_[slot.value()];
  return slot;
}

bool Residency::unlend(SlotId slot) {
  if (!lent(slot)) return false;
  lent_[slot.value()] = false;
  --lent_count_;
  return true;
}

void Residency::end_staging(SlotId slot) {
  const bool borrowed = slot.value() < borrowers_.size() && borrowers_[slot.value()] > 0;
  if (borrowed && --borrowers_[slot.value()] > 0) return;
  if (!unlend(slot)) arena_.put(slot);
}

}  // namespace terrace
