#include "terrace/system.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "base/fork.hpp"
#include "runtime/admin/cache_admin.hpp"
#include "runtime/admin/listener.hpp"
#include "runtime/admin/mailbox.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "runtime/engine/idle/idle_service.hpp"
#include "runtime/shared/block_layout.hpp"
#include "runtime/system/cache_system_watch.hpp"
#include "runtime/system/engine_memory.hpp"
#include "runtime/system/pool_storage.hpp"
#include "runtime/system/system_config.hpp"
#include "runtime/system/trace_file.hpp"
#include "storage/io/end_within.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"
#include "transfer/host/memory_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

std::string rank_prefix(std::size_t rank, const CacheSystemOptions& options) {
  return options.ranks.size() == 1 ? std::string{} : fmt::format("rank {}: ", rank);
}

/// Checked before the memory is set up, because setting up hundreds of gigabytes takes long.
void check_devices(const CacheSystemOptions& options) {
  for (std::size_t rank = 0; rank < options.ranks.size(); ++rank) {
    const DeviceOptions& device = options.ranks[rank].device;
    if (const auto* const custom = std::get_if<CustomDevice>(&device); custom != nullptr && !custom->make) {
      throw std::invalid_argument{rank_prefix(rank, options) + "a device of the embedder needs a function that makes it"};
    }
    const auto* const cuda = std::get_if<CudaGpu>(&device);
    if (cuda == nullptr) continue;
    if (const std::optional<std::string> why = CudaDevice::unavailable(cuda->ordinal)) {
      throw std::runtime_error{rank_prefix(rank, options) + *why};
    }
  }
}

/// The rank's part of the pool's host slots. Throws std::invalid_argument if a block cannot be divided among the ranks.
HostShare share_of(std::size_t rank, std::size_t pool, const CacheSystemOptions& options) {
  const std::size_t ranks = options.ranks.size();
  if (ranks == 1 || options.rank_payload == RankPayload::replicated) return {};
  const Bytes block = options.pools[pool].block_bytes;
  if (count(block) % ranks != 0)
    throw std::invalid_argument{fmt::format("blocks of {} cannot be dealt out to {} ranks evenly", to_string(block), ranks)};
  const Bytes each{count(block) / ranks};
  return {each * rank, each};
}

std::unique_ptr<Device> open_cuda(const CudaGpu& gpu, const std::vector<PoolMemory>& memory,
                                  const std::shared_ptr<HostPins>& pins) {
  CudaOptions options;
  options.ordinal = gpu.ordinal;
  options.pins = pins;
  if (!gpu.calibration.empty()) options.methods = CudaDevice::calibrated(gpu.ordinal, gpu.calibration);
  return CudaDevice::open(memory, options);
}

void check_custom(const Device* device, const std::vector<PoolMemory>& memory, std::size_t rank) {
  if (device == nullptr) throw std::invalid_argument{fmt::format("the function of rank {} made no device", rank)};
  const std::vector<DevicePool>& pools = device->info().pools;
  if (pools.size() != memory.size()) {
    throw std::invalid_argument{
        fmt::format("the device of rank {} has {} pools, but the cache has {}", rank, pools.size(), memory.size())};
  }
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    const PoolMemory& wanted = memory[pool];
    const Bytes block = checked_size(wanted.share, *wanted.host);
    if (pools[pool].slots >= wanted.slots && (pools[pool].layers == wanted.layers || !wanted.regions.empty()) &&
        pools[pool].block_bytes == block)
      continue;
    throw std::invalid_argument{fmt::format(
        "the device of rank {} has {} slots of {} in {} layers in pool {}: the cache needs {} slots of {} in {} layers", rank,
        pools[pool].slots, to_string(pools[pool].block_bytes), pools[pool].layers, pool, wanted.slots, to_string(block),
        wanted.layers)};
  }
}

std::shared_ptr<Device> open_device(std::size_t rank, const CacheSystemOptions& options, const std::vector<PoolMemory>& memory,
                                    const std::shared_ptr<HostPins>& pins) {
  const DeviceOptions& wanted = options.ranks[rank].device;
  if (const auto* cuda = std::get_if<CudaGpu>(&wanted)) return open_cuda(*cuda, memory, pins);
  if (const auto* custom = std::get_if<CustomDevice>(&wanted)) {
    std::shared_ptr<Device> device = custom->make(memory);
    check_custom(device.get(), memory, rank);
    return device;
  }
  if (std::holds_alternative<InstantGpu>(wanted)) {
    return std::make_shared<EmulatedDevice>(memory, EmulatedOptions{.name = "instant", .instant = true});
  }
  const auto& emulated = std::get<EmulatedGpu>(wanted);
  return std::make_shared<EmulatedDevice>(memory, EmulatedOptions{.link = emulated.link, .faults = emulated.faults});
}

