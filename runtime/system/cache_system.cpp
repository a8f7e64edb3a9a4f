#include "runtime/system/cache_system.hpp"

#include "base/check.hpp"
#include "runtime/system/cache_system_watch.hpp"
#include "storage/file/file_store.hpp"
#include "storage/memory/memory_store.hpp"
#include "transfer/emulated/instant_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

/// Enough staging slots to keep disk and link busy at the same time.
constexpr std::uint32_t default_staging_blocks = 64;

bool has_storage(const CacheSystemOptions& options) { return !std::holds_alternative<NoStorage>(options.storage); }

ManagerConfig manager_config(const CacheSystemOptions& options) {
  if (options.device_blocks == 0) throw std::invalid_argument{"the device needs at least one block"};
  if (count(options.block_bytes) == 0) throw std::invalid_argument{"a block needs at least one byte"};
  if (!has_storage(options) && options.write_policy != WritePolicy::none) {
    throw std::invalid_argument{fmt::format("write policy {} needs storage", to_string(options.write_policy))};
  }
  ManagerConfig config;
  (options.engine_owns_slots ? config.engine_blocks : config.device_blocks) = options.device_blocks;
  config.key_order = options.key_order;
  config.host_blocks = options.host_blocks;
  config.storage = has_storage(options);
  config.staging_blocks = options.staging_blocks;
  if (config.staging_blocks == 0 && config.storage) config.staging_blocks = default_staging_blocks;
  const std::uint64_t arena_blocks = std::uint64_t{config.host_blocks} + config.staging_blocks;
  if (options.device_blocks >= Copy::slots_max || arena_blocks >= Copy::slots_max) {
    throw std::invalid_argument{fmt::format("{} device blocks and {} host blocks: each must be under {}", options.device_blocks,
                                            arena_blocks, Copy::slots_max)};
  }
  config.caching = options.caching;
  config.store_uncached = options.store_uncached;
  config.inclusion = options.inclusion;
  config.policy = options.policy;
  config.evictions_in_flight_max = options.evictions_in_flight_max;
  config.device_watermarks = options.device_watermarks;
  config.host_watermarks = options.host_watermarks;
  config.write_policy = options.write_policy;
  config.selective_hits = options.selective_hits;
  config.flush_interval = options.flush_interval;
  config.loads = options.loads;
  config.unit_prefill_seconds = options.unit_prefill_seconds;
  return config;
}

std::uint32_t rank_count(const CacheSystemOptions& options) { return static_cast<std::uint32_t>(options.other_ranks.size()) + 1; }

const DeviceOptions& device_of(std::uint32_t rank, const CacheSystemOptions& options) {
  return rank == 0 ? options.device : options.other_ranks[rank - 1];
}

HostShare share_of(std::uint32_t rank, const CacheSystemOptions& options) {
  const std::uint32_t ranks = rank_count(options);
  if (ranks == 1 || options.rank_payload == RankPayload::replicated) return {};
  if (count(options.block_bytes) % ranks != 0) {
    throw std::invalid_argument{
        fmt::format("blocks of {} cannot be dealt out to {} ranks evenly", to_string(options.block_bytes), ranks)};
  }
  const Bytes each{count(options.block_bytes) / ranks};
  return {each * rank, each};
}

/// Checked before the memory is set up, because setting up hundreds of gigabytes takes long.
void check_devices(const CacheSystemOptions& options) {
  for (std::uint32_t rank = 0; rank < rank_count(options); ++rank) {
    const auto* const cuda = std::get_if<CudaGpu>(&device_of(rank, options));
    if (cuda == nullptr) continue;
    const std::optional<std::string> why = CudaDevice::unavailable(cuda->ordinal);
    if (why) throw std::runtime_error{rank_count(options) == 1 ? *why : fmt::format("rank {}: {}", rank, *why)};
  }
}

std::unique_ptr<Device> open_device(const DeviceOptions& options, const PoolMemory& pool, HostArena& arena,
                                    const std::shared_ptr<HostPins>& pins) {
  if (const auto* cuda = std::get_if<CudaGpu>(&options)) {
    CudaOptions cuda_options;
    cuda_options.ordinal = cuda->ordinal;
    cuda_options.pins = pins;
    if (!cuda->calibration.empty()) cuda_options.methods = CudaDevice::calibrated(cuda->ordinal, cuda->calibration);
    const CudaPool cuda_pool{.slots = pool.slots, .host = &arena, .share = pool.share, .regions = {}, .layers = pool.layers};
    return CudaDevice::open(std::span{&cuda_pool, 1}, cuda_options);
  }
  if (std::holds_alternative<InstantGpu>(options)) return std::make_unique<InstantDevice>(std::span{&pool, 1});
  const auto& emulated = std::get<EmulatedGpu>(options);
  return std::make_unique<EmulatedDevice>(std::span{&pool, 1}, EmulatedOptions{.link = emulated.link, .faults = emulated.faults});
}

