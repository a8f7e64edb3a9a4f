#include "runtime/engine/cache_state.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

namespace terrace {
namespace {

constexpr Duration quarantine_poll_interval = std::chrono::milliseconds{1};
/// The measured costs of a load change with the time, too, so polls refresh them.
constexpr Duration load_costs_interval = std::chrono::milliseconds{10};

/// The configuration with the sizes of blocks that the host arenas have.
ManagerConfig with_block_bytes(ManagerConfig config, const CacheParts& parts) {
  TERRACE_CHECK(parts.pools.size() == config.pools.size());
  for (std::size_t pool = 0; pool < parts.pools.size(); ++pool) {
    config.pools[pool].block_bytes = parts.pools[pool].arena->block_bytes();
  }
  return config;
}

}  // namespace

CacheState::CacheState(const ManagerConfig& config, const CacheParts& cache_parts)
    : parts{cache_parts},
      manager{with_block_bytes(config, cache_parts)},
      executor{cache_parts.transfers, cache_parts.pools, cache_parts.clock},
      shared{cache_parts.shared, cache_parts.pools, cache_parts.clock} {
  const std::span<const PoolParts> pools = executor.pools();
  TERRACE_CHECK(config.shared.on == shared.on());
  for (std::size_t number = 0; number < pools.size(); ++number) {
    const PoolId pool{static_cast<std::uint16_t>(number)};
    pool_ids_.push_back(pool);
    host_chunks.emplace_back(*pools[number].arena, manager, pool);
    TERRACE_CHECK(config.storage == (pools[number].store != nullptr));
  }
  manager.settle();  // after the changes of the host chunks
  if (parts.poison != nullptr) manager.remember_freed();
  if (config.storage) restore_stored();
  tell_load_costs();
  ask_for_spans();
}

void CacheState::give_back(std::unique_ptr<ReturnedLease> lease) noexcept {
  if (thread_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    const CallTimer timer{*this, TraceSpan::Kind::release};
    return end_lease(std::move(lease));
  }
  returned_.push(std::move(lease));
  wake_engine();
}

void CacheState::end_lease(std::unique_ptr<ReturnedLease> lease) noexcept {
  note_time();
  const bool is_fenced = lease->last_use && given_out(*lease->last_use);
  const Fence after = is_fenced ? *lease->last_use : parts.transfers.after_all_work();
  const bool is_known = is_fenced || parts.transfers.reached() >= after;
  if (lease->output_tokens) manager.requests().set_output_tokens(lease->id, *lease->output_tokens);
  if (lease->next_use) manager.requests().expect_use(lease->id, *lease->next_use);
  const Result<void> released =
      is_known ? manager.requests().release(lease->id, after) : manager.requests().quarantine(lease->id, after);
  TERRACE_CHECK(released.has_value());
  waits.forget(lease->id);
  if (!lives_.empty()) end_hold_span(lease->id);
  for (CacheWatch* const watch : parts.watches) watch->on_released(lease->id);
  prefill.on_released(lease->id);
  spare_leases.push_back(std::move(lease));
  end_call_of_step();
}

void CacheState::restore_stored() {
  for (const PoolId pool : pool_ids_) {
    manager.recovery(pool).begin();
    executor.pools()[pool.value()].store->adopt_all(
        [&](std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers) {
          manager.recovery(pool).add(blocks, numbers);
        });
  }
}

void CacheState::collect() {
  note_thread();
  if (!nothing_to_do()) collect_until(never);
}

/// Returns true if a full poll would find nothing. Work for a poll comes from other threads (transfers, stores, returned leases,
/// commands), which wake the cache; from orders, which set looks_, because a store may have events at once; from calls and polls,
/// which set changed_, because they may leave something; and from the time, which reaches rests_until_. Fences wake nobody, so a
/// cache with work that waits for one does not rest.
bool CacheState::nothing_to_do() {
  // Acknowledge before collecting, so that anything that arrives later wakes the thread again.
  const bool woken = parts.waker != nullptr && parts.waker->acknowledge();
  if (woken || looks_ || !returned_.empty() || (changed_ && !rests())) return false;
  if (changed_) rests_until_ = next_deadline();
  const TimePoint now = parts.clock.now();  // not before next_deadline(), which may be the time of that call
  if (changed_ && manager.planner().measures_loads()) rests_until_ = std::min(rests_until_, now + load_costs_interval);
  changed_ = false;
  if (now >= rests_until_) return false;
  manager.note_time(now);
  return true;
}

/// Returns true if a poll would find nothing to do before the next deadline. With a shared store it always has something to ask.
bool CacheState::rests() {
  return !shared.on() && transfers_under_way() == 0 && !executor.has_memory_copies() && !prefill.computing() &&
         std::ranges::all_of(host_chunks, &HostChunks::rests) && manager.rests();
}

bool CacheState::serve(TimePoint until) {
  more_ = false;
  collect_until(until);
  end_call();  // it wakes the engine for the events that its next poll() takes
  return more_;
}

void CacheState::collect_until(TimePoint until) {
  looks_ = false;
  // 1. What has ended: copies, reads, writes, leases, answers of the shared store.
  const TimePoint now = parts.clock.now();
  manager.note_time(now);
  PollBudget budget{parts.poll_blocks, parts.clock, until};
  executor.collect([this](TransferEvent event) { manager.on_transfer(std::move(event)); },
                   [this](const StoreEvent& event, PoolId pool) { on_store(event, pool); }, budget);
  executor.copy_memory([this](std::uint64_t token, PoolId pool) { manager.on_copied(token, pool); });
  if (manager.link().wants_look()) manager.link().on_look(parts.transfers.oldest_copy());
  take_returned();
  note_shared();
  if (shared.on()) shared.collect([this](const SharedExecutor::Ended& ended) { on_shared(ended); }, budget);
  if (manager.planner().learns_prefill()) {
    prefill.on_reached(parts.transfers.reached(), now);
    manager.planner().learn_prefill(prefill.unit_seconds());
  }
  // 2. What the time makes due.
  tell_load_costs();
  for (HostChunks& chunks : host_chunks) chunks.poll();
  manager.on_time(now);
  end_quarantines();
  // 3. Decide. 4. Start what was decided, and wake whoever has to continue.
  manager.settle_and_reclaim();
  give_orders();
  carry_out_shared();
  parts.transfers.wake_transfers();
  if (executor.has_events() || shared.has_events() || executor.has_memory_copies()) wake();
  if (manager.write_backs().wants_pump()) wake();  // a job has looked at a part of the tree, and there is more
  for (CacheWatch* const watch : parts.watches) watch->on_polled(now);
  ask_for_spans();
  changed_ = true;
}

void CacheState::collect_while(const std::function<bool()>& condition, TimePoint until) {
  TERRACE_CHECK(!visited);
  while (condition()) {
    collect();
    if (!condition()) break;
    const TimePoint now = parts.clock.now();
    if (now >= until) break;
    if (parts.waker == nullptr) continue;
    const TimePoint deadline = std::min(next_deadline(), until);
    int timeout_ms = deadline == never ? -1 : 0;
    if (deadline != never && deadline > now) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left + 1, std::numeric_limits<int>::max()));
    }
    parts.waker->wait(timeout_ms);
  }
}

