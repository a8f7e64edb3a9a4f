#include "tools/replay/replay.hpp"

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/keys.hpp"
#include "terrace/system.hpp"
#include "tools/device_name.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/plan/tier_costs.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/replay/workload/workloads.hpp"
#include "tools/report_file.hpp"
#include "transfer/host/host_arena.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

namespace terrace::tools {
namespace {

using namespace std::chrono_literals;

struct Input {
  std::unique_ptr<RequestSource> requests;
  std::uint64_t requests_total = 0;
  std::uint32_t full_blocks_max = 0;
  std::unique_ptr<RequestLog> log{};  ///< the requests that will be served; only for --bound
  std::unique_ptr<Oracle> oracle{};   ///< only for --hints
};

/// Reads the requests that will be served, if they must be known in advance.
void read_ahead(Input& input, const ReplayOptions& options, RequestSource& source, const Interrupt& interrupt) {
  if (options.bound) input.log = std::make_unique<RequestLog>(root_key({}), options.block_tokens);
  if (options.hints.hints != Hints::none) input.oracle = std::make_unique<Oracle>(options.hints);
  if (!input.log && !input.oracle) return;
  for (std::uint64_t number = 0; number - std::min(number, options.skip) < options.requests_max && !interrupt.requested();
       ++number) {
    const std::optional<TraceRequest> request = source.next();
    if (!request) break;
    if (number < options.skip) continue;
    if (input.log) input.log->add(*request);
    if (input.oracle) input.oracle->add(*request, options.block_tokens);
  }
  if (input.oracle) input.oracle->prepare();
}

Input open_input(const ReplayOptions& options, const Interrupt& interrupt) {
  if (options.trace.empty()) {
    Workload workload = make_workload(options.workload, options.seed, options.block_tokens);
    const std::unique_ptr<RequestSource> again = make_workload(options.workload, options.seed, options.block_tokens).requests;
    Input input{std::move(workload.requests), options.requests_max, workload.context_max / options.block_tokens};
    read_ahead(input, options, *again, interrupt);
    return input;
  }
  const ProgressLine progress{[] { return ProgressState{0, 0, "reading the trace"}; }};
  const TraceLimits limits{.go_on = [&] { return !interrupt.requested(); }};
  const TraceFile file{options.trace, limits};
  // The trace is read to its end first, so that a bad line is found before anything is made.
  const std::uint64_t last = std::min(options.requests_max, ReplayOptions::all_requests - options.skip) + options.skip;
  const TraceSummary summary = scan_trace(file, options.block_tokens, last, limits);
  if (options.skip > 0 && summary.requests <= options.skip) {
    throw UsageError{fmt::format("--skip: {} has {} requests, which leaves none", file.name(), summary.requests)};
  }
  // One reader at a time: all read from the same place of the file.
  Input input{nullptr, summary.requests - options.skip, summary.full_blocks_max};
  read_ahead(input, options, *std::make_unique<TraceReader>(file, options.block_tokens), interrupt);
  input.requests = std::make_unique<TraceReader>(file, options.block_tokens);
  return input;
}

DeviceOptions device_of(const ReplayOptions& options, const DeviceOptions& configured) {
  if (const auto* const gpu = std::get_if<CudaGpu>(&configured)) {
    return CudaGpu{.ordinal = gpu->ordinal, .calibration = gpu->calibration.empty() ? calibration_file() : gpu->calibration};
  }
  if (options.reference && options.inject == Fault::none) return InstantGpu{};
  const auto* const gpu = std::get_if<EmulatedGpu>(&configured);
  return EmulatedGpu{.link = gpu == nullptr ? LinkModel{} : gpu->link, .faults = emulated(options.inject)};
}

/// The hits of LRU and of a cache that knows the future, with these tiers. Nothing if the user interrupts the simulation.
std::optional<ReplayResult::Bound> bound_of(const ReplayOptions& options, const RequestLog& log, const Interrupt& interrupt) {
  const ProgressLine progress{[] { return ProgressState{0, 0, "simulating the bound"}; }};
  HitCounts counts{log, [&] { return !interrupt.requested(); }};
  const TierSizes sizes{.device = options.device_blocks, .host = options.host_blocks, .inclusion = options.system.inclusion};
  const auto hits = [&](PlanPolicy policy) {
    return tier_costs(log, counts, policy, sizes, {.block_tokens = options.block_tokens}).hits();
  };
  try {
    return ReplayResult::Bound{.lru = hits(PlanPolicy::lru), .opt = hits(PlanPolicy::opt)};
  } catch (const Interrupted&) {
    return std::nullopt;
  }
}

/// The number of device slots for a SlotReserve: as many as one request can take. 0 if no reserve is needed.
std::uint32_t reserved_slots(const ReplayOptions& options, std::uint32_t full_blocks_max) {
  const InclusionPolicy inclusion = options.system.inclusion;
  const bool needed = options.reference &&
                      (inclusion == InclusionPolicy::exclusive || inclusion == InclusionPolicy::lazy_exclusive) &&
                      options.host_blocks > 0;
  return needed ? std::max(1U, std::min(full_blocks_max, options.device_blocks)) : 0;
}

CacheSystemOptions system_options(const ReplayOptions& options, std::uint32_t full_blocks_max) {
  CacheSystemOptions system = options.system;
  system.groups = options.groups;
  system.hash_unit_tokens = options.groups.empty() ? 0 : options.block_tokens;
  system.pools = pools_of(options);
  PoolOptions& pool = system.pools.front();
  pool.device_blocks_max =
      std::max(pool.device_blocks_max, pool.device_blocks + Blocks{reserved_slots(options, full_blocks_max)});
  system.policy = options.policy.make;
  system.write_policy = options.write_policy;
  system.loads = options.loads == Loads::measured ? LoadPolicy::measured : LoadPolicy::always;
  if (options.prefill_speed > 0 && options.loads == Loads::measured) {
    system.unit_prefill_seconds = options.block_tokens / options.prefill_speed;
  }
  if (options.reference) {
    // Hits depend on the policy alone.
    system.device_reserve_max = 0;
    system.device_watermarks = system.host_watermarks = {};
    // Each evicted block has its slot in the host before the next block is chosen.
    system.evictions_in_flight_max = 1;
    // No request may wait for a staging slot, because all blocks from storage arrive at the same time.
    if (options.has_storage()) pool.staging_blocks = Blocks{std::max(1U, std::min(full_blocks_max, options.device_blocks))};
  }
  system.log.sink = &standard_error_log();
  system.fingerprint = replay_fingerprint(options).bytes;
  if (system.admin.block_tokens == 0) system.admin.block_tokens = options.block_tokens;
  for (RankOptions& rank : system.ranks) rank.device = device_of(options, rank.device);
  return system;
}

/// The resident memory of this process; 0 if it cannot be read.
Bytes resident_memory() {
  std::ifstream statm{"/proc/self/statm"};
  std::uint64_t all = 0;
  std::uint64_t pages = 0;
  statm >> all >> pages;
  return Bytes{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))} * pages;
}