/// Size of a chunk. Chunks are small enough that the rest which remains after shrinking (less than one chunk) is under 2 % of a
/// tier of a fifth of the size, and that the first chunks are warm soon. Otherwise they are as large as possible.
Bytes chunk_bytes(Bytes total, Bytes block_bytes) {
  constexpr std::uint64_t chunks = 256;
  constexpr Bytes least = MiB * 2;
  const Bytes share = MiB * 2 * (count(total) / chunks / count(MiB * 2));
  return std::max(std::clamp(share, least, GiB), block_bytes);
}

/// The NUMA node of the GPUs of all ranks; nothing if they are on several nodes, or if it is unknown.
std::optional<unsigned> node_of_gpus(const CacheSystemOptions& options) {
  std::optional<unsigned> node;
  for (const RankOptions& rank : options.ranks) {
    const auto* const cuda = std::get_if<CudaGpu>(&rank.device);
    const std::optional<unsigned> of_rank = cuda == nullptr ? std::nullopt : CudaDevice::numa_node(cuda->ordinal);
    if (!of_rank || (node && node != of_rank)) return std::nullopt;
    node = of_rank;
  }
  return node;
}

HostArenaOptions arena_options(const CacheSystemOptions& options, const PoolOptions& pool, const PoolSizes& sizes, Waker& waker) {
  const bool wait = options.host_warm_up == HostWarmUp::before_serving;
  HostArenaOptions arena;
  arena.slots = sizes.host_blocks + sizes.staging_blocks;
  arena.ready_slots = wait ? arena.slots : sizes.staging_blocks;
  arena.block_bytes = pool.block_bytes;
  arena.chunk_bytes = chunk_bytes(pool.block_bytes * arena.slots, pool.block_bytes);
  arena.rows = pool.host_rows;
  arena.rows_owner = pool.host_rows_owner;
  arena.touch = options.host_touch;
  if (!arena.touch.numa_node) arena.touch.numa_node = node_of_gpus(options);
  arena.limits = options.memory_limits;
  arena.waker = &waker;
  return arena;
}

/// Memory that a host tier can still take (HostArenaOptions::spare).
std::optional<Bytes> memory_for_host(const MemoryLimits& limits) {
  const std::optional<Bytes> left = memory_left(limits);
  const Bytes spare = HostArenaOptions{}.spare;
  return left ? std::optional{*left - std::min(*left, spare)} : std::nullopt;
}

Bytes storage_capacity(const StorageOptions& storage) {
  if (const auto* memory = std::get_if<MemoryStorage>(&storage)) return memory->capacity;
  if (const auto* file = std::get_if<FileStorage>(&storage)) return file->capacity;
  return {};
}

}  // namespace

/// Members are constructed in this order and destroyed in reverse.
struct CacheSystem::Parts {
  HomeProcess home;

  explicit Parts(const CacheSystemOptions& options)
      : config{manager_config(options)}, engine_memory{options}, log{options.log, clock} {
    check_devices(options);
    if (options.idle_service) idle.emplace(clock, waker);
    begin_admin(options);
    for (std::size_t pool = 0; pool < config.pools.size(); ++pool) {
      arenas.push_back(
          std::make_unique<HostArena>(arena_options(options, options.pools[pool], config.pools[pool], all_wakers())));
    }
    open_ranks(options);
    open_storage(options);
    open_shared(options);
    TransferPort& transfers = ranked ? static_cast<TransferPort&>(*ranked) : *engines.front();
    CacheParts parts{transfers, {}, clock, &waker, options.poison ? &*devices : nullptr};
    parts.watches = {&watch};
    if (admin) parts.watches.push_back(&*admin);
    if (!options.trace_out.empty()) parts.watches.push_back(&trace.emplace(options.trace_out, clock.now(), log));
    parts.shared = shared.get();
    if (idle) parts.turns = &idle->turns();
    WatchedParts watched{nullptr, {}, ranked ? &*ranked : nullptr};
    for (std::size_t pool = 0; pool < arenas.size(); ++pool) {
      parts.pools.push_back({arenas[pool].get(), store(pool)});
      const PoolStorage* const its = storage.empty() ? nullptr : storage[pool].get();
      watched.pools.push_back({its == nullptr ? nullptr : its->guard(), its == nullptr ? nullptr : its->files()});
    }
    cache = std::make_unique<Cache>(config, parts);
    watched.cache = cache.get();
    watch.begin(std::move(watched));
    if (admin) begin_publishing(options);
    if (!idle) return;
    idle->start({.slice = [this](TimePoint until) { return cache->serve_idle(until); },
                 .next_deadline = [this] { return cache->next_deadline(); }});
  }

