#include "runtime/admin/metrics.hpp"

#include "runtime/admin/metrics/families.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace terrace::admin {
namespace {

void add_endpoint(Families& all, const Health& health, Duration age) {
  all.states("terrace_health", "1 for the state that the cache or store is in, 0 for the others",
             {HealthState::ok, HealthState::degraded, HealthState::idle, HealthState::stalled}, health.state);
  all.gauge("terrace_snapshot_age_seconds", "Time since what this page shows was published", seconds(age));
}

void add_requests(Families& all, const AdminSnapshot& snapshot) {
  const ManagerStats& stats = snapshot.stats;
  all.counter("terrace_requests_total", "Requests that became ready, without preempted ones that came back",
              stats.requests.requests);
  all.counter("terrace_requests_preempted_total", "Preempted requests that came back and became ready", stats.preempted.requests);
  all.counter("terrace_requests_accepted_total", "Requests that were accepted", stats.acquired);
  all.counters("terrace_requests_refused_total", "Requests that were refused", "reason",
               {{"no_room", stats.refused_no_room},
                {"never_fits", stats.refused_never_fits},
                {"paused", stats.refused_paused},
                {"invalid", stats.refused_invalid}});
  all.counter("terrace_requests_failed_total", "Requests whose wait ended with an error", snapshot.waits.failed);
  all.counter("terrace_requests_aborted_total", "Leases that ended before their requests were ready", stats.aborted);
  all.counter("terrace_requests_unfenced_total", "Leases that ended without the point up to which they were used",
              stats.released_unfenced);
  const bool tokens = snapshot.unit_tokens > 0;
  const std::uint64_t each = tokens ? snapshot.unit_tokens : 1;
  const auto found = [&](const char* name, const char* help, const RequestTotals& totals) {
    for (const Source source : all_sources) {
      all.counter(name, help, totals.found[source] * each, label("source", terrace::to_string(source)));
    }
    all.counter(name, help, totals.external * each, label("source", "external"));
    all.counter(name, help, totals.miss * each, label("source", "none"));
  };
  const auto asked = [&](const char* name, const char* help, std::uint64_t units) { all.counter(name, help, units * each); };
  if (tokens) {
    found("terrace_request_tokens_total", "Tokens in full blocks that ready requests asked for, by where they were found",
          stats.requests);
    found("terrace_preempted_request_tokens_total", "The same, of preempted requests that came back", stats.preempted);
    asked("terrace_request_tokens_asked_total", "Tokens in full blocks that ready requests asked for", stats.requests.asked);
  } else {
    found("terrace_request_blocks_total", "Blocks that ready requests asked for, by where they were found", stats.requests);
    found("terrace_preempted_request_blocks_total", "The same, of preempted requests that came back", stats.preempted);
    asked("terrace_request_blocks_asked_total", "Blocks that ready requests asked for", stats.requests.asked);
  }
  all.counter("terrace_requests_ready_at_once_total", "Requests that did not wait", snapshot.waits.at_once);
  all.gauge("terrace_leases", "Leases that have not ended", snapshot.work.leases);
}

void add_waits(Families& all, const AdminSnapshot& snapshot) {
  const char* const wait = "terrace_request_wait_seconds";
  const char* const help =
      "Time until a request (of an OffloadCache a load, of a store a get) was ready, by the slowest thing that it waited for";
  if (!snapshot.tier_store) {
    all.times(wait, help, snapshot.waits.room, label("for", "room"));
    all.times(wait, help, snapshot.waits.loads[Source::host], label("for", "host"));
  }
  all.times(wait, help, snapshot.waits.loads[Source::storage], label("for", "storage"));
  if (snapshot.shared) {
    all.times(wait, help, snapshot.waits.loads[Source::shared], label("for", "shared"));
    all.times(wait, help, snapshot.waits.looking, label("for", "looking"));
  }
  all.gauge("terrace_waiting", "Requests (loads, gets) that wait now", snapshot.waits_now.requests);
}

void add_blocks(Families& all, const ManagerStats& stats) {
  all.counters("terrace_evictions_total", evictions_help, "tier",
               {{"device", stats.evicted_device}, {"host", stats.evicted_host}, {"storage", stats.stored_evicted}});
  all.counters("terrace_evictions_ahead_total", "Copies that were dropped ahead of need, for the reserve or a watermark", "tier",
               {{"device", stats.ahead_device}, {"host", stats.ahead_host}});
  all.counters(
      "terrace_quarantined_blocks_total",
      "Slots that nobody could use for a while, because a lease without its last use or a late transfer might touch them",
      "reason", {{"unfenced", stats.quarantined_unfenced}, {"late", stats.quarantined_late}});
  all.counter("terrace_evictions_cancelled_total", "Blocks that were hit during their swap-out, and stayed",
              stats.evictions_cancelled);
  all.counter("terrace_not_admitted_total",
              "Blocks that were evicted from the device and not copied to the host, because its next victim was worth more",
              stats.not_admitted);
  all.counters("terrace_expect_use_total", "Calls that told when a prefix is used next, or that its session has ended", "what",
               {{"time", stats.uses_expected}, {"ended", stats.sessions_ended}});
  all.counter("terrace_expect_use_ignored_total",
              "Those that named no block, or none that belongs to the prefix alone, or came before the pace of uses was known",
              stats.expected_ignored);
  all.counters("terrace_drops_total", "Dropped copies, by whether a lower tier had the block", "block",
               {{"kept", stats.dropped_clean}, {"lost", stats.dropped_lost}});
  all.counters("terrace_load_failures_total", "Blocks that did not arrive", "reason",
               {{"late", stats.loads_late}, {"error", stats.load_failures - std::min(stats.load_failures, stats.loads_late)}});
  all.counter("terrace_loads_joined_total", "Blocks for which a request joined the load of another", stats.joined);
  all.counter("terrace_loads_turned_down_total", "Hits that were computed, because loading would have taken longer",
              stats.turned_down);
  all.counter("terrace_request_replans_total", "Requests that were planned again after a failed load", stats.replans);
  all.counter("terrace_duplicates_total", "Computed blocks whose content was cached already", stats.duplicates);
  all.counter("terrace_cleared_total", "Copies that were dropped by a clear", stats.cleared);
  all.counter("terrace_dropped_by_call_total", "Copies that were dropped by a call of the engine", stats.dropped_by_call);
  all.counters("terrace_not_stored_total", "Blocks that should have been stored and were not", "reason",
               {{"failed", stats.store_failed},
                {"skipped", stats.store_skipped},
                {"gone", stats.store_gone},
                {"no_room", stats.store_no_room},
                {"orphaned", stats.store_orphaned},
                {"cancelled", stats.store_cancelled},
                {"over_budget", stats.store_over_budget}});
}

void add_moved(Families& all, const AdminSnapshot& snapshot) {
  const MovedTotals& moved = snapshot.moved;
  Rows<Moved> directions = rows_of<Moved>("direction", {{"swap_out", &moved.swap_out},
                                                        {"swap_in", &moved.swap_in},
                                                        {"storage_read", &moved.storage_reads},
                                                        {"storage_write", &moved.storage_writes},
                                                        {"shared_read", &moved.shared_reads},
                                                        {"shared_write", &moved.shared_writes}});
  if (!snapshot.shared) directions.resize(4);
  add_moved_totals(all, directions);
  all.counters("terrace_moving_seconds_total", "Time during which at least one copy was under way", directions, &Moved::seconds);
  all.gauges("terrace_under_way", "Transfers, reads of blocks and writes of blocks that have not ended", "kind",
             {{"transfer", snapshot.work.transfers}, {"read", snapshot.work.reads}, {"write", snapshot.work.writes}});
  all.gauge("terrace_transfers_paused", "1 if transfers are paused", snapshot.transfers_paused ? 1 : 0);
  all.states("terrace_cache_state", "1 for the state of the cache, 0 for the others; it serves requests only if it is normal",
             {CacheStatus::normal, CacheStatus::clearing, CacheStatus::cleared}, snapshot.status);
  all.gauge("terrace_erasing", "1 while a kill may bring back blocks that a clear has removed from storage",
            snapshot.erasing ? 1 : 0);
  for (const auto& [direction, copies] :
       {std::pair{"swap_out", snapshot.stats.swap_outs}, std::pair{"swap_in", snapshot.stats.swap_ins}}) {
    for (const auto& [reason, blocks] :
         {std::pair{"error", copies.failed}, std::pair{"cancelled", copies.cancelled}, std::pair{"late", copies.late}}) {
      all.counter("terrace_not_moved_total", "Blocks that were to be copied between device and host, and were not, by reason",
                  blocks, {{"direction", direction}, {"reason", reason}});
    }
  }
  all.gauge("terrace_link_up", "1 unless copies between device and host fail or do not end, and none is begun",
            snapshot.link.in_use ? 1 : 0);
  all.counter("terrace_link_stopped_total", "How often terrace_link_up became 0", snapshot.link.stopped);
  all.counter("terrace_link_silent_total", "Copies between device and host that were found not to end", snapshot.link.silent);
  Rows<RankHealth> ranks;
  for (const RankHealth& rank : snapshot.ranks) ranks.emplace_back(label("rank", rank.name), &rank);
  all.gauges("terrace_rank_up", "1 if the rank keeps up and its copies arrive", ranks,
             [](const RankHealth& rank) { return rank.state == RankHealth::State::well ? 1 : 0; });
  all.gauges("terrace_rank_oldest_transfer_seconds", "Age of the oldest transfer that the rank owes", ranks,
             [](const RankHealth& rank) { return seconds(rank.oldest); });
}

void add_queues(Families& all, const AdminSnapshot& snapshot) {
  Rows<TransferQueue> queues;
  for (const TransferQueue& queue : snapshot.queues) {
    const Labels labels{{"direction", std::string{to_string(queue.direction)}},
                        {"urgency", std::string{to_string(queue.urgency)}}};
    queues.emplace_back(labels, &queue);
  }
  all.gauges("terrace_transfers_queued", "Transfers that have not ended", queues, &TransferQueue::transfers);
  all.gauges("terrace_transfers_queued_blocks", "Blocks of transfers that have not ended", queues, &TransferQueue::blocks);
  all.gauges("terrace_transfers_oldest_seconds", "Time since the order of the oldest transfer that has not ended", queues,
             &TransferQueue::oldest_seconds);
  const TransferTimes& times = snapshot.transfer_times;
  Rows<TimeTotal> directions = rows_of<TimeTotal>("direction", {{"swap_out", &times.swap_out},
                                                                {"swap_in", &times.swap_in},
                                                                {"storage_read", &times.storage_read},
                                                                {"storage_write", &times.storage_write},
                                                                {"shared_probe", &times.shared_probe},
                                                                {"shared_read", &times.shared_read},
                                                                {"shared_write", &times.shared_write}});
  if (!snapshot.shared) directions.resize(4);
  all.times("terrace_transfer_seconds", "Time from the order of a transfer, or of a read or write of one block, to its end",
            directions);
  const CallTimes& calls = snapshot.calls;
  all.times("terrace_call_seconds", "Time of calls of the engine; one call in sixteen is measured",
            rows_of<TimeTotal>("call", {{"acquire", &calls.acquire},
                                        {"extend", &calls.extend},
                                        {"commit", &calls.commit},
                                        {"release", &calls.release},
                                        {"load", &calls.load},
                                        {"store", &calls.store},
                                        {"poll", &calls.poll}}));
}

void add_misses(Families& all, const MissTotals& misses) {
  all.counters_by<MissReason>(
      "terrace_missed_units_total",
      "Blocks that requests asked for and had to compute, in hash units, by what became of their copies; estimated from a share "
      "of the keys",
      "reason", misses.units);
}

void add_idle(Families& all, const IdleTotals& idle) {
  all.times("terrace_idle_service_seconds",
            "Time of the slices of work while the engine made no call, and of its calls' waits for the end of one",
            rows_of<TimeTotal>("what", {{"slice", &idle.slices}, {"engine_wait", &idle.engine_waits}}));
}

void add_eviction(Families& all, const Rows<AdminSnapshot::Slots>& tiers) {
  all.gauges("terrace_eviction_by_rank", "1 if the tier evicts by what its policy has learned, 0 if by last use", tiers,
             [](const AdminSnapshot::Slots& slots) { return slots.eviction.by_rank ? 1 : 0; });
  const auto outcome = [&](std::string_view name, std::uint64_t ExpectedUses::*count) {
    for (const auto& [labels, slots] : tiers) {
      Labels of_outcome = labels;
      of_outcome.push_back({"outcome", std::string{name}});
      all.counter("terrace_expected_uses_total", "What became of expected uses of blocks of a tier, by nodes of the prefix tree",
                  slots->eviction.expected.*count, std::move(of_outcome));
    }
  };
  outcome("met", &ExpectedUses::met);
  outcome("late", &ExpectedUses::late);
  outcome("not_expected", &ExpectedUses::not_expected);
  all.gauges("terrace_uses_expected", "Nodes of the prefix tree whose use is expected, or whose session has ended", tiers,
             [](const AdminSnapshot::Slots& slots) { return slots.eviction.expected.waiting; });
  const auto each_class = [&](const auto& add) {
    for (const auto& [labels, slots] : tiers) {
      for (const EvictionClass& each : slots->eviction.classes) {
        Labels of_class = labels;
        of_class.push_back({"uses", std::string{each.uses}});
        of_class.push_back({"kind", std::string{each.kind}});
        add(each, std::move(of_class));
      }
    }
  };
  each_class([&](const EvictionClass& each, Labels labels) {
    all.gauge("terrace_eviction_class_share",
              "Share of the blocks of a tier by how often they were used again and by the kind of their last request, estimated",
              each.share, std::move(labels));
  });
  each_class([&](const EvictionClass& each, Labels labels) {
    all.counter("terrace_eviction_class_hits_total", "Uses of blocks that the tier had, by the same classes, estimated",
                each.hits, std::move(labels));
  });
}

void add_memory(Families& all, const AdminSnapshot& snapshot) {
  using Pool = AdminSnapshot::Pool;
  using Slots = AdminSnapshot::Slots;
  const Rows<Pool> pools = rows_of_pools(snapshot);
  Rows<Slots> tiers;
  for (const auto& [labels, pool] : pools) {
    for (const auto& [tier, slots] : {std::pair{"device", &pool->device}, std::pair{"host", &pool->host}}) {
      tiers.emplace_back(labels, slots).first.push_back({"tier", tier});
    }
  }
  for (const auto& [labels, slots] : tiers) {
    const std::uint64_t used = slots->blocks - slots->free - slots->evictable;
    const std::uint64_t quarantined = std::min(used, slots->quarantined);
    for (const auto& [state, blocks] : {std::pair{"free", slots->free}, std::pair{"evictable", slots->evictable},
                                        std::pair{"in_use", used - quarantined}, std::pair{"quarantined", quarantined}}) {
      Labels with_state = labels;
      with_state.push_back({"state", state});
      all.gauge("terrace_blocks", "Slots of a tier by how they are used", blocks, std::move(with_state));
    }
  }
  add_block_bytes(all, snapshot);
  all.gauges("terrace_blocks_promised", "Slots that are promised to waiting requests", tiers, &Slots::promised);
  all.gauges("terrace_blocks_retiring", "Slots that a resize still has to retire", tiers, &Slots::retiring);
  add_eviction(all, tiers);
  all.gauges("terrace_host_blocks_wanted", "Blocks that the host tier should have", pools,
             [](const Pool& pool) { return pool.host_memory.wanted; });
  all.gauges("terrace_host_blocks_usable", "Of these, blocks that have memory", pools,
             [](const Pool& pool) { return pool.host_memory.usable; });
  all.gauges("terrace_host_mapped_bytes", "Host memory that is mapped", pools,
             [](const Pool& pool) { return count(pool.host_memory.mapped); });
  all.counters("terrace_host_growth_failures_total", "How often the host tier could not grow as ordered", pools,
               &Pool::host_growth_failures);
}

/// How long blocks stay in memory, counted in requests, of the blocks that are followed.
void add_residency(Families& all, const AdminSnapshot& snapshot) {
  const Rows<AdminSnapshot::Pool> pools = rows_of_pools(snapshot);
  const auto of_tiers = [&](const char* name, const char* help, SummedHistogram ResidencyTotals::OfTier::*member) {
    for (const auto& [labels, pool] : pools) {
      for (const auto& [tier, totals] :
           {std::pair{"device", &pool->residency.device}, std::pair{"host", &pool->residency.host}}) {
        Labels with_tier = labels;
        with_tier.push_back({"tier", tier});
        const SummedHistogram& values = totals->*member;
        all.histogram(name, help, values, static_cast<double>(values.sum), std::move(with_tier));
      }
    }
  };
  of_tiers("terrace_block_lifetime_requests", "Requests that were accepted while a block was in the tier, of one block in 64",
           &ResidencyTotals::OfTier::lifetime);
  of_tiers("terrace_block_idle_requests", "Of these, requests after its last use", &ResidencyTotals::OfTier::idle);
  for (const auto& [labels, pool] : pools) {
    const SummedHistogram& gaps = pool->residency.gaps;
    all.histogram("terrace_block_gap_requests", "Requests between two uses of a block that stayed in memory", gaps,
                  static_cast<double>(gaps.sum), labels);
  }
}

void add_daily_writes(Families& all, const AdminSnapshot& snapshot) {
  all.gauge("terrace_daily_write_bytes", "Bytes that were written to storage in this day", count(snapshot.daily_writes.written));
  all.gauge("terrace_daily_write_limit_bytes", "The most bytes per day; 0: no limit", count(snapshot.daily_writes.limit));
  const StorageGain gain = storage_gain(snapshot);
  if (gain.prefill_seconds) {
    all.gauge("terrace_storage_saved_seconds",
              "Time for computing what came from storage, less the time that requests waited for it",
              *gain.prefill_seconds - gain.waited_seconds);
  }
}

void add_jobs(Families& all, const AdminSnapshot& snapshot) {
  std::uint64_t running = 0;
  std::uint64_t paused = 0;
  std::uint64_t under_way = 0;
  for (const WriteBackProgress& job : snapshot.jobs) {
    if (job.ended()) continue;
    ++(job.state == WriteBackState::paused ? paused : running);
    under_way += job.under_way;
  }
  all.gauges("terrace_write_back_jobs", "Write-back jobs that have not ended", "state",
             {{"running", running}, {"paused", paused}});
  all.counters_by<WriteBackOutcome>("terrace_write_back_blocks_total", "Blocks of write-back jobs, by outcome", "outcome",
                                    snapshot.job_blocks);
  all.gauge("terrace_write_back_blocks_under_way", "Blocks of write-back jobs that are being written", under_way);
}

void add_offload(Families& all, const OffloadTotals& totals) {
  all.counter("terrace_offload_jobs_total", "Jobs of the engine that were accepted", totals.jobs);
  all.counter("terrace_offload_jobs_refused_total", "Jobs of the engine that were refused", totals.refused);
  all.counters("terrace_offload_loads_total", "Blocks that the engine asked to load, by result", "result",
               {{"host", totals.loaded_host},
                {"storage", totals.loaded_storage},
                {"shared", totals.loaded_shared},
                {"miss", totals.load_misses},
                {"error", totals.load_failures}});
  all.counters("terrace_offload_stores_total", "Blocks that the engine asked to store, by result", "result",
               {{"stored", totals.stored},
                {"already_there", totals.already_there},
                {"full", totals.store_full},
                {"error", totals.store_failures}});
  all.counter("terrace_offload_asked_total", "Keys in questions of the engine about what is there", totals.asked);
  all.counter("terrace_offload_found_total", "Of these, keys that hit", totals.found);
  all.counter("terrace_offload_late_total", "Blocks of jobs that ended at their deadline", totals.late);
}

void add_prefetches(Families& all, const PrefetchTotals& totals) {
  all.counters("terrace_prefetches_total", "Orders to bring the blocks of a coming request up to the host tier", "result",
               {{"accepted", totals.orders}, {"refused", totals.refused}});
  all.counter("terrace_prefetches_cut_total", "Accepted orders that bring only their first blocks, because of the bound on all",
              totals.cut);
  all.counter("terrace_prefetches_cancelled_total", "Accepted orders that were cancelled or given up", totals.cancelled);
  all.counter("terrace_prefetches_joined_total", "Requests that waited for the prefetch of their blocks", totals.joined);
  all.counters("terrace_prefetched_blocks_total", "Blocks that prefetches brought to the host tier", "source",
               {{"storage", totals.from_storage}, {"shared", totals.from_shared}});
  all.counter("terrace_prefetch_failures_total", "Blocks of prefetches that did not arrive", totals.failed);
}

void add_effect(Families& all, const SizeEffect& effect) {
  for (std::size_t n = 0; n < size_factors.size(); ++n) {
    all.gauge("terrace_lru_hit_ratio",
              "Share of the blocks asked for that an LRU cache would hit in this tier and those above it, by the tier's size",
              effect.hit_ratio[n], {{"tier", std::string{to_string(effect.tier)}}, {"size", std::string{size_factors[n].name}}});
  }
}

}  // namespace

