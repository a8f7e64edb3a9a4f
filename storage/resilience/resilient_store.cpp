#include "storage/resilience/resilient_store.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace terrace {

using Admission = CircuitBreaker::Admission;

ResilientStore::ResilientStore(BlockStore& store, const Clock& clock, const ResilienceOptions& options, Waker* waker)
    : store_{store},
      clock_{clock},
      options_{options},
      waker_{waker},
      breakers_{CircuitBreaker{options.breaker}, CircuitBreaker{options.breaker}},
      buckets_(64, none) {
  if (options.back_off_first <= Duration::zero() || options.back_off_max < options.back_off_first) {
    throw std::invalid_argument{"a store's first back-off must be positive, and no longer than the longest"};
  }
  failing_.reserve(failing_max);
}

void ResilientStore::read(std::span<const StoreRead> batch) {
  const TimePoint now = clock_.now();
  for (const StoreRead& read : batch) {
    const bool held_back = inside_back_off(read.key, now);
    const Admission admission = held_back ? Admission::declined : breaker_of(Kind::read).admit(now);
    if (admission == Admission::declined) {
      ++(held_back ? counted_.held_back : counted_.declined);
      events_.push_back({StoreEvent::Kind::read, read.token, read.key, held_back ? Errc::io_failed : Errc::not_found});
      continue;
    }
    const std::uint32_t id = add({.kind = Kind::read,
                                  .admission = admission,
                                  .token = read.token,
                                  .begun = now,
                                  .block = {.key = read.key},
                                  .into = read.into});
    reads_.push_back({id, read.key, read.into});
  }
  submit();
  wake();
}

void ResilientStore::write(std::span<const StoreWrite> batch) {
  const TimePoint now = clock_.now();
  for (const StoreWrite& write : batch) {
    const std::uint32_t parent = write.block.depth > 0 ? waiting_write(write.block.parent) : none;
    const bool cannot_wait = parent != none && waiting_.size() >= options_.waiting_max;
    const bool held_back = cannot_wait || inside_back_off(write.block.key, now);
    const Admission admission = held_back ? Admission::declined : breaker_of(Kind::write).admit(now);
    if (admission == Admission::declined) {
      ++(held_back ? counted_.held_back : counted_.declined);
      events_.push_back({StoreEvent::Kind::written, write.token, write.block.key, Errc::refused});
      continue;
    }
    const std::uint32_t id =
        add({.kind = Kind::write, .admission = admission, .token = write.token, .block = write.block, .from = write.from});
    if (parent != none) begin_wait(id, operations_.at(parent).due);
    else hand_over(id);
  }
  submit();
  wake();
}

void ResilientStore::submit() {
  if (!reads_.empty()) store_.read(reads_);
  if (!writes_.empty()) store_.write(writes_);
  reads_.clear();
  writes_.clear();
}

void ResilientStore::remove(std::span<const BlockKey> keys, std::uint64_t token) {
  if (!keys.empty()) {
    end_waiting(Kind::write, events_);
    // A retry after the removal could store a removed block again.
    operations_.for_each([this](std::uint32_t id, const Operation& each) {
      if (each.kind == Kind::write) operations_.at(id).last_try = true;
    });
  }
  store_.remove(keys, token);
  wake();
}

std::size_t ResilientStore::poll(std::vector<StoreEvent>& out) {
  const std::size_t before = out.size();
  const TimePoint now = clock_.now();
  out.insert(out.end(), events_.begin(), events_.end());
  events_.clear();
  store_events_.clear();
  store_.poll(store_events_);
  for (const StoreEvent& event : store_events_) on_event(event, now, out);
  if (!waiting_.empty()) retry_due(now);
  submit();
  // A record is dropped when its back-off has been over for as long as it lasted. The next failure of the key is then a first
  // one.
  std::erase_if(failing_, [&](const Failing& failing) { return now - failing.until >= failing.wait; });
  return out.size() - before;
}

void ResilientStore::on_event(const StoreEvent& event, TimePoint now, std::vector<StoreEvent>& out) {
  using Event = StoreEvent::Kind;
  if (event.kind != Event::read && event.kind != Event::written) {
    out.push_back(event);
    if (event.kind != Event::flushed && !waiting_.empty()) end_below(event.key, out);
    return;
  }
  // Reads have the index of the operation as their token. Writes keep the owner's token, so they are found by key and token.
  const auto id = event.kind == Event::read ? static_cast<std::uint32_t>(event.token) : find_write(event.key, event.token);
  Operation& operation = operations_.at(id);
  TERRACE_CHECK(operation.due == never);
  report_to_breaker(operation, event, now);
  operation.admission = Admission::passed;
  if (!event.error) {
    if (operation.tries > 0) ++counted_.recovered;
    std::erase_if(failing_, [&](const Failing& failing) { return failing.key == event.key; });
    return end(id, {}, out);
  }
  const ErrorClass failure = class_of(event.error);
  ++counted_.failed[static_cast<std::size_t>(failure)];
  if (event.error == Errc::corrupt) {
    if (!is_recent(damage_, now)) damage_ = {};
    ++damage_.blocks;
    damage_.last = now;
  }
  if (failure == ErrorClass::transient) return on_failure(id, event.error, now, out);
  if (event.error == Errc::parent_missing && event.kind == Event::written && goes_on_with_parent(id)) return;
  end(id, event.error, out);
}

