#include "tools/device_name.hpp"
#include "tools/plan/hit_counts.hpp"
#include "tools/replay/replay.hpp"
#include "tools/table.hpp"
#include "tools/text.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

namespace json = boost::json;

// Values are made with parentheses, because braces would make an array of one element.

json::object to_object(const Moved& moved) {
  return {{"blocks", moved.blocks}, {"bytes", count(moved.bytes)}, {"seconds", moved.seconds}};
}

json::object to_object(const Percentiles& p) { return {{"p50", p.p50}, {"p99", p.p99}, {"max", p.max}}; }

json::object to_object(const Ledger& ledger) {
  return {{"free", ledger.free}, {"held", ledger.held},   {"filling", ledger.filling},        {"ready", ledger.ready},
          {"null", ledger.null}, {"total", ledger.total}, {"quarantined", ledger.quarantined}};
}

/// Converts counts of blocks to tokens. A cache with groups counts tokens already.
json::object to_object(const RequestTotals& totals, const ReplayOptions& options) {
  const std::uint32_t block_tokens = options.groups.empty() ? options.block_tokens : 1;
  json::object tokens{{"requests", totals.requests}, {"asked", totals.asked * block_tokens}};
  for (const Source source : all_sources) tokens[to_string(source)] = totals.found[source] * block_tokens;
  tokens["external"] = totals.external * block_tokens;
  tokens["miss"] = totals.miss * block_tokens;
  return tokens;
}

json::object to_object(const Counts& counts) {
  json::object blocks{{"total", counts.total}};
  for (const Source source : all_sources) blocks[to_string(source)] = counts.found[source];
  blocks["miss"] = counts.miss;
  blocks["joined"] = counts.joined;
  return blocks;
}

json::object to_object(const ManagerStats& stats) {
  return {{"acquired", stats.acquired},
          {"refused_no_room", stats.refused_no_room},
          {"rescued", stats.evictions_cancelled},
          {"joined", stats.joined},
          {"turned_down", stats.turned_down},
          {"load_failures", stats.load_failures},
          {"loads_late", stats.loads_late},
          {"replans", stats.replans},
          {"duplicates", stats.duplicates},
          {"evicted_device", stats.evicted_device},
          {"evicted_host", stats.evicted_host},
          {"dropped_clean", stats.dropped_clean},
          {"dropped_lost", stats.dropped_lost},
          {"not_admitted", stats.not_admitted},
          {"uses_expected", stats.uses_expected},
          {"sessions_ended", stats.sessions_ended},
          {"expected_ignored", stats.expected_ignored},
          {"persist_failed", stats.store_failed},
          {"persist_skipped", stats.store_skipped},
          {"persist_gone", stats.store_gone},
          {"persist_no_room", stats.store_no_room},
          {"persist_orphaned", stats.store_orphaned},
          {"persist_cancelled", stats.store_cancelled},
          {"persist_over_budget", stats.store_over_budget},
          {"stored_evicted", stats.stored_evicted},
          {"released_unfenced", stats.released_unfenced}};
}

json::object to_object(const WaitTotal& waits) { return {{"requests", waits.requests}, {"seconds", waits.seconds}}; }

json::object to_object(const WaitTotals& waits) {
  json::object all{{"none", waits.at_once}, {"room", to_object(waits.room)}};
  for (const Source source : all_sources) {
    if (source != Source::device) all[to_string(source)] = to_object(waits.loads[source]);
  }
  all["failed"] = waits.failed;
  return all;
}

json::object to_object(const StoreStat& stat) {
  return {{"capacity_blocks", stat.capacity_blocks},
          {"wanted_blocks", stat.wanted_blocks},
          {"blocks", stat.blocks},
          {"evicted", stat.evicted},
          {"corrupt", stat.corrupt},
          {"io_errors", stat.io_errors},
          {"growth_stopped", stat.growth_stopped},
          {"floor_stopped", stat.floor_stopped},
          {"directories", stat.directories},
          {"directories_lost", stat.directories_lost}};
}

json::object to_object(const StoreHealth& health) {
  json::object failed;
  for (std::size_t i = 1; i < error_class_count; ++i) failed[to_string(static_cast<ErrorClass>(i))] = health.failed[i];
  json::array lost;
  for (const std::filesystem::path& directory : health.lost_directories) lost.emplace_back(directory.string());
  return {{"lost_directories", std::move(lost)},
          {"state", to_string(health.state)},
          {"reason", health.reason},
          {"breaker", to_string(health.breaker)},
          {"opened", health.opened},
          {"retried", health.retried},
          {"recovered", health.recovered},
          {"declined", health.declined},
          {"held_back", health.held_back},
          {"failed", failed}};
}

