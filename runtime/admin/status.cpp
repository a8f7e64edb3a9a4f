#include "runtime/admin/status.hpp"

#include "runtime/admin/command.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace terrace::admin {
namespace {

namespace json = boost::json;

std::string_view to_string(RankHealth::State state) {
  switch (state) {
    case RankHealth::State::well: return "well";
    case RankHealth::State::slow: return "slow";
    case RankHealth::State::lost: return "lost";
    case RankHealth::State::failing: return "failing";
  }
  return "unknown";
}

void add_reasons(const AdminSnapshot& snapshot, std::vector<std::string>& reasons) {
  if (snapshot.status != CacheStatus::normal) {
    reasons.push_back(fmt::format("the cache is {}cleared, and serves nothing until it is resumed",
                                  snapshot.status == CacheStatus::clearing ? "being " : ""));
  }
  if (snapshot.transfers_paused) reasons.emplace_back("transfers are paused");
  for (std::size_t number = 0; number < snapshot.pools.size(); ++number) {
    const AdminSnapshot::Pool& pool = snapshot.pools[number];
    if (pool.health && pool.health->state != StoreState::well) {
      reasons.push_back(of_pool(snapshot, number,
                                fmt::format("storage is {}: {}", terrace::to_string(pool.health->state), pool.health->reason)));
    }
    const HostMemory& host = pool.host_memory;
    if (!host.warm() && host.coming == 0 && !host.failure.empty()) {
      reasons.push_back(of_pool(snapshot, number,
                                fmt::format("the host tier has {} of {} blocks: {}", host.usable, host.wanted, host.failure)));
    }
    if (pool.store && pool.store->growth_error) {
      reasons.push_back(of_pool(snapshot, number,
                                fmt::format("storage stopped growing at {} blocks: {}", pool.store->capacity_blocks,
                                            pool.store->growth_error.message())));
    }
  }
  if (snapshot.shared && snapshot.shared->off) {
    reasons.emplace_back("the shared store is not used since the cache was cleared: name the weights (terrace update)");
  }
  if (snapshot.shared && snapshot.shared->health.state != StoreState::well) {
    const SharedHealth& health = snapshot.shared->health;
    reasons.push_back(
        fmt::format("the shared store is {}, so blocks there are misses: {}", terrace::to_string(health.state), health.reason));
  }
  if (!snapshot.link.in_use) reasons.push_back(snapshot.link.reason);
  for (const RankHealth& rank : snapshot.ranks) {
    if (rank.state == RankHealth::State::well) continue;
    reasons.push_back(fmt::format("{} is {}", rank.name, to_string(rank.state)));
  }
}

json::object to_json(const Usage& usage, std::uint64_t quarantined, std::uint64_t retiring) {
  return {{"blocks", usage.blocks},
          {"free", usage.free},
          {"evictable", usage.evictable},
          {"promised", usage.promised},
          {"in_use", usage.blocks - usage.free - usage.evictable},
          {"quarantined", quarantined},
          {"retiring", retiring}};
}

json::object to_json(const StoreStat& store, const std::optional<StoreHealth>& health) {
  json::object object{{"capacity_blocks", store.capacity_blocks},
                      {"wanted_blocks", store.wanted_blocks},
                      {"blocks", store.blocks},
                      {"writing", store.writing},
                      {"quarantined", store.quarantined},
                      {"free", store.free},
                      {"evicted", store.evicted},
                      {"corrupt", store.corrupt},
                      {"io_errors", store.io_errors},
                      {"growth_stopped", store.growth_stopped},
                      {"growth_error", store.growth_error ? store.growth_error.message() : ""},
                      {"directories", store.directories},
                      {"directories_lost", store.directories_lost}};
  if (!health) return object;
  object["state"] = terrace::to_string(health->state);
  object["reason"] = health->reason;
  object["breaker"] = terrace::to_string(health->breaker);
  return object;
}

json::object to_json(const TierStatistics& store, bool shares) {
  json::object object{{"gets", store.gets},
                      {"hits", store.hits},
                      {"misses", store.misses},
                      {"corrupt", store.corrupt},
                      {"get_failures", store.get_failures},
                      {"gets_cancelled", store.gets_cancelled},
                      {"gets_late", store.gets_late},
                      {"puts", store.puts},
                      {"stored", store.stored},
                      {"put_failures", store.put_failures},
                      {"puts_cancelled", store.puts_cancelled},
                      {"puts_late", store.puts_late},
                      {"read_bytes", count(store.read)},
                      {"written_bytes", count(store.written)},
                      {"unaligned_blocks", store.unaligned},
                      {"refused", store.refused},
                      {"without_parent", store.without_parent},
                      {"flushes", store.flushes},
                      {"flush_failures", store.flush_failures},
                      {"not_flushed", store.not_flushed},
                      {"events_dropped", store.events_dropped},
                      {"batches", store.batches},
                      {"waiting", store.waiting},
                      {"under_way", store.under_way},
                      {"regions", store.regions}};
  object["asked"] = store.asked;
  object["found"] = store.found;
  if (!shares) return object;
  object["shared_gets"] = store.shared_gets;
  object["shared_gets_declined"] = store.shared_gets_declined;
  object["shared_puts"] = store.shared_puts;
  object["shared_puts_cancelled"] = store.shared_puts_cancelled;
  object["shared_puts_declined"] = store.shared_puts_declined;
  object["shared_hits"] = store.shared_hits;
  object["shared_misses"] = store.shared_misses;
  object["shared_stored"] = store.shared_stored;
  object["shared_present"] = store.shared_present;
  object["shared_not_stored"] = store.shared_not_stored;
  return object;
}

json::object to_json(const SharedNode& node) {
  return {{"address", node.address},
          {"breaker", terrace::to_string(node.breaker)},
          {"connections", node.connections},
          {"in_flight_bytes", count(node.in_flight)},
          {"reconnects", node.reconnects},
          {"redirections", node.redirections},
          {"failed", node.failed}};
}

json::object to_json(const SharedStoreStat& stat) {
  json::object corrupt;
  for (std::size_t reason = 0; reason < shared_mismatch_count; ++reason) {
    corrupt[terrace::to_string(static_cast<SharedMismatch>(reason))] = stat.mismatches[reason];
  }
  return {{"probes", stat.probes},
          {"keys_asked", stat.keys_asked},
          {"keys_there", stat.keys_there},
          {"reads", stat.reads},
          {"reads_missing", stat.reads_missing},
          {"writes", stat.writes},
          {"renewed", stat.renewed},
          {"removed", stat.removed},
          {"timed_out", stat.timed_out},
          {"failed", stat.failed},
          {"declined", stat.declined},
          {"full", stat.full},
          {"corrupt", std::move(corrupt)},
          {"read_bytes", count(stat.read)},
          {"written_bytes", count(stat.written)}};
}

json::object to_json(const SharedTotals& totals) {
  return {{"look_ups", totals.look_ups},
          {"look_ups_joined", totals.look_ups_joined},
          {"look_ups_skipped", totals.look_ups_skipped},
          {"look_ups_late", totals.look_ups_late},
          {"asked", totals.asked},
          {"there", totals.there},
          {"read_gone", totals.read_gone},
          {"read_corrupt", totals.read_corrupt},
          {"read_late", totals.read_late},
          {"read_failed", totals.read_failed},
          {"wishes", totals.wishes},
          {"wished_blocks", totals.wished},
          {"present", totals.present},
          {"renewed", totals.renewed},
          {"written", totals.written},
          {"drop_bound", totals.drop_bound},
          {"drop_gone", totals.drop_gone},
          {"drop_failed", totals.drop_failed},
          {"drop_full", totals.drop_full},
          {"drop_budget", totals.drop_budget},
          {"drop_off", totals.drop_off}};
}

json::object to_json(const PrefetchTotals& totals) {
  return {{"orders", totals.orders},           {"refused", totals.refused}, {"cut", totals.cut},
          {"cancelled", totals.cancelled},     {"joined", totals.joined},   {"from_storage", totals.from_storage},
          {"from_shared", totals.from_shared}, {"failed", totals.failed}};
}

/// `of_cache`: a cache uses the store, and not a TierStore.
json::object to_json(const SharedStoreSnapshot& shared, bool of_cache) {
  json::array nodes;
  for (const SharedNode& node : shared.health.nodes) nodes.push_back(to_json(node));
  json::object object{{"state", terrace::to_string(shared.health.state)},
                      {"reason", shared.health.reason},
                      {"off", shared.off},
                      {"nodes", std::move(nodes)},
                      {"store", to_json(shared.stat)}};
  if (!of_cache) return object;
  object["cache"] = to_json(shared.totals);
  object["waiting_blocks"] = shared.waiting_blocks;
  object["round_trip_seconds"] = shared.round_trip_seconds;
  return object;
}

json::object to_json(const AdminSnapshot::Pool& pool) {
  json::object host = to_json(pool.host, pool.quarantined_host, pool.retiring_host);
  host["wanted"] = pool.host_memory.wanted;
  host["usable"] = pool.host_memory.usable;
  host["mapped_bytes"] = count(pool.host_memory.mapped);
  host["growth_failures"] = pool.host_growth_failures;
  host["growth_error"] = pool.host_memory.failure;
  json::object device = to_json(pool.device, pool.quarantined_device, pool.retiring_device);
  device["blocks_max"] = pool.device_blocks_max;
  json::object object{{"block_bytes", count(pool.block_bytes)}, {"device", std::move(device)}, {"host", std::move(host)}};
  if (pool.store) object["storage"] = to_json(*pool.store, pool.health);
  return object;
}

json::object to_json(const RequestTotals& totals, std::string_view unit) {
  json::object object{{"requests", totals.requests}, {"unit", unit}, {"asked", totals.asked}};
  for (const Source source : all_sources) object[terrace::to_string(source)] = totals.found[source];
  object["external"] = totals.external;
  object["miss"] = totals.miss;
  return object;
}

json::object to_json(const Moved& moved) {
  return {{"blocks", moved.blocks}, {"bytes", count(moved.bytes)}, {"seconds", moved.seconds}};
}

json::object to_json(const WaitTotal& wait) { return {{"requests", wait.requests}, {"seconds", wait.seconds}}; }

json::object to_json(const WaitTotals& waits) {
  json::object object{
      {"at_once", waits.at_once}, {"room", to_json(waits.room)}, {"looking", to_json(waits.looking)}, {"failed", waits.failed}};
  for (const Source source : all_sources) {
    if (source != Source::device) object[terrace::to_string(source)] = to_json(waits.loads[source]);
  }
  return object;
}

json::object to_json(const TransferQueue& queue) {
  return {{"direction", admin::to_string(queue.direction)},
          {"urgency", admin::to_string(queue.urgency)},
          {"transfers", queue.transfers},
          {"blocks", queue.blocks},
          {"oldest_seconds", queue.oldest_seconds}};
}

json::object to_json(const SlowRequest& request) {
  return {{"id", request.id.value()}, {"seconds", request.seconds}, {"for", waited_for(request)}};
}

json::object to_json(const ManagerStats& stats) {
  return {{"acquired", stats.acquired},
          {"refused_no_room", stats.refused_no_room},
          {"refused_never_fits", stats.refused_never_fits},
          {"refused_paused", stats.refused_paused},
          {"refused_invalid", stats.refused_invalid},
          {"aborted", stats.aborted},
          {"joined", stats.joined},
          {"turned_down", stats.turned_down},
          {"load_failures", stats.load_failures},
          {"loads_late", stats.loads_late},
          {"evicted_device", stats.evicted_device},
          {"evicted_host", stats.evicted_host},
          {"dropped_clean", stats.dropped_clean},
          {"dropped_lost", stats.dropped_lost},
          {"stored_evicted", stats.stored_evicted},
          {"cleared", stats.cleared}};
}

json::object to_json(const MissTotals& misses) {
  json::object object;
  for (std::size_t reason = 0; reason < miss_reason_count; ++reason) {
    object[name_of(terrace::to_string(static_cast<MissReason>(reason)))] = misses.units[reason];
  }
  std::uint64_t counted = 0;
  std::size_t bucket = 0;
  while (bucket + 1 < Histogram::buckets && (counted += misses.gone_seconds.counts[bucket]) * 2 < misses.gone_seconds.total())
    ++bucket;
  object["gone_seconds_median"] = Histogram::smallest(bucket);
  return object;
}

json::object to_json(const OffloadTotals& totals) {
  return {{"jobs", totals.jobs},
          {"refused", totals.refused},
          {"loaded_host", totals.loaded_host},
          {"loaded_storage", totals.loaded_storage},
          {"loaded_shared", totals.loaded_shared},
          {"load_misses", totals.load_misses},
          {"load_failures", totals.load_failures},
          {"stored", totals.stored},
          {"already_there", totals.already_there},
          {"store_full", totals.store_full},
          {"store_failures", totals.store_failures},
          {"late", totals.late},
          {"loads", totals.loads},
          {"stores", totals.stores},
          {"asked", totals.asked},
          {"found", totals.found}};
}

json::object to_json(const CopyTotals& copies) {
  return {{"ordered", copies.ordered},
          {"done", copies.done},
          {"failed", copies.failed},
          {"cancelled", copies.cancelled},
          {"late", copies.late}};
}

/// `each`: tokens in one counted unit.
json::object to_json(const StorageGain& gain, std::uint32_t each) {
  json::object object{{"found", gain.found * each},
                      {"waited_seconds", gain.waited_seconds},
                      {"written_bytes", count(gain.written)},
                      {"written_bytes_per_day", count(gain.written_per_day)}};
  if (gain.prefill_seconds) object["prefill_seconds"] = *gain.prefill_seconds;
  return object;
}

json::object to_json(const RankHealth& rank) {
  return {{"name", rank.name},
          {"state", to_string(rank.state)},
          {"transfers", rank.transfers},
          {"failures_in_row", rank.failures_in_row},
          {"oldest_seconds", std::chrono::duration<double>(rank.oldest).count()}};
}

}  // namespace

