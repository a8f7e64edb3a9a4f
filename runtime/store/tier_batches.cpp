#include "runtime/store/tier_batches.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace terrace {
namespace {

/// Time between a failed flush of an erasure and the next try.
constexpr Duration erase_retry = std::chrono::seconds{1};

constexpr auto& batch_is_alive = failure<Errc::duplicate_request, "a batch of this id has not ended: poll its result first">;
constexpr auto& too_many_keys = failure<Errc::never_fits, "the batch has more keys than may be under way at all: divide it">;

}  // namespace

TierBatches::TierBatches(BlockStore& store, const ResilientStore* guard, IoEngine* engine, const Clock& clock, Waker& waker,
                         const TierLimits& limits, LayeredStore* layered)
    : store_{store},
      guard_{guard},
      layered_{layered},
      clock_{clock},
      waker_{waker},
      limits_{limits},
      regions_{engine},
      probe_buffer_{guard == nullptr ? AlignedBuffer{} : AlignedBuffer{static_cast<std::size_t>(count(store.block_bytes()))}} {
  reads_.reserve(limits.gets_under_way_max);
  writes_.reserve(limits.puts_under_way_max);
  store_.for_each([this](const StoredBlock& block) {
    ++stored_;
    if (block.depth > 0) depths_.emplace(block.key, block.depth);
    if (recent_at_ < recent_.size()) remember(block.key);
  });
  // A process that was killed may have left blocks that were not flushed.
  if (stored_ > 0) on_change(clock_.now());
}

// ---- what is there -------------------------------------------------------------------------------------------------------

bool TierBatches::contains(const BlockKey& key) const {
  if (!store_.contains(key)) return false;
  if (!reads_declined()) return true;
  // If there is no stored block to probe the disk with, the caller's next get is the probe.
  return !probing_ && stored_key() == nullptr && guard_->read_breaker().next_probe() <= clock_.now();
}

std::optional<std::uint32_t> TierBatches::depth_of(const BlockKey& key) const {
  // A put under way is checked first: the index may have the block before its event arrives.
  if (const auto storing = storing_.find(key); storing != storing_.end() && !storing->second.was_stored) {
    return storing->second.depth;
  }
  if (!store_.contains(key)) return std::nullopt;
  const auto at = depths_.find(key);
  return at == depths_.end() ? 0 : at->second;
}

// ---- submitting ----------------------------------------------------------------------------------------------------------

std::uint32_t TierBatches::new_batch() {
  if (free_batches_.empty()) {
    const auto number = static_cast<std::uint32_t>(batches_.size());
    free_batches_.reserve(batches_.size() + 1);  // so that freeing a batch allocates nothing
    batches_.emplace_back();
    free_batches_.push_back(number);
  }
  // The same for the end of a batch: there is at most one result for each batch.
  results_.reserve(results_.size() + ids_.size() + 1);
  ids_.reserve(ids_.size() + 1);
  return free_batches_.back();
}

Result<void> TierBatches::submit_put(const TierPut& put) {
  if (!put.parents.empty() && put.parents.size() != put.keys.size()) {
    return failure<Errc::invalid_argument, "there must be one of `parents` for each key, or none">;
  }
  return submit(BatchKind::put, put);
}

Result<void> TierBatches::submit_get(const TierGet& get) {
  return submit(BatchKind::get, {get.id, get.keys, get.region, get.rows, {}, get.deadline});
}