json::object storage_config(const ReplayOptions& options) {
  const StorageOptions& storage = options.system.storage;
  if (const auto* memory = std::get_if<MemoryStorage>(&storage))
    return {{"kind", "memory"}, {"capacity", count(memory->capacity)}};
  if (const auto* file = std::get_if<FileStorage>(&storage)) {
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    const ResilienceOptions guard = options.system.storage_guard.value_or(ResilienceOptions{});
    json::array stripes;
    for (const std::filesystem::path& directory : std::span{file->directories}.subspan(1)) {
      stripes.emplace_back(directory.string());
    }
    return {{"kind", "file"},
            {"directory", file->directories.front().string()},
            {"name", file->name},
            {"stripes", std::move(stripes)},
            {"stripe_bytes", count(file->stripe_bytes)},
            {"capacity", count(file->capacity)},
            {"floor", count(file->floor)},
            {"bandwidth", count(file->bandwidth)},
            {"io", to_string(file->io)},
            {"retries", guard.read_retries},
            {"breaker_failures", guard.breaker.failures_max},
            {"breaker_window", seconds(guard.breaker.window)},
            {"breaker_probe", seconds(guard.breaker.probe_first)}};
  }
  return {{"kind", "none"}};
}

json::array groups_config(const ReplayOptions& options) {
  json::array groups;
  for (const GroupConfig& group : options.groups) {
    groups.push_back(json::object{{"kind", to_string(group.kind)},
                                  {"block_tokens", group.block_tokens},
                                  {"span_tokens", group.span_tokens},
                                  {"optional", group.optional},
                                  {"pool", group.pool.value()}});
  }
  return groups;
}

json::array pools(const ReplayResult& result) {
  json::array all;
  for (const ReplayResult::Pool& pool : result.pools) {
    all.push_back(json::object{{"block_bytes", count(pool.block_bytes)},
                               {"device_blocks", pool.device.blocks},
                               {"device_free", pool.device.free},
                               {"host_blocks", pool.host.blocks},
                               {"host_free", pool.host.free},
                               {"stored_blocks", pool.stored}});
  }
  return all;
}

json::object to_object(const ReplayOptions& options) {
  json::object config{{"block_tokens", options.block_tokens},
                      {"block_bytes", count(options.block_bytes)},
                      {"device", device_names(options.devices())},
                      {"ranks", options.ranks()},
                      {"rank_payload", to_string(options.system.rank_payload)},
                      {"device_blocks", options.device_blocks},
                      {"host_blocks", options.host_blocks},
                      {"groups", groups_config(options)},
                      {"layers", options.layers},
                      {"storage", storage_config(options)},
                      {"relation", to_string(options.system.inclusion)},
                      {"write_policy", to_string(options.write_policy)},
                      {"policy", options.policy.name},
                      {"reference", options.reference},
                      {"bound", options.bound},
                      {"concurrency", options.concurrency},
                      {"step_tokens", options.step_tokens},
                      {"output_tokens_max", options.output_tokens_max},
                      {"cache_output", options.cache_output},
                      {"tell_output", options.tell_output},
                      {"hints", to_string(options.hints.hints)},
                      {"hints_missing", options.hints.missing},
                      {"hints_wrong", options.hints.wrong},
                      {"abort_rate", options.abort_rate},
                      {"prefill_speed", options.prefill_speed},
                      {"loads", to_string(options.loads)},
                      {"mode", to_string(options.mode)},
                      {"threads", options.threads},
                      {"verify", to_string(options.verify)},
                      {"release", to_string(options.release)},
                      {"inject", to_string(options.inject)}};
  if (options.trace.empty()) {
    config["workload"] = options.workload;
    config["seed"] = options.seed;
  } else {
    config["trace"] = options.trace.string();
  }
  config["skip"] = options.skip;
  config["checkpoint"] = options.checkpoint ? json::value(options.checkpoint->count()) : json::value(nullptr);
  config["speed"] = options.speed ? json::value(*options.speed) : json::value(nullptr);
  config["prefetch_ahead"] = options.prefetch_ahead ? json::value(options.prefetch_ahead->count()) : json::value(nullptr);
  config["requests_max"] =
      options.requests_max == ReplayOptions::all_requests ? json::value(nullptr) : json::value(options.requests_max);
  return config;
}

