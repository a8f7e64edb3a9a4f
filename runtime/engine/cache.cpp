#include "terrace/cache.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "runtime/engine/cache_state.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace terrace {
namespace {

constexpr auto& empty_lease = failure<Errc::unknown_request, "the lease is empty: it was moved from, or has ended">;

}  // namespace

void Lease::stop_for_empty() { stop_for_misuse("Lease::id() was called for an empty lease, which was moved from, or has ended"); }

Cache::Cache(const ManagerConfig& config, const CacheParts& parts) : state_{std::make_unique<CacheState>(config, parts)} {}

Cache::~Cache() {
  state_->take_returned();
  stop_if_alive(state_->manager.requests().live_requests(), "Cache");
}

const CacheManager& Cache::manager() const { return state_->manager; }

// ---- requests and streams

Result<Fence> Cache::signal(StreamRef stream, std::uint32_t rank) { return state_->parts.transfers.signal(stream, rank); }

Result<void> Cache::await(const Lease& lease, std::uint32_t layers, StreamRef stream, std::uint32_t rank) {
  if (!lease) return empty_lease;
  Requests& requests = state_->manager.requests();
  const Result<std::span<const TransferId>> transfers = requests.transfers_for(lease.id(), layers);
  if (!transfers) return transfers.error();
  if (const Result<void> ordered = state_->await(*transfers, layers, stream, rank); !ordered) return ordered;
  requests.expect_layers(lease.id(), layers);
  return {};
}

MatchResult Cache::match(std::span<const BlockKey> keys, Source farthest) const {
  return state_->manager.requests().match(keys, farthest);
}

Result<Lease> Cache::acquire(const AcquireRequest& request) {
  CacheState& s = *state_;
  TERRACE_CHECK(!s.visited);
  const CacheState::CallTimer timer{s, TraceSpan::Kind::acquire};
  s.note_thread();
  s.take_returned();
  const TimePoint now = s.parts.clock.now();
  s.manager.note_time(now);
  s.note_shared();
  s.end_quarantines();
  const Result<Acquired> acquired = s.manager.acquire(request);
  s.carry_out();
  if (!acquired) {
    s.quarantine_in_the_way = acquired.error() == Errc::no_room && s.manager.requests().quarantined_requests() > 0;
    return acquired.error();
  }
  if (*acquired == Acquired::ready) {
    s.waits.ready_at_once();
    s.note_ready(request.id, now);
  } else {
    s.waits.begin(request.id, now);
  }
  s.note_acquired(request, *acquired == Acquired::ready);
  if (s.spare_leases.empty()) return Lease{s, request.id};
  Lease lease{s, request.id, std::move(s.spare_leases.back())};
  s.spare_leases.pop_back();
  return lease;
}

Result<PrefetchId> Cache::prefetch(const PrefetchOrder& order) {
  return state_->change_in_step([&](CacheManager& manager) {
    state_->note_shared();
    return manager.prefetches().begin(order);
  });
}

Result<void> Cache::cancel_prefetch(PrefetchId id) {
  return state_->change([&](CacheManager& manager) { return manager.prefetches().cancel(id); });
}

bool Cache::prefetching(PrefetchId id) const { return state_->manager.prefetches().runs(id); }

RequestState Cache::state(const Lease& lease) const {
  return lease ? state_->manager.requests().state(lease.id()) : RequestState::unknown;
}

Result<void> Cache::wait(const Lease& lease) {
  CacheState& s = *state_;
  TERRACE_CHECK(!s.visited);
  if (!lease) return empty_lease;
  const auto waits = [&] { return state(lease) == RequestState::waiting; };
  if (waits()) s.collect_while([&] { return waits() && !s.executor.paused(); });
  if (waits()) return failure<Errc::paused, "transfers are paused: resume_transfers() comes first">;
  const std::optional<RequestEvent> end = s.manager.requests().take_end(lease.id());
  if (end) s.note_end(*end);
  s.end_call();
  if (state(lease) == RequestState::ready) return {};
  return s.manager.requests().error(lease.id());
}

Result<void> Cache::extend(const Lease& lease, HashUnits units) {
  if (!lease) return empty_lease;
  const CacheState::CallTimer timer{*state_, TraceSpan::Kind::extend};
  state_->note_time();
  state_->end_quarantines();
  const Result<void> extended = state_->manager.requests().extend(lease.id(), units.value());
  state_->end_call_of_step();
  return extended;
}

