#include "capi/cache.hpp"
#include "capi/keys.hpp"
#include "capi/status.hpp"
#include "runtime/admin/command.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>

using namespace terrace::capi;

namespace terrace::capi {
namespace {

static_assert(static_cast<int>(WriteBackOrder::Scope::prefix) == TERRACE_SCOPE_PREFIX);
static_assert(static_cast<int>(WriteBackOrder::Scope::all) == TERRACE_SCOPE_ALL);
static_assert(static_cast<int>(WriteBackOrder::Target::shared) == TERRACE_TARGET_SHARED);
static_assert(static_cast<int>(WriteBackOutcome::cancelled) == TERRACE_OUTCOME_CANCELLED);
static_assert(static_cast<int>(WriteBackState::deadline_exceeded) == TERRACE_JOB_DEADLINE_EXCEEDED);
static_assert(static_cast<int>(KvEvent::Kind::cleared) == TERRACE_CACHE_CLEARED);
static_assert(static_cast<int>(CacheStatus::cleared) == 2);
static_assert(usual_priority == TERRACE_USUAL_PRIORITY && highest_priority == TERRACE_HIGHEST_PRIORITY);

terrace_cache_event to_c(const KvEvent& event) {
  terrace_cache_event to{};
  to.key = key_to_c(event.key);
  if (event.parent) to.parent = key_to_c(*event.parent);
  to.tenant = event.tenant.value();
  to.kind = static_cast<uint32_t>(event.kind);
  to.source = source_to_c(event.source);
  to.depth = event.depth;
  to.group = event.group.value();
  return to;
}

/// The counts that caches of both kinds have.
template <class Statistics>
void put_common(const Cache& cache, Statistics& value) {
  const ManagerStats stats = cache.stats();
  const MovedTotals moved = cache.moved();
  const Usage host = cache.usage(Tier::host);
  value.host_blocks = host.blocks;
  value.host_free = host.free;
  value.evicted_host = stats.evicted_host;
  value.dropped_lost = stats.dropped_lost;
  value.swapped_out_bytes = count(moved.swap_out.bytes);
  value.swapped_in_bytes = count(moved.swap_in.bytes);
  value.storage_read_bytes = count(moved.storage_reads.bytes);
  value.storage_written_bytes = count(moved.storage_writes.bytes);
  value.durable_blocks = cache.durability().durable_blocks;
  value.erasing = cache.erasing() ? 1 : 0;
  value.shared_off = cache.shared_is_off() ? 1 : 0;
  value.link_down = cache.link_health().in_use ? 0 : 1;
  value.cleared = static_cast<uint64_t>(cache.status());
  value.transfers_in_flight = cache.transfers_in_flight();
  value.transfers_paused = cache.transfers_paused() ? 1 : 0;
}

/// Throws if the tier is neither the device nor the host.
Tier memory_tier(uint32_t tier) {
  if (tier <= TERRACE_TIER_HOST) return static_cast<Tier>(tier);
  throw std::invalid_argument{"tier is " + std::to_string(tier) + ", must be TERRACE_TIER_DEVICE or TERRACE_TIER_HOST"};
}

}  // namespace
}  // namespace terrace::capi

terrace_status terrace_cache_clear(terrace_cache* cache, uint32_t flags) {
  return on(cache, __func__, [&]() -> terrace::Result<void> {
    constexpr uint32_t known = TERRACE_CLEAR_KEEP_STORAGE | TERRACE_CLEAR_KEEP_SHARED | TERRACE_CLEAR_WAIT |
                               TERRACE_CLEAR_IDLE_ONLY | TERRACE_CLEAR_RELEASE_HOST | 1U;
    if ((flags & ~known) != 0) {
      throw std::invalid_argument{"flags is " + std::to_string(flags) + ", must be a sum of TERRACE_CLEAR_ numbers"};
    }
    const terrace::ClearOptions options{.wait = (flags & TERRACE_CLEAR_WAIT) != 0,
                                        .keep_storage = (flags & TERRACE_CLEAR_KEEP_STORAGE) != 0,
                                        .keep_shared = (flags & TERRACE_CLEAR_KEEP_SHARED) != 0,
                                        .release_host = (flags & TERRACE_CLEAR_RELEASE_HOST) != 0};
    if ((flags & TERRACE_CLEAR_IDLE_ONLY) != 0) return cache->cache().reset(options);
    cache->cache().clear(options);
    return {};
  });
}

