#include "runtime/admin/status.hpp"

#include "runtime/admin/command.hpp"

#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <boost/mp11/algorithm.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace terrace {

// The counts that an answer gives under the names of their members, in its order.
BOOST_DESCRIBE_STRUCT(StoreStat, (),
                      (capacity_blocks, wanted_blocks, blocks, writing, quarantined, free, evicted, corrupt, io_errors,
                       growth_stopped))
BOOST_DESCRIBE_STRUCT(TierStatistics, (),
                      (gets, hits, misses, corrupt, get_failures, gets_cancelled, gets_late, puts, stored, put_failures,
                       puts_cancelled, puts_late, read, written, unaligned, refused, without_parent, flushes, flush_failures,
                       not_flushed, events_dropped, batches, waiting, under_way, regions, asked, found, shared_gets,
                       shared_gets_declined, shared_puts, shared_puts_cancelled, shared_puts_declined, shared_hits, shared_misses,
                       shared_stored, shared_present, shared_not_stored))
BOOST_DESCRIBE_STRUCT(SharedStoreStat, (),
                      (probes, keys_asked, keys_there, reads, reads_missing, writes, renewed, removed, timed_out, failed,
                       declined, full))
BOOST_DESCRIBE_STRUCT(SharedTotals, (),
                      (look_ups, look_ups_joined, look_ups_skipped, look_ups_late, asked, there, read_gone, read_corrupt,
                       read_late, read_failed, wishes, wished, present, renewed, written, drop_bound, drop_gone, drop_failed,
                       drop_full, drop_budget, drop_off))
BOOST_DESCRIBE_STRUCT(PrefetchTotals, (), (orders, refused, cut, cancelled, joined, from_storage, from_shared, failed))
BOOST_DESCRIBE_STRUCT(ManagerStats, (),
                      (acquired, refused_no_room, refused_never_fits, refused_paused, refused_invalid, aborted, joined,
                       turned_down, load_failures, loads_late, evicted_device, evicted_host, dropped_clean, dropped_lost,
                       not_admitted, uses_expected, sessions_ended, expected_ignored, stored_evicted, cleared, store_failed,
                       store_skipped, store_gone, store_no_room, store_orphaned, store_cancelled, store_over_budget))
BOOST_DESCRIBE_STRUCT(OffloadTotals, (),
                      (jobs, refused, loaded_host, loaded_storage, loaded_shared, load_misses, load_failures, stored,
                       already_there, store_full, store_failures, late, loads, stores, asked, found))
BOOST_DESCRIBE_STRUCT(CopyTotals, (), (ordered, done, failed, cancelled, late))
BOOST_DESCRIBE_STRUCT(MovedTotals, (), (swap_out, swap_in, storage_reads, storage_writes, shared_reads, shared_writes))
BOOST_DESCRIBE_ENUM(CacheStatus, normal, clearing, cleared)
BOOST_DESCRIBE_ENUM(Direction, swap_in, swap_out)
BOOST_DESCRIBE_ENUM(RankHealth::State, well, slow, lost, failing)
BOOST_DESCRIBE_ENUM(Urgency, request, make_room, store)

namespace admin {

BOOST_DESCRIBE_ENUM(HealthState, ok, degraded, idle, stalled)

namespace {

namespace describe = boost::describe;
namespace json = boost::json;

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
    reasons.push_back(fmt::format("{} is {}", rank.name, describe::enum_to_string(rank.state, "unknown")));
  }
}

json::object to_json(const Moved& moved) {
  return {{"blocks", moved.blocks}, {"bytes", count(moved.bytes)}, {"seconds", moved.seconds}};
}

/// The described members of `counts` without those whose names begin with `left_out`. Bytes are called NAME_bytes.
template <class Counts>
json::object counts_of(const Counts& counts, std::optional<std::string_view> left_out = {}) {
  json::object object;
  boost::mp11::mp_for_each<describe::describe_members<Counts, describe::mod_public>>([&](auto member) {
    const auto& number = counts.*member.pointer;
    std::string name = member.name;
    if (left_out && name.starts_with(*left_out)) return;
    if (name == "unaligned" || name == "wished") name += "_blocks";  // beside other counts, these need their unit
    if constexpr (std::is_same_v<decltype(number), const Bytes&>) object[name + "_bytes"] = count(number);
    else if constexpr (std::is_same_v<decltype(number), const Moved&>) object[name] = to_json(number);
    else object[name] = number;
  });
  return object;
}

