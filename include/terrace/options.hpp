#pragma once

#include "terrace/admin.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/groups.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/log.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// The options of a CacheSystem (terrace/system.hpp). All of them are plain values. A CacheSystem copies what it
/// needs, except the memory of the regions, the log's sink, and the devices and stores of the embedder, which it shares.
///
///     CacheSystemOptions options;
///     options.pools = {{.block_bytes = MiB, .device_blocks = 4096, .host_blocks = 65536}};
///     options.ranks = {{.device = CudaGpu{.ordinal = 0}}};
///     options.storage = FileStorage{.directories = {"/mnt/nvme/kv"}, .capacity = TiB};  // written by write-through
///     CacheSystem system{options};

namespace terrace {

class SharedStore;

struct NoStorage {};
/// Ordinary memory in place of a disk, for tests and demonstrations.
struct MemoryStorage {
  /// All pools together. Each pool gets a part, as FileStorage::capacity says.
  Bytes capacity{};
};
struct FileStorage {
  /// At least one. If there are several, each is on its own disk, and blocks are striped over all of them. This and the next
  /// fields are as in FileStoreConfig.
  std::vector<std::filesystem::path> directories{};
  /// All directories and all pools together. Each pool has a store of its own, and gets the share that it has in the bytes of all
  /// device and host blocks.
  Bytes capacity{};
  /// The space to keep free on each file system: FileStoreConfig::floor.
  Bytes floor{};
  /// `automatic`: io_uring if the kernel allows it, otherwise threads.
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;  ///< only for I/O by threads
  /// To imitate a slower disk; 0: no limit. Only for I/O by threads.
  BytesPerSecond bandwidth{};
  Bytes stripe_bytes = MiB * 4;
  bool accept_lost_directories = false;
  /// The name of the store's own directory inside each directory. If several processes or models keep stores there, each store
  /// needs a different name: FileStoreConfig::name, store_directory_name(). The first pool's store has this name; the store of
  /// pool n has the name "NAME-n".
  std::string name = default_store_name;
  /// Says for people whose store it is, for example "vLLM 0.33.0, model NAME, weights REVISION": FileStoreConfig::label.
  /// `terrace store stat` shows the last six labels, and how many blocks were written under each.
  std::string label{};
};
/// Stores of the embedder, one for each pool. They are used as they are: without retries, circuit breaker or fingerprint. Each
/// has blocks of the size that its pool has, and wakes the waker that CacheSystem gives it (BlockStore::set_waker). They are
/// shared: they may outlive the CacheSystem, which then uses them no more.
using CustomStorage = std::vector<std::shared_ptr<BlockStore>>;
using StorageOptions = std::variant<NoStorage, MemoryStorage, FileStorage, CustomStorage>;

/// A store that several machines share, beyond the tiers of this cache: an engine that its operators run. What it is, and how
/// this cache uses it.
struct SharedStorage {
  /// `redis://[USER@]HOST[:PORT][,HOST...][/DATABASE][?PARAMETER=VALUE&...]` (docs/shared.md), `rediss://...` (the same
  /// over TLS), or `memory:` (memory of this process, which all its caches share).
  std::string url{};
  /// The password of the user. If it is empty, it is the first line of the file; if there is no file, there is no password.
  std::string password{};
  std::filesystem::path password_file{};
  /// The certificates of the authorities that are trusted, for TLS. Empty: those of the system.
  std::filesystem::path ca_file{};
  /// If given, values are encrypted and authenticated with the secret in this file, of at least 32 bytes. All users of the engine
  /// need the same; it is read once. Without it, a value that is damaged is found, but not one that somebody has made on purpose.
  std::filesystem::path secret_file{};
  /// The beginning of the names of all values: 1 to 64 letters, digits or characters of "-_.:/".
  std::string prefix = "terrace";
  /// Which weights the model has. Blocks that were computed with others are not there. Any text; it is used together with
  /// CacheSystemOptions::fingerprint.
  std::string weights_revision{};
  /// How long the engine keeps a value that nobody uses. A block has this much less for each block before it, down to the half:
  /// an engine that evicts what expires first so takes the end of a prefix before its beginning.
  Duration expiry = std::chrono::hours{24};
  Duration expiry_per_depth = std::chrono::milliseconds{200};
  std::uint32_t connections_per_node = 2;
  /// Bytes that one connection sends or expects at a time. A larger block goes alone.
  Bytes window_bytes = MiB * 4;
  /// The longest time that a request waits for the answer which of its blocks are there. After that it goes on without.
  Duration probe_deadline = std::chrono::milliseconds{20};
  /// Which blocks are written: none, those that are hit for the selective_hits-th time, or all that are computed
  /// (`write_through`). Not `write_back`.
  WritePolicy write_policy = WritePolicy::selective;
  std::uint32_t selective_hits = 2;
  /// The most bytes of blocks that are being written at a time; one block is always allowed.
  Bytes bytes_in_flight = MiB * 64;
  BytesPerSecond write_bandwidth{};  ///< the most bytes per second that are written; 0: no limit
  Bytes daily_write_bytes{};         ///< the most bytes per day that are written; 0: no limit
  /// A store of the embedder, used in place of an engine at a URL; none of the fields down to `window_bytes` but
  /// `weights_revision` counts then. It is shared: it may outlive the CacheSystem, which then uses it no more.
  std::shared_ptr<SharedStore> store{};
};
/// Returns the store that the options name, of which no operation has begun; SharedStorage::store if that is set. It does not
/// wait for the engine, which may not answer yet. Throws std::invalid_argument (a URL, file or secret that cannot be used) and
/// std::system_error, with one clear sentence that has no password.
[[nodiscard]] TERRACE_API std::shared_ptr<SharedStore> open_shared_store(const SharedStorage& options);

/// Ordinary memory in place of a GPU. Works on every machine. Streams of the engine are EmulatedStreams; StreamRef{} stands for
/// what the calling thread does, whose work is done when it calls (also on InstantGpu, where any stream does).
struct EmulatedGpu {
  LinkModel link{};
  EmulatedFaults faults{};
};
/// An NVIDIA GPU. cuda_unavailable() says whether there is one.
struct CudaGpu {
  int ordinal = 0;
  /// The file with the copy methods that were measured on this device (CudaDevice::calibrated). If empty, the defaults are used.
  std::filesystem::path calibration{};
};
/// Ordinary memory in which copies and computations happen at once, on the caller's thread (InstantDevice). It is for a cache
/// that one thread calls, without an event loop.
struct InstantGpu {};
/// A device of the embedder (experimental). CacheSystem calls `make` once, with its pools: their slots, layers, share of the
/// host slots and regions, and the host slots between which and its own memory it copies. The device must have exactly these
/// pools. It is destroyed before the host slots, so whoever shares it must let go of it before the CacheSystem ends.
struct CustomDevice {
  std::function<std::shared_ptr<Device>(std::span<const PoolMemory> pools)> make;
};
using DeviceOptions = std::variant<EmulatedGpu, CudaGpu, InstantGpu, CustomDevice>;

/// One of the devices over which a model is spread.
struct RankOptions {
  DeviceOptions device{};
  /// The memory of the engine that holds the blocks, by GroupId (by PoolId if there are no groups). It must outlive the
  /// CacheSystem. If empty, the device allocates the memory. Groups that share a pool share its memory: give their regions with
  /// the first of them, and leave those of the others empty. Regions name their layers, and PoolOptions::layers does not count
  /// then. For a device in ordinary memory they are addresses in this process.
  std::vector<std::vector<DeviceRegion>> regions{};
};

/// The slots of one block size, in device and host.
struct PoolOptions {
  /// Size of one block, all layers and all ranks together. With file storage it must be a multiple of 4 KiB.
  Bytes block_bytes = KiB * 64;
  /// Layers of a block, of equal size and adjacent. Requests by layer are told of their arrival. If 1, such a request waits for
  /// its whole load.
  std::uint32_t layers = 1;
  /// Slots on the device, the null block included.
  Blocks device_blocks{};
  /// Memory is reserved for this many device blocks, so that Cache::resize can go up to it; 0: device_blocks. The host tier needs
  /// no such limit, because its memory grows and shrinks with its size.
  Blocks device_blocks_max{};
  Blocks host_blocks{};
  /// Staging slots, if there is storage; 0: chosen automatically.
  Blocks staging_blocks{};
  /// The first slot is never handed out. It stands in block tables for blocks that a group does not need. A pool needs a null
  /// block if one of its groups is a window group, a state group, or optional.
  bool null_block = false;
  /// The pool has the device slots from this one on. Lower slots belong to other caches that share the device's memory.
  std::uint32_t first_slot = 0;
  /// Host memory of the embedder's, in place of the cache's own: the host tier and the staging slots lie in its rows, slot n in
  /// row n. Rows have block_bytes, and there are at least host_blocks + staging_blocks of them, which is also the bound for
  /// Cache::resize. The memory stays valid as long as the CacheSystem, and after a close() that has not ended everything.
  std::optional<HostRows> host_rows{};
  /// Is kept as long as the rows are used. May be null.
  std::shared_ptr<const void> host_rows_owner{};
};

/// When the memory of the host tier is touched for the first time. For hundreds of gigabytes this takes long; the cache can serve
/// meanwhile with the part that is warm.
enum class HostWarmUp : bool {
  before_serving,  ///< CacheSystem's constructor returns when the whole tier is warm
  while_serving,   ///< it returns when the staging slots are warm; the tier grows in later polls
};

struct TERRACE_API CacheSystemOptions {
  /// The devices over which the model is spread, at least one, at most ranks_max, of any kind. The cache decides
  /// for all ranks, and each rank moves its part of the data. Several ranks may share one GPU (each with its own device_blocks
  /// there), to test the function; the speed then means nothing.
  std::vector<RankOptions> ranks = {RankOptions{}};
  /// `sharded`: each rank has an equal share of every block.
  RankPayload rank_payload = RankPayload::sharded;
  /// The KV cache groups of the model, by GroupId. Each group names its pool. If empty, there is one group with full attention in
  /// the first pool, and requests count in its blocks. If there are groups, requests and keys count in hash units (hash_unit()),
  /// and a block of a group is one or more hash units.
  std::vector<GroupConfig> groups{};
  /// By PoolId; at least one. Each pool has a host arena and a store of its own.
  std::vector<PoolOptions> pools = {PoolOptions{}};
  /// If true, the device_blocks slots of each pool belong to the engine, and the cache has no device tier of its own. It serves
  /// the orders of an OffloadCache: `OffloadCache offload{system.cache()};`.
  bool engine_owns_slots = false;
  /// For an OffloadCache: whether keys are those of a prefix, where a call does not say that they stand alone; or always stand
  /// alone. `flat` needs engine_owns_slots.
  KeyOrder key_order = KeyOrder::prefix;
  HostWarmUp host_warm_up = HostWarmUp::before_serving;
  /// How pages of the host tier are first touched: number of threads, NUMA node, huge pages.
  TouchOptions host_touch{};
  /// Gives the limits against which host memory is checked, at the start and when the tier grows. Null: no check.
  std::function<MemoryLimits()> memory_limits = [] { return read_memory_limits(); };
  StorageOptions storage{};
  /// For file storage: retries failed operations, and stops using storage while it keeps failing (ResilientStore). None: failures
  /// go directly to the cache.
  std::optional<ResilienceOptions> storage_guard = ResilienceOptions{};
  /// None: there is no shared store.
  std::optional<SharedStorage> shared{};
  /// The longest time that a stored block waits for a flush. A power failure costs at most the blocks of this time and of the
  /// flush itself. If 0, storage is flushed only for a durable job and when the CacheSystem is destroyed.
  Duration flush_interval = std::chrono::seconds{5};
  /// If false, no request finds a hit, and no block stays cached after its request is released.
  bool caching = true;
  /// With caching off: the blocks that requests commit are still written to storage by `write_policy`, and to the shared store
  /// unless SharedStorage::write_policy is `none`. An instance that only decodes sets `caching` to false. It also sets
  /// `store_uncached` to true if other instances read its output. Needs storage or a shared store. Cannot be combined with
  /// InclusionPolicy::inclusive.
  bool store_uncached = false;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  /// None: write_through if there is storage. Storage with WritePolicy::none is read only, and written by jobs.
  std::optional<WritePolicy> write_policy{};
  /// With WritePolicy::selective: a block is stored at this hit, 1 to 255.
  std::uint32_t selective_hits = 1;
  /// The most bytes per day that may be written to storage, by the write policy and by jobs together, because flash memory wears
  /// out. 0: no limit. Cache::change changes it.
  Bytes daily_write_bytes{};
  /// Makes the eviction policies: one for the device and one for the host, in each pool.
  PolicyFactory policy = adaptive_policy;
  /// The most hash units of one request, from the maximum length of the model. A request that asks for more gets this
  /// many. If 0, there is no such limit, and a request that asks for more than the pools hold is refused.
  HashUnits request_units_max{};
  /// The most blocks of each pool that all pins together can keep from eviction. 0: half of its device_blocks.
  Blocks pinned_blocks_max{};
  /// The most hash units that all retentions together can name. 0: device_blocks of the first pool.
  HashUnits retained_units_max{};
  /// The most blocks that a write-back job over the whole tree has under way at a time; at least 1.
  Blocks write_back_blocks_ahead = 256;
  /// The most blocks in each pool that are copied to the host at a time to free slots for requests; 0: no limit.
  Blocks evictions_in_flight_max{};
  /// The largest share of each device pool that is kept free, so that a request need not wait until blocks of others have been
  /// copied to the host. How many slots it takes is learned from the bursts of requests: enough for 199 requests of 200. 0: none
  /// are kept, less than 1. Only caches that copy blocks down when they evict them keep any.
  double device_reserve_max = 0.15;
  /// The watermarks of each pool: 0 <= low <= high < 1. Those of the device hold beside device_reserve_max.
  Watermarks device_watermarks{};
  Watermarks host_watermarks{};
  LoadPolicy loads = LoadPolicy::measured;
  /// Seconds that the engine takes to compute one hash unit of a prompt. If 0, the cache learns this time from commits.
  double unit_prefill_seconds = 0;
  TransferPieces transfer_pieces{};
  /// Limits of the link bandwidth for transfers that no request waits for. Cache::change changes them.
  LaneRates lane_rates{};
  /// Identifies model and geometry. A store that was written with another fingerprint is refused.
  std::array<std::byte, 32> fingerprint{};
  /// The log for messages, one each, that a part works less well than configured: storage that is not used after failures, growth
  /// that stopped, lost directories, copy kernels that cannot be loaded. By default nothing is logged.
  LogOptions log{};
  /// The endpoint for operators. By default there is none.
  AdminOptions admin{};
  /// Writes trace events of requests, calls, transfers, reads and writes to this file, for Perfetto, from the start on. The
  /// thread of the cache writes them, so it is a tool for tests and replays; the admin endpoint traces a process that serves.
  /// Empty: none.
  std::filesystem::path trace_out{};
  /// A thread of the cache's own goes on with its work while the engine is idle: when no call was made for 100 ms, it collects
  /// what has ended, starts what is due, and carries out the commands of operators, in slices of about 50 microseconds, until the
  /// engine calls again. Events wait for the engine's next poll(). The engine then makes its calls, and ends its leases, in a
  /// Turn (CacheSystem::take_turn). An AsyncCache polls by itself, and refuses a cache with such a thread. Off: an idle engine
  /// polls when Cache::wake_fd() and Cache::next_deadline() say so.
  bool idle_service = false;
  /// Poison mode, for tests: slots are overwritten as they become free.
  bool poison = false;
};

}  // namespace terrace