/// A system that cannot be made as asked for is bad input, because nothing has been replayed yet.
std::unique_ptr<CacheSystem> make_system(const ReplayOptions& options, std::uint32_t full_blocks_max) {
  const Bytes needed = needed_memory(options);
  const Bytes before = resident_memory();
  const ProgressLine progress{[=] {
    const Bytes now = resident_memory();
    const Bytes got = std::min(needed, now > before ? now - before : Bytes{});
    return ProgressState{count(got), count(needed), fmt::format("starting: {} of {}", to_string(got), to_string(needed))};
  }};
  return as_usage<std::exception>([&] { return std::make_unique<CacheSystem>(system_options(options, full_blocks_max)); });
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void collect(ReplayResult& result, Session& session, CacheSystem& system) {
  result.counts = session.counts();
  const CallLatencies& latencies = session.latencies();
  result.latency_us = {latencies.match.microseconds(),  latencies.acquire.microseconds(), latencies.extend.microseconds(),
                       latencies.commit.microseconds(), latencies.release.microseconds(), latencies.prefetch.microseconds()};
  result.first_token_us = session.first_tokens().microseconds();
  result.engine = session.engine();
  result.moved = system.cache().moved();
  result.checked = session.checked();
  for (const Verifier& verifier : session.verifiers()) {  // one per rank; each compares all hits
    const VerifierTotals totals = verifier.totals();
    result.compared = totals.compared;
    result.group_blocks = totals.group_blocks;
    result.layered_blocks = totals.layered_blocks;
    result.mismatches += totals.mismatches;
    if (!result.first_mismatch) result.first_mismatch = totals.first_mismatch;
    result.verify_seconds += totals.verify_seconds;
    result.content_seconds += totals.content_seconds;
  }
  result.key_seconds = session.key_seconds();
  result.faults_planted = system.faults_planted();
  result.manager = system.cache().manager().stats();
  result.waits = system.cache().wait_totals();
  result.prefetches = system.cache().prefetch_totals();
  if (const BlockStore* const store = system.store()) result.store = store->stat();
  for (std::size_t number = 0; number < system.pool_count(); ++number) {
    const PoolId pool{static_cast<std::uint16_t>(number)};
    BlockStore* const store = system.store(pool);
    result.pools.push_back({.block_bytes = system.block_bytes(pool),
                            .device = system.cache().usage(Tier::device, pool),
                            .host = system.cache().usage(Tier::host, pool),
                            .stored = store == nullptr ? 0 : store->stat().blocks});
  }
  result.storage_health = system.storage_health();
  result.storage_io = system.io();
  if (!result.left_behind) result.checks = check_idle(system);
}

void take_checkpoint(const ReplayOptions& options, Cache& cache, ReplayResult& result) {
  if (!options.checkpoint) return;
  const auto begin = std::chrono::steady_clock::now();
  const Result<CheckpointReport> report = cache.checkpoint(std::chrono::duration_cast<Duration>(*options.checkpoint));
  if (!report) {  // an operator has cleared the cache until it is resumed, or has started jobs
    result.failure = fmt::format("no checkpoint was made: {}", report.error().message());
    return;
  }
  result.checkpoint = *report;
  result.checkpoint_seconds = seconds_since(begin);
  // A checkpoint that ended early, for example because the daily limit is spent, leaves only copies to the host to drain().
  const bool is_over = result.checkpoint_seconds >= std::chrono::duration<double>{*options.checkpoint}.count();
  result.left_behind = is_over && cache.has_pending_work();
}

}  // namespace