terrace_status terrace_cache_resume(terrace_cache* cache) {
  return on(cache, __func__, [&] {
    // A caller that tries again and again leaves no time for the idle service, and need not poll.
    if (cache->cache().status() == terrace::CacheStatus::clearing) (void)cache->cache().serve_idle(terrace::never);
    return cache->cache().resume();
  });
}

terrace_status terrace_cache_resume_shared(terrace_cache* cache, const char* weights_revision) {
  return on(cache, __func__, [&] {
    return weights_revision == nullptr ? cache->cache().resume_shared() : cache->system.resume_shared(weights_revision);
  });
}

terrace_status terrace_cache_pause_transfers(terrace_cache* cache) {
  return on(cache, __func__, [&] { cache->cache().pause_transfers(); });
}

terrace_status terrace_cache_resume_transfers(terrace_cache* cache) {
  return on(cache, __func__, [&] { cache->cache().resume_transfers(); });
}

terrace_status terrace_cache_set(terrace_cache* cache, const char* option, const char* value) {
  return on(cache, __func__, [&] {
    need(option, "option");
    need(value, "value");
    return cache->cache().change(terrace::admin::changed(cache->cache().settings(), {{{option, value}}}));
  });
}

terrace_status terrace_cache_make_room(terrace_cache* cache, uint32_t tier, uint32_t blocks, uint16_t pool) {
  return on(cache, __func__,
            [&] { return cache->cache().make_room(memory_tier(tier), terrace::Blocks{blocks}, terrace::PoolId{pool}); });
}

terrace_status terrace_cache_resize(terrace_cache* cache, uint32_t tier, uint32_t blocks, uint16_t pool) {
  return on(cache, __func__, [&] {
    if (tier > TERRACE_TIER_STORAGE || (tier == TERRACE_TIER_DEVICE && cache->offload)) {
      throw std::invalid_argument{"tier is " + std::to_string(tier) + ", must be TERRACE_TIER_HOST or TERRACE_TIER_STORAGE" +
                                  (cache->offload ? "" : ", or TERRACE_TIER_DEVICE")};
    }
    return cache->cache().resize(static_cast<terrace::Tier>(tier), terrace::Blocks{blocks}, terrace::PoolId{pool});
  });
}

terrace_status terrace_cache_read_statistics(const terrace_cache* cache, terrace_cache_statistics* out) {
  return on(cache, __func__, [&] {
    const terrace::Cache& of = cache->cache();
    const terrace::ManagerStats stats = of.stats();
    const terrace::Usage device = cache->offload ? terrace::Usage{} : of.usage(terrace::Tier::device);
    terrace_cache_statistics value{};
    put_common(of, value);
    value.requests = stats.requests.requests;
    value.asked = stats.requests.asked;
    value.found_device = stats.requests.found[terrace::Source::device];
    value.found_host = stats.requests.found[terrace::Source::host];
    value.found_storage = stats.requests.found[terrace::Source::storage];
    value.found_shared = stats.requests.found[terrace::Source::shared];
    value.missed = stats.requests.miss;
    value.preempted = stats.preempted.requests;
    value.refused_no_room = stats.refused_no_room;
    value.refused_never_fits = stats.refused_never_fits;
    value.aborted = stats.aborted;
    value.load_failures = stats.load_failures;
    value.duplicates = stats.duplicates;
    value.device_blocks = device.blocks;
    value.device_free = device.free;
    value.device_evictable = device.evictable;
    value.evicted_device = stats.evicted_device;
    value.live = cache->live.size();
    write_struct("out", value, out);
  });
}

