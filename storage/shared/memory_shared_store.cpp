#include "storage/shared/memory_shared_store.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

std::string checked_prefix(const std::string& prefix) {
  if (!SharedValueNames::is_prefix(prefix)) {
    throw std::invalid_argument{"\"" + prefix + "\" is no prefix of a shared store: it has 1 to 64 letters, digits or -_.:/"};
  }
  return prefix;
}

}  // namespace

// ---- the engine --------------------------------------------------------------------------------------------------------

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

// ---- the store ---------------------------------------------------------------------------------------------------------

MemorySharedStore::MemorySharedStore(std::shared_ptr<SharedMemoryEngine> engine, const Clock& clock, MemorySharedOptions options)
    : engine_{std::move(engine)},
      clock_{clock},
      options_{std::move(options)},
      names_{checked_prefix(options_.prefix)},
      reader_{options_.secret},
      writer_{options_.secret} {
  TERRACE_CHECK(engine_ != nullptr);
}

void MemorySharedStore::queue(KeptOperation operation) {
  queue_.push_back(std::move(operation));
  if (waker_ != nullptr) waker_->wake();
}

void MemorySharedStore::probe(const SharedProbe& probe) { queue(KeptOperation::of(probe, fingerprint_)); }

void MemorySharedStore::read(std::span<const SharedRead> batch) {
  for (const SharedRead& read : batch) queue(KeptOperation::of(read, fingerprint_));
}

void MemorySharedStore::write(std::span<const SharedWrite> batch) {
  for (const SharedWrite& write : batch) queue(KeptOperation::of(write, fingerprint_));
}

void MemorySharedStore::renew(std::span<const StoredBlock> blocks) {
  const TimePoint now = clock_.now();
  names_.use(fingerprint_);
  for (const StoredBlock& block : blocks) {
    for (std::uint32_t part = 0; part < shared_parts_max; ++part) {
      engine_->renew(names_.name(block.key, block.group, part), expires(block.depth, now), now);
    }
  }
  const std::lock_guard lock{stat_mutex_};
  stat_.renewed += blocks.size();
}

void MemorySharedStore::remove(std::span<const BlockKey> keys, GroupId group) {
  names_.use(fingerprint_);
  for (const BlockKey& key : keys) {
    for (std::uint32_t part = 0; part < shared_parts_max; ++part) engine_->remove(names_.name(key, group, part));
  }
  const std::lock_guard lock{stat_mutex_};
  stat_.removed += keys.size();
}

void MemorySharedStore::cancel(std::uint64_t token) {
  const auto found = std::ranges::find(queue_, token, &KeptOperation::token);
  if (found == queue_.end()) return;
  end(*found, {found->kind, token, Errc::cancelled});
  queue_.erase(found);
}

std::size_t MemorySharedStore::poll(std::vector<SharedEvent>& out) {
  const TimePoint now = clock_.now();
  for (const KeptOperation& operation : queue_) {
    if (operation.deadline <= now) end(operation, {operation.kind, operation.token, Errc::deadline_exceeded});
    else end(operation, carry_out(operation));
  }
  queue_.clear();
  const std::size_t arrived = ended_.size();
  out.insert(out.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return arrived;
}

void MemorySharedStore::end(const KeptOperation& operation, const SharedEvent& event) {
  ended_.push_back(event);
  const std::lock_guard lock{stat_mutex_};
  count_ended(stat_, event, operation.size());
}

SharedEvent MemorySharedStore::carry_out(const KeptOperation& operation) {
  const TimePoint now = clock_.now();
  names_.use(operation.fingerprint);
  SharedEvent event{operation.kind, operation.token};
  const KeptProbe& probe = operation.probe;
  switch (operation.kind) {
    case SharedEvent::Kind::probed:
      event.leading =
          probe.ask([&](std::uint32_t key) { return engine_->has(names_.name(probe.keys[key], probe.groups[key], 0), now); });
      break;
    case SharedEvent::Kind::read: event.error = fetch(operation, now); break;
    case SharedEvent::Kind::written: event.error = keep(operation, now); break;
  }
  return event;
}

ErrorCode MemorySharedStore::fetch(const KeptOperation& read, TimePoint now) {
  reader_.begin(read.block, read.fingerprint, read.into.size());
  std::vector<std::string> names;
  for (std::uint32_t part = 0; part < reader_.parts().count; ++part) {
    names.push_back(names_.name(read.block.key, read.block.group, part));
  }
  const std::vector<SharedMemoryEngine::Value> values = engine_->get(names, now);
  if (!values[0]) return Errc::not_found;
  for (std::uint32_t part = 0; part < values.size() && values[part]; ++part) {
    const std::span<const std::byte> value{*values[part]};
    if (reader_.begin_part(part, value.size(), value.first(std::min(value.size(), shared_header_bytes)))) break;
    const auto place = read.into.subspan(reader_.parts().offset(part), reader_.parts().bytes[part]);
    std::memcpy(place.data(), value.data() + shared_header_bytes, place.size());
    reader_.add(place);
    if (reader_.end_part()) break;
  }
  const SharedValueReader::Mismatch why = reader_.finish();
  if (!why) return {};
  for (const std::string& name : names) engine_->remove(name);
  const std::lock_guard lock{stat_mutex_};
  ++stat_.mismatches[static_cast<std::size_t>(*why)];
  return Errc::corrupt;
}

ErrorCode MemorySharedStore::keep(const KeptOperation& write, TimePoint now) {
  writer_.begin(write.block, write.fingerprint, write.from, write_ids_.next());
  if (writer_.seals()) scratch_.resize(write.from.size());
  std::vector<SharedMemoryEngine::Named> values;
  for (std::uint32_t part = 0; part < writer_.parts().count; ++part) {
    const SharedValueWriter::Part made = writer_.make(part, scratch_);
    std::vector<std::byte> value{made.header.begin(), made.header.end()};
    value.insert(value.end(), made.payload.begin(), made.payload.end());
    values.push_back({names_.name(write.block.key, write.block.group, part), std::move(value)});
  }
  const bool kept = engine_->set(std::move(values), expires(write.block.depth, now), now);
  return kept ? ErrorCode{} : make_error_code(Errc::full);
}

TimePoint MemorySharedStore::expires(std::uint32_t depth, TimePoint now) const {
  return options_.expiry.expires() ? now + options_.expiry.of(depth) : never;
}

SharedHealth MemorySharedStore::health() const {
  SharedHealth health;
  health.nodes.push_back({.address = "memory", .connections = 1});
  return health;
}

SharedStoreStat MemorySharedStore::stat() const {
  const std::lock_guard lock{stat_mutex_};
  return stat_;
}

}  // namespace terrace