/// Counts by the values of an enumeration.
template <class E, std::size_t n>
json::object counts_by(const std::array<std::uint64_t, n>& counts) {
  json::object object;
  for (std::size_t each = 0; each < n; ++each) object[name_of(terrace::to_string(static_cast<E>(each)))] = counts[each];
  return object;
}

json::object to_json(const EvictionView& eviction) {
  json::array classes;
  for (const EvictionClass& each : eviction.classes) {
    classes.push_back(json::object{{"uses", each.uses}, {"kind", each.kind}, {"share", each.share}, {"hits", each.hits}});
  }
  const auto& [waiting, met, late, not_expected] = eviction.expected;
  json::object expected{{"waiting", waiting}, {"met", met}, {"late", late}, {"not_expected", not_expected}};
  return {{"by_rank", eviction.by_rank}, {"classes", std::move(classes)}, {"expected", std::move(expected)}};
}

json::object to_json(const AdminSnapshot::Slots& slots) {
  return {{"blocks", slots.blocks},
          {"free", slots.free},
          {"evictable", slots.evictable},
          {"promised", slots.promised},
          {"in_use", slots.blocks - slots.free - slots.evictable},
          {"quarantined", slots.quarantined},
          {"retiring", slots.retiring},
          {"eviction", to_json(slots.eviction)}};
}

json::object to_json(const StoreStat& store, const std::optional<StoreHealth>& health) {
  json::object object = counts_of(store);
  object["growth_error"] = store.growth_error ? store.growth_error.message() : "";
  object["directories"] = store.directories;
  object["directories_lost"] = store.directories_lost;
  if (!health) return object;
  object["state"] = terrace::to_string(health->state);
  object["reason"] = health->reason;
  object["breaker"] = terrace::to_string(health->breaker);
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
  json::object object = counts_of(stat);
  object["corrupt"] = counts_by<SharedMismatch>(stat.mismatches);
  object["read_bytes"] = count(stat.read);
  object["written_bytes"] = count(stat.written);
  return object;
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
  object["cache"] = counts_of(shared.totals);
  object["waiting_blocks"] = shared.waiting_blocks;
  object["round_trip_seconds"] = shared.round_trip_seconds;
  return object;
}

json::object to_json(const AdminSnapshot::Pool& pool) {
  json::object host = to_json(pool.host);
  host["wanted"] = pool.host_memory.wanted;
  host["usable"] = pool.host_memory.usable;
  host["mapped_bytes"] = count(pool.host_memory.mapped);
  host["growth_failures"] = pool.host_growth_failures;
  host["growth_error"] = pool.host_memory.failure;
  json::object device = to_json(pool.device);
  device["blocks_max"] = pool.device_blocks_max;
  json::object object{{"block_bytes", count(pool.block_bytes)}, {"device", std::move(device)}, {"host", std::move(host)}};
  if (pool.store) object["storage"] = to_json(*pool.store, pool.health);
  return object;
}