Result<std::span<const Duplicate>> Cache::commit(const Lease& lease, std::span<const BlockKey> keys, Fence written) {
  if (!lease) return empty_lease;
  CacheState& s = *state_;
  const CacheState::CallTimer timer{s, TraceSpan::Kind::commit};
  if (!s.given_out(written)) return no_such_fence;
  s.note_time();
  const Result<std::span<const Duplicate>> committed = s.manager.requests().commit(lease.id(), keys, written);
  s.end_call_of_step();
  if (committed) {
    for (CacheWatch* const watch : s.parts.watches) watch->on_committed(lease.id(), keys);
  }
  if (s.prefill.computes(lease.id())) s.prefill.on_commit(lease.id(), s.manager.requests().prompt_left(lease.id()), written);
  return committed;
}

Result<HashUnits> Cache::committed_units(const Lease& lease) const {
  if (!lease) return empty_lease;
  const Result<std::uint32_t> committed = state_->manager.requests().committed_units(lease.id());
  if (!committed) return committed.error();
  return HashUnits{*committed};
}

Result<HashUnits> Cache::units(const Lease& lease) const {
  if (!lease) return empty_lease;
  const Result<std::uint32_t> units = state_->manager.requests().units(lease.id());
  if (!units) return units.error();
  return HashUnits{*units};
}

Result<void> Cache::advance(const Lease& lease, std::uint64_t tokens, Fence last_use) {
  if (!lease) return empty_lease;
  if (!state_->given_out(last_use)) return no_such_fence;
  return state_->change_in_step([&](CacheManager& manager) { return manager.requests().advance(lease.id(), tokens, last_use); });
}

void Cache::release(Lease lease, Fence last_use) {
  lease.used_until(last_use);
  lease.reset();
}

void Cache::compute_is_idle() {
  state_->note_time();
  (void)state_->manager.requests().end_quarantines(Fence{std::numeric_limits<Fence::rep>::max()});
  state_->end_call();
}

Result<std::span<const SlotId>> Cache::block_table(const Lease& lease, GroupId group) const {
  if (!lease) return empty_lease;
  return state_->manager.requests().block_table(lease.id(), group);
}

Result<std::span<const SlotId>> Cache::unkeyed_blocks(const Lease& lease, GroupId group) const {
  if (!lease) return empty_lease;
  return state_->manager.requests().unkeyed_blocks(lease.id(), group);
}

GroupState Cache::group_state(const Lease& lease, GroupId group) const {
  return lease ? state_->manager.requests().group_state(lease.id(), group) : GroupState::unknown;
}

Result<std::span<const Source>> Cache::hit_sources(const Lease& lease) const {
  if (!lease) return empty_lease;
  return state_->manager.requests().hit_sources(lease.id());
}

Result<RequestStats> Cache::request_stats(const Lease& lease) const {
  if (!lease) return empty_lease;
  return state_->manager.requests().request_stats(lease.id());
}

double Cache::seconds_waited(const Lease& lease) const {
  return lease ? state_->waits.seconds(lease.id(), state_->parts.clock.now()) : 0;
}

std::uint32_t Cache::common_prefix(GroupId group) const { return state_->manager.requests().common_prefix(group); }

// ---- the event loop of the engine

std::span<const RequestEvent> Cache::poll() {
  CacheState& s = *state_;
  TERRACE_CHECK(!s.visited);
  const CacheState::CallTimer timer{s, TraceSpan::Kind::poll};
  s.collect();
  s.manager.requests().take_events(s.events);
  for (const RequestEvent& event : s.events) {
    if (event.ends_wait()) s.note_end(event);
  }
  return s.events;
}

void Cache::end_step() {
  state_->carry_out_shared();
  state_->parts.transfers.wake_transfers();
}

int Cache::wake_fd() const { return state_->parts.waker == nullptr ? -1 : state_->parts.waker->fd(); }

void Cache::wake() noexcept { state_->wake_engine(); }

bool Cache::serve_idle(TimePoint until) { return state_->serve(until); }

bool Cache::has_idle_service() const { return state_->parts.turns != nullptr; }