/// Size of a chunk. Chunks are small enough that the rest which remains after shrinking (less than one chunk) is under 2 % of a
/// tier of a fifth of the size, and that the first chunks are warm soon. Otherwise they are as large as possible.
Bytes chunk_bytes(Bytes total, Bytes block_bytes) {
  constexpr std::uint64_t chunks = 256;
  constexpr Bytes least = MiB * 2;
  const Bytes share = MiB * 2 * (count(total) / chunks / count(MiB * 2));
  return std::max(std::clamp(share, least, GiB), block_bytes);
}

HostArenaOptions arena_options(const CacheSystemOptions& options, const ManagerConfig& config, Waker& waker) {
  const bool wait = options.host_warm_up == HostWarmUp::before_serving;
  HostArenaOptions arena;
  arena.slots = config.host_blocks + config.staging_blocks;
  arena.ready_slots = wait ? arena.slots : config.staging_blocks;
  arena.block_bytes = options.block_bytes;
  arena.chunk_bytes = chunk_bytes(options.block_bytes * arena.slots, options.block_bytes);
  arena.touch = options.host_touch;
  arena.limits = options.memory_limits;
  arena.waker = &waker;
  return arena;
}

IoOptions io_options(const FileStorage& file) {
  IoOptions options;
  options.choice = file.io;
  options.threads.threads = file.io_threads;
  options.threads.bandwidth = file.bandwidth;
  return options;
}

/// Registers the chunks of the arena with the I/O engine, as they are added and removed, until it is destroyed.
class IoMemory final : public ArenaChunks {
 public:
  IoMemory(HostArena& arena, IoEngine& engine) : arena_{arena}, engine_{engine} {
    TERRACE_CHECK(arena_.observe(*this).has_value());
  }
  ~IoMemory() override { arena_.unobserve(*this); }
  IoMemory(const IoMemory&) = delete;
  IoMemory& operator=(const IoMemory&) = delete;

  Result<void> chunk_added(const ArenaChunk& chunk) override {
    engine_.register_memory(chunk.bytes);
    return {};
  }
  void chunk_removing(const ArenaChunk& chunk) override { engine_.forget_memory(chunk.bytes); }

 private:
  HostArena& arena_;
  IoEngine& engine_;
};

}  // namespace

/// Members are constructed in this order and destroyed in reverse.
struct CacheSystem::Parts {
  explicit Parts(const CacheSystemOptions& options)
      : config{manager_config(options)}, log{options.log, clock}, arena{arena_options(options, config, waker)} {
    open_ranks(options);
    if (const auto* memory = std::get_if<MemoryStorage>(&options.storage)) {
      const std::uint64_t blocks = memory->capacity / options.block_bytes;
      if (blocks == 0 || blocks > std::numeric_limits<std::uint32_t>::max()) {
        throw std::invalid_argument{
            fmt::format("a storage capacity of {} holds {} blocks of {}: at least 1 is needed, and fewer than 2^32",
                        to_string(memory->capacity), blocks, to_string(options.block_bytes))};
      }
      store = std::make_unique<MemoryStore>(static_cast<std::uint32_t>(blocks), options.block_bytes, &waker);
    } else if (const auto* file = std::get_if<FileStorage>(&options.storage)) {
      io = make_io_engine(io_options(*file), waker);
      log.write(LogLevel::info, "I/O", [&] { return "storage is read and written by " + io->describe(); });
      io_memory = std::make_unique<IoMemory>(arena, *io);
      FileStoreConfig store_config;
      store_config.directory = file->directory;
      store_config.more_directories = file->more_directories;
      store_config.stripe_bytes = file->stripe_bytes;
      store_config.name = file->name;
      store_config.accept_lost_directories = file->accept_lost_directories;
      store_config.capacity = file->capacity;
      store_config.floor = file->floor;
      store_config.block_bytes = options.block_bytes;
      store_config.fingerprint = options.fingerprint;
      auto files = std::make_unique<FileStore>(store_config, *io);
      file_store = files.get();
      store = std::move(files);
      if (options.storage_guard) guard.emplace(*store, clock, *options.storage_guard, &waker);
    }
    TransferPort& transfers = ranked ? static_cast<TransferPort&>(*ranked) : *engines.front();
    CacheParts parts{transfers, arena, cache_store(), clock, &waker, options.poison ? &*devices : nullptr};
    parts.watch = &watch;
    cache = std::make_unique<Cache>(config, parts);
    watch.begin({cache.get(), guard ? &*guard : nullptr, file_store, ranked ? &*ranked : nullptr});
  }