std::optional<std::string> metrics_text(const AdminSnapshot& snapshot, const Health& health, Duration age,
                                        std::span<const SizeEffect> effects) {
  Families all;
  add_endpoint(all, health, age);
  if (snapshot.tier_store) {
    add_tier_store(all, *snapshot.tier_store);
    add_waits(all, snapshot);
    const std::optional<StoreStat>& store = snapshot.pools.front().store;
    if (store) all.counter("terrace_evictions_total", evictions_help, store->evicted, label("tier", "storage"));
    add_block_bytes(all, snapshot);
    add_storage(all, snapshot);
    add_misses(all, snapshot.misses);
    if (snapshot.shared) {
      add_shared_store(all, *snapshot.shared);
      add_shared_tier_store(all, *snapshot.tier_store);
    }
  } else {
    add_requests(all, snapshot);
    add_waits(all, snapshot);
    add_blocks(all, snapshot.stats);
    add_moved(all, snapshot);
    add_queues(all, snapshot);
    add_memory(all, snapshot);
    add_storage(all, snapshot);
    add_daily_writes(all, snapshot);
    add_jobs(all, snapshot);
    if (snapshot.offload) {
      add_offload(all, *snapshot.offload);
    } else {
      add_prefetches(all, snapshot.prefetches);
      add_residency(all, snapshot);
    }
    add_misses(all, snapshot.misses);
    if (snapshot.shared) {
      add_shared_store(all, *snapshot.shared);
      add_shared_cache(all, *snapshot.shared);
    }
  }
  add_idle(all, snapshot.idle);
  for (const SizeEffect& effect : effects) add_effect(all, effect);
  return all.text();
}

}  // namespace terrace::admin
