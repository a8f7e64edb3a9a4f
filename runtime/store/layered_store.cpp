#include "runtime/store/layered_store.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

/// Upper bound of the remembered renewals. Other blocks are renewed again at their next use, which does no harm.
constexpr std::size_t renewed_max = 65536;

}  // namespace

// ---- orders --------------------------------------------------------------------------------------------------------------

void LayeredStore::probe(std::uint64_t token, std::span<const BlockKey> keys, TimePoint deadline) {
  const auto gap = std::ranges::find_if_not(keys, [this](const BlockKey& key) { return contains(key); });
  const auto local = static_cast<std::uint32_t>(gap - keys.begin());
  if (local == keys.size() || !shared_usable()) {
    end_probe(token, keys, local);
    return;
  }
  const Asked& asked = asked_.emplace(++last_token_, Asked{token, {keys.begin(), keys.end()}, local}).first->second;
  shared_.probe({last_token_, std::span{asked.keys}.subspan(local), {}, deadline});
}

void LayeredStore::read(std::span<const StoreRead> batch) {
  if (!shared_usable()) return local_.read(batch);
  local_reads_.clear();
  shared_reads_.clear();
  for (const StoreRead& wanted : batch) {
    reads_.insert_or_assign(wanted.token, Read{wanted, {}, last_token_});
    if (local_.contains(wanted.key)) local_reads_.push_back(wanted);
    else read_shared(wanted.token);
  }
  if (!local_reads_.empty()) local_.read(local_reads_);
  if (!shared_reads_.empty()) shared_.read(shared_reads_);
}

/// Adds the read to shared_reads_.
void LayeredStore::read_shared(std::uint64_t token) {
  ++layered_.gets;
  const StoreRead& wanted = reads_.at(token).wanted;
  SharedRead& order = shared_reads_.emplace_back();
  order.token = ++last_token_;
  read_tokens_.emplace(order.token, token);
  order.block.key = wanted.key;
  order.into = wanted.into;
  order.deadline = clock_.now() + limits_.read;
}

void LayeredStore::write(std::span<const StoreWrite> batch) {
  if (limits_.writes) layered_.puts += batch.size();
  if (limits_.writes && !shared_usable()) layered_.puts_declined += batch.size();
  if (limits_.writes && !batch.empty() && shared_usable()) {
    const TimePoint deadline = clock_.now() + limits_.write;
    Writes& call = calls_[++last_token_];
    call.deadline = deadline;
    keys_.clear();
    for (const StoreWrite& wanted : batch) {
      TERRACE_CHECK(writes_.emplace(wanted.token, Write{wanted}).second);
      call.tokens.push_back(wanted.token);
      keys_.push_back(wanted.block.key);
    }
    shared_.probe({last_token_, keys_, {}, deadline});
  }
  local_.write(batch);
}

void LayeredStore::remove(std::span<const BlockKey> keys, std::uint64_t token) {
  if (limits_.writes && !left_) {
    shared_.remove(keys, {});
    KeyTable<bool> removed;
    if (!writes_.empty()) {
      for (const BlockKey& key : keys) removed.emplace(key, true);
    }
    for (auto& [number, write] : writes_) {
      if (removed.contains(write.wanted.block.key)) write.is_removed = true;
    }
  }
  local_.remove(keys, token);
}

void LayeredStore::touch(std::span<const BlockKey> keys) {
  local_.touch(keys);
  renew(keys);
}

void LayeredStore::leave_shared() {
  left_ = true;
  renewed_.clear();
  left_at_ = ++last_token_;
}

void LayeredStore::renew(std::span<const BlockKey> keys) {
  if (left_) return;
  const TimePoint now = clock_.now();
  blocks_.clear();
  for (const BlockKey& key : keys) {
    const auto [entry, is_new] = renewed_.try_emplace(key, now);
    if (!is_new && now - entry->second < limits_.renew) continue;
    entry->second = now;
    blocks_.push_back({.key = key});
  }
  if (!blocks_.empty()) shared_.renew(blocks_);
  if (renewed_.size() > renewed_max) renewed_.clear();
}

// ---- ends ----------------------------------------------------------------------------------------------------------------

std::size_t LayeredStore::poll(std::vector<StoreEvent>& out) {
  const std::size_t before = out.size();
  local_events_.clear();
  local_.poll(local_events_);
  shared_reads_.clear();
  for (StoreEvent& event : local_events_) on_local(event, out);
  if (!shared_reads_.empty()) shared_.read(shared_reads_);
  shared_events_.clear();
  shared_.poll(shared_events_);
  for (const SharedEvent& event : shared_events_) on_shared(event, out);
  return out.size() - before;
}

void LayeredStore::on_local(StoreEvent& event, std::vector<StoreEvent>& out) {
  if (event.kind == StoreEvent::Kind::read) {
    const auto read = reads_.find(event.token);
    if (read != reads_.end()) {
      if (event.error && !is_overtaken(read->second.begun) && shared_usable()) {
        read->second.local = event.error;
        return read_shared(event.token);
      }
      reads_.erase(read);
    }
    if (event.error) {
      ++layered_.gets;
      ++layered_.gets_declined;
    }
  } else if (event.kind != StoreEvent::Kind::flushed) {
    const auto write = event.kind == StoreEvent::Kind::written ? writes_.find(event.token) : writes_.end();
    const bool waits = write != writes_.end() && write->second.in_shared;
    if (const auto held = held_.find(event.key); waits || held != held_.end()) {
      held_[event.key].push_back(event);
      return;
    }
    if (write != writes_.end()) writes_.erase(write);
  }
  out.push_back(event);
}