terrace_status terrace_offload_read_statistics(const terrace_cache* cache, terrace_offload_statistics* out) {
  return on(cache, __func__, [&] {
    const terrace::OffloadCache& offload = jobs_of(*cache);
    const terrace::OffloadTotals jobs = offload.totals();
    terrace_offload_statistics value{};
    put_common(cache->cache(), value);
    value.jobs = jobs.jobs;
    value.refused = jobs.refused;
    value.loaded_host = jobs.loaded_host;
    value.loaded_storage = jobs.loaded_storage;
    value.load_misses = jobs.load_misses;
    value.load_failures = jobs.load_failures;
    value.stored = jobs.stored;
    value.already_there = jobs.already_there;
    value.store_full = jobs.store_full;
    value.store_failures = jobs.store_failures;
    value.joined = jobs.joined;
    value.late = jobs.late;
    value.unconfirmed = jobs.unconfirmed;
    value.blocks_in_flight = offload.blocks_in_flight();
    const terrace::SharedTotals shared = cache->cache().shared_totals();
    value.loaded_shared = jobs.loaded_shared;
    value.shared_asked = shared.asked;
    value.shared_there = shared.there;
    value.shared_written = shared.written;
    value.shared_present = shared.present;
    value.loads = jobs.loads;
    value.stores = jobs.stores;
    value.asked = jobs.asked;
    value.found = jobs.found;
    write_struct("out", value, out, offsetof(terrace_offload_statistics, loaded_shared));
  });
}

terrace_status terrace_cache_read_usage(const terrace_cache* cache, uint32_t tier, uint16_t pool, terrace_usage* out) {
  return on(cache, __func__, [&] {
    if (cache->offload && tier == TERRACE_TIER_DEVICE) throw std::invalid_argument{"the engine owns the slots of the device"};
    const terrace::Usage usage = cache->cache().usage(memory_tier(tier), terrace::PoolId{pool});
    write_struct("out", terrace_usage{0, usage.blocks, usage.free, usage.evictable, usage.promised}, out);
  });
}

terrace_status terrace_cache_read_tree(const terrace_cache* cache, uint16_t pool, terrace_tree_counts* out) {
  return on(cache, __func__, [&] {
    const terrace::TreeCounts counts = cache->cache().tree_counts(terrace::PoolId{pool});
    const auto& [device, host, storage] = counts.tiers;
    write_struct("out",
                 terrace_tree_counts{0, counts.nodes, counts.blocks, counts.references, device.blocks, device.pinned,
                                     device.leaves, host.blocks, host.pinned, host.leaves, storage.blocks, storage.leaves},
                 out);
  });
}

terrace_status terrace_cache_describe_tree(terrace_cache* cache, size_t lines_max, const char** text) {
  return on(cache, __func__, [&] {
    need(text, "text");
    *text = (cache->tree_text = cache->cache().describe_tree(lines_max)).c_str();
  });
}

terrace_status terrace_cache_measure_misses(terrace_cache* cache) {
  return on(cache, __func__, [&] { cache->cache().measure_misses(); });
}

terrace_status terrace_cache_read_misses(const terrace_cache* cache, terrace_misses* out) {
  return on(cache, __func__, [&] {
    const auto [unknown, device, host, storage, damaged, cleared, turned_down, not_used] = cache->cache().miss_totals().units;
    write_struct("out", terrace_misses{0, unknown, device, host, storage, damaged, cleared, turned_down, not_used}, out);
  });
}

terrace_status terrace_cache_record_events(terrace_cache* cache) {
  return on(cache, __func__, [&] { cache->cache().record_events(); });
}