std::string of_pool(const AdminSnapshot& snapshot, std::size_t pool, std::string_view sentence) {
  return snapshot.pools.size() == 1 ? std::string{sentence} : fmt::format("pool {}: {}", pool, sentence);
}

std::string name_of(std::string_view text) {
  std::string name;
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') name += c;
    else if (!name.empty() && name.back() != '_') name += '_';
  }
  return name;
}

std::string_view waited_for(const SlowRequest& request) {
  if (request.source) return terrace::to_string(*request.source);
  return request.looked ? "looking" : "room";
}

std::string_view to_string(Direction direction) { return direction == Direction::swap_in ? "swap_in" : "swap_out"; }

std::string_view to_string(Urgency urgency) {
  switch (urgency) {
    case Urgency::request: return "request";
    case Urgency::make_room: return "make_room";
    case Urgency::store: return "store";
  }
  return "unknown";
}

std::string_view to_string(CacheStatus status) {
  switch (status) {
    case CacheStatus::normal: return "normal";
    case CacheStatus::clearing: return "clearing";
    case CacheStatus::cleared: return "cleared";
  }
  return "unknown";
}

std::string_view to_string(HealthState state) {
  switch (state) {
    case HealthState::ok: return "ok";
    case HealthState::degraded: return "degraded";
    case HealthState::idle: return "idle";
    case HealthState::stalled: return "stalled";
  }
  return "unknown";
}