  ~Parts() {
    if (!cache) return;
    cache->drain();
    watch.look();
  }

  [[nodiscard]] BlockStore* cache_store() { return guard ? &*guard : store.get(); }

  void open_ranks(const CacheSystemOptions& options) {
    std::vector<Device*> pointers;
    std::vector<RankedTransfers::Rank> ranks;
    const std::shared_ptr<HostPins> pins = CudaDevice::shared_pins();
    TransferSchedulerConfig lanes;
    lanes.rates = options.lane_rates;
    const std::uint32_t slots = std::max(options.device_blocks, options.device_blocks_max);
    for (std::uint32_t rank = 0; rank < rank_count(options); ++rank) {
      const PoolMemory pool{.slots = slots, .host = &arena, .share = share_of(rank, options), .layers = options.layers};
      owned_devices.push_back(open_device(device_of(rank, options), pool, arena, pins));
      pointers.push_back(owned_devices.back().get());
      if (const auto* const cuda = dynamic_cast<const CudaDevice*>(pointers.back())) say_what_is_missing(*cuda);
      if (std::holds_alternative<InstantGpu>(device_of(rank, options))) {
        engines.push_back(std::make_unique<DirectTransfers>(lanes, *pointers.back(), clock, waker));
      } else {
        engines.push_back(std::make_unique<ThreadedTransfers>(lanes, *pointers.back(), clock, waker));
      }
      ranks.push_back({fmt::format("rank {} ({})", rank, pointers.back()->info().name), engines.back().get()});
    }
    devices.emplace(std::move(pointers));
    if (ranks.size() > 1) ranked.emplace(std::move(ranks), clock, waker, RankedTransfersOptions{.payload = options.rank_payload});
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
  SteadyClock clock;
  Log log;
  CacheSystemWatch watch{log};
  EventFdWaker waker;
  HostArena arena;
  std::vector<std::unique_ptr<Device>> owned_devices;
  std::optional<RankDevices> devices;
  std::vector<std::unique_ptr<TransferPort>> engines;  ///< by rank
  std::optional<RankedTransfers> ranked;               ///< over `engines`, if there are several ranks
  std::unique_ptr<IoEngine> io;
  std::unique_ptr<IoMemory> io_memory;  ///< registers the arena with `io`
  std::unique_ptr<BlockStore> store;
  const FileStore* file_store = nullptr;  ///< the same object as `store`, if that is a FileStore
  std::optional<ResilientStore> guard;    ///< in front of `store`
  std::unique_ptr<Cache> cache;
};

CacheSystem::CacheSystem(const CacheSystemOptions& options) {
  check_devices(options);
  parts_ = std::make_unique<Parts>(options);
}

CacheSystem::~CacheSystem() = default;

Cache& CacheSystem::cache() { return *parts_->cache; }
Device& CacheSystem::device() { return parts_->devices->at(0); }
RankDevices& CacheSystem::devices() { return *parts_->devices; }

std::vector<RankHealth> CacheSystem::rank_health() const {
  std::vector<RankHealth> all;
  const std::uint32_t ranks = parts_->ranked ? parts_->ranked->ranks() : 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) all.push_back(parts_->ranked->health(rank));
  return all;
}

BlockStore* CacheSystem::store() { return parts_->cache_store(); }

std::optional<StoreHealth> CacheSystem::storage_health() const {
  if (!parts_->guard) return std::nullopt;
  StoreHealth health = parts_->guard->health();
  health.lost_directories = parts_->file_store->lost_directories();
  if (const std::string& lost = parts_->file_store->durability_lost(); !lost.empty() && health.state == StoreState::well) {
    health.state = StoreState::degraded;
    health.reason = lost;
  }
  if (health.lost_directories.empty() || health.state != StoreState::well) return health;
  health.state = StoreState::degraded;
  health.reason = fmt::format("{} of the directories that it is striped over are lost until the next start, {} among them",
                              health.lost_directories.size(), health.lost_directories.front().string());
  return health;
}

std::string CacheSystem::io() const { return parts_->io ? parts_->io->describe() : std::string{}; }
HostArena& CacheSystem::arena() { return parts_->arena; }

std::uint64_t CacheSystem::faults_planted() const {
  std::uint64_t all = 0;
  for (const auto& device : parts_->owned_devices) {
    const auto* const emulated = dynamic_cast<const EmulatedDevice*>(device.get());
    if (emulated == nullptr) continue;
    const PlantedFaults planted = emulated->planted();
    all += planted.flipped + planted.late + planted.unfenced;
  }
  return all;
}

}  // namespace terrace