terrace_status terrace_cache_events(terrace_cache* cache, const terrace_cache_event** events, size_t* count) {
  return on(cache, __func__, [&] {
    give("events", events, count, [&]() -> auto& {
      cache->cache_events.clear();
      cache->changes.clear();
      cache->cache().take_events(cache->changes);
      for (const terrace::KvEvent& event : cache->changes) cache->cache_events.push_back(to_c(event));
      return cache->cache_events;
    });
  });
}

terrace_status terrace_cache_event_expiries(terrace_cache* cache, const int64_t** expire_after, size_t* count) {
  return on(cache, __func__, [&] {
    give("expire_after", expire_after, count, [&]() -> auto& {
      cache->expiries.clear();
      for (const terrace::KvEvent& event : cache->changes) cache->expiries.push_back(event.expires_after.count());
      return cache->expiries;
    });
  });
}

// ---- hints, pins, quotas

terrace_status terrace_cache_pin(terrace_cache* cache, const terrace_key* keys, size_t count, int64_t longest, uint64_t* pin) {
  return on(cache, __func__, [&] {
    need(pin, "pin");
    *pin = value_of(cache->cache().pin(keys_of(keys, count), time_from_now(longest))).value();
  });
}

terrace_status terrace_cache_unpin(terrace_cache* cache, uint64_t pin) {
  return on(cache, __func__, [&] { return cache->cache().unpin(terrace::PinId{pin}); });
}

terrace_status terrace_cache_retain(terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t priority,
                                    int64_t longest, uint64_t* retention) {
  return on(cache, __func__, [&] {
    need(retention, "retention");
    if (priority > TERRACE_HIGHEST_PRIORITY) {
      throw std::invalid_argument{"priority is " + std::to_string(priority) + ", must be from 0 to " +
                                  std::to_string(TERRACE_HIGHEST_PRIORITY)};
    }
    *retention =
        value_of(cache->cache().retain(keys_of(keys, count), static_cast<terrace::Priority>(priority), time_from_now(longest)))
            .value();
  });
}

terrace_status terrace_cache_end_retention(terrace_cache* cache, uint64_t retention) {
  return on(cache, __func__, [&] { return cache->cache().end_retention(terrace::RetentionId{retention}); });
}

terrace_status terrace_cache_expect_use(terrace_cache* cache, const terrace_key* keys, size_t count, int64_t in) {
  return on(cache, __func__, [&] { return cache->cache().expect_use(keys_of(keys, count), expected_after(in)); });
}

terrace_status terrace_cache_set_quota(terrace_cache* cache, uint64_t tenant, uint32_t device_blocks, uint32_t host_blocks,
                                       uint16_t pool) {
  return on(cache, __func__, [&] {
    const terrace::TenantQuota quota{terrace::Blocks{device_blocks}, terrace::Blocks{host_blocks}};
    return cache->cache().set_quota(terrace::TenantId{tenant}, quota, terrace::PoolId{pool});
  });
}

terrace_status terrace_cache_remove_quota(terrace_cache* cache, uint64_t tenant, uint16_t pool) {
  return on(cache, __func__, [&] { return cache->cache().remove_quota(terrace::TenantId{tenant}, terrace::PoolId{pool}); });
}

terrace_status terrace_cache_tenant_blocks(const terrace_cache* cache, uint64_t tenant, uint32_t tier, uint16_t pool,
                                           uint64_t* blocks) {
  return on(cache, __func__, [&] {
    need(blocks, "blocks");
    const auto held = cache->cache().tenant_blocks(terrace::TenantId{tenant}, memory_tier(tier), terrace::PoolId{pool});
    if (!held) throw Refusal{TERRACE_NOT_FOUND, "tenant " + std::to_string(tenant) + " has no quota in this pool"};
    *blocks = *held;
  });
}

// ---- write-back jobs