void ResilientStore::report_to_breaker(const Operation& operation, const StoreEvent& event, TimePoint now) {
  using Outcome = CircuitBreaker::Outcome;
  Outcome outcome = Outcome::unclear;
  if (class_of(event.error) == ErrorClass::transient) outcome = Outcome::failed;
  if (!event.error) {
    // A write of a block that is already stored does no I/O, so as a probe it says nothing about the device.
    const bool stored_already =
        operation.admission == Admission::probe && operation.kind == Kind::write && store_.stat().writes == probe_writes_;
    outcome = stored_already ? Outcome::unclear : Outcome::succeeded;
  }
  breaker_of(operation.kind).ended(operation.admission, outcome, now, now - operation.begun);
}

void ResilientStore::on_failure(std::uint32_t id, ErrorCode error, TimePoint now, std::vector<StoreEvent>& out) {
  Operation& operation = operations_.at(id);
  ++operation.tries;
  operation.error = error;
  const TimePoint until = note_failure(operation.block.key, now);
  // If the breaker is open, a retry would be declined: end this operation and all waiting operations of its kind.
  if (const Kind kind = operation.kind; declines(kind)) {
    end(id, error, out);
    return end_waiting(kind, out);
  }
  const std::uint32_t retries = operation.kind == Kind::read ? options_.read_retries : options_.write_retries;
  if (operation.last_try || operation.tries > retries || waiting_.size() >= options_.waiting_max) return end(id, error, out);
  begin_wait(id, until);
}

/// Handles a write that failed with parent_missing. Its parent may be waiting for a retry, or may have been retried (and perhaps
/// stored) while this write was under way. Returns true if the write continues.
bool ResilientStore::goes_on_with_parent(std::uint32_t id) {
  Operation& operation = operations_.at(id);
  if (operation.last_try || declines(Kind::write)) return false;
  const std::uint32_t parent = waiting_write(operation.block.parent);
  if (parent != none && waiting_.size() < options_.waiting_max) {
    operation.error = Errc::parent_missing;
    begin_wait(id, operations_.at(parent).due);
    return true;
  }
  if (parent != none || operation.retries_seen == write_retries_) return false;
  hand_over(id);
  return true;
}

void ResilientStore::end(std::uint32_t id, ErrorCode error, std::vector<StoreEvent>& out) {
  const Operation operation = operations_.take(id);
  if (operation.kind == Kind::write) {
    std::uint32_t* link = &bucket_of(operation.block.key);
    while (*link != id) link = &operations_.at(*link).next;
    *link = operation.next;
  }
  const auto kind = operation.kind == Kind::write ? StoreEvent::Kind::written : StoreEvent::Kind::read;
  out.push_back({kind, operation.token, operation.block.key, error});
}

void ResilientStore::begin_wait(std::uint32_t id, TimePoint due) {
  operations_.at(id).due = due;
  waiting_.push_back(id);
}

void ResilientStore::end_waiting(Kind ended, std::vector<StoreEvent>& out) {
  std::erase_if(waiting_, [&](std::uint32_t id) {
    if (operations_.at(id).kind != ended) return false;
    end(id, operations_.at(id).error, out);
    return true;
  });
}

void ResilientStore::end_below(const BlockKey& key, std::vector<StoreEvent>& out) {
  std::vector<BlockKey> gone{key};
  // Parents come before their children in the list, so one pass is enough.
  std::erase_if(waiting_, [&](std::uint32_t id) {
    const Operation& operation = operations_.at(id);
    if (operation.kind != Kind::write || operation.block.depth == 0) return false;
    if (std::ranges::find(gone, operation.block.parent) == gone.end()) return false;
    gone.push_back(operation.block.key);
    end(id, Errc::parent_missing, out);
    return true;
  });
}

void ResilientStore::retry_due(TimePoint now) {
  due_.clear();
  std::erase_if(waiting_, [&](std::uint32_t id) {
    Operation& operation = operations_.at(id);
    if (operation.due > now) return false;
    due_.push_back(id);
    return true;
  });
  for (const std::uint32_t id : due_) {
    // A write that has failed before is the write for which others wait. They are submitted after it, for the first time or
    // again.
    if (operations_.at(id).kind == Kind::write && operations_.at(id).tries > 0) ++write_retries_;
    if (operations_.at(id).tries > 0) ++counted_.retried;
    hand_over(id);
  }
}

void ResilientStore::hand_over(std::uint32_t id) {
  Operation& operation = operations_.at(id);
  operation.due = never;
  operation.begun = clock_.now();
  if (operation.kind == Kind::read) {
    reads_.push_back({id, operation.block.key, operation.into});
    return;
  }
  if (operation.admission == Admission::probe) probe_writes_ = store_.stat().writes;
  operation.retries_seen = write_retries_;
  writes_.push_back({operation.token, operation.block, operation.from});
}