json::object to_object(const FinalChecks& checks) {
  const double share =
      checks.stored == 0 ? 1.0 : static_cast<double>(checks.stored_with_ancestors) / static_cast<double>(checks.stored);
  return {{"ok", !checks.broken().has_value()},
          {"ledgers_balanced", checks.ledgers_balanced},
          {"leases", checks.leases},
          {"readers", checks.readers},
          {"quarantined", checks.quarantined},
          {"orphans", checks.orphans},
          {"stored", checks.stored},
          {"stored_with_all_ancestors", share},
          {"device_ledger", to_object(checks.device)},
          {"host_ledger", to_object(checks.host)}};
}

json::object checkpoint(const ReplayResult& result) {
  const CheckpointReport& report = *result.checkpoint;
  json::object blocks;
  for (std::size_t i = 0; i < write_back_outcome_count; ++i) {
    blocks[to_string(static_cast<WriteBackOutcome>(i))] = report.job.blocks[i];
  }
  return {{"state", to_string(report.job.state)},
          {"seconds", result.checkpoint_seconds},
          {"durable_blocks", report.left.durable_blocks},
          {"durable_bytes", count(report.left.durable)},
          {"lost_blocks", report.left.lost_blocks},
          {"lost_bytes", count(report.left.lost)},
          {"flush_error", report.job.flush_error ? json::value(report.job.flush_error.message()) : json::value(nullptr)},
          {"blocks", blocks}};
}

json::object to_object(const EngineCounts& engine) {
  const json::object tokens{{"prefilled", engine.prefilled}, {"decoded", engine.decoded}, {"recomputed", engine.recomputed}};
  return {{"steps", engine.steps},
          {"running_mean", engine.running_mean()},
          {"tokens", tokens},
          {"preemptions", engine.preemptions},
          {"hits_again", engine.hits_again},
          {"aborted", engine.aborted},
          {"output_blocks", engine.output_blocks},
          {"layer_events", engine.layer_events}};
}

json::object to_object(const ReplayResult::Bound& bound, const Counts& counts) {
  const std::optional<double> way = share_of_way(counts.hits(), bound.lru, bound.opt);
  return {{"lru_hits", bound.lru}, {"opt_hits", bound.opt}, {"share_of_way", way ? json::value(*way) : json::value(nullptr)}};
}

json::object to_object(const PrefetchTotals& prefetches) {
  return {{"orders", prefetches.orders}, {"refused", prefetches.refused},           {"cut", prefetches.cut},
          {"joined", prefetches.joined}, {"from_storage", prefetches.from_storage}, {"from_shared", prefetches.from_shared},
          {"failed", prefetches.failed}};
}

json::object to_object(const Mismatch& mismatch) {
  return {{"request", mismatch.request},   {"block", mismatch.block},
          {"key", to_hex(mismatch.key)},   {"found_in", to_string(mismatch.found_in)},
          {"slot", mismatch.slot.value()}, {"byte", mismatch.byte}};
}

// ---- for people

std::string pool(std::uint64_t blocks, Bytes block_bytes) {
  if (blocks == 0) return "none";
  return fmt::format("{} blocks ({})", grouped(blocks), to_string(block_bytes * blocks));
}

std::string storage_name(const ReplayOptions& options) {
  if (const auto* memory = std::get_if<MemoryStorage>(&options.system.storage))
    return fmt::format("memory, {}", to_string(memory->capacity));
  if (const auto* file = std::get_if<FileStorage>(&options.system.storage)) {
    const std::size_t more = file->directories.size() - 1;
    return fmt::format("{}{}, {}", file->directories.front().string(), more == 0 ? "" : fmt::format(" and {} more", more),
                       to_string(file->capacity));
  }
  return "none";
}

std::string pace(const ReplayOptions& options) {
  if (options.reference) return "reference (one at a time, instantaneous)";
  const std::string how = options.speed ? fmt::format("the trace's clock, {:g} times faster", *options.speed)
                                        : fmt::format("up to {} in flight", options.concurrency);
  const std::string threads = options.threads > 1 ? fmt::format(", {} threads", options.threads) : "";
  return fmt::format("{}, {} mode{}", how, to_string(options.mode), threads);
}