  ~Parts() {
    if (idle) idle->stop();
    if (cache) {
      cache->drain();
      watch.look();
      end_admin();
    }
    if (shared) shared->set_waker(nullptr);  // the store may outlive the cache
  }

  /// Empty if there is one rank.
  [[nodiscard]] std::vector<RankHealth> rank_health() const {
    std::vector<RankHealth> all;
    for (std::uint32_t rank = 0; ranked && rank < ranked->ranks(); ++rank) all.push_back(ranked->health(rank));
    return all;
  }
  [[nodiscard]] IdleTotals idle_totals() const { return idle ? idle->totals() : IdleTotals{}; }
  [[nodiscard]] Turn take_turn() { return idle ? Turn{idle->turns()} : Turn{}; }
  /// The waker of the thread that works on the cache: the engine's, or the idle service's, too.
  [[nodiscard]] Waker& all_wakers() { return idle ? static_cast<Waker&>(*idle) : waker; }

  /// Starts the endpoint before the memory is set up, which may take long. Until the cache is there, the endpoint answers that it
  /// has no data yet.
  void begin_admin(const CacheSystemOptions& options) {
    if (options.admin.listen.empty()) return;
    mailbox.emplace(all_wakers());
    admin.emplace(*mailbox, clock, options.admin.publish_interval);
    listener.emplace(
        options.admin, *mailbox, clock,
        admin::Room{.host = [limits = options.memory_limits] { return limits ? memory_for_host(limits()) : std::nullopt; },
                    .storage = [this](PoolId pool) { return storage[pool.value()]->room(); }});
    log.write(LogLevel::info, "admin", [&] { return "operators reach this cache at " + listener->address(); });
  }

  void begin_publishing(const CacheSystemOptions& options) {
    std::vector<std::uint32_t> device_max;
    device_max.reserve(options.pools.size());
    for (const PoolOptions& pool : options.pools) device_max.push_back(device_slots(pool) - pool.first_slot);
    const std::uint32_t tokens = options.groups.empty() ? options.admin.block_tokens : 1;
    const std::uint32_t key_tokens =
        options.groups.empty() ? options.admin.block_tokens : hash_unit(options.groups, options.hash_unit_tokens);
    admin->begin(
        *cache,
        [this, tokens, key_tokens, device_max = std::move(device_max),
         io = storage.empty() ? std::string{} : storage.front()->io()](AdminSnapshot& snapshot) {
          snapshot.unit_tokens = tokens;
          snapshot.key_tokens = key_tokens;
          snapshot.io = io;
          snapshot.idle = idle_totals();
          if (snapshot.shared) {
            snapshot.shared->health = shared->health();
            snapshot.shared->stat = shared->stat();
          }
          for (std::size_t pool = 0; pool < snapshot.pools.size(); ++pool) {
            snapshot.pools[pool].device_blocks_max = device_max[pool];
            if (storage.empty()) continue;
            snapshot.pools[pool].store = storage[pool]->quick_stat();
            snapshot.pools[pool].health = storage[pool]->health();
          }
          snapshot.ranks = rank_health();
        },
        [this](std::string_view weights_revision) { return resume_shared(weights_revision); });
  }

  Result<void> resume_shared(std::string_view weights_revision) {
    if (!shared) return failure<Errc::invalid_argument, "there is no shared store">;
    meaning.weights_revision = weights_revision;
    return cache->resume_shared(shared_fingerprint(meaning));
  }

  void end_admin() {
    if (!admin) return;
    admin->end();
    listener->stop();
  }

  /// Null: none.
  [[nodiscard]] BlockStore* store(std::size_t pool) { return storage.empty() ? nullptr : storage[pool]->store(); }