TimePoint ResilientStore::note_failure(const BlockKey& key, TimePoint now) {
  const auto known = std::ranges::find(failing_, key, &Failing::key);
  if (known != failing_.end()) {
    if (known->until > now) return known->until;  // the tries were made at the same time, so this is one failure
    known->wait = known->wait > options_.back_off_max / 2 ? options_.back_off_max : 2 * known->wait;
    known->until = now + known->wait;
    return known->until;
  }
  if (failing_.size() == failing_max) failing_.erase(std::ranges::min_element(failing_, {}, &Failing::until));
  failing_.push_back({key, now + options_.back_off_first, options_.back_off_first});
  return failing_.back().until;
}

bool ResilientStore::inside_back_off(const BlockKey& key, TimePoint now) const {
  return std::ranges::any_of(failing_, [&](const Failing& failing) { return failing.key == key && failing.until > now; });
}

TimePoint ResilientStore::next_deadline() const {
  TimePoint next = store_.next_deadline();
  for (const std::uint32_t id : waiting_) next = std::min(next, operations_.at(id).due);
  return next;
}

StoreHealth ResilientStore::health() const {
  StoreHealth health = counted_;
  const auto badness = [](const CircuitBreaker& breaker) {
    return std::tuple{breaker.state() != CircuitBreaker::State::closed, breaker.failed_probes(), breaker.failures_in_row()};
  };
  const bool writes_do_worse = badness(write_breaker()) > badness(read_breaker());
  const CircuitBreaker& worse = writes_do_worse ? write_breaker() : read_breaker();
  health.breaker = worse.state();
  health.reason = worse.describe(clock_.now());
  if (health.breaker != CircuitBreaker::State::closed) {
    health.state = worse.failed_probes() >= 2 ? StoreState::down : StoreState::degraded;
    health.used_in_full = false;
    const bool both = declines(Kind::read) && declines(Kind::write);
    health.reason = (both ? "reads and writes: " : writes_do_worse ? "writes: " : "reads: ") + health.reason;
  }
  const TimePoint now = clock_.now();
  health.damaged = is_recent(damage_, now) ? damage_.blocks : 0;
  if (health.used_in_full && health.damaged > 0) {
    health.state = StoreState::degraded;
    health.reason =
        fmt::format("{} stored blocks did not verify and were given up, the last one {} minutes ago; the others are used",
                    damage_.blocks, std::chrono::duration_cast<std::chrono::minutes>(now - damage_.last).count());
  }
  health.next_probe = std::min(read_breaker().next_probe(), write_breaker().next_probe());
  health.opened = read_breaker().opened() + write_breaker().opened();
  health.waiting = static_cast<std::uint32_t>(waiting_.size());
  return health;
}

std::uint32_t ResilientStore::add(const Operation& operation) {
  const std::uint32_t id = operations_.add(operation);
  if (operation.kind == Kind::write) operations_.at(id).next = std::exchange(bucket_of(operation.block.key), id);
  if (operations_.size() > buckets_.size()) grow_buckets();
  return id;
}

void ResilientStore::grow_buckets() {
  buckets_.assign(2 * buckets_.size(), none);
  operations_.for_each([this](std::uint32_t id, const Operation& each) {
    if (each.kind == Kind::write) operations_.at(id).next = std::exchange(bucket_of(each.block.key), id);
  });
}

std::uint32_t ResilientStore::find_write(const BlockKey& key, std::uint64_t token) {
  for (std::uint32_t id = bucket_of(key); id != none; id = operations_.at(id).next) {
    const Operation& operation = operations_.at(id);
    if (operation.token == token && operation.block.key == key && operation.due == never) return id;
  }
  return none;
}

std::uint32_t ResilientStore::waiting_write(const BlockKey& key) const {
  for (const std::uint32_t id : waiting_) {
    if (operations_.at(id).kind == Kind::write && operations_.at(id).block.key == key) return id;
  }
  return none;
}

void ResilientStore::wake() {
  if (waker_ != nullptr && !events_.empty()) waker_->wake();
}

void ResilientStore::check_invariants() const {
  store_.check_invariants();
  for (const CircuitBreaker& breaker : breakers_) breaker.check_invariants();
  std::size_t waiting = 0;
  operations_.for_each([&](std::uint32_t, const Operation& each) { waiting += each.due != never; });
  TERRACE_CHECK(waiting == waiting_.size() && waiting <= options_.waiting_max);
  for (const std::uint32_t id : waiting_) TERRACE_CHECK(!declines(operations_.at(id).kind));
  TERRACE_CHECK(failing_.size() <= failing_max);
  TERRACE_CHECK(reads_.empty() && writes_.empty());
}

std::string DamageNotice::tell(std::uint64_t corrupt, TimePoint now) {
  if (now != never) next_ = now + std::chrono::minutes{1};
  return fmt::format("{} stored blocks did not verify and were given up; {} since the start",
                     corrupt - std::exchange(logged_, corrupt), corrupt);
}

const char* to_string(StoreState state) noexcept {
  switch (state) {
    case StoreState::well: return "well";
    case StoreState::degraded: return "degraded";
    case StoreState::down: return "down";
  }
  return "?";
}

}  // namespace terrace