void add_head(Table& table, const ReplayOptions& options, const ReplayResult& result) {
  const std::string source = options.trace.empty() ? fmt::format("{} workload, seed {}", options.workload, options.seed)
                                                   : options.trace.filename().string();
  table.line("{}: {} requests{}{}", source, grouped(result.counts.requests),
             result.counts.rejected == 0 ? "" : fmt::format(", {} rejected as too large", grouped(result.counts.rejected)),
             result.interrupted ? " (interrupted)" : "");
  table.line("  device   {}, {}, {}, {} tokens each", device_names(options.devices()),
             pool(options.device_blocks, options.block_bytes), to_string(options.block_bytes), options.block_tokens);
  for (std::size_t n = 0; n < result.pools.size() && result.pools.size() > 1; ++n) {
    const ReplayResult::Pool& each = result.pools[n];
    table.line("  pool {:<3} {} on the device, {} in the host, {} each", n, pool(each.device.blocks, each.block_bytes),
               pool(each.host.blocks, each.block_bytes), to_string(each.block_bytes));
  }
  if (options.ranks() > 1) table.line("  ranks    {}, {}", options.ranks(), to_string(options.system.rank_payload));
  table.line("  policy   {}", options.policy.name);
  table.line("  host     {}, {}", pool(options.host_blocks, options.block_bytes), to_string(options.system.inclusion));
  table.line("  storage  {}{}", storage_name(options),
             options.has_storage() ? fmt::format(", {}", to_string(options.write_policy)) : "");
  if (!result.storage_io.empty()) table.line("           by {}", result.storage_io);
  if (result.storage_health && result.storage_health->state != StoreState::well) {
    table.line("           {}: {}", to_string(result.storage_health->state), result.storage_health->reason);
  }
  if (result.store && result.store->growth_stopped > 0) {
    table.line("           no room for more than {} blocks{}", grouped(result.store->capacity_blocks),
               result.store->floor_stopped > 0 ? ": the rest of the disk must stay free" : "");
  }
  table.line("  pace     {}", pace(options));
}

void add_blocks(Table& table, const ReplayOptions& options, const ReplayResult& result) {
  const Counts& counts = result.counts;
  const std::optional<ReplayResult::Bound>& bound = result.bound;
  table.line("");
  table.line("{:<22}{:>14}{:>10}", "prompt blocks found in", "blocks", "share");
  const auto row = [&](std::string_view name, std::uint64_t blocks) {
    table.line("  {:<20}{:>14}{:>8.2f} %", name, grouped(blocks), per_cent(blocks, counts.total));
  };
  for (const Source source : all_sources) {
    if (source != Source::storage || options.has_storage()) row(to_string(source), counts.found[source]);
  }
  row("any tier", counts.hits());
  row("none: computed", counts.miss);
  if (bound) {
    const std::optional<double> way = share_of_way(counts.hits(), bound->lru, bound->opt);
    row("LRU would hit", bound->lru);
    row("the bound", bound->opt);
    if (way) table.line("  {:.2f} of the way from LRU to the bound, which knows the future", *way);
  }
  if (counts.joined > 0) table.line("  ({} of them were being loaded for another request already)", grouped(counts.joined));
}

void add_engine(Table& table, const ReplayOptions& options, const EngineCounts& engine) {
  if (options.reference) return;
  table.line("");
  table.line("{} prompt tokens computed, {} written, {} computed again; {} blocks of output cached", grouped(engine.prefilled),
             grouped(engine.decoded), grouped(engine.recomputed), grouped(engine.output_blocks));
  std::string steps;
  if (engine.steps > 0) {
    steps = fmt::format("{} steps of {:.1f} requests on average, ", grouped(engine.steps), engine.running_mean());
  }
  table.line("{}{} preemptions (then {} blocks hit again), {} requests aborted", steps, grouped(engine.preemptions),
             grouped(engine.hits_again), grouped(engine.aborted));
}

