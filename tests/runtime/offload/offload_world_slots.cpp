#include "base/check.hpp"
#include "tests/runtime/offload/offload_world.hpp"

#include <algorithm>
#include <cstring>

/// The engine as its own mover: it reads host slots that it has pinned, and fills host slots that it has reserved.

namespace terrace::test {
namespace {

/// A reserved slot has this byte everywhere until the engine fills it. No load may ever bring it.
constexpr std::byte unfilled{0x55};

}  // namespace

void OffloadWorld::pin() {
  const OffloadJobId id{random_.chance(0.5) || live_.empty() ? next_id_ : live_.begin()->first.value()};
  const std::vector<Name> names = random_names();
  std::vector<SlotId> slots(names.size());
  if (random_.chance(0.2)) TERRACE_CHECK(offload_->touch(keys_of(names), {}, order_of(names)).has_value());
  // Slots of the last blocks, or of all.
  const std::size_t first = order_of(names) == KeyOrder::prefix ? random_.below(names.size() + 1) : 0;
  const auto wanted = std::span{slots}.subspan(first);
  std::ranges::fill(slots, no_host_slot);
  const Result<std::uint32_t> pinned = offload_->pin(id, keys_of(names), {}, wanted, order_of(names));
  if (!pinned) return;
  HostCopies& copies = pins_[id];
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (slots[i] != no_host_slot) copies.emplace_back(slots[i], names[i]);
  }
  TERRACE_CHECK(copies.size() <= *pinned);
  seen_.pinned_slots += copies.size();
}

void OffloadWorld::reserve() {
  const std::vector<Name> names = random_names();
  const std::vector<BlockKey> keys = keys_of(names);
  const bool duplicate = !reservations_.empty() && random_.chance(0.1);
  OffloadOrder order;
  order.id = duplicate ? reservations_.begin()->first : OffloadJobId{next_id_++};
  order.keys = keys;
  order.key_order = order_of(names);
  if (order.key_order == KeyOrder::prefix && options_.order == KeyOrder::prefix && random_.chance(0.3))
    order.first = static_cast<std::uint32_t>(random_.below(keys.size()));
  std::vector<SlotId> slots(keys.size() - order.first);
  const Result<std::uint32_t> reserved = offload_->reserve(order, slots);
  if (!reserved) {
    ++seen_.refused;
    if (duplicate) TERRACE_CHECK(reserved.error() == Errc::duplicate_request || reserved.error() == Errc::paused);
    else TERRACE_CHECK(reserved.error() == Errc::no_room || reserved.error() == Errc::paused);
    return;
  }
  TERRACE_CHECK(!duplicate);
  HostCopies copies;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == no_host_slot) continue;
    copies.emplace_back(slots[i], names[order.first + i]);
    offered_.insert(names[order.first + i]);
    std::ranges::fill(arena_->block(slots[i]), unfilled);
  }
  TERRACE_CHECK(copies.size() == *reserved);
  note(*reserved);
  seen_.reserved += copies.size();
  if (!copies.empty()) reservations_.emplace(order.id, std::move(copies));
}

void OffloadWorld::publish(OffloadJobId id, bool filled) {
  check_host_slots();
  const HostCopies& copies = reservations_.at(id);
  for (const auto& [slot, name] : copies) {
    if (filled) std::ranges::copy(content(name), arena_->block(slot).begin());
    if (filled && options_.exact) there_.insert(name);
    seen_.given_back += filled ? 0 : 1;
  }
  TERRACE_CHECK(offload_->publish(id, filled).has_value());
  reservations_.erase(id);
}

void OffloadWorld::check_host_slots() {
  for (const auto& [id, copies] : reservations_) {
    for (const auto& [slot, name] : copies) {
      TERRACE_CHECK(std::ranges::count(arena_->block(slot), unfilled) == block_bytes);
    }
  }
  for (const auto& [id, copies] : pins_) {
    for (const auto& [slot, name] : copies) {
      TERRACE_CHECK(std::memcmp(arena_->block(slot).data(), content(name).data(), block_bytes) == 0);
    }
  }
}

}  // namespace terrace::test
