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

/// The options of a CacheSystem (terrace/system.hpp). All of them are plain values. A CacheSystem copies what it needs, except
/// the memory of the regions, the log's sink, and the devices and stores of the embedder, which it uses directly.
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
  /// The capacity of all pools together. It is divided among the pools as FileStorage::capacity describes.
  Bytes capacity{};
};
struct FileStorage {
  /// At least one directory. Several directories are on different disks, and blocks are striped over all of them. This and the
  /// next fields are as in FileStoreConfig.
  std::vector<std::filesystem::path> directories{};
  /// The capacity of all directories and all pools together. Each pool has its own store. The store's share of the capacity is
  /// the pool's share of the bytes of all device and host blocks.
  Bytes capacity{};
  /// The space to keep free on each file system: FileStoreConfig::floor.
  Bytes floor{};
  /// `automatic`: io_uring if the kernel allows it, otherwise threads.
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;  ///< only for I/O by threads
  /// Limits the bandwidth to emulate a slower disk; 0: no limit. Only for I/O by threads.
  BytesPerSecond bandwidth{};
  Bytes stripe_bytes = MiB * 4;
  bool accept_lost_directories = false;
  /// The name of the store's own directory inside each directory. If several processes or models keep stores there, each store
  /// needs a different name: FileStoreConfig::name, store_directory_name(). The first pool's store has this name; the store of
  /// pool n has the name "NAME-n".
  std::string name = default_store_name;
  /// Describes the owner of the store for operators, for example "vLLM 0.33.0, model NAME, weights REVISION"
  /// (FileStoreConfig::label). `terrace store stat` shows the last six labels, and how many blocks were written under each.
  std::string label{};
};
/// Stores of the embedder, one for each pool. The cache adds no retries, circuit breaker or fingerprint to them. The block size
/// of each store must be that of its pool, and each store must wake the waker that CacheSystem sets (BlockStore::set_waker). The
/// stores may outlive the CacheSystem, which does not use them after its end.
using CustomStorage = std::vector<std::shared_ptr<BlockStore>>;
using StorageOptions = std::variant<NoStorage, MemoryStorage, FileStorage, CustomStorage>;

/// Options of a store that several machines share, behind the tiers of this cache. The store is a server, such as Redis, that the
/// operators run.
struct SharedStorage {
  /// `redis://[USER@]HOST[:PORT][,HOST...][/DATABASE][?PARAMETER=VALUE&...]` (docs/shared.md), `rediss://...` (the same
  /// over TLS), or `memory:` (memory of this process, which all its caches share).
  std::string url{};
  /// The password of the user. If it is empty, it is the first line of the file; if there is no file, there is no password.
  std::string password{};
  std::filesystem::path password_file{};
  /// A file with the certificates of the trusted authorities, for TLS. Empty: the certificates of the system.
  std::filesystem::path ca_file{};
  /// If given, values are encrypted and authenticated with the secret in this file, of at least 32 bytes. All users of the engine
  /// need the same secret; it is read once. Without a secret, damaged values are detected, but values that were forged on purpose
  /// are not.
  std::filesystem::path secret_file{};
  /// The beginning of the names of all values: 1 to 64 letters, digits or characters of "-_.:/".
  std::string prefix = "terrace";
  /// Identifies the weights of the model by any text. Blocks that were computed with other weights are not found. It is used
  /// together with CacheSystemOptions::fingerprint.
  std::string weights_revision{};
  /// How long the engine keeps a value that is not used. For each block before it in the prefix, a block has expiry_per_depth
  /// less, but at least half of the time. So an engine that evicts the value that expires first evicts the end of a prefix before
  /// its beginning.
  Duration expiry = std::chrono::hours{24};
  Duration expiry_per_depth = std::chrono::milliseconds{200};
  std::uint32_t connections_per_node = 2;
  /// Bytes that one connection sends or expects at a time. A larger block goes alone.
  Bytes window_bytes = MiB * 4;
  /// The longest time that a request waits until the store has answered which of its blocks are there. After that it continues
  /// without these blocks.
  Duration probe_deadline = std::chrono::milliseconds{20};
  /// Selects the blocks that are written: `none`; `selective`: blocks that are hit for the selective_hits-th time; or
  /// `write_through`: all computed blocks. `write_back` is not allowed.
  WritePolicy write_policy = WritePolicy::selective;
  std::uint32_t selective_hits = 2;
  /// The most bytes of blocks that are being written at a time; one block is always allowed.
  Bytes bytes_in_flight = MiB * 64;
  BytesPerSecond write_bandwidth{};  ///< the most bytes per second that are written; 0: no limit
  Bytes daily_write_bytes{};         ///< the most bytes per day that are written; 0: no limit
  /// A store of the embedder, used in place of an engine at a URL. The fields down to `window_bytes`, except `weights_revision`,
  /// are then ignored. The store may outlive the CacheSystem, which does not use it after its end.
  std::shared_ptr<SharedStore> store{};
};
/// Opens the store that the options name, or returns SharedStorage::store if that is set. It does not wait for the engine, which
/// may not be reachable yet. Throws std::invalid_argument (a URL, file or secret that cannot be used) and std::system_error, with
/// one clear sentence that contains no password.
[[nodiscard]] TERRACE_API std::shared_ptr<SharedStore> open_shared_store(const SharedStorage& options);