void LayeredStore::on_shared(const SharedEvent& event, std::vector<StoreEvent>& out) {
  switch (event.kind) {
    case SharedEvent::Kind::read: return on_read(event, take(read_tokens_, event.token), out);
    case SharedEvent::Kind::probed: return asked_.contains(event.token) ? on_probed(event) : on_present(event, out);
    case SharedEvent::Kind::written: {
      ++(event.error ? layered_.unwritten : layered_.writes);
      const std::uint64_t token = take(write_tokens_, event.token);
      const Write& write = writes_.at(token);
      // Once more, because the write may have ended after the first removal.
      if (write.is_removed && !left_) shared_.remove({&write.wanted.block.key, 1}, {});
      return end_shared_write(token, out);
    }
  }
}

void LayeredStore::on_read(const SharedEvent& event, std::uint64_t token, std::vector<StoreEvent>& out) {
  const Read ended = take(reads_, token);
  StoreEvent told;
  told.token = token;
  told.key = ended.wanted.key;
  if (event.error || is_overtaken(ended.begun)) {
    ++layered_.misses;
    // A failure of the shared store is reported as a miss, because the block can be computed.
    told.error = ended.local ? ended.local : make_error_code(event.error == Errc::corrupt ? Errc::corrupt : Errc::not_found);
  } else {
    ++layered_.reads;
    renew({&ended.wanted.key, 1});
  }
  out.push_back(told);
}

/// The shared store has answered which of the leading blocks of a call of write() it has. The other blocks are written.
void LayeredStore::on_present(const SharedEvent& event, std::vector<StoreEvent>& out) {
  const Writes writes = take(calls_, event.token);
  shared_writes_.clear();
  keys_.clear();
  for (std::size_t i = 0; i < writes.tokens.size(); ++i) {
    const std::uint64_t token = writes.tokens[i];
    const StoreWrite& wanted = writes_.at(token).wanted;
    if (is_overtaken(event.token) || writes_.at(token).is_removed) {
      ++layered_.cancelled;
    } else if (event.error) {
      ++layered_.unwritten;
    } else if (i < event.leading) {
      ++layered_.present;
      keys_.push_back(wanted.block.key);
    } else {
      SharedWrite& order = shared_writes_.emplace_back();
      order.token = ++last_token_;
      write_tokens_.emplace(order.token, token);
      order.block.key = wanted.block.key;  // parents and depths are only hints of this user
      order.from = wanted.from;
      order.deadline = writes.deadline;
      continue;
    }
    end_shared_write(token, out);
  }
  renew(keys_);
  if (!shared_writes_.empty()) shared_.write(shared_writes_);
}

/// Reports the held events of the block that need not wait any more, in order.
void LayeredStore::end_shared_write(std::uint64_t token, std::vector<StoreEvent>& out) {
  Write& ended = writes_.at(token);
  ended.in_shared = false;
  const auto held = held_.find(ended.wanted.block.key);
  if (held == held_.end()) return;
  std::vector<StoreEvent>& events = held->second;
  std::size_t told = 0;
  for (; told < events.size(); ++told) {
    const StoreEvent& event = events[told];
    if (event.kind == StoreEvent::Kind::written) {
      const auto write = writes_.find(event.token);
      if (write != writes_.end() && write->second.in_shared) break;
      if (write != writes_.end()) writes_.erase(write);
    }
    out.push_back(event);
  }
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(told));
  if (events.empty()) held_.erase(held);
}

void LayeredStore::on_probed(const SharedEvent& event) {
  const Asked asked = take(asked_, event.token);
  end_probe(asked.token, asked.keys, is_overtaken(event.token) ? 0 : asked.local + event.leading);
}

/// Ends a probe of a caller. The local store may have the blocks that follow those of the shared store.
void LayeredStore::end_probe(std::uint64_t token, std::span<const BlockKey> keys, std::uint32_t leading) {
  while (leading < keys.size() && contains(keys[leading])) ++leading;
  probed_.push_back({token, leading});
}

std::size_t LayeredStore::in_flight() const {
  std::size_t held = 0;
  for (const auto& [key, events] : held_) held += events.size();
  return local_.in_flight() + shared_.in_flight() + held;
}

void LayeredStore::set_waker(Waker* waker) {
  local_.set_waker(waker);
  shared_.set_waker(waker);
}

void LayeredStore::check_invariants() const {
  local_.check_invariants();
  for (const auto& [token, read] : read_tokens_) TERRACE_CHECK(reads_.contains(read));
  for (const auto& [token, write] : write_tokens_) TERRACE_CHECK(writes_.contains(write) && writes_.at(write).in_shared);
  for (const auto& [key, events] : held_) {
    TERRACE_CHECK(!events.empty() && events.front().kind == StoreEvent::Kind::written);
    TERRACE_CHECK(writes_.contains(events.front().token) && writes_.at(events.front().token).in_shared);
  }
}

}  // namespace terrace