Health health_of(const AdminSnapshot& snapshot, Duration age, Duration interval, bool commands_wait) {
  Health health;
  add_reasons(snapshot, health.reasons);
  health.state = health.reasons.empty() ? HealthState::ok : HealthState::degraded;
  if (age <= interval * 3 + std::chrono::seconds{2}) return health;
  const bool works = snapshot.work.under_way || commands_wait;
  health.state = works ? HealthState::stalled : HealthState::idle;
  health.reasons.push_back(fmt::format("the engine has not polled for {:.1f} s, {}", std::chrono::duration<double>(age).count(),
                                       works ? "although work is under way" : "and nothing was under way"));
  return health;
}

StorageGain storage_gain(const AdminSnapshot& snapshot) {
  const WaitTotal& waits = snapshot.waits.loads[Source::storage];
  StorageGain gain{.found = snapshot.stats.requests.found[Source::storage],
                   .waited_seconds = waits.seconds,
                   .written = snapshot.moved.storage_writes.bytes};
  if (snapshot.offload) gain.found = snapshot.offload->loaded_storage;
  else if (snapshot.prefill_seconds > 0) gain.prefill_seconds = static_cast<double>(gain.found) * snapshot.prefill_seconds;
  const DailyWrites& daily = snapshot.daily_writes;
  if (daily.elapsed >= std::chrono::minutes{1}) {
    const double days = std::chrono::duration<double>(daily.elapsed) / std::chrono::hours{24};
    gain.written_per_day = Bytes{static_cast<std::uint64_t>(static_cast<double>(count(daily.written)) / days)};
  }
  return gain;
}