Result<void> TierBatches::submit(BatchKind kind, const TierPut& put) {
  const std::size_t size = put.keys.size();
  if (stopped_) return Errc::stopped;
  if (put.rows.size() != size) return failure<Errc::invalid_argument, "there must be one of `rows` for each key">;
  if (ids_.contains(put.id.value())) return batch_is_alive;
  if (size > limits_.blocks_max) return too_many_keys;
  if (size > limits_.blocks_max - blocks_) {
    ++counted_.refused;
    return failure<Errc::refused, "too many blocks are under way: try again when batches have ended">;
  }
  try {
    Batch batch;
    batch.id = batch.result.id = put.id;
    batch.kind = batch.result.kind = kind;
    batch.region = put.region;
    batch.begun = clock_.now();
    batch.deadline = put.deadline;
    batch.unended = static_cast<std::uint32_t>(size);
    batch.result.errors.resize(size);
    batch.blocks.resize(size);
    for (std::size_t i = 0; i < size; ++i) {
      batch.blocks[i].key = put.keys[i];
      batch.blocks[i].row = put.rows[i];
      if (!put.parents.empty() && put.parents[i] != put.keys[i]) batch.blocks[i].parent = put.parents[i];
    }
    const std::uint32_t number = new_batch();
    if (kind == BatchKind::get) waits_.begin(RequestId{put.id.value()}, batch.begun);
    std::deque<std::uint32_t>& queue = kind == BatchKind::get ? gets_ : puts_;
    queue.push_back(number);
    if (const Result<void> claimed = regions_.claim(put.region, put.rows, batch.kind); !claimed) {
      queue.pop_back();
      waits_.forget(RequestId{put.id.value()});
      return claimed;
    }
    batch.queued = true;
    free_batches_.pop_back();
    ids_.emplace(put.id.value(), number);
    batches_[number] = std::move(batch);
    blocks_ += static_cast<std::uint32_t>(size);
    (kind == BatchKind::get ? counted_.gets : counted_.puts) += size;
    first_deadline_ = std::min(first_deadline_, put.deadline);
    if (asked_) note_needed(kind, put.keys);
    finish_if_ended(number);
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
  pump();
  return {};
}

std::uint32_t TierBatches::add_batch_without_blocks(BatchId id, BatchKind kind) {
  Batch batch;
  batch.id = batch.result.id = id;
  batch.kind = batch.result.kind = kind;
  batch.begun = clock_.now();
  batch.unended = batch.under_way = 1;
  batch.stored = stored_;
  batch.result.errors.resize(1);
  const std::uint32_t number = new_batch();
  free_batches_.pop_back();
  ids_.emplace(id.value(), number);
  batches_[number] = std::move(batch);
  return number;
}

Result<void> TierBatches::submit_flush(BatchId id) {
  if (stopped_) return Errc::stopped;
  if (ids_.contains(id.value())) return batch_is_alive;
  std::uint32_t number = 0;
  try {
    number = add_batch_without_blocks(id, BatchKind::flush);
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
  store_.flush(number);
  return {};
}

Result<void> TierBatches::submit_probe(const TierProbe& probe) {
  if (stopped_) return Errc::stopped;
  if (ids_.contains(probe.id.value())) return batch_is_alive;
  if (probe.keys.size() > limits_.blocks_max) return too_many_keys;
  if (layered_ == nullptr) {
    return failure<Errc::invalid_argument, "there is no shared store to ask: leading() answers at once">;
  }
  try {
    const std::uint32_t number = add_batch_without_blocks(probe.id, BatchKind::probe);
    batches_[number].asked = probe.keys.size();
    layered_->probe(number, probe.keys, probe.deadline);
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
  if (layered_->has_probed()) waker_.wake();
  return {};
}

void TierBatches::end_probes() {
  if (layered_ == nullptr) return;
  layered_->take_probed(probed_);
  for (const LayeredStore::Probed& probed : probed_) {
    const auto number = static_cast<std::uint32_t>(probed.token);
    Batch& batch = batches_[number];
    batch.unended = batch.under_way = 0;
    batch.result.succeeded = probed.leading;
    note_asked(batch.asked, probed.leading);
    waits_.looked(clock_.now() - batch.begun);
    finish_if_ended(number);
  }
}

// ---- to the store --------------------------------------------------------------------------------------------------------

void TierBatches::pump() noexcept {
  begin_gets();
  begin_puts();
}

/// Takes the first waiting block of these batches, which is under way from now on. Returns its token; nothing if no block waits.
std::optional<std::uint64_t> TierBatches::begin_next(std::deque<std::uint32_t>& queue) {
  while (!queue.empty()) {
    const std::uint32_t number = queue.front();
    Batch& batch = batches_[number];
    if (batch.next == batch.blocks.size()) {
      batch.queued = false;
      queue.pop_front();
      continue;
    }
    const std::size_t at = batch.next++;
    if (batch.blocks[at].state != State::waiting) continue;
    batch.blocks[at].state = State::under_way;
    ++batch.under_way;
    return std::uint64_t{number} << 32 | at;
  }
  return std::nullopt;
}

void TierBatches::begin_gets() {
  reads_.clear();
  while (gets_under_way_ < limits_.gets_under_way_max) {
    const std::optional<std::uint64_t> token = begin_next(gets_);
    if (!token) break;
    ++gets_under_way_;
    const Block& block = block_of(*token);
    Batch& batch = batches_[batch_of(*token)];
    batch.asks_shared |= layered_ != nullptr && !layered_->contains(block.key);
    reads_.push_back({*token, block.key, regions_.row(batch.region, block.row)});
  }
  if (!reads_.empty()) store_.read(reads_);
}

void TierBatches::begin_puts() {
  writes_.clear();
  for (const std::uint64_t token : to_retry_) writes_.push_back(write_of(token));
  to_retry_.clear();
  while (puts_under_way_ < limits_.puts_under_way_max) {
    const std::optional<std::uint64_t> token = begin_next(puts_);
    if (!token) break;
    ++puts_under_way_;
    ++storing_[block_of(*token).key].puts;
    writes_.push_back(write_of(*token));
  }
  if (!writes_.empty()) store_.write(writes_);
}

StoreWrite TierBatches::write_of(std::uint64_t token) {
  Block& block = block_of(token);
  Storing& storing = storing_[block.key];
  StoredBlock stored{block.key, {}, 0, {}};
  if (!is_none(block.parent)) {
    if (const std::optional<std::uint32_t> depth = depth_of(block.parent)) {
      stored.parent = block.parent;
      stored.depth = *depth + 1;
    } else {
      block.parent = {};
      ++counted_.without_parent;
    }
  }
  // The first of several puts decides, as in the store.
  if (storing.puts == 1) {
    storing.was_stored = store_.contains(block.key);
    storing.depth = stored.depth;
  }
  return {token, stored, regions_.row(batches_[batch_of(token)].region, block.row)};
}

// ---- from the store ------------------------------------------------------------------------------------------------------

std::size_t TierBatches::poll(std::vector<BatchResult>& out) {
  polling_ = true;
  const TimePoint now = clock_.now();
  store_events_.clear();
  misses_.set_now(now);
  damage_ = false;
  store_.poll(store_events_);
  for (const StoreEvent& event : store_events_) handle(event, now);
  // The store has reported the removals by now, so this flush makes them durable.
  if (std::exchange(erasure_due_, false)) store_.flush(erasure_token | ++erasures_);
  end_probes();
  if (now >= first_deadline_) end_late(now);
  flush_if_due(now);
  probe(now);
  pump();
  polling_ = false;
  const std::size_t arrived = results_.size();
  std::ranges::move(results_, std::back_inserter(out));
  results_.clear();
  return arrived;
}

void TierBatches::handle(const StoreEvent& event, TimePoint now) {
  const bool gone = event.kind == StoreEvent::Kind::removed || event.kind == StoreEvent::Kind::evicted;
  if (asked_) {
    damage_ = gone ? damage_ : event.kind == StoreEvent::Kind::read && event.error == Errc::corrupt;
    if (damage_) misses_.damaged(event.key);
    if (gone) misses_.went(event.key, Tier::storage);
  }
  switch (event.kind) {
    case StoreEvent::Kind::read: return on_read(event);
    case StoreEvent::Kind::written: return on_written(event, now);
    case StoreEvent::Kind::flushed: return on_flushed(event, now);
    case StoreEvent::Kind::removed:
    case StoreEvent::Kind::evicted:
      depths_.erase(event.key);
      // A put of the block that is under way makes it a new block.
      if (const auto storing = storing_.find(event.key); storing != storing_.end()) storing->second.was_stored = false;
      leave({event.kind == StoreEvent::Kind::removed ? TierEvent::Kind::removed : TierEvent::Kind::evicted, event.key, {}});
      return on_change(now);
  }
}

void TierBatches::on_read(const StoreEvent& event) {
  if (!event.error) remember(event.key);
  if (event.token == probe_token) {
    probing_ = false;
    return;
  }
  --gets_under_way_;
  end_under_way(event.token, event.error);
}

void TierBatches::on_written(const StoreEvent& event, TimePoint now) {
  Block& block = block_of(event.token);
  const auto storing = storing_.find(block.key);
  TERRACE_CHECK(storing != storing_.end());
  if (event.error == Errc::parent_missing && !is_none(block.parent) && block.state == State::under_way) {
    block.parent = {};
    ++counted_.without_parent;
    storing->second.depth = 0;
    to_retry_.push_back(event.token);
    return;
  }
  if (!event.error) {
    remember(block.key);
    if (!storing->second.was_stored) {
      storing->second.was_stored = true;
      if (storing->second.depth > 0) depths_[block.key] = storing->second.depth;
      ++stored_;
      if (asked_) misses_.came(block.key, Tier::storage);
      leave({TierEvent::Kind::stored, block.key, {}});
      on_change(now);
    }
  }
  if (--storing->second.puts == 0) storing_.erase(storing);
  --puts_under_way_;
  end_under_way(event.token, event.error == Errc::parent_missing ? make_error_code(Errc::cancelled) : event.error);
}

void TierBatches::end_under_way(std::uint64_t token, ErrorCode error) {
  Batch& batch = batches_[batch_of(token)];
  Block& block = block_of(token);
  regions_.release(batch.region, block.row, batch.kind);
  --blocks_;
  --batch.under_way;
  if (block.state == State::overtaken) {
    // The block was removed or cleared while the store worked on it. Its bytes are out of date, so a get is a miss.
    const bool is_put = batch.kind == BatchKind::put;
    if (is_put) --overtaken_puts_;
    note(batch, block, is_put ? Errc::cancelled : Errc::not_found);
  } else if (block.state == State::under_way) {
    note(batch, block, error);
  }
  block.state = State::ended;
  finish_if_ended(batch_of(token));
}

void TierBatches::end_waiting(Batch& batch, Block& block, ErrorCode error) {
  regions_.release(batch.region, block.row, batch.kind);
  --blocks_;
  note(batch, block, error);
  block.state = State::ended;
}

void TierBatches::note(Batch& batch, const Block& block, ErrorCode error) {
  --batch.unended;
  batch.result.errors[static_cast<std::size_t>(&block - batch.blocks.data())] = error;
  const bool is_get = batch.kind == BatchKind::get;
  const bool is_cancelled = error == Errc::cancelled;
  const bool is_late = error == Errc::deadline_exceeded;
  if (!error) {
    const std::span<std::byte> row = regions_.row(batch.region, block.row);
    ++batch.result.succeeded;
    batch.result.bytes += store_.block_bytes();
    (is_get ? counted_.hits : counted_.stored) += 1;
    (is_get ? counted_.read : counted_.written) += store_.block_bytes();
    if (!io_aligned(row.data())) {
      ++counted_.unaligned;
      counted_.unaligned_bytes += store_.block_bytes();
    }
  } else if (is_cancelled) {
    (is_get ? counted_.gets_cancelled : counted_.puts_cancelled) += 1;
  } else if (is_late) {
    (is_get ? counted_.gets_late : counted_.puts_late) += 1;
  } else if (!is_get) {
    ++counted_.put_failures;
  } else if (error == Errc::not_found) {
    ++counted_.misses;
  } else {
    ++(error == Errc::corrupt ? counted_.corrupt : counted_.get_failures);
  }
}

void TierBatches::finish_if_ended(std::uint32_t number) {
  Batch& batch = batches_[number];
  if (!batch.has_ended && batch.unended == 0) return finish(number);
  if (batch.has_ended && batch.under_way == 0) {
    leave({TierEvent::Kind::memory_free, {}, batch.id});
    free_batch(number);
  }
}

void TierBatches::finish(std::uint32_t number) {
  Batch& batch = batches_[number];
  batch.has_ended = true;
  const TimePoint now = clock_.now();
  batch.result.duration = now - batch.begun;
  waits_.end_load(RequestId{batch.id.value()}, now, batch.asks_shared ? Source::shared : Source::storage);
  batch.result.memory_in_use = batch.under_way > 0;
  results_.push_back(std::move(batch.result));
  if (!polling_) waker_.wake();
  if (batch.under_way == 0) free_batch(number);
}

void TierBatches::free_batch(std::uint32_t number) {
  Batch& batch = batches_[number];
  if (batch.queued) std::erase(batch.kind == BatchKind::get ? gets_ : puts_, number);
  ids_.erase(batch.id.value());
  batch = {};
  free_batches_.push_back(number);
}

// ---- ends before the disk's ------------------------------------------------------------------------------------------------

Result<void> TierBatches::cancel(BatchId id) {
  const auto at = ids_.find(id.value());
  if (at == ids_.end() || batches_[at->second].has_ended)
    return failure<Errc::not_found, "there is no batch of this id, or it has ended">;
  const std::uint32_t number = at->second;
  Batch& batch = batches_[number];
  bool any = false;
  for (Block& block : batch.blocks) {
    if (block.state != State::waiting) continue;
    end_waiting(batch, block, Errc::cancelled);
    any = true;
  }
  if (any) finish_if_ended(number);
  return {};
}

void TierBatches::end_late(TimePoint now) {
  numbers_.clear();
  first_deadline_ = never;
  for (const auto& [id, number] : ids_) {
    const Batch& batch = batches_[number];
    if (batch.has_ended) continue;
    if (batch.deadline <= now) numbers_.push_back(number);
    else first_deadline_ = std::min(first_deadline_, batch.deadline);
  }
  for (const std::uint32_t number : numbers_) {
    Batch& batch = batches_[number];
    for (Block& block : batch.blocks) {
      if (block.state == State::waiting) {
        end_waiting(batch, block, Errc::deadline_exceeded);
      } else if (block.state == State::under_way || block.state == State::overtaken) {
        if (block.state == State::overtaken && batch.kind == BatchKind::put) --overtaken_puts_;
        note(batch, block, Errc::deadline_exceeded);
        block.state = State::abandoned;
      }
    }
    finish_if_ended(number);
  }
}

Result<void> TierBatches::remove(std::span<const BlockKey> keys) {
  if (keys.empty()) return {};
  try {
    return erase({keys.begin(), keys.end()});
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
}

Result<void> TierBatches::clear() {
  if (layered_ != nullptr) layered_->leave_shared();
  try {
    std::vector<BlockKey> all;
    store_.for_each([&all](const StoredBlock& block) { all.push_back(block.key); });
    if (asked_) misses_.cleared();
    for (const auto& [id, number] : ids_) {
      if (batches_[number].kind != BatchKind::put) continue;
      for (const Block& block : batches_[number].blocks) {
        if (block.state != State::ended) all.push_back(block.key);
      }
    }
    return erase(std::move(all));
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
}

Result<void> TierBatches::erase(std::vector<BlockKey> keys) {
  std::ranges::sort(keys);
  numbers_.clear();
  for (const auto& [id, number] : ids_) numbers_.push_back(number);
  for (const std::uint32_t number : numbers_) {
    Batch& batch = batches_[number];
    const bool is_put = batch.kind == BatchKind::put;
    bool any = false;
    for (Block& block : batch.blocks) {
      const bool waits = is_put && block.state == State::waiting;
      if ((!waits && block.state != State::under_way) || !std::ranges::binary_search(keys, block.key)) continue;
      if (waits) {
        end_waiting(batch, block, Errc::cancelled);
        any = true;
      } else {
        block.state = State::overtaken;
        if (is_put) ++overtaken_puts_;
      }
    }
    if (any) finish_if_ended(number);
  }
  store_.remove(keys, 0);
  erasure_due_ = true;
  waker_.wake();
  return {};
}

// ---- durability and probes -------------------------------------------------------------------------------------------------

void TierBatches::on_change(TimePoint now) {
  if (flush_due_ == never && limits_.flush_interval > Duration::zero()) flush_due_ = now + limits_.flush_interval;
}

void TierBatches::flush_if_due(TimePoint now) {
  if (flushing_ || now < flush_due_) return;
  flushing_ = true;
  flush_due_ = never;
  stored_at_flush_ = stored_;
  store_.flush(own_flush_token);
}

void TierBatches::on_flushed(const StoreEvent& event, TimePoint now) {
  ++counted_.flushes;
  flush_error_ = event.error;
  if (event.error) ++counted_.flush_failures;
  else erase_error_ = {};
  const bool is_own = event.token == own_flush_token;
  const bool is_erasure = !is_own && (event.token & erasure_token) != 0;
  if (is_erasure) {
    erased_ = event.token & ~erasure_token;
    erase_error_ = event.error;
  } else if (!event.error) {
    covered_ = std::max(covered_, is_own ? stored_at_flush_ : batches_[static_cast<std::uint32_t>(event.token)].stored);
  }
  if (is_own) {
    flushing_ = false;
    if (event.error) on_change(now);
  }
  if (erase_error_) flush_due_ = std::min(flush_due_, now + erase_retry);
  if (is_own || is_erasure) return;
  const auto number = static_cast<std::uint32_t>(event.token);
  Batch& batch = batches_[number];
  batch.unended = batch.under_way = 0;
  batch.result.errors[0] = event.error;
  if (!event.error) batch.result.succeeded = 1;
  finish_if_ended(number);
}

const BlockKey* TierBatches::stored_key() const {
  const auto at = std::ranges::find_if(recent_, [this](const BlockKey& key) { return !is_none(key) && store_.contains(key); });
  return at == recent_.end() ? nullptr : &*at;
}

void TierBatches::probe(TimePoint now) {
  if (!reads_declined() || probing_ || now < guard_->read_breaker().next_probe()) return;
  const BlockKey* const key = stored_key();
  if (key == nullptr) return;
  probing_ = true;
  const StoreRead read{probe_token, *key, probe_buffer_.span(0, static_cast<std::size_t>(count(store_.block_bytes())))};
  store_.read({&read, 1});
}

TimePoint TierBatches::next_deadline() const {
  TimePoint next = std::min(store_.next_deadline(), first_deadline_);
  if (!flushing_) next = std::min(next, flush_due_);
  if (reads_declined() && !probing_ && stored_key() != nullptr) next = std::min(next, guard_->read_breaker().next_probe());
  return next;
}

}  // namespace terrace
