#include "runtime/admin/cache_admin.hpp"

#include "runtime/admin/size_effects.hpp"
#include "runtime/admin/status.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/engine/cache_state.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace terrace::admin {
namespace {

namespace json = boost::json;

unsigned status_of(ErrorCode error) {
  if (error == Errc::invalid_argument) return 400;
  if (error == Errc::not_found || error == Errc::unknown_request) return 404;
  return 409;
}

Reply refusal(ErrorCode error, std::string_view sentence) { return {status_of(error), error_body(sentence)}; }

/// One of so many blocks is followed to measure how long blocks stay. It costs one test for each hit block.
constexpr std::uint32_t residency_sample = 64;

/// Returns true if the device slots belong to the engine.
bool is_offload(const ManagerConfig& config) { return config.pools.front().device_blocks == 0; }

/// Carries out commands. Each call makes one reply.
class Runner {
 public:
  Runner(Cache& cache, Observer& observer, const Clock& clock, const CacheAdmin::ResumeShared& resume_shared)
      : cache_{cache}, observer_{observer}, clock_{clock}, resume_shared_{resume_shared} {}

  Reply operator()(const Resize& wanted) {
    const std::vector<PoolSizes>& pools = cache_.manager().config().pools;
    if (wanted.pool.value() >= pools.size()) {
      return {400, error_body(fmt::format("there is no pool {}: the number of pools is {}", wanted.pool.value(), pools.size()))};
    }
    const Bytes block = pools[wanted.pool.value()].block_bytes;
    const std::uint64_t blocks = wanted.blocks ? *wanted.blocks : *wanted.bytes / block;
    if (blocks > std::numeric_limits<std::uint32_t>::max()) {
      if (auto reply = beyond_memory(wanted, blocks, block)) return *std::move(reply);
      return {400, error_body(fmt::format("{} blocks are too many", blocks))};
    }
    if (wanted.bytes && blocks == 0 && *wanted.bytes != Bytes{}) {
      return {400, error_body(fmt::format("{} are less than one block of {}", to_string(*wanted.bytes), to_string(block)))};
    }
    const Result<void> resized = cache_.resize(wanted.tier, Blocks{static_cast<std::uint32_t>(blocks)}, wanted.pool);
    if (!resized) {
      if (resized.error() == Errc::no_room) {
        if (auto reply = beyond_memory(wanted, blocks, block)) return *std::move(reply);
      }
      return refusal(resized.error(), fmt::format("{} cannot have {} blocks: {}", to_string(wanted.tier), blocks,
                                                  resized.error() == Errc::invalid_argument
                                                      ? "there is no such tier, its size is fixed, or the size is out of range"
                                                      : resized.error().message()));
    }
    return answer(json::object{{"tier", to_string(wanted.tier)},
                               {"pool", wanted.pool.value()},
                               {"blocks", blocks},
                               {"bytes", count(block) * blocks}},
                  202);
  }
  Reply operator()(const Clear& wanted) {
    cache_.clear(wanted.options);
    return cleared();
  }
  Reply operator()(const Update& wanted) {
    // Checked first, so that a refusal changes nothing.
    if (!resume_shared_ || !cache_.manager().config().shared.on)
      return {400, error_body("this cache has no shared store, so it does not need the name of its weights: clear it")};
    if (cache_.transfers_paused()) return {409, error_body("transfers are paused: resume them first")};
    cache_.clear({.wait = wanted.wait});
    const Result<void> resumed = resume_shared_(wanted.weights_revision);
    return resumed ? cleared() : refusal(resumed.error(), resumed.error().message());
  }
  Reply operator()(Resume) {
    const Result<void> resumed = cache_.resume();
    if (!resumed) return refusal(resumed.error(), "some of the cleared blocks are still in use: try again");
    return answer(json::object{{"status", "normal"}});
  }
  Reply operator()(Pause wanted) {
    if (wanted.pause) cache_.pause_transfers();
    else cache_.resume_transfers();
    return answer(json::object{{"transfers_paused", wanted.pause}});
  }
  Reply operator()(StartCapture wanted) {
    if (wanted.kind == CaptureKind::record && is_offload(cache_.manager().config())) {
      return {409,
              error_body("there are no requests to record: the engine has the blocks of its GPU itself, and orders jobs here")};
    }
    observer_.capture(wanted.kind, wanted.length);
    return answer(json::object{{"seconds", std::chrono::duration<double>(wanted.length).count()}}, 202);
  }
  Reply operator()(const Change& wanted) {
    try {
      const CacheSettings settings = changed(cache_.settings(), wanted);
      const Result<void> made = cache_.change(settings);
      if (!made) return refusal(made.error(), why_refused(made.error(), settings));
      return answer(to_json(settings));
    } catch (const BadBody& error) {
      return {400, error_body(error.what())};
    }
  }
  Reply operator()(const StartJob& wanted) {
    WriteBackOrder order = wanted.order;
    order.keys = wanted.keys;
    if (wanted.deadline) order.deadline = clock_.now() + *wanted.deadline;
    const Result<WriteBackId> job = cache_.start_write_back(order);
    if (!job) return refusal(job.error(), fmt::format("the job cannot start: {}", why_not_started(job.error(), order.target)));
    return answer(to_json(*cache_.write_back(*job)), 201);
  }
  Reply operator()(ChangeJob wanted) {
    using Action = ChangeJob::Action;
    if (wanted.action == Action::take_results) {
      const Result<std::vector<WriteBackResult>> results = cache_.take_write_back_results(wanted.id);
      return results ? answer(to_json(*results)) : no_job(wanted.id);
    }
    const Result<void> done = wanted.action == Action::pause    ? cache_.pause_write_back(wanted.id)
                              : wanted.action == Action::resume ? cache_.resume_write_back(wanted.id)
                                                                : cache_.cancel_write_back(wanted.id);
    const std::optional<WriteBackProgress> job = cache_.write_back(wanted.id);
    if (!job) return no_job(wanted.id);
    if (!done) return {409, error_body(fmt::format("job {} has ended: {}", wanted.id.value(), to_string(job->state)))};
    return answer(to_json(*job));
  }