TimePoint Cache::next_deadline() const { return state_->next_deadline(); }

bool Cache::has_pending_work() const { return state_->manager.has_pending_work() || transfers_in_flight() > 0; }

void Cache::drain() { (void)drain_until(never); }

WorkLeft Cache::drain_until(TimePoint until) {
  state_->drain_while([this] { return has_pending_work(); }, until);
  return work_left();
}

WorkLeft Cache::work_left() const {
  state_->take_returned();
  const ActionExecutor& executor = state_->executor;
  return {state_->manager.requests().live_requests(), executor.transfers_under_way(),
          executor.reads_under_way() + state_->shared.reads().speed.under_way(),
          executor.writes_under_way() + state_->shared.writes().speed.under_way(), has_pending_work()};
}

bool Cache::uses_device_memory() const {
  state_->take_returned();
  const CacheManager& manager = state_->manager;
  const Requests& requests = manager.requests();
  if (has_pending_work() || requests.live_requests() > 0 || requests.quarantined_requests() > 0) return true;
  if (!manager.offload().idle()) return true;
  if (!std::ranges::all_of(write_backs(), &WriteBackProgress::ended)) return true;
  for (std::size_t pool = 0; pool < manager.pool_count(); ++pool) {
    const Ledger slots = manager.device_ledger(PoolId{static_cast<std::uint16_t>(pool)});
    if (slots.held + slots.filling + slots.ready + slots.quarantined > 0) return true;
  }
  return false;
}

void Cache::prepare_drain() {
  resume_transfers();
  state_->manager.drop_shared_wishes();
  state_->manager.prefetches().cancel_all();
  state_->end_call();
  for (const WriteBackProgress& job : write_backs()) {
    if (!job.ended()) (void)cancel_write_back(job.id);
  }
}

Cache::Visit::Visit(Cache& cache) : cache_{cache} {
  TERRACE_CHECK(!cache_.state_->visited);
  cache_.state_->visited = true;
}

Cache::Visit::~Visit() { cache_.state_->visited = false; }

// ---- the cache as a whole

void Cache::clear(const ClearOptions& options) {
  state_->note_time();
  state_->clear(options);
}

Result<void> Cache::reset(const ClearOptions& options) {
  state_->note_time();
  state_->end_quarantines();
  const Requests& requests = state_->manager.requests();
  if (requests.live_requests() > 0 || requests.quarantined_requests() > 0) {
    state_->end_call();
    return failure<Errc::in_use, "leases are alive, or slots of ended ones are quarantined: end them, or call clear()">;
  }
  state_->clear(options);
  return {};
}

bool Cache::erasing() const { return state_->manager.administration().erasing(); }

bool Cache::shared_is_off() const { return state_->manager.shared_is_off(); }

Result<void> Cache::resume_shared(const std::optional<std::array<std::byte, 32>>& fingerprint) {
  CacheState& s = *state_;
  if (!s.shared.on()) return failure<Errc::invalid_argument, "there is no shared store">;
  // Work that was ordered before may be for the old weights. It must reach the shared store under the old fingerprint, or not at
  // all.
  if (fingerprint && s.executor.paused()) return Errc::paused;
  s.carry_out_shared();
  if (fingerprint) s.shared.store().use(*fingerprint);
  s.manager.resume_shared();
  return {};
}

Result<void> Cache::resume() {
  return state_->change([this](CacheManager&) { return state_->resume(); });
}

CacheStatus Cache::status() const noexcept { return state_->status.load(std::memory_order_acquire); }

Result<std::uint32_t> Cache::drop(std::span<const BlockKey> keys) {
  return state_->change([&](CacheManager& manager) { return manager.administration().drop(keys); });
}

Result<EvictedBlocks> Cache::evict(std::span<const SlotId> slots, PoolId pool) {
  return state_->change([&](CacheManager& manager) { return manager.administration().evict(slots, pool); });
}

std::optional<BlockPlace> Cache::find_block(const BlockKey& key, GroupId group) const {
  return state_->manager.administration().find_block(key, group);
}

std::vector<BlockPlace> Cache::find_blocks(std::span<const BlockKey> keys, GroupId group) const {
  return state_->manager.administration().find_blocks(keys, group);
}

