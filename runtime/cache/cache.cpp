#include "runtime/cache/cache.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

namespace terrace {
namespace {

/// How many bytes a poll copies at most to and from memory of a caller, and one block.
constexpr std::uint64_t memory_bytes_a_poll = 8 << 20;
constexpr Duration quarantine_poll_interval = std::chrono::milliseconds{1};

}  // namespace

Cache::Cache(const ManagerConfig& config, const CacheParts& parts) : parts_{parts}, manager_{config} {
  pools_.push_back({&parts.arena, parts.store});
  pools_.insert(pools_.end(), parts.other_pools.begin(), parts.other_pools.end());
  TERRACE_CHECK(pools_.size() == config.pool_count());
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) pool_ids_.push_back(PoolId{static_cast<std::uint16_t>(pool)});
  for (const PoolId pool : pool_ids_) {
    host_chunks_.emplace_back(*pools_[pool.value()].arena, manager_, pool);
    TERRACE_CHECK(config.storage == (pools_[pool.value()].store != nullptr));
    manager_.set_block_bytes(pools_[pool.value()].arena->block_bytes(), pool);
  }
  if (parts_.poison != nullptr) manager_.remember_freed();
  if (config.storage) restore_stored();
  tell_load_costs();
}

Cache::~Cache() { TERRACE_CHECK(manager_.requests().live_requests() == 0); }

/// Makes the blocks that an earlier process stored available as hits.
void Cache::restore_stored() {
  for (const PoolId pool : pool_ids_) {
    manager_.begin_recovery(pool);
    pools_[pool.value()].store->adopt_all(
        [&](std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers) {
          manager_.recover(blocks, numbers, pool);
        });
  }
}

Result<Lease> Cache::acquire(const AcquireRequest& request) {
  note_time();
  end_quarantines();
  const Result<Acquired> acquired = manager_.requests().acquire(request);
  end_call();
  if (!acquired) {
    quarantine_in_the_way_ = acquired.error() == Errc::no_room && manager_.requests().quarantined_requests() > 0;
    return acquired.error();
  }
  if (*acquired == Acquired::ready) {
    waits_.ready_at_once();
    note_ready(request.id, parts_.clock.now());
  } else {
    waits_.begin(request.id, parts_.clock.now());
  }
  if (spare_leases_.empty()) return Lease{*this, request.id};
  Lease lease{*this, request.id, std::move(spare_leases_.back())};
  spare_leases_.pop_back();
  return lease;
}

Result<void> Cache::wait(const Lease& lease) {
  if (state(lease) == RequestState::unknown) return Errc::unknown_request;
  const auto waits = [&] { return state(lease) == RequestState::waiting; };
  if (waits() && transfers_paused_) return Errc::paused;
  if (waits()) collect_while(waits);
  const std::optional<RequestEvent> end = manager_.requests().take_end(lease.id());
  if (end) note_end(*end);
  end_call();
  if (state(lease) == RequestState::ready) return {};
  return end ? end->error : Errc::not_ready;
}

Result<void> Cache::extend(const Lease& lease, std::uint32_t blocks) {
  note_time();
  end_quarantines();
  const Result<void> extended = manager_.requests().extend(lease.id(), blocks);
  end_call();
  return extended;
}

Result<void> Cache::advance(const Lease& lease, std::uint64_t tokens, Fence last_use) {
  note_time();
  const Result<void> advanced = manager_.requests().advance(lease.id(), tokens, last_use);
  end_call();
  return advanced;
}

Result<std::span<const Duplicate>> Cache::commit(const Lease& lease, std::span<const BlockKey> keys, Fence written) {
  note_time();
  const Result<std::span<const Duplicate>> committed = manager_.requests().commit(lease.id(), keys, written);
  end_call();
  if (prefill_.computes(lease.id())) prefill_.on_commit(lease.id(), manager_.requests().prompt_left(lease.id()), written);
  return committed;
}