json::object to_json(const AdminSnapshot& snapshot) {
  if (snapshot.tier_store) {
    const AdminSnapshot::Pool& pool = snapshot.pools.front();
    json::object all{{"snapshot", snapshot.number},
                     {"erasing", snapshot.erasing},
                     {"store", to_json(*snapshot.tier_store, snapshot.shared.has_value())},
                     {"pools", {{{"block_bytes", count(pool.block_bytes)}, {"storage", to_json(*pool.store, pool.health)}}}},
                     {"io", snapshot.io}};
    if (snapshot.shared) all["shared"] = to_json(*snapshot.shared, false);
    return all;
  }
  const auto array_of = [](const auto& all) {
    json::array made;
    for (const auto& each : all) made.push_back(to_json(each));
    return made;
  };
  const WorkLeft& work = snapshot.work;
  const std::uint32_t tokens = snapshot.unit_tokens;
  json::object requests = to_json(snapshot.stats.requests, tokens == 0 ? "blocks" : "tokens");
  if (tokens > 1) {
    for (auto& [name, value] : requests) {
      if (name != "requests" && name != "unit") value = value.to_number<std::uint64_t>() * tokens;
    }
  }
  json::object moved{{"swap_out", to_json(snapshot.moved.swap_out)},
                     {"swap_in", to_json(snapshot.moved.swap_in)},
                     {"storage_reads", to_json(snapshot.moved.storage_reads)},
                     {"storage_writes", to_json(snapshot.moved.storage_writes)}};
  if (snapshot.shared) {
    moved["shared_reads"] = to_json(snapshot.moved.shared_reads);
    moved["shared_writes"] = to_json(snapshot.moved.shared_writes);
  }
  json::object all{
      {"cache", to_string(snapshot.status)},
      {"transfers_paused", snapshot.transfers_paused},
      {"erasing", snapshot.erasing},
      {"snapshot", snapshot.number},
      {"work", {{"leases", work.leases}, {"transfers", work.transfers}, {"reads", work.reads}, {"writes", work.writes}}},
      {"requests", std::move(requests)},
      {"waits", to_json(snapshot.waits)},
      {"queues", array_of(snapshot.queues)},
      {"slowest", array_of(snapshot.slowest)},
      {"blocks", to_json(snapshot.stats)},
      {"misses", to_json(snapshot.misses)},
      {"moved", std::move(moved)},
      {"storage_gain", to_json(storage_gain(snapshot), snapshot.offload ? 1 : std::max(tokens, 1U))},
      {"daily_writes",
       {{"limit_bytes", count(snapshot.daily_writes.limit)},
        {"written_bytes", count(snapshot.daily_writes.written)},
        {"elapsed_seconds", std::chrono::duration<double>(snapshot.daily_writes.elapsed).count()}}},
      {"pools", array_of(snapshot.pools)},
      {"jobs", array_of(snapshot.jobs)},
      {"link",
       {{"in_use", snapshot.link.in_use},
        {"stopped", snapshot.link.stopped},
        {"silent", snapshot.link.silent},
        {"reason", snapshot.link.reason},
        {"swap_outs", to_json(snapshot.stats.swap_outs)},
        {"swap_ins", to_json(snapshot.stats.swap_ins)}}},
      {"ranks", array_of(snapshot.ranks)},
      {"io", snapshot.io},
      {"settings", to_json(snapshot.settings)}};
  if (snapshot.offload) all["offload"] = to_json(*snapshot.offload);
  else all["prefetches"] = to_json(snapshot.prefetches);
  if (snapshot.shared) all["shared"] = to_json(*snapshot.shared, true);
  return all;
}

json::object to_json(const WriteBackProgress& job) {
  json::object blocks;
  for (std::size_t outcome = 0; outcome < write_back_outcome_count; ++outcome) {
    blocks[name_of(terrace::to_string(static_cast<WriteBackOutcome>(outcome)))] = job.blocks[outcome];
  }
  return {{"id", job.id.value()},
          {"target", terrace::to_string(job.target)},
          {"scope", terrace::to_string(job.scope)},
          {"state", name_of(terrace::to_string(job.state))},
          {"looked_at", job.looked_at},
          {"blocks", std::move(blocks)},
          {"under_way", job.under_way},
          {"written_bytes", count(job.written)},
          {"durable_bytes", count(job.durable)},
          {"flush_error", job.flush_error ? job.flush_error.message() : ""}};
}

json::array to_json(std::span<const WriteBackResult> results) {
  json::array all;
  for (const WriteBackResult& result : results) {
    all.push_back({{"key", to_hex(result.key)},
                   {"outcome", name_of(terrace::to_string(result.outcome))},
                   {"error", result.error ? result.error.message() : ""}});
  }
  return all;
}

}  // namespace terrace::admin