void CacheState::drain_while(const std::function<bool()>& condition, TimePoint until) {
  const auto continues = [&] {
    if (executor.paused()) resume_transfers();
    return condition();
  };
  collect_while(continues, until);
  end_call();
}

void CacheState::end_quarantines() {
  Requests& requests = manager.requests();
  // Waiting requests get these slots before the call that follows takes any.
  if (requests.quarantined_requests() > 0 && requests.end_quarantines(parts.transfers.reached())) manager.settle();
  quarantine_in_the_way &= requests.quarantined_requests() > 0;
}

void CacheState::note_end(const RequestEvent& event) {
  const TimePoint now = parts.clock.now();
  if (!lives_.empty()) end_wait_span(event.id, now, bool{event.error});
  if (event.error) {
    waits.fail(event.id, now);
  } else {
    waits.end(event.id, now, manager.requests().request_stats(event.id).value());
    note_ready(event.id, now);
  }
}

Result<void> CacheState::await(std::span<const TransferId> transfers, std::uint32_t layers, StreamRef stream,
                               std::uint32_t rank) {
  parts.transfers.wake_transfers();  // the transfers that the stream waits for have been ordered now
  for (const TransferId transfer : transfers) {
    const Result<void> ordered = parts.transfers.await(transfer, layers, stream, rank);
    if (!ordered) return ordered.error() == Errc::unknown_request ? Result<void>{Errc::not_ready} : ordered;
  }
  return {};
}