/// `unit_tokens`: AdminSnapshot::unit_tokens.
json::object to_json(const RequestTotals& totals, std::uint32_t unit_tokens) {
  const std::uint64_t each = std::max(unit_tokens, 1U);
  json::object object{
      {"requests", totals.requests}, {"unit", unit_tokens == 0 ? "blocks" : "tokens"}, {"asked", totals.asked * each}};
  for (const Source source : all_sources) object[terrace::to_string(source)] = totals.found[source] * each;
  object["external"] = totals.external * each;
  object["miss"] = totals.miss * each;
  return object;
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

json::object to_json(const MissTotals& misses) {
  json::object object = counts_by<MissReason>(misses.units);
  std::uint64_t counted = 0;
  std::size_t bucket = 0;
  while (bucket + 1 < Histogram::buckets && (counted += misses.gone_seconds.counts[bucket]) * 2 < misses.gone_seconds.total())
    ++bucket;
  object["gone_seconds_median"] = Histogram::smallest(bucket);
  return object;
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
          {"state", describe::enum_to_string(rank.state, "unknown")},
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

std::string_view waiting_things(const AdminSnapshot& snapshot) {
  return snapshot.tier_store ? "gets" : snapshot.offload ? "loads" : "requests";
}

std::string_view waited_for(const SlowRequest& request) {
  if (request.source) return terrace::to_string(*request.source);
  return request.looked ? "looking" : "room";
}

std::string_view to_string(Direction direction) { return describe::enum_to_string(direction, "unknown"); }
std::string_view to_string(Urgency urgency) { return describe::enum_to_string(urgency, "unknown"); }
std::string_view to_string(CacheStatus status) { return describe::enum_to_string(status, "unknown"); }
std::string_view to_string(HealthState state) { return describe::enum_to_string(state, "unknown"); }

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
  if (snapshot.prefill_seconds > 0) gain.prefill_seconds = static_cast<double>(gain.found) * snapshot.prefill_seconds;
  const DailyWrites& daily = snapshot.daily_writes;
  if (daily.elapsed >= std::chrono::minutes{10}) {
    const double days = std::chrono::duration<double>(daily.elapsed) / std::chrono::hours{24};
    gain.written_per_day = Bytes{static_cast<std::uint64_t>(static_cast<double>(count(daily.written)) / days)};
  }
  return gain;
}

json::object to_json(const AdminSnapshot& snapshot) {
  const auto left_out = snapshot.shared ? std::nullopt : std::optional<std::string_view>{"shared_"};
  const auto array_of = [](const auto& all) {
    json::array made;
    for (const auto& each : all) made.push_back(to_json(each));
    return made;
  };
  if (snapshot.tier_store) {
    const AdminSnapshot::Pool& pool = snapshot.pools.front();
    json::object all{{"snapshot", snapshot.number},
                     {"erasing", snapshot.erasing},
                     {"store", counts_of(*snapshot.tier_store, left_out)},
                     {"waits", to_json(snapshot.waits)},
                     {"slowest", array_of(snapshot.slowest)},
                     {"misses", to_json(snapshot.misses)},
                     {"pools", {{{"block_bytes", count(pool.block_bytes)}, {"storage", to_json(*pool.store, pool.health)}}}},
                     {"io", snapshot.io}};
    if (snapshot.shared) all["shared"] = to_json(*snapshot.shared, false);
    return all;
  }
  const WorkLeft& work = snapshot.work;
  const std::uint32_t tokens = snapshot.unit_tokens;
  json::object all{
      {"cache", to_string(snapshot.status)},
      {"transfers_paused", snapshot.transfers_paused},
      {"erasing", snapshot.erasing},
      {"snapshot", snapshot.number},
      {"work", {{"leases", work.leases}, {"transfers", work.transfers}, {"reads", work.reads}, {"writes", work.writes}}},
      {"requests", to_json(snapshot.stats.requests, tokens)},
      {"waits", to_json(snapshot.waits)},
      {"queues", array_of(snapshot.queues)},
      {"slowest", array_of(snapshot.slowest)},
      {"blocks", counts_of(snapshot.stats)},
      {"misses", to_json(snapshot.misses)},
      {"moved", counts_of(snapshot.moved, left_out)},
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
        {"swap_outs", counts_of(snapshot.stats.swap_outs)},
        {"swap_ins", counts_of(snapshot.stats.swap_ins)}}},
      {"ranks", array_of(snapshot.ranks)},
      {"io", snapshot.io},
      {"settings", to_json(snapshot.settings)}};
  if (snapshot.offload) all["offload"] = counts_of(*snapshot.offload);
  else all["prefetches"] = counts_of(snapshot.prefetches);
  if (snapshot.shared) all["shared"] = to_json(*snapshot.shared, true);
  return all;
}

json::object to_json(const WriteBackProgress& job) {
  return {{"id", job.id.value()},
          {"target", terrace::to_string(job.target)},
          {"scope", terrace::to_string(job.scope)},
          {"state", name_of(terrace::to_string(job.state))},
          {"looked_at", job.looked_at},
          {"blocks", counts_by<WriteBackOutcome>(job.blocks)},
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

}  // namespace admin
}  // namespace terrace