void add_moved(Table& table, const ReplayOptions& options, const MovedTotals& moved, const ManagerStats& stats) {
  table.line("");
  table.line("{:<22}{:>14}{:>10}{:>10}{:>8}", "moved", "blocks", "bytes", "busy s", "GB/s");
  const auto row = [&](std::string_view name, const Moved& kind) {
    const double rate = kind.seconds > 0 ? static_cast<double>(count(kind.bytes)) / kind.seconds * 1e-9 : 0;
    table.line("  {:<20}{:>14}{:>10}{:>10.2f}{:>8.2f}", name, grouped(kind.blocks), to_string(kind.bytes), kind.seconds, rate);
  };
  row("device to host", moved.swap_out);
  row("host to device", moved.swap_in);
  if (stats.not_admitted > 0)
    table.line("  ({} evicted blocks were not copied to the host, which has better ones)", grouped(stats.not_admitted));
  if (!options.has_storage()) return;
  row("from storage", moved.storage_reads);
  row("to storage", moved.storage_writes);
  const std::uint64_t for_room = stats.store_gone + stats.store_no_room;
  const std::uint64_t times = for_room + stats.store_skipped + stats.store_failed + stats.store_orphaned;
  if (times == 0) return;
  // For an orphan it is not known whether the block before it was evicted or failed.
  table.line("  {} blocks were not stored, because they were evicted first ({}), too many waited for the disk ({}), "
             "the write failed ({}), or the block before was not stored ({})",
             grouped(times), grouped(for_room), grouped(stats.store_skipped), grouped(stats.store_failed),
             grouped(stats.store_orphaned));
}

void add_latencies(Table& table, const ReplayOptions& options, const ReplayResult& result) {
  table.line("");
  const std::string_view title = options.mode == Mode::loop ? "calls over the loop, us" : "calls, microseconds";
  table.line("{:<24}{:>12}{:>10}{:>10}", title, "median", "p99", "max");
  const auto row = [&](std::string_view name, const Percentiles& p) {
    table.line("  {:<22}{:>12.1f}{:>10.1f}{:>10.1f}", name, p.p50, p.p99, p.max);
  };
  row("match", result.latency_us.match);
  row("acquire", result.latency_us.acquire);
  row("extend", result.latency_us.extend);
  row("commit", result.latency_us.commit);
  row("release", result.latency_us.release);
  if (options.prefetch_ahead) row("prefetch", result.latency_us.prefetch);
}

void add_prefetches(Table& table, const ReplayOptions& options, const PrefetchTotals& totals) {
  if (!options.prefetch_ahead) return;
  table.line("");
  table.line("{} requests were announced {:g} s ahead: {} blocks brought from storage and {} from the shared store, {} failed",
             grouped(totals.orders), options.prefetch_ahead->count(), grouped(totals.from_storage), grouped(totals.from_shared),
             grouped(totals.failed));
  table.line("  {} requests waited for their blocks; of {} the bound on prefetches let only the first blocks be brought",
             grouped(totals.joined), grouped(totals.cut));
}

/// How many requests waited until they were ready, for what, and how long on average.
void add_waits(Table& table, const ReplayResult& result) {
  const WaitTotals& waits = result.waits;
  std::uint64_t all = waits.at_once + waits.room.requests;
  for (const Source source : all_sources) all += waits.loads[source].requests;
  if (all == waits.at_once) return;
  table.line("");
  table.line("{:<24}{:>12}{:>10}{:>10}", "requests waited for", "", "share", "mean us");
  const auto row = [&](std::string_view name, std::uint64_t requests, double seconds) {
    if (requests == 0) return;
    const auto number = static_cast<double>(requests);
    table.line("  {:<22}{:>12}{:>8.2f} %{:>10.1f}", name, grouped(requests), 100 * number / static_cast<double>(all),
               seconds / number * 1e6);
  };
  row("nothing", waits.at_once, 0);
  row("device slots alone", waits.room.requests, waits.room.seconds);
  for (const Source source : all_sources) {
    row(fmt::format("blocks from {}", to_string(source)), waits.loads[source].requests, waits.loads[source].seconds);
  }
}

void add_first_token(Table& table, const ReplayOptions& options, const ReplayResult& result) {
  if (options.prefill_speed > 0) {
    const Percentiles& us = result.first_token_us;
    table.line("");
    table.line("{:<24}{:>12}{:>10}{:>10}", "first token, ms", "median", "p99", "max");
    table.line("  {:<22}{:>12.1f}{:>10.1f}{:>10.1f}", fmt::format("loads {}", to_string(options.loads)), us.p50 * 1e-3,
               us.p99 * 1e-3, us.max * 1e-3);
  }
  if (result.manager.turned_down == 0) return;
  table.line("{} hit blocks were computed, because that was faster than loading them", grouped(result.manager.turned_down));
}