  void open_ranks(const CacheSystemOptions& options) {
    std::vector<Device*> pointers;
    std::vector<RankedTransfers::Rank> ranks;
    const std::shared_ptr<HostPins> pins = CudaDevice::shared_pins();
    TransferSchedulerConfig lanes;
    lanes.rates = options.lane_rates;
    lanes.pieces = options.transfer_pieces;
    for (std::size_t rank = 0; rank < options.ranks.size(); ++rank) {
      std::vector<PoolMemory> memory;
      for (std::size_t pool = 0; pool < arenas.size(); ++pool) {
        memory.push_back({.slots = device_slots(options.pools[pool]),
                          .host = arenas[pool].get(),
                          .share = share_of(rank, pool, options),
                          .layers = options.pools[pool].layers,
                          .regions = engine_memory.regions(rank, pool)});
      }
      owned_devices.push_back(open_device(rank, options, memory, pins));
      pointers.push_back(owned_devices.back().get());
      if (const auto* const cuda = dynamic_cast<const CudaDevice*>(pointers.back())) say_what_is_missing(*cuda);
      if (std::holds_alternative<InstantGpu>(options.ranks[rank].device)) {
        engines.push_back(std::make_unique<TransferEngine>(lanes, *pointers.back(), clock, all_wakers()));
      } else {
        engines.push_back(std::make_unique<ThreadedTransfers>(lanes, *pointers.back(), clock, all_wakers()));
      }
      ranks.push_back({fmt::format("rank {} ({})", rank, pointers.back()->info().name), engines.back().get()});
    }
    devices.emplace(std::move(pointers));
    if (ranks.size() == 1) return;
    ranked.emplace(std::move(ranks), clock, all_wakers(), RankedTransfersOptions{.payload = options.rank_payload});
  }

  void open_storage(const CacheSystemOptions& options) {
    if (!config.storage) return;
    std::vector<Bytes> shares(arenas.size());
    if (!std::holds_alternative<CustomStorage>(options.storage)) {
      shares = storage_shares(storage_capacity(options.storage), options.pools);
    }
    NewStoreDirectories made{options};
    try {
      for (std::size_t pool = 0; pool < arenas.size(); ++pool) {
        storage.push_back(std::make_unique<PoolStorage>(pool, options, shares[pool], *arenas[pool], clock, all_wakers()));
      }
    } catch (...) {
      storage.clear();  // before their directories are removed
      throw;
    }
    made.keep();
    for (const auto& pool : storage) {
      if (!pool->left().empty()) log.write(LogLevel::warning, "storage", [&] { return pool->left(); });
    }
    if (const std::string io = storage.front()->io(); !io.empty()) {
      log.write(LogLevel::info, "I/O", [&] { return "storage is read and written by " + io; });
    }
  }

  void open_shared(const CacheSystemOptions& options) {
    if (!options.shared) return;
    shared = open_shared_store(*options.shared);
    meaning = {
        .fingerprint = options.fingerprint, .block_bytes = options.pools.front().block_bytes, .layout = layout_of(options)};
    use_weights(options.shared->weights_revision);
    shared->set_waker(&all_wakers());
  }
  void use_weights(std::string_view revision) {
    meaning.weights_revision = revision;
    shared->use(shared_fingerprint(meaning));
  }

  void say_what_is_missing(const CudaDevice& device) {
    if (!log.wants(LogLevel::warning)) return;
    const CudaFacts facts = device.facts();
    if (facts.no_kernels.empty()) return;
    log.write(LogLevel::warning, "copies", [&] {
      return fmt::format("{} copies without kernels, and small pieces slower: {}", facts.device, facts.no_kernels);
    });
  }

  ManagerConfig config;
  EngineMemory engine_memory;
  SteadyClock clock;
  Log log;
  CacheSystemWatch watch{log};
  std::optional<TraceFile> trace;
  EventFdWaker waker;                              ///< the engine's
  std::optional<IdleService> idle;                 ///< none if the options do not ask for it
  std::vector<std::unique_ptr<HostArena>> arenas;  ///< by PoolId
  std::vector<std::shared_ptr<Device>> owned_devices;
  std::optional<RankDevices> devices;
  std::vector<std::unique_ptr<TransferPort>> engines;  ///< by rank
  std::optional<RankedTransfers> ranked;               ///< over `engines`, if there are several ranks
  std::vector<std::unique_ptr<PoolStorage>> storage;   ///< by PoolId; empty: there is none
  std::shared_ptr<SharedStore> shared;                 ///< null: there is none
  SharedMeaning meaning;  ///< meaning of the blocks in `shared`; its revision is valid only in the calls that set it
  std::unique_ptr<Cache> cache;
  // The admin endpoint; none if the options do not ask for it.
  std::optional<admin::Mailbox> mailbox;
  std::optional<admin::CacheAdmin> admin;
  std::optional<admin::Listener> listener;
};

