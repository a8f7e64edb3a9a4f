#include "tools/replay/report/report.hpp"

#include "tools/device_name.hpp"
#include "tools/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

std::string pool(std::uint64_t blocks, Bytes block_bytes) {
  if (blocks == 0) return "none";
  return fmt::format("{} blocks ({})", grouped(blocks), to_string(block_bytes * blocks));
}

std::string storage_name(const ReplayOptions& options) {
  if (const auto* memory = std::get_if<MemoryStorage>(&options.storage))
    return fmt::format("memory, {}", to_string(memory->capacity));
  if (const auto* file = std::get_if<FileStorage>(&options.storage)) {
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
  table.line("  device   {}, {}, {}, {} tokens each", device_names(options.devices),
             pool(options.device_blocks, options.block_bytes), to_string(options.block_bytes), options.block_tokens);
  for (std::size_t n = 0; n < result.pools.size() && result.pools.size() > 1; ++n) {
    const ReplayResult::Pool& each = result.pools[n];
    table.line("  pool {:<3} {} on the device, {} in the host, {} each", n, pool(each.device.blocks, each.block_bytes),
               pool(each.host.blocks, each.block_bytes), to_string(each.block_bytes));
  }
  if (options.ranks() > 1) table.line("  ranks    {}, {}", options.ranks(), to_string(options.rank_payload));
  table.line("  policy   {}", options.policy.name);
  table.line("  host     {}, {}", pool(options.host_blocks, options.block_bytes), to_string(options.inclusion));
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

void add_blocks(Table& table, const ReplayOptions& options, const Counts& counts) {
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

}  // namespace

void add_checkpoint(Table& table, const ReplayResult& result) {
  if (!result.checkpoint) return;
  const auto& [job, left] = *result.checkpoint;
  table.line("");
  table.line("checkpoint: {} in {:.2f} s; durable {} blocks ({}), lost {} ({})", to_string(job.state), result.checkpoint_seconds,
             grouped(left.durable_blocks), to_string(left.durable), grouped(left.lost_blocks), to_string(left.lost));
  if (result.left_behind) table.line("  storage was still busy then, and the replay did not wait for it");
}

std::string to_table(const ReplayOptions& options, const ReplayResult& result) {
  Table table;
  add_head(table, options, result);
  add_blocks(table, options, result.counts);
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