void add_checkpoint(Table& table, const ReplayResult& result) {
  if (!result.checkpoint) return;
  const auto& [job, left] = *result.checkpoint;
  table.line("");
  table.line("checkpoint: {} in {:.2f} s; durable {} blocks ({}), lost {} ({})", to_string(job.state), result.checkpoint_seconds,
             grouped(left.durable_blocks), to_string(left.durable), grouped(left.lost_blocks), to_string(left.lost));
  if (result.left_behind) table.line("  storage was still busy then, and the replay did not wait for it");
}

}  // namespace

std::string to_json(const ReplayOptions& options, const ReplayResult& result) {
  const Counts& counts = result.counts;
  json::object verify{{"checked", result.checked},
                      {"compared", result.compared},
                      {"mismatches", result.mismatches},
                      {"group_blocks", result.group_blocks},
                      {"layered_blocks", result.layered_blocks}};
  if (result.first_mismatch) verify["first"] = to_object(*result.first_mismatch);
  json::object report{{"requests", counts.requests}, {"rejected", counts.rejected}};
  report["blocks"] = to_object(counts);
  report["moved"] = json::object{{"swap_out", to_object(result.moved.swap_out)},
                                 {"swap_in", to_object(result.moved.swap_in)},
                                 {"prefetch", to_object(result.moved.storage_reads)},
                                 {"persist", to_object(result.moved.storage_writes)}};
  report["verify"] = verify;
  report["latency_us"] =
      json::object{{"match", to_object(result.latency_us.match)},     {"acquire", to_object(result.latency_us.acquire)},
                   {"extend", to_object(result.latency_us.extend)},   {"commit", to_object(result.latency_us.commit)},
                   {"release", to_object(result.latency_us.release)}, {"prefetch", to_object(result.latency_us.prefetch)}};
  report["first_token_us"] = to_object(result.first_token_us);
  report["bound"] = result.bound ? json::value(to_object(*result.bound, counts)) : json::value(nullptr);
  report["engine"] = to_object(result.engine);
  report["seconds"] = result.seconds;
  report["drain_seconds"] = result.drain_seconds;
  report["key_seconds"] = result.key_seconds;
  report["content_seconds"] = result.content_seconds;
  report["verify_seconds"] = result.verify_seconds;
  report["interrupted"] = result.interrupted;
  report["faults_planted"] = result.faults_planted;
  report["checks"] = to_object(result.checks);
  report["manager"] = to_object(result.manager);
  report["waits"] = to_object(result.waits);
  report["prefetches"] = to_object(result.prefetches);
  report["tokens"] = json::object{{"requests", to_object(result.manager.requests, options)},
                                  {"preempted", to_object(result.manager.preempted, options)}};
  report["store"] = result.store ? json::value(to_object(*result.store)) : json::value(nullptr);
  report["pools"] = pools(result);
  report["checkpoint"] = result.checkpoint ? json::value(checkpoint(result)) : json::value(nullptr);
  report["storage_health"] = result.storage_health ? json::value(to_object(*result.storage_health)) : json::value(nullptr);
  if (!result.storage_io.empty()) report["store"].as_object()["io"] = result.storage_io;
  report["config"] = to_object(options);
  return json_text(report);
}

std::string to_table(const ReplayOptions& options, const ReplayResult& result) {
  Table table;
  add_head(table, options, result);
  add_blocks(table, options, result);
  add_engine(table, options, result.engine);
  add_moved(table, options, result.moved, result.manager);
  add_latencies(table, options, result);
  add_waits(table, result);
  add_prefetches(table, options, result.prefetches);
  add_first_token(table, options, result);
  add_checkpoint(table, result);
  table.line("");
  const auto rate = result.seconds > 0 ? static_cast<double>(result.counts.requests) / result.seconds : 0;
  table.line("{:.2f} s, {:.0f} requests/s (keys {:.2f} s; on the device: content {:.2f} s, comparing {:.2f} s)", result.seconds,
             rate, result.key_seconds, result.content_seconds, result.verify_seconds);
  if (options.verify == Verify::none) {
    table.line("hits were not compared");
  } else {
    const std::uint64_t more = result.compared - result.checked;
    table.line("{} hit blocks compared, {} mismatches{}", grouped(result.checked), grouped(result.mismatches),
               more == 0 ? "" : fmt::format("; {} more of requests that were aborted or preempted", grouped(more)));
  }
  return table.take();
}

}  // namespace terrace::tools