 private:
  /// The reply to a size of the host tier for which the machine lacks memory.
  [[nodiscard]] std::optional<Reply> beyond_memory(const Resize& wanted, std::uint64_t blocks, Bytes block) const {
    if (wanted.tier != Tier::host) return std::nullopt;
    const std::optional<std::uint64_t> most = cache_.internals().host_chunks[wanted.pool.value()].largest();
    if (!most || blocks <= *most) return std::nullopt;
    return too_large(wanted.tier, blocks, *most, block, "the machine or its control group has no more memory");
  }

  Reply cleared() const {
    const bool erasing = cache_.erasing();
    return answer(json::object{{"cleared", true}, {"erasing", erasing}, {"shared_off", cache_.shared_is_off()}},
                  erasing ? 202 : 200);
  }
  static Reply no_job(WriteBackId id) {
    return {404, error_body(fmt::format("there is no job {}, or it was forgotten", id.value()))};
  }

  std::string why_refused(ErrorCode error, const CacheSettings& settings) const {
    if (error == Errc::in_use) return "there are quotas or retentions, and this eviction policy knows no tenants or priorities";
    if (error == Errc::no_room) return "there is no memory for another eviction policy";
    const auto ordered = [](const Watermarks& marks) { return 0 <= marks.low && marks.low <= marks.high && marks.high < 1; };
    if (!ordered(settings.device_watermarks) || !ordered(settings.host_watermarks))
      return "the watermarks of a tier must be low <= high < 100 %";
    if (!(settings.device_reserve_max < 1)) return "device.reserve-max must be less than 100 %";
    const ManagerConfig& config = cache_.manager().config();
    if (settings.write_policy != WritePolicy::none && !config.storage)
      return "a write policy needs storage, which this cache does not have";
    if (config.key_order == KeyOrder::flat) return "blocks without an order are always evicted by lru";
    return "this program has brought no eviction policy of its own";
  }
  static std::string why_not_started(ErrorCode error, WriteBackOrder::Target target) {
    const bool shared = target == WriteBackOrder::Target::shared;
    if (error == Errc::invalid_argument) return shared ? "this cache has no shared store" : "this cache has no storage";
    if (error == Errc::not_found) return "nothing of it is cached";
    if (error == Errc::refused) return "too many jobs run";
    if (error == Errc::unknown_request) return "there is no such request";
    return error.message();
  }