void Cache::release(Lease lease, Fence last_use) {
  lease.used_until(last_use);
  lease.reset();
}

void Cache::give_back(std::unique_ptr<ReturnedLease> lease) noexcept {
  note_time();
  const Fence after = lease->last_use ? *lease->last_use : parts_.transfers.after_all_work();
  const bool is_known = lease->last_use || parts_.transfers.reached() >= after;
  const Result<void> released =
      is_known ? manager_.requests().release(lease->id, after) : manager_.requests().quarantine(lease->id, after);
  TERRACE_CHECK(released.has_value());
  waits_.forget(lease->id);
  prefill_.on_released(lease->id);
  spare_leases_.push_back(std::move(lease));
  end_call();
}

void Cache::end_quarantines() {
  if (manager_.requests().quarantined_requests() > 0) manager_.requests().end_quarantines(parts_.transfers.reached());
  quarantine_in_the_way_ &= manager_.requests().quarantined_requests() > 0;
}

void Cache::compute_is_idle() {
  note_time();
  manager_.requests().end_quarantines(Fence{std::numeric_limits<Fence::rep>::max()});
  end_call();
}

void Cache::clear(const ClearOptions& options) {
  note_time();
  manager_.administration().clear(options);
  after_clear(options);
}

Result<void> Cache::reset(const ClearOptions& options) {
  note_time();
  end_quarantines();
  const Result<void> done = manager_.administration().reset(options);
  if (done) after_clear(options);
  else end_call();
  return done;
}

void Cache::after_clear(const ClearOptions& options) {
  end_call();
  if (manager_.config().storage && !options.storage) restore_stored();
}

Result<void> Cache::resume() {
  note_time();
  const Result<void> resumed = manager_.administration().resume();
  end_call();
  return resumed;
}

Result<std::uint32_t> Cache::drop(std::span<const BlockKey> keys) {
  note_time();
  const Result<std::uint32_t> dropped = manager_.administration().drop(keys);
  end_call();
  return dropped;
}

Result<EvictedBlocks> Cache::evict(std::span<const SlotId> slots, PoolId pool) {
  note_time();
  Result<EvictedBlocks> evicted = manager_.administration().evict(slots, pool);
  end_call();
  return evicted;
}

Result<void> Cache::unpin(PinId pin) {
  note_time();
  const Result<void> unpinned = manager_.administration().unpin(pin);
  end_call();
  return unpinned;
}

Result<void> Cache::resize(Tier tier, std::uint32_t blocks, PoolId pool) {
  if (pool.value() >= pools_.size()) return Errc::invalid_argument;
  if (tier == Tier::storage) return resize_storage(blocks, pool);
  note_time();
  const Result<void> resized =
      tier == Tier::host ? host_chunks_[pool.value()].resize(blocks) : manager_.administration().resize(tier, blocks, pool);
  end_call();
  return resized;
}

Result<void> Cache::resize_storage(std::uint32_t blocks, PoolId pool) {
  BlockStore* const store = pools_[pool.value()].store;
  if (store == nullptr) return Errc::invalid_argument;
  const Result<void> resized = store->resize(blocks);
  wake();
  return resized;
}

Result<WriteBackId> Cache::start_write_back(const WriteBackOrder& order) {
  manager_.on_time(parts_.clock.now());
  const Result<WriteBackId> started = manager_.administration().start_write_back(order);
  end_call();
  if (manager_.write_backs().wants_pump()) wake();
  return started;
}

Result<void> Cache::resume_write_back(WriteBackId id) {
  const Result<void> resumed = manager_.administration().resume_write_back(id);
  wake();
  return resumed;
}

Result<void> Cache::cancel_write_back(WriteBackId id) {
  note_time();
  const Result<void> cancelled = manager_.administration().cancel_write_back(id);
  end_call();
  return cancelled;
}

void Cache::resume_transfers() {
  transfers_paused_ = false;
  end_call();
}

