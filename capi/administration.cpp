#include "capi/keys.hpp"
#include "capi/offload.hpp"
#include "capi/status.hpp"

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

terrace_cache_event to_c(const KvEvent& event) {
  terrace_cache_event to{};
  to.key = key_to_c(event.key);
  if (event.parent) to.parent = key_to_c(*event.parent);
  to.tenant = event.tenant.value();
  to.kind = static_cast<uint32_t>(event.kind);
  to.source = static_cast<uint32_t>(event.source) + 1;  // the numbers of terrace_offload_look_up()
  to.depth = event.depth;
  to.group = event.group.value();
  return to;
}

}  // namespace
}  // namespace terrace::capi

terrace_status terrace_offload_clear(terrace_offload* cache, uint32_t flags) {
  return on(cache, __func__, [&] {
    constexpr uint32_t known = TERRACE_CLEAR_KEEP_STORAGE | TERRACE_CLEAR_KEEP_SHARED | 1U;
    if ((flags & ~known) != 0) {
      throw std::invalid_argument{"flags is " + std::to_string(flags) +
                                  ", must be a sum of TERRACE_CLEAR_KEEP_STORAGE and TERRACE_CLEAR_KEEP_SHARED"};
    }
    cache->cache().clear(
        {.keep_storage = (flags & TERRACE_CLEAR_KEEP_STORAGE) != 0, .keep_shared = (flags & TERRACE_CLEAR_KEEP_SHARED) != 0});
  });
}

terrace_status terrace_offload_resume_shared(terrace_offload* cache, const char* weights_revision) {
  return on(cache, __func__, [&] {
    return weights_revision == nullptr ? cache->cache().resume_shared() : cache->system.resume_shared(weights_revision);
  });
}

terrace_status terrace_offload_resize(terrace_offload* cache, uint32_t tier, uint32_t blocks, uint16_t pool) {
  return on(cache, __func__, [&] {
    if (tier != TERRACE_TIER_HOST && tier != TERRACE_TIER_STORAGE) {
      throw std::invalid_argument{"tier is " + std::to_string(tier) + ", must be TERRACE_TIER_HOST or TERRACE_TIER_STORAGE"};
    }
    return cache->cache().resize(static_cast<terrace::Tier>(tier), terrace::Blocks{blocks}, terrace::PoolId{pool});
  });
}

terrace_status terrace_offload_read_statistics(const terrace_offload* cache, terrace_offload_statistics* out) {
  return on(cache, __func__, [&] {
    const terrace::OffloadTotals jobs = cache->offload->totals();
    const terrace::ManagerStats stats = cache->cache().stats();
    const terrace::MovedTotals moved = cache->cache().moved();
    const terrace::Usage host = cache->cache().usage(terrace::Tier::host);
    terrace_offload_statistics value{};
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
    value.blocks_in_flight = cache->offload->blocks_in_flight();
    value.host_blocks = host.blocks;
    value.host_free = host.free;
    value.evicted_host = stats.evicted_host;
    value.dropped_lost = stats.dropped_lost;
    value.swapped_out_bytes = count(moved.swap_out.bytes);
    value.swapped_in_bytes = count(moved.swap_in.bytes);
    value.storage_read_bytes = count(moved.storage_reads.bytes);
    value.storage_written_bytes = count(moved.storage_writes.bytes);
    value.durable_blocks = cache->cache().durability().durable_blocks;
    const terrace::SharedTotals shared = cache->cache().shared_totals();
    value.loaded_shared = jobs.loaded_shared;
    value.shared_asked = shared.asked;
    value.shared_there = shared.there;
    value.shared_written = shared.written;
    value.shared_present = shared.present;
    value.erasing = cache->cache().erasing() ? 1 : 0;
    value.shared_off = cache->cache().shared_is_off() ? 1 : 0;
    value.loads = jobs.loads;
    value.stores = jobs.stores;
    value.asked = jobs.asked;
    value.found = jobs.found;
    value.link_down = cache->cache().link_health().in_use ? 0 : 1;
    write_struct("out", value, out, offsetof(terrace_offload_statistics, loaded_shared));
  });
}

terrace_status terrace_offload_record_events(terrace_offload* cache) {
  return on(cache, __func__, [&] { cache->cache().record_events(); });
}

terrace_status terrace_offload_events(terrace_offload* cache, const terrace_cache_event** events, size_t* count) {
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

terrace_status terrace_offload_event_expiries(terrace_offload* cache, const int64_t** expire_after, size_t* count) {
  return on(cache, __func__, [&] {
    give("expire_after", expire_after, count, [&]() -> auto& {
      cache->expiries.clear();
      for (const terrace::KvEvent& event : cache->changes) cache->expiries.push_back(event.expires_after.count());
      return cache->expiries;
    });
  });
}

terrace_status terrace_write_back_start(terrace_offload* cache, const terrace_write_back* order, uint64_t* job) {
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

terrace_status terrace_write_back_pause(terrace_offload* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().pause_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_resume(terrace_offload* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().resume_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_cancel(terrace_offload* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->cache().cancel_write_back(terrace::WriteBackId{job}); });
}

terrace_status terrace_write_back_read(const terrace_offload* cache, uint64_t job, terrace_write_back_progress* out) {
  return on(cache, __func__, [&] {
    const std::optional<terrace::WriteBackProgress> now = cache->cache().write_back(terrace::WriteBackId{job});
    if (!now) throw Refusal{terrace::Errc::not_found};
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

terrace_status terrace_write_back_results(terrace_offload* cache, uint64_t job, const terrace_write_back_result** results,
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
