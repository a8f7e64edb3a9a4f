#include "storage/shared/memory_shared_store.hpp"

#include "base/check.hpp"
#include "storage/shared/shared_statistics.hpp"

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

MemorySharedStore::MemorySharedStore(std::shared_ptr<SharedMemoryEngine> engine, const Clock& clock, MemorySharedOptions options)
    : engine_{std::move(engine)},
      clock_{clock},
      options_{std::move(options)},
      names_{checked_prefix(options_.prefix)},
      reader_{options_.secret},
      writer_{options_.secret} {
  TERRACE_CHECK(engine_ != nullptr);
}

void MemorySharedStore::use(const Fingerprint& fingerprint) { fingerprint_ = fingerprint; }

void MemorySharedStore::queue(Operation operation) {
  queue_.push_back(std::move(operation));
  if (waker_ != nullptr) waker_->wake();
}

void MemorySharedStore::probe(const SharedProbe& probe) { queue({probe.token, probe.deadline, fingerprint_, KeptProbe{probe}}); }

void MemorySharedStore::read(std::span<const SharedRead> batch) {
  for (const SharedRead& read : batch) queue({read.token, read.deadline, fingerprint_, KeptRead{read.block, read.into}});
}

void MemorySharedStore::write(std::span<const SharedWrite> batch) {
  for (const SharedWrite& write : batch) queue({write.token, write.deadline, fingerprint_, KeptWrite{write.block, write.from}});
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
  const auto found = std::ranges::find(queue_, token, &Operation::token);
  if (found == queue_.end()) return;
  end(*found, Errc::cancelled);
  queue_.erase(found);
}

std::size_t MemorySharedStore::poll(std::vector<SharedEvent>& out) {
  const TimePoint now = clock_.now();
  for (const Operation& operation : queue_) {
    if (operation.deadline <= now) end(operation, Errc::deadline_exceeded);
    else carry_out(operation, now);
  }
  queue_.clear();
  const std::size_t arrived = ended_.size();
  out.insert(out.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return arrived;
}

void MemorySharedStore::carry_out(const Operation& operation, TimePoint now) {
  names_.use(operation.fingerprint);
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) end(operation, {}, leading(*probe, now));
  if (const auto* read = std::get_if<KeptRead>(&operation.what)) end(operation, fetch(*read, operation.fingerprint, now));
  if (const auto* write = std::get_if<KeptWrite>(&operation.what)) end(operation, keep(*write, operation.fingerprint, now));
}

void MemorySharedStore::end(const Operation& operation, ErrorCode error, std::uint32_t leading) {
  SharedEvent event{SharedEvent::Kind::probed, operation.token, error, leading};
  std::uint64_t size = 0;
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) size = probe->keys.size();
  if (const auto* read = std::get_if<KeptRead>(&operation.what)) {
    event.kind = SharedEvent::Kind::read;
    size = read->into.size();
  }
  if (const auto* write = std::get_if<KeptWrite>(&operation.what)) {
    event.kind = SharedEvent::Kind::written;
    size = write->from.size();
  }
  ended_.push_back(event);
  const std::lock_guard lock{stat_mutex_};
  count_ended(stat_, event, size);
}

std::uint32_t MemorySharedStore::leading(const KeptProbe& probe, TimePoint now) {
  return probe.ask([&](std::uint32_t key) { return engine_->has(names_.name(probe.keys[key], probe.groups[key], 0), now); });
}

ErrorCode MemorySharedStore::fetch(const KeptRead& read, const Fingerprint& fingerprint, TimePoint now) {
  reader_.begin(read.block, fingerprint, read.into.size());
  std::vector<std::string> names;
  for (std::uint32_t part = 0; part < reader_.parts().count; ++part) {
    names.push_back(names_.name(read.block.key, read.block.group, part));
  }
  const std::vector<SharedMemoryEngine::Value> values = engine_->get(names, now);
  if (!values[0]) return Errc::not_found;
  SharedValueReader::Mismatch why;
  for (std::uint32_t part = 0; part < values.size() && values[part] && !why; ++part) {
    const std::span<const std::byte> value{*values[part]};
    why = reader_.begin_part(part, value.size(), value.first(std::min(value.size(), shared_header_bytes)));
    if (why) break;
    const auto place = read.into.subspan(reader_.parts().offset(part), reader_.parts().bytes[part]);
    std::memcpy(place.data(), value.data() + shared_header_bytes, place.size());
    reader_.add(place);
    why = reader_.end_part();
  }
  why = reader_.finish();
  if (!why) return {};
  for (const std::string& name : names) engine_->remove(name);
  const std::lock_guard lock{stat_mutex_};
  ++stat_.mismatches[static_cast<std::size_t>(*why)];
  return Errc::corrupt;
}

ErrorCode MemorySharedStore::keep(const KeptWrite& write, const Fingerprint& fingerprint, TimePoint now) {
  writer_.begin(write.block, fingerprint, write.from, write_ids_.next());
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