std::span<const RequestEvent> Cache::poll() {
  collect();
  manager_.requests().take_events(events_);
  for (const RequestEvent& event : events_) {
    if (event.ends_wait()) note_end(event);
  }
  return events_;
}

/// Collects ended work, makes decisions and starts new work. The events stay with the manager.
void Cache::collect() {
  // Acknowledge before collecting, so that anything that arrives later wakes the thread again.
  if (parts_.waker != nullptr) parts_.waker->acknowledge();
  transfer_events_.clear();
  parts_.transfers.poll(transfer_events_);
  for (TransferEvent& event : transfer_events_) on_transfer(std::move(event));
  for (const PoolId pool : pool_ids_) {
    if (pools_[pool.value()].store == nullptr) continue;
    store_events_.clear();
    pools_[pool.value()].store->poll(store_events_);
    for (const StoreEvent& event : store_events_) on_store(event, pool);
  }
  const TimePoint now = parts_.clock.now();
  manager_.note_time(now);
  if (manager_.learns_prefill()) learn_prefill(now);
  tell_load_costs();
  for (HostChunks& chunks : host_chunks_) chunks.poll();
  copy_memory();
  manager_.on_time(now);
  end_quarantines();
  manager_.settle();
  carry_out();
  if (manager_.write_backs().wants_pump()) wake();  // it has looked at a part of the tree, and there is more
  if (parts_.watch != nullptr) parts_.watch->on_polled(now);
}

void Cache::note_end(const RequestEvent& event) {
  const TimePoint now = parts_.clock.now();
  if (event.error) {
    waits_.fail(event.id, now);
  } else {
    waits_.end(event.id, now, manager_.requests().request_stats(event.id).value());
    note_ready(event.id, now);
  }
}

TimePoint Cache::next_deadline() const {
  TimePoint next = std::min(manager_.next_deadline(), parts_.transfers.next_deadline());
  // The device does not wake anybody when compute reaches a fence.
  if (quarantine_in_the_way_) next = std::min(next, parts_.clock.now() + quarantine_poll_interval);
  for (const PoolParts& pool : pools_) {
    if (pool.store != nullptr) next = std::min(next, pool.store->next_deadline());
  }
  return next;
}

bool Cache::has_pending_work() const { return manager_.has_pending_work() || transfers_in_flight() > 0; }

Result<void> Cache::limit_transfers(Urgency urgency, Bytes per_second) {
  if (urgency == Urgency::request) return Errc::invalid_argument;
  parts_.transfers.limit(urgency, per_second);
  return {};
}

void Cache::drain() {
  collect_while([this] { return has_pending_work(); });
  end_call();
}

Result<WriteBackId> Cache::start_checkpoint(Duration budget) {
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::all;
  order.deadline = parts_.clock.now() + budget;
  return start_write_back(order);
}

Result<CheckpointReport> Cache::checkpoint(Duration budget) {
  const Result<WriteBackId> job = start_checkpoint(budget);
  if (!job) return job.error();
  collect_while([&] { return !write_back(*job)->ended(); });
  end_call();
  return CheckpointReport{*write_back(*job), durability()};
}

template <class Condition>
void Cache::collect_while(Condition condition) {
  TERRACE_CHECK(!transfers_paused_);
  while (condition()) {
    collect();
    if (!condition()) break;
    if (parts_.waker == nullptr) continue;
    const TimePoint deadline = next_deadline();
    const TimePoint now = parts_.clock.now();
    int timeout_ms = deadline == never ? -1 : 0;
    if (deadline != never && deadline > now) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left + 1, std::numeric_limits<int>::max()));
    }
    parts_.waker->wait(timeout_ms);
  }
}

