#include "storage/shared/shared_memory_engine.hpp"

#include <utility>

namespace terrace {

void SharedMemoryEngine::erase(Entries::iterator entry) {
  used_bytes_ -= bytes_of(entry->first, entry->second.value);
  first_to_go_.erase(entry->second.order);
  entries_.erase(entry);
}

void SharedMemoryEngine::drop_expired(TimePoint now) {
  while (!first_to_go_.empty() && first_to_go_.begin()->first.expires <= now) erase(first_to_go_.begin()->second);
}

void SharedMemoryEngine::reorder(Entries::iterator entry, TimePoint expires) {
  first_to_go_.erase(entry->second.order);
  entry->second.order = {expires, ++uses_};
  first_to_go_.emplace(entry->second.order, entry);
}

bool SharedMemoryEngine::set(std::vector<Named> values, TimePoint expires, TimePoint now) {
  const std::lock_guard lock{mutex_};
  drop_expired(now);
  std::uint64_t wanted = 0;
  std::uint64_t replaced = 0;
  for (const Named& each : values) {
    wanted += each.name.size() + each.value.size();
    const auto found = entries_.find(each.name);
    if (found != entries_.end()) replaced += bytes_of(found->first, found->second.value);
  }
  if (wanted > capacity_) return false;
  if (when_full_ == WhenFull::refuse && used_bytes_ - replaced + wanted > capacity_) return false;
  for (const Named& each : values) {
    const auto found = entries_.find(each.name);
    if (found != entries_.end()) erase(found);
  }
  while (used_bytes_ + wanted > capacity_) erase(first_to_go_.begin()->second);
  for (Named& each : values) {
    auto value = std::make_shared<const std::vector<std::byte>>(std::move(each.value));
    const auto entry = entries_.emplace(std::move(each.name), Kept{std::move(value), {expires, ++uses_}}).first;
    first_to_go_.emplace(entry->second.order, entry);
    used_bytes_ += bytes_of(entry->first, entry->second.value);
  }
  return true;
}

std::vector<SharedMemoryEngine::Value> SharedMemoryEngine::get(std::span<const std::string> names, TimePoint now) {
  const std::lock_guard lock{mutex_};
  drop_expired(now);
  std::vector<Value> values;
  for (const std::string& name : names) {
    const auto found = entries_.find(name);
    if (found != entries_.end()) reorder(found, found->second.order.expires);
    values.push_back(found != entries_.end() ? found->second.value : nullptr);
  }
  return values;
}

bool SharedMemoryEngine::has(std::string_view name, TimePoint now) {
  const std::lock_guard lock{mutex_};
  drop_expired(now);
  return entries_.contains(name);
}

void SharedMemoryEngine::renew(std::string_view name, TimePoint expires, TimePoint now) {
  const std::lock_guard lock{mutex_};
  drop_expired(now);
  const auto found = entries_.find(name);
  if (found != entries_.end()) reorder(found, expires);
}

void SharedMemoryEngine::remove(std::string_view name) {
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(name);
  if (found != entries_.end()) erase(found);
}

void SharedMemoryEngine::change(std::string_view name, const std::function<void(std::vector<std::byte>&)>& how) {
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  std::vector<std::byte> changed{*found->second.value};
  how(changed);
  used_bytes_ -= bytes_of(found->first, found->second.value);
  found->second.value = std::make_shared<const std::vector<std::byte>>(std::move(changed));
  used_bytes_ += bytes_of(found->first, found->second.value);
}

std::vector<std::string> SharedMemoryEngine::names() const {
  const std::lock_guard lock{mutex_};
  std::vector<std::string> all;
  for (const auto& [name, kept] : entries_) all.push_back(name);
  return all;
}

Bytes SharedMemoryEngine::used() const {
  const std::lock_guard lock{mutex_};
  return Bytes{used_bytes_};
}

}  // namespace terrace
