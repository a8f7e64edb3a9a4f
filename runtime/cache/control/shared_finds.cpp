#include "runtime/cache/control/shared_finds.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

SharedFinds::SharedFinds(ManagerState& state, SharedLookUps& look_ups) : state_{state}, look_ups_{look_ups} {}

std::uint64_t SharedFinds::name_of(std::span<const BlockKey> keys) {
  std::uint64_t name = keys.size();
  for (const BlockKey& key : keys) {
    name = (name ^ key.prefix64()) * 0x9E37'79B9'7F4A'7C15ULL;
    name ^= name >> 32U;
  }
  return name;
}

OffloadFound SharedFinds::find(std::span<const BlockKey> keys, std::uint32_t local) {
  forget_before_clear();
  const std::uint64_t name = name_of(keys);
  if (const auto known = by_name_.find(name); known != by_name_.end()) {
    Find& it = finds_.at(known->second);
    if (!it.answered) return {local, true};
    const bool believed = !it.told || state_.now < it.until;
    it.told = true;
    // If local < from, a tier has lost blocks since the question. Then the answer does not continue the local hit.
    if (believed && local >= it.from) return {std::max(local, it.end), false};
    forget(known->second);
  }
  if (look_ups_.is_missing(keys[local], state_.now)) {
    ++state_.shared.look_ups_skipped;
    return {local, false};
  }
  if (!has_room()) return {local, false};
  const Index index = finds_.add({.name = name, .from = local});
  by_name_.emplace(name, index);
  look_ups_.look(asker(index), keys.subspan(local), local, never, state_.now);
  return {local, true};
}

void SharedFinds::on_answer(std::uint64_t number, std::uint32_t end) {
  Find& it = finds_.at(number);
  TERRACE_CHECK(!it.answered);
  it.answered = true;
  it.end = end;
  it.until = state_.now + state_.config.shared.miss_lifetime;
}

/// Makes room for a question by removing old answers. Returns false if there is no room.
bool SharedFinds::has_room() {
  if (finds_.size() >= finds_max) {
    std::vector<Index> old;
    for (const auto& [name, index] : by_name_) {
      const Find& it = finds_.at(index);
      if (it.answered && state_.now >= it.until) old.push_back(index);
    }
    for (const Index index : old) forget(index);
  }
  return finds_.size() < finds_max && look_ups_.has_room();
}

void SharedFinds::forget(Index index) {
  by_name_.erase(finds_.at(index).name);
  (void)finds_.take(index);
}

/// Removes the answers from before the last clear: they are not valid for the present weights.
void SharedFinds::forget_before_clear() {
  if (epoch_ == state_.epoch) return;
  epoch_ = state_.epoch;
  for (const auto& [name, index] : by_name_) {
    look_ups_.leave(asker(index));
    (void)finds_.take(index);
  }
  by_name_.clear();
}

}  // namespace terrace