void CacheState::note_time() {
  take_returned();
  if (waits.any() || manager.planner().measures_loads() || shared.on()) manager.note_time(parts.clock.now());
}

void CacheState::note_ready(RequestId id, TimePoint now) {
  if (!manager.planner().learns_prefill()) return;
  // Blocks that another engine computes do not show the speed of this engine.
  const bool computes = manager.requests().request_stats(id)->external == 0;
  prefill.on_ready(id, computes ? manager.requests().prompt_left(id) : 0, now);
}

void CacheState::note_acquired(const AcquireRequest& request, bool ready) {
  for (CacheWatch* const watch : parts.watches) watch->on_acquired(request);
  if (!tracing_) return;
  const TimePoint now = parts.clock.now();
  const auto blocks = static_cast<std::uint32_t>(std::max<std::size_t>(request.units.value(), request.keys.size()));
  lives_.insert_or_assign(request.id, Life{.acquired = now, .blocks = blocks});
  if (ready) end_wait_span(request.id, now, false);
}

TimeTotal& CacheState::time_of(TraceSpan::Kind call) {
  constexpr std::array by_kind{&CallTimes::acquire, &CallTimes::extend, &CallTimes::commit, &CallTimes::release,
                               &CallTimes::load,    &CallTimes::store,  &CallTimes::poll};
  static_assert(by_kind.size() == static_cast<std::size_t>(TraceSpan::Kind::poll) + 1);
  return call_times.*by_kind.at(static_cast<std::size_t>(call));
}

void CacheState::ask_for_spans() {
  tracing_ = std::ranges::any_of(parts.watches, &CacheWatch::wants_spans);
  executor.trace_to(tracing_ ? this : nullptr);
  shared.trace_to(tracing_ ? this : nullptr);
  if (tracing_) return;
  lives_.clear();
  jobs_.clear();
}

void CacheState::on_span(const TraceSpan& span) {
  for (CacheWatch* const watch : parts.watches) {
    if (watch->wants_spans()) watch->on_span(span);
  }
}

void CacheState::end_wait_span(RequestId id, TimePoint now, bool failed) {
  const auto found = lives_.find(id);
  if (found == lives_.end() || found->second.waited != never) return;
  found->second.waited = now;
  on_span({TraceSpan::Kind::wait, id.value(), found->second.acquired, now, found->second.blocks, failed});
}

void CacheState::end_hold_span(RequestId id) {
  const auto found = lives_.find(id);
  if (found == lives_.end()) return;
  const TimePoint now = parts.clock.now();
  end_wait_span(id, now, true);  // the wait ended without success
  on_span({TraceSpan::Kind::hold, id.value(), found->second.waited, now, found->second.blocks, false});
  lives_.erase(found);
}

Result<void> CacheState::begin_job(const OffloadOrder& order, Direction direction) {
  OffloadJobs& jobs = manager.offload();
  const bool loads = direction == Direction::swap_in;
  const Result<void> begun = !given_out(order.after) ? jobs.refuse(no_such_fence) : loads ? jobs.load(order) : jobs.store(order);
  if (begun && loads) {
    waits.begin(RequestId{order.id.value()}, parts.clock.now());
    loads_from_.emplace(order.id, Source::host);
  }
  if (begun && tracing_) {
    const auto blocks = static_cast<std::uint32_t>(order.keys.size() - order.first);
    const TraceSpan::Kind kind = loads ? TraceSpan::Kind::load_job : TraceSpan::Kind::store_job;
    jobs_.insert_or_assign(order.id, TraceSpan{kind, order.id.value(), parts.clock.now(), never, blocks, false});
  }
  end_call();
  return begun;
}