Result<PinId> Cache::pin(std::span<const BlockKey> keys, TimePoint until) {
  return state_->act([&](CacheManager& manager) { return manager.administration().pin(keys, until); });
}

Result<void> Cache::unpin(PinId pin) {
  return state_->change([&](CacheManager& manager) { return manager.administration().unpin(pin); });
}

Result<void> Cache::expect_use(std::span<const BlockKey> keys, Duration in) {
  return state_->act([&](CacheManager& manager) { return manager.administration().expect_use(keys, in); });
}

Result<RetentionId> Cache::retain(std::span<const BlockKey> keys, Priority priority, TimePoint until) {
  return state_->act([&](CacheManager& manager) { return manager.administration().retain(keys, priority, until); });
}

Result<void> Cache::end_retention(RetentionId retention) {
  return state_->act([&](CacheManager& manager) { return manager.administration().end_retention(retention); });
}

Result<void> Cache::set_quota(TenantId tenant, TenantQuota quota, PoolId pool) {
  return state_->act([&](CacheManager& manager) { return manager.administration().set_quota(tenant, quota, pool); });
}

Result<void> Cache::remove_quota(TenantId tenant, PoolId pool) {
  return state_->act([&](CacheManager& manager) { return manager.administration().remove_quota(tenant, pool); });
}

std::optional<std::uint64_t> Cache::tenant_blocks(TenantId tenant, Tier tier, PoolId pool) const {
  return state_->manager.administration().tenant_blocks(tenant, tier, pool);
}

Result<void> Cache::make_room(Tier tier, Blocks blocks, PoolId pool) {
  return state_->act([&](CacheManager& manager) { return manager.administration().make_room(tier, blocks.value(), pool); });
}

Result<void> Cache::resize(Tier tier, Blocks blocks, PoolId pool) {
  CacheState& s = *state_;
  if (pool.value() >= s.executor.pools().size()) return no_such_pool;
  if (tier == Tier::storage) {
    BlockStore* const store = s.executor.pools()[pool.value()].store;
    if (store == nullptr) return failure<Errc::invalid_argument, "there is no storage">;
    const Result<void> resized = store->resize(blocks);
    s.wake();
    return resized;
  }
  return s.change([&](CacheManager& manager) {
    return tier == Tier::host ? s.resize_host(blocks.value(), pool) : manager.administration().resize(tier, blocks.value(), pool);
  });
}

std::uint64_t Cache::retiring(Tier tier, PoolId pool) const { return state_->manager.administration().retiring(tier, pool); }

HostMemory Cache::host_memory(PoolId pool) const { return state_->host_chunks[state_->manager.index_of(pool)].memory(); }

std::uint64_t Cache::host_growth_failures(PoolId pool) const {
  return state_->host_chunks[state_->manager.index_of(pool)].failures();
}

CacheSettings Cache::settings() const {
  const ManagerConfig& config = state_->manager.config();
  CacheSettings settings = static_cast<const CacheSettings&>(config);
  settings.policy = config.policy_name();
  return settings;
}

Result<void> Cache::change(const CacheSettings& settings) {
  CacheState& s = *state_;
  if (settings.lane_rates[static_cast<std::size_t>(Urgency::request)] != BytesPerSecond{}) {
    return failure<Errc::invalid_argument, "transfers for which a request waits have no limit">;
  }
  const LaneRates rates = s.manager.config().lane_rates;
  const Result<void> changed = s.manager.administration().change(settings);
  if (!changed) return changed;
  for (std::size_t lane = 0; lane < urgency_count; ++lane) {
    if (settings.lane_rates[lane] == rates[lane]) continue;
    s.parts.transfers.limit(static_cast<Urgency>(lane), settings.lane_rates[lane]);
  }
  s.wake();  // higher watermarks begin in the next poll
  return {};
}

// ---- storage

Result<WriteBackId> Cache::start_write_back(const WriteBackOrder& order) {
  CacheState& s = *state_;
  s.manager.on_time(s.parts.clock.now());
  const Result<WriteBackId> started = s.manager.administration().start_write_back(order);
  s.end_call();
  if (s.manager.write_backs().wants_pump()) s.wake();
  return started;
}

Result<void> Cache::pause_write_back(WriteBackId id) { return state_->manager.write_backs().set_paused(id, true); }