void Cache::on_transfer(TransferEvent event) {
  if (event.kind == TransferEvent::Kind::finished) {
    const bool out = event.direction == Direction::swap_out;
    Throughput& link = links_[static_cast<std::size_t>(event.direction)];
    link.ended(1, event.moved, parts_.clock.now(), event.copying);
    count_moved(out ? moved_.swap_out : moved_.swap_in, link,
                static_cast<std::uint64_t>(std::ranges::count(event.outcomes, BlockOutcome::done)), event.moved);
  }
  manager_.on_transfer(std::move(event));
}

void Cache::on_store(const StoreEvent& event, PoolId pool) {
  const bool is_read = event.kind == StoreEvent::Kind::read;
  if (is_read || event.kind == StoreEvent::Kind::written) {
    const bool done = !event.error;
    const Bytes bytes = done ? pools_[pool.value()].store->block_bytes() : Bytes{};
    Throughput& link = is_read ? reads_ : writes_;
    link.ended(1, bytes, parts_.clock.now());
    count_moved(is_read ? moved_.storage_reads : moved_.storage_writes, link, done ? 1 : 0, bytes);
  }
  if (event.kind == StoreEvent::Kind::flushed && parts_.watch != nullptr) parts_.watch->on_flushed(event.error);
  manager_.on_store(event, pool);
}

/// Ends each call that may have left work or events, except poll(), which takes the events.
void Cache::end_call() {
  carry_out();
  if (manager_.requests().has_events() || manager_.offload().has_events()) wake();
}

void Cache::carry_out() {
  status_.store(manager_.administration().status(), std::memory_order_release);
  for (const PoolId pool : pool_ids_) carry_out(pool);
  for (HostChunks& chunks : host_chunks_) chunks.give_back_emptied();
}

void Cache::carry_out(PoolId pool) {
  Actions& actions = manager_.actions(pool);
  if (parts_.poison != nullptr) poison_freed(pool);
  if (actions.empty() || transfers_paused_) return;
  const PoolParts& parts = pools_[pool.value()];
  for (Transfer& transfer : actions.transfers) {
    links_[static_cast<std::size_t>(transfer.direction)].began(1, parts_.clock.now());
    parts_.transfers.submit(std::move(transfer));
  }
  for (const TransferId id : actions.cancels) parts_.transfers.cancel(id);
  for (const TransferId id : actions.raises) parts_.transfers.raise(id, Urgency::request);
  for (const Postponement& later : actions.postponements) parts_.transfers.postpone(later.id, later.deadline);
  if (parts.store != nullptr) {
    if (!actions.touches.empty()) parts.store->touch(actions.touches);
    store_writes_.clear();
    for (const WriteOrder& order : actions.writes) {
      store_writes_.push_back({order.token, order.block, parts.arena->block(order.from)});
    }
    writes_.began(store_writes_.size(), parts_.clock.now());
    if (!store_writes_.empty()) parts.store->write(store_writes_);
    // Removes come after the writes. If transfers were paused, one of the writes may be for a block that was cleared since.
    if (!actions.removes.empty()) parts.store->remove(actions.removes, 0);
    store_reads_.clear();
    for (const ReadOrder& order : actions.reads) store_reads_.push_back({order.token, order.key, parts.arena->block(order.into)});
    reads_.began(store_reads_.size(), parts_.clock.now());
    if (!store_reads_.empty()) parts.store->read(store_reads_);
    for (const std::uint64_t round : actions.flushes) parts.store->flush(round);
  }
  for (const MemoryCopy& copy : actions.copies) memory_copies_.push_back({pool, copy});
  if (!actions.copies.empty()) wake();
  actions.clear();
}