void CacheState::end_jobs(std::span<const OffloadEvent> events) {
  if (events.empty()) return;
  const TimePoint now = parts.clock.now();
  for (const OffloadEvent& event : events) {
    if (event.kind == OffloadEvent::Kind::block && event.source > Source::host) {
      Source& farthest = loads_from_.at(event.job);
      farthest = std::max(farthest, event.source);
    }
    if (event.kind != OffloadEvent::Kind::ended) continue;
    if (const auto load = loads_from_.find(event.job); load != loads_from_.end()) {
      waits.end_load(RequestId{event.job.value()}, now, load->second);
      loads_from_.erase(load);
    }
    const auto found = jobs_.find(event.job);
    if (found == jobs_.end()) continue;
    found->second.end = now;
    found->second.failed = bool{event.error};
    on_span(found->second);
    jobs_.erase(found);
  }
}

void CacheState::end_call() {
  end_call_of_step();
  carry_out_shared();
  parts.transfers.wake_transfers();
}

void CacheState::carry_out() {
  changed_ = true;
  give_orders();
  if (manager.requests().has_events() || manager.offload().has_events()) wake_engine();
  if (executor.has_memory_copies()) wake();
}

void CacheState::carry_out_shared() {
  if (!shared.on() || executor.paused()) return;
  for (const PoolId pool : pool_ids_) shared.carry_out(manager.actions(pool).shared, pool);
}

void CacheState::on_shared(const SharedExecutor::Ended& ended) {
  switch (ended.kind) {
    case SharedEvent::Kind::probed:
      manager.on_shared_probed(ended.asker, ended.token, ended.error, ended.leading, ended.pool);
      break;
    case SharedEvent::Kind::read: manager.on_shared_read(ended.token, ended.error, ended.pool); break;
    case SharedEvent::Kind::written: manager.on_shared_written(ended.token, ended.error, ended.pool); break;
  }
}

void CacheState::clear(const ClearOptions& options) {
  const bool storage = manager.config().storage;
  std::vector<std::vector<BlockKey>> stored;  // by PoolId
  if (storage && !options.keep_storage) {
    // All blocks of the store: after a clear that kept storage, it may have blocks that the tree does not know.
    for (const PoolParts& pool : executor.pools()) {
      std::vector<BlockKey>& first = stored.emplace_back();
      pool.store->for_each([&](const StoredBlock& block) {
        if (block.depth == 0) first.push_back(block.key);
      });
    }
  }
  releases_host_ |= options.release_host;
  ClearOptions how = options;
  how.wait |= options.release_host;
  manager.administration().clear(how, stored);
  end_call();
  if (storage && options.keep_storage) restore_stored();
}

void CacheState::release_host() {
  releases_host_ = false;
  released_.resize(host_chunks.size());
  for (const PoolId pool : pool_ids_) {
    const std::uint32_t blocks = manager.residency(pool).host_blocks_wanted();
    if (blocks > 0 && host_chunks[pool.value()].resize(0)) released_[pool.value()] = blocks;
  }
}

Result<void> CacheState::resume() {
  if (const Result<void> resumed = manager.administration().resume(); !resumed) return resumed;
  releases_host_ = false;
  for (const PoolId pool : pool_ids_) {
    if (pool.value() >= released_.size() || !released_[pool.value()]) continue;
    if (const Result<void> grown = resize_host(*released_[pool.value()], pool, HostChunks::Asks::no); !grown) return grown;
  }
  return {};
}

Result<void> CacheState::resize_host(std::uint32_t blocks, PoolId pool, HostChunks::Asks asks) {
  const Result<void> resized = host_chunks[pool.value()].resize(blocks, asks);
  if (resized && pool.value() < released_.size()) released_[pool.value()].reset();
  return resized;
}

