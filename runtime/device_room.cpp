#include "runtime/device_room.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

bool DeviceRoom::can_promise(std::uint64_t slots) const {
  const std::uint64_t there =
      residency_.pool(Tier::device).count(SlotState::free) + residency_.tree().unpinned(Residency::plane(Tier::device));
  return there >= promised_ + slots;
}

std::optional<SlotId> DeviceRoom::take_free(std::optional<SlotId> after) {
  SlotPool& device = residency_.pool(Tier::device);
  if (!waiters_.empty()) return std::nullopt;  // what is free is theirs
  return after ? device.take_after(*after, SlotState::held) : device.take(SlotState::held);
}

std::optional<SlotId> DeviceRoom::take_by_dropping() {
  const Plane device = Residency::plane(Tier::device);
  // A copy that a lower tier has too costs nothing. Looked for among the next few victims only: those passed over are held for
  // the moment, which takes them out of the policy's sight.
  passed_over_.clear();
  std::optional<BlockRef> victim = residency_.tree().victim(device);
  while (victim && !residency_.usable(*victim, Tier::host) && !residency_.stored(*victim) &&
         passed_over_.size() < passed_over_max) {
    residency_.hold(*victim, Tier::device);
    passed_over_.push_back(*victim);
    victim = residency_.tree().victim(device);
  }
  for (const BlockRef block : passed_over_) residency_.unhold(block, Tier::device);
  if (!victim || passed_over_.size() == passed_over_max) victim = residency_.tree().victim(device);
  if (!victim) return std::nullopt;
  departures_.drop_now(*victim, Tier::device);
  return residency_.pool(Tier::device).take(SlotState::held);
}

void DeviceRoom::wait(std::uint32_t waiter, std::uint32_t slots) {
  TERRACE_CHECK(slots > 0);
  waiters_.push_back({waiter, slots});
  promised_ += slots;
}

void DeviceRoom::leave(std::uint32_t who) {
  const auto waiter = std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.who == who; });
  if (waiter == waiters_.end()) return;
  promised_ -= waiter->slots;
  waiters_.erase(waiter);
}

bool DeviceRoom::pump() {
  SlotPool& device = residency_.pool(Tier::device);
  bool changed = false;
  for (;;) {
    while (!waiters_.empty()) {
      const std::optional<SlotId> slot = device.take(SlotState::held);
      if (!slot) break;
      --promised_;
      changed = true;
      Waiter& first = waiters_.front();
      const std::uint32_t who = first.who;
      const bool last = --first.slots == 0;
      if (last) waiters_.pop_front();
      serve_(who, *slot, last);
    }
    if (device.leaving_total() >= promised_) break;
    const std::optional<BlockRef> victim = residency_.tree().victim(Residency::plane(Tier::device));
    if (!victim) break;  // those that will do are still read; their end calls again
    evict(*victim);
    changed = true;
  }
  return changed;
}

/// Whether the host is to have a copy of what it has none of.
bool DeviceRoom::wants_host(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  const bool is_admitted = !inclusive_ && (!admission_ || admission_->admits(tree.key(block)));
  // Inclusive has copied it down once already; if the host gave that copy up, it goes down again only where others stand on it.
  return is_admitted || tree.any_staying_below(block, Residency::plane(Tier::host));
}

void DeviceRoom::evict(BlockRef block) {
  const bool host_has_it = residency_.copy(block, Tier::host).present();
  if (host_tier_ && !host_has_it && wants_host(block)) {
    if (host_room_.swap_out(block, SwapOutPurpose::evict) != HostRoom::Answer::impossible) return;
  }
  if (write_back_ && !host_has_it && !residency_.copy(block, Tier::storage).present()) {
    departures_.hold_leaving(block, Tier::device);
    persists_.begin(block);
    // Begun, the persist reads the copy until its bytes are on their way; refused, the copy goes now.
    departures_.reader_gone(block, Tier::device);
    return;
  }
  departures_.drop_now(block, Tier::device);
}

}  // namespace terrace