/// Ordinary memory in place of a GPU. Works on every machine. Streams of the engine are EmulatedStreams. StreamRef{} stands for
/// the calling thread, whose earlier work is done at the time of the call. (On InstantGpu, every StreamRef stands for the calling
/// thread.)
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
/// Ordinary memory in which copies and computations happen at once, on the caller's thread. It is for a cache that one thread
/// calls, without an event loop.
struct InstantGpu {};
/// A device of the embedder (experimental). CacheSystem calls `make` once, with the pools: their slots, layers, regions and share
/// of the host slots, and the host slots from and to which the device copies. The device must have exactly these pools. It must
/// be destroyed before the host slots, so all other owners must release it before the CacheSystem ends.
struct CustomDevice {
  std::function<std::shared_ptr<Device>(std::span<const PoolMemory> pools)> make;
};
using DeviceOptions = std::variant<EmulatedGpu, CudaGpu, InstantGpu, CustomDevice>;

/// One of the devices over which a model is spread.
struct RankOptions {
  DeviceOptions device{};
  /// The memory of the engine that holds the blocks, by GroupId (by PoolId if there are no groups). It must outlive the
  /// CacheSystem. If empty, the device allocates the memory. Groups that share a pool share its memory: give the regions with the
  /// first of these groups, and leave the entries of the others empty. Regions name their layers, and PoolOptions::layers is
  /// ignored then. For a device in ordinary memory they are addresses in this process.
  std::vector<std::vector<DeviceRegion>> regions{};
};

/// The slots of one block size, in device and host.
struct PoolOptions {
  /// Size of one block, all layers and all ranks together. With file storage it must be a multiple of 4 KiB.
  Bytes block_bytes = KiB * 64;
  /// Number of layers in a block; they are adjacent and of equal size. Requests by layer get events when layers arrive. If 1,
  /// such a request waits for its whole load.
  std::uint32_t layers = 1;
  /// Slots on the device, the null block included.
  Blocks device_blocks{};
  /// Memory is reserved for this many device blocks, so that Cache::resize can go up to it; 0: device_blocks. The host tier needs
  /// no such limit, because its memory grows and shrinks with its size.
  Blocks device_blocks_max{};
  Blocks host_blocks{};
  /// Staging slots, if there is storage; 0: chosen automatically.
  Blocks staging_blocks{};
  /// If true, the first slot is never handed out. It stands in block tables for blocks that a group does not need. A pool needs a
  /// null block if one of its groups is a window group, a state group, or optional.
  bool null_block = false;
  /// The pool's first device slot. Lower slots belong to other caches that share the device's memory.
  std::uint32_t first_slot = 0;
  /// Host memory of the embedder, in place of memory that the cache allocates. It holds the host tier and the staging slots: slot
  /// n is in row n. Each row has block_bytes. There must be at least host_blocks + staging_blocks rows; the number of rows also
  /// limits Cache::resize. The memory must stay valid as long as the CacheSystem, and longer after a close() that has not ended
  /// everything.
  std::optional<HostRows> host_rows{};
  /// The owner of the rows. The cache holds this pointer as long as it uses the rows. May be null.
  std::shared_ptr<const void> host_rows_owner{};
};

