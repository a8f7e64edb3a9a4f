#include "tools/replay/engine/session.hpp"

#include "terrace/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::string_view model_name = "terrace-replay";

BlockKey key_of_model(std::span<const std::byte> fingerprint) {
  return root_key({.model_digest = std::as_bytes(std::span{model_name}),
                   .fingerprint = fingerprint,
                   .adapter = std::nullopt,
                   .tenant_salt = std::nullopt,
                   .weight_epoch = 0});
}

}  // namespace

BlockKey replay_fingerprint(const ReplayOptions& options) {
  std::string geometry = fmt::format("content 1, {} tokens, {} bytes", options.block_tokens, count(options.block_bytes));
  for (const GroupConfig& group : options.groups) {
    geometry += fmt::format(", {} {} {}{}", to_string(group.kind), group.block_tokens, group.span_tokens,
                            group.optional ? " optional" : "");
    if (!options.pools.empty()) geometry += fmt::format(" {} bytes", count(options.pools.at(group.pool.value()).block_bytes));
  }
  // The configured fingerprint makes a further difference, so that a replay never takes a store over from an engine.
  const BlockKey configured{options.system.fingerprint};
  if (configured != BlockKey{}) geometry += ", " + to_hex(configured);
  return key_of_model(std::as_bytes(std::span{geometry}));
}

Session::Session(const ReplayOptions& options, RequestSource& source, const Oracle* oracle, RankDevices& devices, Waker& waker,
                 const Interrupt& interrupt)
    : options_{options},
      source_{source},
      devices_{devices},
      waker_{waker},
      interrupt_{interrupt},
      device_units_{device_units(options)},
      keys_{key_of_model(replay_fingerprint(options).bytes)},
      aborts_{options.seed, options.abort_rate},
      oracle_{oracle} {
  const std::vector<PoolOptions> pools = pools_of(options);
  for (std::uint32_t rank = 0; rank < options.ranks(); ++rank) {
    const bool sharded = options.system.rank_payload == RankPayload::sharded;
    std::vector<BlockShape> shapes;
    for (const GroupConfig& group : groups_of(options)) {
      const PoolOptions& pool = pools[group.pool.value()];
      const Bytes share = sharded ? Bytes{count(pool.block_bytes) / options.ranks()} : pool.block_bytes;
      shapes.push_back({share, group.block_tokens, sharded ? share * rank : Bytes{}, pool.layers});
    }
    verifiers_.emplace_back(options.verify, std::move(shapes));
    launches_done_.emplace_back(0);
  }
}

std::optional<Prepared> Session::next() {
  if (given_ == options_.requests_max) return std::nullopt;
  for (; skipped_ < options_.skip; ++skipped_) {
    if (!source_.next()) return std::nullopt;
  }
  std::optional<TraceRequest> traced = source_.next();
  if (!traced) return std::nullopt;

  Prepared request;
  request.number = skipped_ + ++given_;
  pace_.note(steady_now(), given_);
  request.timestamp_ms = traced->timestamp_ms;
  request.output_length = traced->output_tokens;
  request.full_blocks = traced->input_tokens / options_.block_tokens;
  request.prompt_blocks = request.full_blocks;
  if (options_.reference) {
    request.prompt_blocks = std::min(request.full_blocks, device_units_);
    request.prompt_tokens = std::uint64_t{request.prompt_blocks} * options_.block_tokens;
  } else {
    request.prompt_tokens = traced->input_tokens;
    request.output_tokens = std::min<std::uint64_t>(traced->output_tokens, output_room(request.prompt_tokens));
  }
  const auto begin = std::chrono::steady_clock::now();
  make_keys(request, *traced);
  key_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  request.shared_blocks = options_.cache_output ? static_cast<std::uint32_t>(request.keys.size()) : request.prompt_blocks;
  request.abort = aborts_.draw(request.prompt_tokens, request.output_tokens);
  return request;
}

void Session::tell(const Prepared& request, Lease& lease) const {
  if (options_.tell_output && request.output_length > 0) lease.set_output_tokens(request.output_length);
  const std::size_t number = request.number - skipped_ - 1;
  if (oracle_ == nullptr || number >= oracle_->requests()) return;
  const std::optional<Oracle::Hint> hint = oracle_->after(number);
  if (!hint) return;
  if (!hint->uses) return lease.expect_use(no_use);
  // The trace's time passes as fast as this replay serves its requests.
  if (const std::optional<Duration> in = pace_.time_of(*hint->uses)) lease.expect_use(*in);
}

TimePoint Session::due(const Prepared& request) {
  if (!options_.speed) return began_;
  if (!first_timestamp_ms_) first_timestamp_ms_ = request.timestamp_ms;
  // The clock cannot represent centuries.
  constexpr std::chrono::duration<double> longest = std::chrono::years{10};
  const std::chrono::duration<double, std::milli> after{(request.timestamp_ms - *first_timestamp_ms_) / *options_.speed};
  return began_ + std::chrono::duration_cast<Duration>(std::clamp<std::chrono::duration<double>>(after, -longest, longest));
}