TimePoint CacheState::next_deadline() const {
  if (manager.wants_reclaim() || (shared.on() && !executor.paused() && manager.has_shared_work())) return parts.clock.now();
  TimePoint next = std::min({manager.next_deadline(), executor.next_deadline(), shared.next_deadline()});
  for (const CacheWatch* const watch : parts.watches) next = std::min(next, watch->next_deadline());
  // The device wakes no thread when compute reaches a fence, so poll.
  if (quarantine_in_the_way) next = std::min(next, parts.clock.now() + quarantine_poll_interval);
  return next;
}

void CacheState::give_orders() {
  const CacheStatus now = manager.administration().status();
  status.store(now, std::memory_order_release);
  if (releases_host_ && now == CacheStatus::cleared) release_host();
  for (const PoolId pool : pool_ids_) {
    if (parts.poison != nullptr) poison_freed(pool);
    Actions& actions = manager.actions(pool);
    if (actions.empty()) continue;
    looks_ = true;  // while transfers are paused, too
    executor.carry_out(actions, pool);
  }
  for (HostChunks& chunks : host_chunks) chunks.give_back_emptied();
}

void CacheState::on_store(const StoreEvent& event, PoolId pool) {
  if (event.kind == StoreEvent::Kind::flushed) {
    for (CacheWatch* const watch : parts.watches) watch->on_flushed(event.error, pool);
  }
  manager.on_store(event, pool);
}

/// All pools share the link and the disk. The cost of a block depends on its size.
void CacheState::tell_load_costs() {
  if (!manager.planner().measures_loads()) return;
  const TimePoint now = parts.clock.now();
  const double link = executor.link(Direction::swap_in).seconds_per_byte(now);
  const double read = executor.reads().seconds_per_byte(now);
  // While the prefill speed is unknown, risk no more than on an unknown link.
  const bool knows_prefill = !manager.planner().learns_prefill() || prefill.unit_seconds() > 0;
  const Bytes trusted = knows_prefill ? executor.reads().trusted(now) : Throughput::trusted_unseen;
  const double shared_read = shared.on() ? shared.reads().speed.seconds_per_byte(now) : 0;
  const Bytes shared_trusted = !shared.on() || knows_prefill ? shared.reads().speed.trusted(now) : Throughput::trusted_unseen;
  for (const PoolId pool : pool_ids_) {
    const Bytes block = executor.pools()[pool.value()].arena->block_bytes();
    const auto bytes = static_cast<double>(count(block));
    const auto blocks_in = [block](Bytes all) {
      return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(all / block, 1, std::numeric_limits<std::uint32_t>::max()));
    };
    manager.set_load_costs({.link_seconds = link * bytes,
                            .read_seconds = read * bytes,
                            .reads_max = blocks_in(trusted),
                            .shared_seconds = shared_read * bytes,
                            .shared_round_trip = manager.shared_round_trip_seconds(),
                            .shared_max = blocks_in(shared_trusted)},
                           pool);
  }
}

void CacheState::poison_freed(PoolId pool) {
  constexpr int poison_byte = 0xDB;
  auto& freed_on_device = freed_[0];
  auto& freed_in_arena = freed_[1];
  manager.take_freed(freed_on_device, freed_in_arena, pool);
  for (const SlotId slot : freed_in_arena) {
    const auto block = executor.pools()[pool.value()].arena->block(slot);
    std::memset(block.data(), poison_byte, block.size());
  }
  if (freed_on_device.empty()) return;
  // Overwrite on the compute timeline, after all work that may still use the slots. Transfers into the slots wait for the fence.
  std::vector<std::size_t> bytes;
  for (std::uint32_t rank = 0; rank < parts.poison->size(); ++rank) {
    bytes.push_back(count(parts.poison->at(rank).info().pool(pool).block_bytes));
  }
  const Fence poisoned =
      parts.poison->launch([pool, slots = freed_on_device, bytes = std::move(bytes)](std::uint32_t rank, BlockAccess& access) {
        std::vector<std::byte> scratch(bytes[rank]);
        for (const SlotId slot : slots) {
          const auto target = access.write_target(pool, slot, scratch);
          std::memset(target.data(), poison_byte, target.size());
          access.written(pool, slot, scratch);
        }
      });
  manager.overwritten_by(freed_on_device, poisoned, pool);
}

}  // namespace terrace
