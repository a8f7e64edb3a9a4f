#include "runtime/cache/pool/stored_reads.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <optional>

namespace terrace {

StoredReads::StoredReads(const PoolPart& part, const PoolSizes& sizes, HostSlotAllocator& host_slots, SharedTotals& shared)
    : PoolPart{part},
      // If the slots of the device belong to the engine, no block of the tree has a device copy. So these policies have no
      // effect.
      exclusive_{config_.inclusion == InclusionPolicy::exclusive && sizes.engine_blocks == 0},
      lazy_exclusive_{config_.inclusion == InclusionPolicy::lazy_exclusive && sizes.engine_blocks == 0},
      host_slots_{host_slots},
      shared_{shared} {}

StoredReads::ReadId StoredReads::add(const Order& order) {
  const ReadId id = reads_.add({order, {}, State::waiting});
  if (order.source == Source::shared) ++from_shared_;
  waiting_.set(id, {order.urgency, ++arrivals_});
  return id;
}

StoredReads::Read StoredReads::take(ReadId id) {
  const Read read = reads_.take(id);
  if (read.order.source == Source::shared) --from_shared_;
  return read;
}

void StoredReads::cancel(ReadId id) {
  Read& read = reads_.at(id);
  TERRACE_CHECK(read.state != State::cancelled);
  if (read.state == State::reading) {
    read.state = State::cancelled;
    if (read.order.source == Source::shared) actions_.shared.cancelled_reads.push_back(id);
    return;
  }
  TERRACE_CHECK(waiting_.erase(id));
  (void)take(id);
}

bool StoredReads::pump() {
  bool changed = false;
  while (!waiting_.empty() && land(waiting_.top().handle)) changed = true;
  return changed;
}

/// Gives the block a landing slot and orders its read, or ends it. Returns false if there is no slot; it keeps waiting then.
bool StoredReads::land(ReadId id) {
  Read& read = reads_.at(id);
  const Order& order = read.order;
  const bool in_host = residency_.copy(order.block, Tier::host).present();
  const bool on_device = order.only_host_copy && residency_.copy(order.block, Tier::device).present();
  const bool overtaken = in_host || on_device || residency_.stored(order.block) != (order.source == Source::storage);
  if (order.overtaken == Overtaken::is_given_back && overtaken) {
    end_waiting(id, Result::Kind::given_back, {});
    return true;
  }
  if (order.source == Source::shared && residency_.tree().hidden(order.block)) {
    // The cache was cleared while the block waited. The shared store may have the same key for other weights now.
    end_waiting(id, Result::Kind::failed, Errc::cleared);
    return true;
  }
  std::optional<SlotId> slot;
  // In exclusive mode a host copy would be a second copy as soon as the load ends, so the block lands in staging.
  const bool lands_in_host = (!exclusive_ || order.only_host_copy) && residency_.host_blocks() > 0 && !in_host;
  if (lands_in_host && residency_.supported(order.block, Tier::host)) {
    slot = host_slots_.take_for_landing(order.tenant, lazy_exclusive_ && !order.only_host_copy
                                                          ? HostSlotAllocator::LandsIn::free_or_duplicates
                                                          : HostSlotAllocator::LandsIn::any_slot);
    if (slot) residency_.begin_fill(order.block, Tier::host, *slot);
  }
  const bool staging = !slot;
  if (staging && order.only_host_copy) {
    end_waiting(id, Result::Kind::failed, Errc::full);
    return true;
  }
  if (staging) slot = residency_.take_staging();
  if (!slot) return false;
  TERRACE_CHECK(waiting_.erase(id));
  read.landing = {*slot, staging};
  read.state = State::reading;
  if (order.source == Source::storage) {
    actions_.reads.push_back({id, residency_.tree().key(order.block), *slot});
    return true;
  }
  const std::uint32_t reader = handle(order.reader);
  const TimePoint deadline = deadlines_.contains(reader) ? deadlines_.priority(reader) : never;
  actions_.shared.reads.push_back({id, as_stored(order.block), *slot, std::min(deadline, order.deadline)});
  return true;
}

/// Reports the result of a block that has no landing slot.
void StoredReads::end_waiting(ReadId id, Result::Kind kind, ErrorCode error) {
  TERRACE_CHECK(waiting_.erase(id));
  const Order order = take(id).order;
  results_.push_back({kind, order.reader, order.part, {}, error});
}

void StoredReads::on_read(std::uint64_t token, ErrorCode error) {
  const Read read = take(static_cast<ReadId>(token));
  TERRACE_CHECK(read.state != State::waiting);
  const BlockRef block = read.order.block;
  const Landing landing = read.landing;
  const bool wanted = read.state == State::reading;
  if (error) count_failure(read, error);
  // During the read, the block may have got a device copy: a load has brought it, or a request has computed it. Then the host
  // must not have it, too.
  const bool second = !error && !landing.staging && exclusive_ && residency_.copy(block, Tier::device).present();
  if (!landing.staging) {
    host_slots_.has_landed();
    if (error || second) {
      residency_.fail_host_fill(block);
    } else {
      residency_.publish(block, Tier::host);
      if (wanted) residency_.hold(block, Tier::host);
      else deferred_eviction_.drop_unsupported(block, Tier::host);
    }
  } else if (error || !wanted) {
    residency_.free_slot(Tier::host, landing.slot);
  }
  if (!wanted) return;
  const Result::Kind kind = error ? Result::Kind::failed : second ? Result::Kind::given_back : Result::Kind::landed;
  results_.push_back({kind, read.order.reader, read.order.part, landing, error});
}

void StoredReads::count_failure(const Read& read, ErrorCode error) {
  if (read.order.source != Source::shared) return;
  if (read.state == State::cancelled || error == Errc::deadline_exceeded || error == Errc::cancelled) ++shared_.read_late;
  else if (error == Errc::not_found) ++shared_.read_gone;
  else if (error == Errc::corrupt) ++shared_.read_corrupt;
  else ++shared_.read_failed;
}

void StoredReads::release(BlockRef block, Landing landing) {
  if (landing.staging) residency_.free_slot(Tier::host, landing.slot);
  else deferred_eviction_.reader_gone(block, Tier::host);
}

void StoredReads::set_deadline(Reader reader, TimePoint deadline) {
  if (deadline == never) (void)deadlines_.erase(handle(reader));
  else deadlines_.set(handle(reader), deadline);
}

void StoredReads::take_late(TimePoint now, std::vector<Reader>& late) {
  late.clear();
  while (!deadlines_.empty() && deadlines_.top().priority <= now) {
    const std::uint32_t handle = deadlines_.top().handle;
    (void)deadlines_.erase(handle);
    late.push_back({static_cast<Reader::Kind>(handle & 1U), handle >> 1U});
  }
}

void StoredReads::check_invariants() const {
  deadlines_.check_invariants();
  waiting_.check_invariants();
  std::size_t waiting = 0;
  for (ReadId id = 0, left = static_cast<ReadId>(reads_.size()); left > 0; ++id) {
    const Read* const read = reads_.find(id);
    if (read == nullptr) continue;
    --left;
    TERRACE_CHECK((read->state == State::waiting) == waiting_.contains(id));
    waiting += waiting_.contains(id) ? 1 : 0;
  }
  TERRACE_CHECK(waiting == waiting_.size());
}

}  // namespace terrace