/// When the memory of the host tier is touched for the first time. For hundreds of gigabytes this takes long; the cache can serve
/// meanwhile with the part that is warm.
enum class HostWarmUp : bool {
  before_serving,  ///< CacheSystem's constructor returns when the whole tier is warm
  while_serving,   ///< it returns when the staging slots are warm; the tier grows in later polls
};

struct TERRACE_API CacheSystemOptions {
  /// The devices over which the model is divided: 1 to ranks_max devices, of any kind. The cache decides for all ranks, and each
  /// rank moves its part of the data. Several ranks may share one GPU (each with its own device_blocks there) for functional
  /// tests, but not for measurements of speed.
  std::vector<RankOptions> ranks = {RankOptions{}};
  /// `sharded`: each rank has an equal share of every block.
  RankPayload rank_payload = RankPayload::sharded;
  /// The KV cache groups of the model, by GroupId. Each group names its pool. If empty, there is one group with full attention in
  /// the first pool, and requests count in its blocks. If there are groups, requests and keys count in hash units (hash_unit()),
  /// and a block of a group is one or more hash units.
  std::vector<GroupConfig> groups{};
  /// Tokens of a hash unit, if there are groups. It must divide the blocks of all groups that are cached. 0: their greatest
  /// common divisor. Smaller units are for keys that a router, or an instance with smaller blocks, makes, too.
  std::uint32_t hash_unit_tokens = 0;
  /// By PoolId; at least one. Each pool has its own host arena and its own store.
  std::vector<PoolOptions> pools = {PoolOptions{}};
  /// If true, the device_blocks slots of each pool belong to the engine, and the cache has no device tier of its own. It serves
  /// the orders of an OffloadCache: `OffloadCache offload{system.cache()};`.
  bool engine_owns_slots = false;
  /// For an OffloadCache: with `prefix`, keys form a prefix unless a call says that they are unchained. With `flat`, all keys are
  /// unchained. `flat` needs engine_owns_slots.
  KeyOrder key_order = KeyOrder::prefix;
  HostWarmUp host_warm_up = HostWarmUp::before_serving;
  /// How pages of the host tier are first touched: number of threads, NUMA node, huge pages.
  TouchOptions host_touch{};
  /// Returns the limits against which host memory is checked, at the start and when the tier grows. Null: no check.
  std::function<MemoryLimits()> memory_limits = [] { return read_memory_limits(); };
  StorageOptions storage{};
  /// For file storage: retries failed operations, and stops using storage while it keeps failing (ResilientStore). None: failures
  /// go directly to the cache.
  std::optional<ResilienceOptions> storage_guard = ResilienceOptions{};
  /// The shared store. Empty: there is none.
  std::optional<SharedStorage> shared{};
  /// The longest time that a stored block waits for a flush. A power failure loses at most the blocks that were stored within
  /// this time and during the flush. If 0, storage is flushed only for a durable job and when the CacheSystem is destroyed.
  Duration flush_interval = std::chrono::seconds{5};
  /// If false, no request finds a hit, and no block stays cached after its request is released.
  bool caching = true;
  /// With caching off: the blocks that requests commit are still written to storage by `write_policy`, and to the shared store
  /// unless SharedStorage::write_policy is `none`. An instance that only decodes sets `caching` to false. It also sets
  /// `store_uncached` to true if other instances read its output. Needs storage or a shared store. Cannot be combined with
  /// InclusionPolicy::inclusive.
  bool store_uncached = false;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  /// If true, a block that is evicted from the device is copied to a full host tier only if its eviction policy would not rather
  /// keep its next victim (EvictionPolicy::admits). Such a copy would be the next one to go. If many blocks come once, this saves
  /// most copies (docs/benchmarks.md). A block is always copied if host copies of blocks after it depend on it. A block that is
  /// not copied is still stored under WritePolicy::write_back. Cannot be combined with InclusionPolicy::inclusive, which copies
  /// all computed blocks, or with `engine_owns_slots`.
  bool host_admission = false;
  /// Empty: write_through if there is storage. With WritePolicy::none, only write-back jobs write to storage.
  std::optional<WritePolicy> write_policy{};
  /// With WritePolicy::selective: a block is stored at its n-th hit; n is 1 to 255.
  std::uint32_t selective_hits = 1;
  /// The most bytes per day that may be written to storage, by the write policy and by jobs together, because writes wear out
  /// flash memory. 0: no limit. Cache::change can change it.
  Bytes daily_write_bytes{};
  /// Makes the eviction policies: one for the device and one for the host, in each pool.
  PolicyFactory policy = adaptive_policy;
  /// The most hash units of one request, from the maximum length of the model. A request for more gets this many. If 0, there is
  /// no such limit, and a request that asks for more than the pools hold is refused.
  HashUnits request_units_max{};
  /// The most blocks of each pool that all pins together can keep from eviction. 0: half of its device_blocks; of its
  /// host_blocks with engine_owns_slots. The pins of a tenant keep at most its quota of that tier.
  Blocks pinned_blocks_max{};
  /// The most hash units that all retentions together can name. 0: half of the device_blocks of the first pool; of its
  /// host_blocks with engine_owns_slots.
  HashUnits retained_units_max{};
  /// The most blocks that a write-back job over the whole tree has under way at a time; at least 1.
  Blocks write_back_blocks_ahead = 256;
  /// The most blocks in each pool that are copied to the host at a time to free slots for requests; 0: no limit.
  Blocks evictions_in_flight_max{};
  /// The largest share of each device pool that is kept free, so that requests need not wait until blocks of others have been
  /// copied to the host. The cache learns the number of free slots from the bursts of requests: enough for 199 of 200 requests.
  /// At least 0, which keeps none, and less than 1. Only caches that copy blocks down when they evict them keep slots free.
  double device_reserve_max = 0.15;
  /// The watermarks of each pool: 0 <= low <= high < 1. The watermarks of the device apply in addition to device_reserve_max.
  Watermarks device_watermarks{};
  Watermarks host_watermarks{};
  LoadPolicy loads = LoadPolicy::measured;
  /// Seconds that the engine takes to compute one hash unit of a prompt. If 0, the cache learns this time from commits.
  double unit_prefill_seconds = 0;
  TransferPieces transfer_pieces{};
  /// Limits of the link bandwidth for transfers that no request waits for. Cache::change can change them.
  LaneRates lane_rates{};
  /// Identifies the model and the geometry. A store that was written with another fingerprint is refused.
  std::array<std::byte, 32> fingerprint{};
  /// The log. It gets a message when a part does not work as configured: storage that is not used after failures, growth that
  /// stopped, lost directories, copy kernels that cannot be loaded. By default nothing is logged.
  LogOptions log{};
  /// The admin endpoint. By default there is none.
  AdminOptions admin{};
  /// A file to which trace events of requests, calls, transfers, reads and writes are written from the start on, for Perfetto.
  /// The cache thread writes them, so use it for tests and replays; for a process that serves, use the trace of the admin
  /// endpoint. Empty: none.
  std::filesystem::path trace_out{};
  /// If true, a thread of the cache continues the work while the engine is idle: when no call was made for 100 ms, it collects
  /// ended work, starts work that is due, and runs the commands of operators, in slices of about 50 microseconds, until the
  /// engine calls again. Events wait for the engine's next poll(). The engine then makes its calls, and ends its leases, in a
  /// Turn (CacheSystem::take_turn). An AsyncCache polls by itself, and refuses a cache with such a thread. If false, an idle
  /// engine must poll when Cache::wake_fd() and Cache::next_deadline() say so.
  bool idle_service = false;
  /// Poison mode, for tests whose compute is launched by Device::launch: slots are overwritten as they become free. Cannot be
  /// combined with regions of the engine: the engine's compute there does not wait for this work of the device.
  bool poison = false;
};

}  // namespace terrace