/// Makes some of the copies between the host arena and memory of the caller: so many that the call stays short.
void Cache::copy_memory() {
  std::uint64_t left = memory_bytes_a_poll;
  while (memory_copies_made_ < memory_copies_.size() && left > 0) {
    const auto [pool, copy] = memory_copies_[memory_copies_made_++];
    const std::span<std::byte> block = pools_[pool.value()].arena->block(copy.slot);
    if (copy.direction == Direction::swap_in) std::memcpy(copy.memory, block.data(), block.size());
    else std::memcpy(block.data(), copy.memory, block.size());
    left -= std::min<std::uint64_t>(left, block.size());
    manager_.on_copied(copy.token, pool);
  }
  if (memory_copies_made_ < memory_copies_.size()) return wake();
  memory_copies_.clear();
  memory_copies_made_ = 0;
}

void Cache::count_moved(Moved& moved, const Throughput& link, std::uint64_t blocks, Bytes bytes) {
  moved.blocks += blocks;
  moved.bytes += bytes;
  moved.seconds = link.busy_seconds();
}

/// All pools share the link and the disk. The cost of a block depends on its size.
void Cache::tell_load_costs() {
  if (!manager_.measures_loads()) return;
  const TimePoint now = parts_.clock.now();
  const double link = links_[static_cast<std::size_t>(Direction::swap_in)].seconds_per_byte(now);
  const double read = reads_.seconds_per_byte(now);
  // While the prefill speed is unknown, risk no more than on an unknown link.
  const bool knows_prefill = !manager_.learns_prefill() || prefill_.unit_seconds() > 0;
  const Bytes trusted = knows_prefill ? reads_.trusted(now) : Throughput::trusted_unseen;
  for (const PoolId pool : pool_ids_) {
    const Bytes block = pools_[pool.value()].arena->block_bytes();
    const auto bytes = static_cast<double>(count(block));
    const std::uint64_t reads_max = std::min<std::uint64_t>(trusted / block, std::numeric_limits<std::uint32_t>::max());
    manager_.set_load_costs({.link_seconds = link * bytes,
                             .read_seconds = read * bytes,
                             .reads_max = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(reads_max))},
                            pool);
  }
}

/// Called before every operation that may free slots, because a waiting request may then start a load.
void Cache::note_time() {
  if (manager_.measures_loads()) manager_.note_time(parts_.clock.now());
}

void Cache::note_ready(RequestId id, TimePoint now) {
  if (!manager_.learns_prefill()) return;
  // Blocks that are computed elsewhere say nothing about the speed of this engine.
  const bool computes = manager_.requests().request_stats(id)->external == 0;
  prefill_.on_ready(id, computes ? manager_.requests().prompt_left(id) : 0, now);
}

void Cache::learn_prefill(TimePoint now) {
  prefill_.on_reached(parts_.transfers.reached(), now);
  manager_.learn_prefill(prefill_.unit_seconds());
}

void Cache::poison_freed(PoolId pool) {
  constexpr int poison_byte = 0xDB;
  auto& freed_on_device = freed_[0];
  auto& freed_in_arena = freed_[1];
  manager_.take_freed(freed_on_device, freed_in_arena, pool);
  for (const SlotId slot : freed_in_arena) {
    const auto block = pools_[pool.value()].arena->block(slot);
    std::memset(block.data(), poison_byte, block.size());
  }
  if (freed_on_device.empty()) return;
  // Overwrite on the compute timeline, after all work that may still use the slots. Transfers into the slots wait for the fence.
  std::vector<std::size_t> bytes;
  for (std::uint32_t rank = 0; rank < parts_.poison->size(); ++rank) {
    bytes.push_back(count(parts_.poison->at(rank).info().pool(pool).block_bytes));
  }
  const Fence poisoned =
      parts_.poison->launch([pool, slots = freed_on_device, bytes = std::move(bytes)](std::uint32_t rank, BlockAccess& access) {
        std::vector<std::byte> scratch(bytes[rank]);
        for (const SlotId slot : slots) {
          const auto target = access.write_target(pool, slot, scratch);
          std::memset(target.data(), poison_byte, target.size());
          access.written(pool, slot, scratch);
        }
      });
  manager_.overwritten_by(freed_on_device, poisoned, pool);
}

}  // namespace terrace