terrace_status terrace_write_back_start(terrace_cache* cache, const terrace_write_back* order, uint64_t* job) {
  return on(cache, __func__, [&] {
    need(job, "job");
    const terrace_write_back given = read_struct("order", order, offsetof(terrace_write_back, target));
    if (given.scope < TERRACE_SCOPE_PREFIX || given.scope > TERRACE_SCOPE_ALL) {
      throw std::invalid_argument{"order->scope is " + std::to_string(given.scope) + ", must be a TERRACE_SCOPE_ number"};
    }
    if (given.target > TERRACE_TARGET_SHARED) {
      throw std::invalid_argument{"order->target is " + std::to_string(given.target) + ", must be a TERRACE_TARGET_ number"};
    }
    if (given.count > 0) need(given.keys, "order->keys");
    if (given.unused_for < 0) throw std::invalid_argument{"order->unused_for is negative"};
    terrace::WriteBackOrder to;
    to.target = static_cast<terrace::WriteBackOrder::Target>(given.target);
    to.scope = static_cast<terrace::WriteBackOrder::Scope>(given.scope);
    to.keys = keys_of(given.keys, given.count);
    to.tenant = terrace::TenantId{given.tenant};
    to.unused_for = std::chrono::nanoseconds{given.unused_for};
    to.deadline = deadline_of(given.deadline);
    to.durable = given.not_durable == 0;
    to.budget = terrace::Bytes{given.budget};
    *job = value_of(cache->cache().start_write_back(to)).value();
  });
}

terrace_status terrace_write_back_pause(terrace_cache* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().pause_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_resume(terrace_cache* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().resume_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_cancel(terrace_cache* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().cancel_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_read(const terrace_cache* cache, uint64_t job, terrace_write_back_progress* out) {
  return on(cache, __func__, [&] {
    const std::optional<terrace::WriteBackProgress> now = cache->cache().write_back(terrace::WriteBackId{job});
    if (!now) throw Refusal{TERRACE_NOT_FOUND, "there is no write-back job " + std::to_string(job)};
    using Outcome = terrace::WriteBackOutcome;
    terrace_write_back_progress value{};
    value.state = static_cast<uint32_t>(now->state);
    value.flush_error = status_of(now->flush_error);
    value.stored = now->of(Outcome::stored);
    value.already_there = now->of(Outcome::already_there);
    value.dropped_full = now->of(Outcome::dropped_full);
    value.dropped_gone = now->of(Outcome::dropped_gone);
    value.over_budget = now->of(Outcome::over_budget);
    value.failed = now->of(Outcome::failed);
    value.cancelled = now->of(Outcome::cancelled);
    value.under_way = now->under_way;
    value.written_bytes = count(now->written);
    value.durable_bytes = count(now->durable);
    write_struct("out", value, out);
  });
}

terrace_status terrace_write_back_results(terrace_cache* cache, uint64_t job, const terrace_write_back_result** results,
                                          size_t* count) {
  return on(cache, __func__, [&] {
    give("results", results, count, [&]() -> auto& {
      const auto taken = value_of(cache->cache().take_write_back_results(terrace::WriteBackId{job}));
      cache->write_backs.clear();
      for (const terrace::WriteBackResult& each : taken) {
        cache->write_backs.push_back({key_to_c(each.key), static_cast<uint32_t>(each.outcome), status_of(each.error)});
      }
      return cache->write_backs;
    });
  });
}

terrace_status terrace_cache_checkpoint(terrace_cache* cache, int64_t longest, uint64_t* durable) {
  return on(cache, __func__, [&] {
    if (longest < 0) throw std::invalid_argument{"longest is " + std::to_string(longest) + ", must be nanoseconds from 0 on"};
    const terrace::CheckpointReport report =
        value_of(cache->cache().checkpoint(std::min<terrace::Duration>(terrace::Duration{longest}, std::chrono::years{1})));
    if (durable != nullptr) *durable = report.left.durable_blocks;
  });
}