ReplayResult run_replay(const ReplayOptions& options) {
  check_feasible(options, available_memory());
  EventFdWaker waker;
  const Interrupt interrupt{&waker, std::chrono::ceil<std::chrono::seconds>(options.checkpoint.value_or(0s))};
  const Input input = open_input(options, interrupt);
  std::unique_ptr<CacheSystem> system = make_system(options, input.full_blocks_max);
  if (const std::string address = system->admin_address(); !address.empty()) {
    write_error("terrace replay", "operators reach this run at " + address);
  }
  Session session{options, *input.requests, input.oracle.get(), system->devices(), waker, interrupt};

  ReplayResult result;
  std::uint64_t reserve_requests = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const ProgressLine line{[&] { return session.progress(input.requests_total); }};
    if (options.mode == Mode::loop) {
      run_loop(session, *system, waker);
    } else {
      reserve_requests = run_confined(session, *system, waker, reserved_slots(options, input.full_blocks_max));
    }
  }
  const ProgressLine ending{[] { return ProgressState{0, 0, "ending: copies and writes under way"}; }};
  result.seconds = seconds_since(begin);
  take_checkpoint(options, system->cache(), result);
  const auto drain_begin = std::chrono::steady_clock::now();
  if (!result.left_behind) system->cache().drain();
  result.drain_seconds = seconds_since(drain_begin);
  if (const Result<void> traced = system->end_trace(); !traced) {
    result.trace_failure = fmt::format("cannot write the trace: {}", traced.error().message());
  }
  if (input.log != nullptr && !interrupt.requested() && !session.failed())
    result.bound = bound_of(options, *input.log, interrupt);
  result.interrupted = interrupt.requested();
  if (session.failed()) result.failure = session.failure();
  collect(result, session, *system);
  result.manager.acquired -= reserve_requests;
  result.manager.requests.requests -= reserve_requests;
  // The destructor would wait for the disk without a limit.
  if (result.left_behind) (void)system->close(std::chrono::steady_clock::now());
  return result;
}

ExitStatus replay(const ReplayOptions& options) {
  const ReplayResult result = run_replay(options);
  write_output(to_table(options, result));
  Verdict verdict = judge(options, result);
  const auto add_failure = [&](const std::string& what) {  // the result of the replay is more important
    if (verdict.status == ExitStatus::done) verdict = {ExitStatus::run_failed, what};
    else verdict.line += fmt::format("; {}", what);
  };
  if (result.trace_failure) add_failure(*result.trace_failure);
  try {
    if (!options.report.empty()) write_report(options.report, to_json(options, result));
  } catch (const std::exception& failure) {
    add_failure(failure.what());
  }
  if (verdict.status != ExitStatus::done) complain("terrace replay", verdict.line);
  return verdict.status;
}

}  // namespace terrace::tools