  Cache& cache_;
  Observer& observer_;
  const Clock& clock_;
  const CacheAdmin::ResumeShared& resume_shared_;
};

}  // namespace

void CacheAdmin::begin(Cache& cache, Complete complete, ResumeShared resume_shared) {
  complete_ = std::move(complete);
  resume_shared_ = std::move(resume_shared);
  // The keys of an engine that owns the device slots are blocks of a pool; other keys are hash units.
  const ManagerConfig& config = cache.manager().config();
  sample(is_offload(config) ? AdminSnapshot::Measured{} : measured_blocks(config.groups, config.hash_unit_tokens));
  cache.measure_misses();
  if (!is_offload(config)) cache.sample_residency(residency_sample);
  publisher_.begin({.describe = [this, &cache](AdminSnapshot& snapshot) { describe(cache, snapshot); },
                    .carry_out =
                        [this, &cache](const Command& command) {
                          return std::visit(Runner{cache, *this, clock(), resume_shared_}, command);
                        }},
                   clock().now());
}

void CacheAdmin::describe(const Cache& cache, AdminSnapshot& snapshot) {
  snapshot.status = cache.status();
  snapshot.transfers_paused = cache.transfers_paused();
  snapshot.erasing = cache.erasing();
  snapshot.work = cache.work_left();
  snapshot.settings = cache.settings();
  const CacheManager& manager = cache.manager();
  for (std::size_t number = 0; number < manager.pool_count(); ++number) {
    const PoolId pool{static_cast<std::uint16_t>(number)};
    const auto slots = [&](Tier tier, const Ledger& ledger) {
      return AdminSnapshot::Slots{cache.usage(tier, pool), ledger.quarantined, cache.retiring(tier, pool),
                                  manager.residency(pool).eviction(tier)};
    };
    snapshot.pools.push_back({.block_bytes = manager.config().pool(pool).block_bytes,
                              .device = slots(Tier::device, manager.device_ledger(pool)),
                              .host = slots(Tier::host, manager.host_ledger(pool)),
                              .host_memory = cache.host_memory(pool),
                              .host_growth_failures = cache.host_growth_failures(pool),
                              .residency = cache.residency_totals(pool)});
  }
  snapshot.link = cache.link_health();
  snapshot.stats = cache.stats();
  snapshot.moved = cache.moved();
  snapshot.waits = cache.wait_totals();
  snapshot.waits_now = cache.waits_now();
  snapshot.calls = cache.call_times();
  snapshot.transfer_times = cache.transfer_times();
  snapshot.queues = cache.transfer_queues();
  snapshot.slowest = cache.slowest_requests();
  snapshot.daily_writes = cache.daily_writes();
  snapshot.jobs = cache.write_backs();
  snapshot.job_blocks = manager.write_backs().totals();
  if (is_offload(manager.config())) snapshot.offload = manager.offload().totals();
  snapshot.prefetches = cache.prefetch_totals();
  snapshot.misses = cache.miss_totals();
  if (manager.config().shared.on) {
    SharedStoreSnapshot& shared = snapshot.shared.emplace();
    shared.off = cache.shared_is_off();
    shared.totals = cache.shared_totals();
    shared.waiting_blocks = manager.shared_waiting_blocks();
    shared.round_trip_seconds = manager.shared_round_trip_seconds();
  }
  snapshot.prefill_seconds = manager.planner().unit_seconds() / manager.unit_tokens();
  snapshot.inclusion = manager.config().inclusion;
  snapshot.measured = measured();
  if (complete_) complete_(snapshot);
  hand_over();
}

}  // namespace terrace::admin