/// How many tokens a request may write: at most what the options allow, and no more than fits into the device together with the
/// prompt. The last token needs no space, because its own KV is never computed.
std::uint64_t Session::output_room(std::uint64_t prompt_tokens) const {
  const std::uint64_t device_tokens = std::uint64_t{device_units_} * options_.block_tokens;
  if (prompt_tokens > device_tokens) return 0;
  return std::min(options_.output_tokens_max, device_tokens - prompt_tokens + 1);
}

void Session::make_keys(Prepared& request, const TraceRequest& traced) {
  const std::uint64_t blocks = tokens_computed(request.prompt_tokens, request.output_tokens) / options_.block_tokens;
  std::vector<std::uint64_t> ids{traced.hash_ids.begin(), traced.hash_ids.begin() + request.prompt_blocks};
  // Later prompts name the blocks of the answer by these ids. Without ids only the request itself can ask for them again.
  const std::size_t known = std::min<std::size_t>(blocks - request.prompt_blocks, traced.output_ids.size());
  ids.insert(ids.end(), traced.output_ids.begin(), traced.output_ids.begin() + static_cast<std::ptrdiff_t>(known));
  request.keys = keys_.keys(ids);
  keys_.append_own(request.keys, request.number, blocks);
}

AcquireRequest Session::acquire_request(const Prepared& request, std::uint64_t tokens) const {
  AcquireRequest wanted;
  wanted.id = RequestId{request.number};
  wanted.keys = to_share(request, tokens);
  wanted.units =
      HashUnits{blocks_to_acquire(tokens, tokens_computed(request.prompt_tokens, request.output_tokens), options_.block_tokens)};
  // At least one token must be computed, because the next token follows from it.
  if (!options_.reference) wanted.hit_units_max = HashUnits{static_cast<std::uint32_t>((tokens - 1) / options_.block_tokens)};
  wanted.by_layer = options_.layers > 1;
  wanted.tenant = TenantId{keys_.root().prefix64()};
  if (options_.loads == Loads::host) wanted.farthest_source = Source::host;
  if (options_.loads == Loads::none) wanted.farthest_source = Source::device;
  return wanted;
}

std::span<const BlockKey> Session::to_share(const Prepared& request, std::uint64_t tokens) const {
  const std::uint64_t full = tokens / options_.block_tokens;
  return std::span{request.keys}.first(static_cast<std::size_t>(std::min<std::uint64_t>(full, request.shared_blocks)));
}

Launched Session::launch(std::shared_ptr<ComputeBatch> batch) {
  const std::uint64_t number = ++launches_;
  // The caller reads the results from the first rank's batch. The other ranks use copies.
  std::vector<std::shared_ptr<ComputeBatch>> batches{std::move(batch)};
  while (batches.size() < devices_.size()) batches.push_back(std::make_shared<ComputeBatch>(*batches.front()));
  const Fence fence =
      devices_.launch([this, number, wake = &waker_, work = std::move(batches)](std::uint32_t rank, BlockAccess& access) {
        const auto begin = std::chrono::steady_clock::now();
        verifiers_[rank].run(*work[rank], access);
        if (options_.prefill_speed > 0) {
          const std::chrono::duration<double> takes{static_cast<double>(work[rank]->token_count) / options_.prefill_speed};
          std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(takes));
        }
        launches_done_[rank].store(number, std::memory_order_release);
        wake->wake();
      });
  return {number, fence};
}

std::uint64_t Session::launches_done() const {
  std::uint64_t done = launches_;
  for (const auto& by_rank : launches_done_) done = std::min(done, by_rank.load(std::memory_order_acquire));
  return done;
}

void Session::finish(const Prepared& request, const RequestStats& stats, std::uint64_t compared) {
  ++counts_.requests;
  counts_.total += request.full_blocks;
  for (const Source source : all_sources) counts_.found[source] += stats.found[source];
  counts_.miss += request.full_blocks - stats.found.sum();
  counts_.joined += stats.joined;
  checked_ += compared;
  requests_shown_.store(counts_.requests, std::memory_order_relaxed);
  hits_shown_.store(counts_.hits(), std::memory_order_relaxed);
  blocks_shown_.store(counts_.total, std::memory_order_relaxed);
}

ProgressState Session::progress(std::uint64_t requests_total) const {
  const std::uint64_t requests = requests_shown_.load(std::memory_order_relaxed);
  const std::uint64_t blocks = blocks_shown_.load(std::memory_order_relaxed);
  const auto hits = static_cast<double>(hits_shown_.load(std::memory_order_relaxed));
  const double share = blocks == 0 ? 0 : 100.0 * hits / static_cast<double>(blocks);
  return {requests, requests_total, fmt::format("{} requests  hits {:.1f} %", requests, share)};
}

void Session::fail(std::string reason) {
  if (!failure_) failure_ = std::move(reason);
}

void Session::fail(const Prepared& request, std::string_view what, const ErrorCode& error) {
  fail(fmt::format("request {}: {} failed: {}", request.number, what, error.message()));
}

}  // namespace terrace::tools