Result<void> Cache::resume_write_back(WriteBackId id) {
  const Result<void> resumed = state_->manager.write_backs().set_paused(id, false);
  state_->wake();
  return resumed;
}

Result<void> Cache::cancel_write_back(WriteBackId id) {
  return state_->change([&](CacheManager& manager) { return manager.write_backs().cancel(id); });
}

std::optional<WriteBackProgress> Cache::write_back(WriteBackId id) const { return state_->manager.write_backs().progress(id); }

std::vector<WriteBackProgress> Cache::write_backs() const { return state_->manager.write_backs().all(); }

Result<std::vector<WriteBackResult>> Cache::take_write_back_results(WriteBackId id) {
  return state_->manager.write_backs().take_results(id);
}

Durability Cache::durability() const { return state_->manager.administration().durability(); }

Result<WriteBackId> Cache::start_checkpoint(Duration budget) {
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::all;
  order.deadline = state_->parts.clock.now() + budget;
  return start_write_back(order);
}

Result<CheckpointReport> Cache::checkpoint(Duration budget) {
  const Result<WriteBackId> job = start_checkpoint(budget);
  if (!job) return job.error();
  state_->drain_while([&] { return !write_back(*job)->ended(); });
  return CheckpointReport{*write_back(*job), durability()};
}

DailyWrites Cache::daily_writes() const {
  const WriteBudget& budget = state_->manager.write_budget();
  return {budget.per_day(), budget.written(), budget.elapsed()};
}

// ---- transfers

void Cache::pause_transfers() { state_->executor.pause(); }

bool Cache::transfers_paused() const { return state_->executor.paused(); }

void Cache::resume_transfers() { state_->resume_transfers(); }

std::uint64_t Cache::transfers_in_flight() const { return state_->transfers_under_way(); }

// ---- statistics and events

ManagerStats Cache::stats() const { return state_->manager.stats(); }
SharedTotals Cache::shared_totals() const { return state_->manager.shared_totals(); }
PrefetchTotals Cache::prefetch_totals() const { return state_->manager.prefetch_totals(); }
LinkHealth Cache::link_health() const { return state_->manager.link().health(); }

MovedTotals Cache::moved() const {
  MovedTotals moved = state_->executor.moved();
  moved.shared_reads = state_->shared.reads().moved;
  moved.shared_writes = state_->shared.writes().moved;
  return moved;
}
CallTimes Cache::call_times() const { return state_->call_times; }
TransferTimes Cache::transfer_times() const {
  TransferTimes times = state_->executor.transfer_clock().times();
  times.shared_probe = state_->shared.probe_times();
  times.shared_read = state_->shared.reads().times;
  times.shared_write = state_->shared.writes().times;
  return times;
}

std::vector<TransferQueue> Cache::transfer_queues() const {
  return state_->executor.transfer_clock().queues(state_->parts.clock.now());
}

std::vector<SlowRequest> Cache::slowest_requests() const { return state_->waits.slowest(state_->parts.clock.now()); }

WaitTotals Cache::wait_totals() const { return state_->waits.totals(); }
WaitsNow Cache::waits_now() const { return state_->waits.waiting(state_->parts.clock.now()); }
Usage Cache::usage(Tier tier, PoolId pool) const { return state_->manager.usage(tier, pool); }
std::uint64_t Cache::blocks_for(std::uint64_t tokens, GroupId group) const { return state_->manager.blocks_for(tokens, group); }
TreeCounts Cache::tree_counts(PoolId pool) const { return state_->manager.tree_counts(pool); }
std::string Cache::describe_tree(std::size_t lines_max) const { return state_->manager.describe_tree(lines_max); }
void Cache::measure_misses() { state_->manager.administration().measure_misses(); }
MissTotals Cache::miss_totals() const { return state_->manager.miss_totals(); }
void Cache::sample_residency(std::uint32_t one_in) { state_->manager.administration().sample_residency(one_in); }
ResidencyTotals Cache::residency_totals(PoolId pool) const { return state_->manager.administration().residency_totals(pool); }
void Cache::record_events() { state_->manager.administration().record_events(); }
void Cache::take_events(std::vector<KvEvent>& events) { state_->manager.administration().take_events(events); }

}  // namespace terrace