CacheSystem::CacheSystem(const CacheSystemOptions& options) { parts_ = std::make_unique<Parts>(options); }

bool CacheSystem::is_of_this_process() const { return !parts_ || parts_->home.is_here(); }

CacheSystem::~CacheSystem() {
  if (!is_of_this_process()) static_cast<void>(parts_.release());  // its threads are in the parent
}

CacheSystem::Parts& CacheSystem::parts() const {
  if (!parts_) stop_for_misuse("a CacheSystem was called after its close(): then it may only be destroyed");
  return *parts_;
}

std::optional<std::string> cuda_unavailable(int ordinal) { return CudaDevice::unavailable(ordinal); }

CloseReport CacheSystem::close(TimePoint until) {
  Cache& cache = *parts().cache;
  {
    const Turn turn = take_turn();
    if (const WorkLeft left = cache.work_left(); left.leases > 0) return {left};
  }
  if (parts().idle) parts().idle->stop();
  cache.prepare_drain();
  CloseReport report{cache.drain_until(until)};
  parts().watch.look();
  parts().end_admin();
  parts().log.end();  // the log's sink may end before the thread below
  Parts* const released = parts_.release();
  report.closed = end_within([released] { delete released; }, until);
  return report;
}

Turn CacheSystem::take_turn() const { return parts().take_turn(); }

void CacheSystem::pause_idle_service(Duration longest) {
  if (parts().idle) parts().idle->turns().pause_service(parts().clock.now() + longest);
}

IdleTotals CacheSystem::idle_totals() const { return parts().idle_totals(); }

Cache& CacheSystem::cache() { return *parts().cache; }
Device& CacheSystem::device() { return parts().devices->at(0); }
RankDevices& CacheSystem::devices() { return *parts().devices; }

Result<void> CacheSystem::relocate(std::span<const RankRegions> ranks) {
  if (parts().cache->uses_device_memory()) {
    parts().log.write(LogLevel::error, "relocation",
                      [] { return "refused: requests, jobs or transfers are under way, or blocks are cached on the device"; });
    return failure<Errc::in_use, "requests, jobs or transfers are under way, or blocks are cached on the device">;
  }
  return parts().engine_memory.relocate(ranks, *parts().devices, parts().log);
}

std::vector<RankHealth> CacheSystem::rank_health() const { return parts().rank_health(); }

std::size_t CacheSystem::pool_count() const { return parts().arenas.size(); }

std::size_t CacheSystem::index_of(PoolId pool) const {
  if (pool.value() < pool_count()) return pool.value();
  throw std::invalid_argument{fmt::format("there is no pool {}: the number of pools is {}", pool.value(), pool_count())};
}

BlockStore* CacheSystem::store(PoolId pool) { return parts().store(index_of(pool)); }

std::optional<StoreHealth> CacheSystem::storage_health(PoolId pool) const {
  const std::size_t number = index_of(pool);
  return parts().storage.empty() ? std::nullopt : parts().storage[number]->health();
}

SharedStore* CacheSystem::shared() { return parts().shared.get(); }

std::optional<SharedHealth> CacheSystem::shared_health() const {
  return parts().shared ? std::optional{parts().shared->health()} : std::nullopt;
}

Result<void> CacheSystem::resume_shared(std::string_view weights_revision) { return parts().resume_shared(weights_revision); }

std::string CacheSystem::admin_address() const { return parts().listener ? parts().listener->address() : std::string{}; }

Result<void> CacheSystem::end_trace() { return parts().trace ? parts().trace->end() : Result<void>{}; }

std::string CacheSystem::io() const { return parts().storage.empty() ? std::string{} : parts().storage.front()->io(); }
Bytes CacheSystem::block_bytes(PoolId pool) const { return parts().arenas[index_of(pool)]->block_bytes(); }

std::uint64_t CacheSystem::faults_planted() const {
  std::uint64_t all = 0;
  for (const auto& device : parts().owned_devices) {
    const auto* const emulated = dynamic_cast<const EmulatedDevice*>(device.get());
    if (emulated == nullptr) continue;
    const PlantedFaults planted = emulated->planted();
    all += planted.flipped + planted.late + planted.unfenced;
  }
  return all;
}

}  // namespace terrace
