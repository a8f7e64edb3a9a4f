#pragma once

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "runtime/cache/cache.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/io_choice.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/device/rank_devices.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace terrace {

struct NoStorage {};
/// Ordinary memory in place of a disk, for tests and demonstrations.
struct MemoryStorage {
  Bytes capacity{};
};
struct FileStorage {
  std::filesystem::path directory;
  Bytes capacity{};  ///< all directories together
  /// The space to keep free on each file system: FileStoreConfig::floor.
  Bytes floor{};
  /// `automatic`: io_uring if the kernel allows it, otherwise threads.
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;  ///< only for I/O by threads
  /// Bytes per second, to imitate a slower disk; 0: no limit. Only for I/O by threads.
  Bytes bandwidth{};
  /// More directories, each on its own disk, over which blocks are striped. This and the next two fields are as in
  /// FileStoreConfig.
  std::vector<std::filesystem::path> more_directories{};
  Bytes stripe_bytes = FileStoreConfig{}.stripe_bytes;
  bool accept_lost_directories = false;
  /// The name of the store's own directory inside each directory. If several processes or models keep stores there, each store
  /// needs a different name: FileStoreConfig::name, store_directory_name().
  std::string name = FileStoreConfig{}.name;
};
using StorageOptions = std::variant<NoStorage, MemoryStorage, FileStorage>;

/// Ordinary memory in place of a GPU. Works on every machine.
struct EmulatedGpu {
  LinkModel link;
  EmulatedFaults faults;
};
/// An NVIDIA GPU. CudaDevice::unavailable() says whether there is one.
struct CudaGpu {
  int ordinal = 0;
  /// The file with the copy methods that were measured on this device (CudaDevice::calibrated). If empty, the defaults are used.
  std::filesystem::path calibration;
};
/// Ordinary memory in which copies and computations happen at once, on the caller's thread (InstantDevice). It is for a cache
/// that one thread calls, without an event loop.
struct InstantGpu {};
using DeviceOptions = std::variant<EmulatedGpu, CudaGpu, InstantGpu>;
/// When the memory of the host tier is touched for the first time. For hundreds of gigabytes this takes long; the cache can serve
/// meanwhile with the part that is warm.
enum class HostWarmUp : bool {
  before_serving,  ///< CacheSystem's constructor returns when the whole tier is warm
  while_serving,   ///< it returns when the staging slots are warm; the tier grows in later polls
};

struct CacheSystemOptions {
  DeviceOptions device;
  /// The ranks after the first, if a model is spread over several devices. The cache decides for all ranks, and each rank moves
  /// its part of the data. At most RankedTransfers::ranks_max in total, of any kind. Several ranks may share one GPU (each with
  /// its own device_blocks there), to test the function; the speed then means nothing.
  std::vector<DeviceOptions> other_ranks;
  /// `sharded`: each rank has an equal share of every block.
  RankPayload rank_payload = RankPayload::sharded;
  /// Size of one block, all layers and all ranks together. With file storage it must be a multiple of 4 KiB.
  Bytes block_bytes = KiB * 64;
  /// Layers of a block, of equal size and adjacent. Requests by layer are told of their arrival. If 1, such a request waits for
  /// its whole load.
  std::uint32_t layers = 1;
  std::uint32_t device_blocks = 0;
  /// If true, the device_blocks slots of the device belong to the engine, and the cache has no device tier of its own. Its
  /// requests are then the orders of an OffloadCache: `OffloadCache offload{system.cache()};`.
  bool engine_owns_slots = false;
  /// For an OffloadCache: whether the keys of an order are a prefix, or stand alone. `flat` needs engine_owns_slots.
  KeyOrder key_order = KeyOrder::prefix;
  std::uint32_t host_blocks = 0;
  /// Memory is reserved for this many device blocks, so that Cache::resize can go up to it; 0: device_blocks. The host tier needs
  /// no such limit, because its memory grows and shrinks with its size.
  std::uint32_t device_blocks_max = 0;
  /// Staging slots, if there is storage; 0: chosen automatically.
  std::uint32_t staging_blocks = 0;
  HostWarmUp host_warm_up = HostWarmUp::before_serving;
  /// How pages of the host tier are first touched: number of threads, NUMA node, huge pages.
  TouchOptions host_touch;
  /// Gives the limits against which host memory is checked, at the start and when the tier grows. Null: no check.
  std::function<MemoryLimits()> memory_limits = [] { return read_memory_limits(); };
  StorageOptions storage;
  /// For file storage: retries failed operations, and stops using storage while it keeps failing (ResilientStore). None: failures
  /// go directly to the cache.
  std::optional<ResilienceOptions> storage_guard = ResilienceOptions{};
  /// The longest time that a stored block waits for a flush. A power failure costs at most the blocks of this time and of the
  /// flush itself. If 0, storage is flushed only for a durable job and when the CacheSystem is destroyed.
  Duration flush_interval = std::chrono::seconds{5};
  /// The same as in ManagerConfig. An instance that only decodes sets `caching` to false. It also sets `store_uncached` to true
  /// if other instances read its output from the store.
  bool caching = true;
  bool store_uncached = false;
  InclusionPolicy inclusion = InclusionPolicy::non_inclusive;
  WritePolicy write_policy = WritePolicy::none;
  std::uint32_t selective_hits = 1;
  PolicyFactory policy = adaptive_policy;
  /// See ManagerConfig.
  std::uint32_t evictions_in_flight_max = 0;
  Watermarks device_watermarks;
  Watermarks host_watermarks;
  /// The same as in ManagerConfig.
  LoadPolicy loads = LoadPolicy::measured;
  double unit_prefill_seconds = 0;
  /// Limits of the link bandwidth for transfers that no request waits for. Cache::limit_transfers changes them.
  LaneRates lane_rates{};
  /// Identifies model and geometry. A store that was written with another fingerprint is refused.
  std::array<std::byte, 32> fingerprint{};
  /// The log for messages, one each, that a part works less well than configured: storage that is not used after failures, growth
  /// that stopped, lost directories, copy kernels that cannot be loaded. By default nothing is logged.
  LogOptions log;
  /// Poison mode, for tests: slots are overwritten as they become free.
  bool poison = false;
};

/// Everything that a cache needs: the devices, the host arena, a transfer engine for each device (with its own thread, except
/// for an instant device), the store, and the cache itself. It creates and owns these parts, and destroys them in the right
/// order.
///
/// Errors: if a part cannot be made, the constructor throws std::system_error, std::invalid_argument or std::runtime_error with
/// one clear sentence, and leaves nothing behind. If the host tier does not fit, the sentence says the largest size that does.
class CacheSystem {
 public:
  explicit CacheSystem(const CacheSystemOptions& options);
  /// Waits until nothing is under way. All leases must have ended before.
  ~CacheSystem();

  [[nodiscard]] Cache& cache();
  /// The device of the first rank.
  [[nodiscard]] Device& device();
  /// By rank.
  [[nodiscard]] RankDevices& devices();
  /// By rank. Empty if there is only one rank.
  [[nodiscard]] std::vector<RankHealth> rank_health() const;
  /// Number of faults that the EmulatedGpu options have planted so far, on all ranks.
  [[nodiscard]] std::uint64_t faults_planted() const;
  /// The store that the cache uses: the ResilientStore, if there is one. Null: none.
  [[nodiscard]] BlockStore* store();
  /// Health of file storage, as its ResilientStore sees it. None if there is no ResilientStore. The state is also `degraded` if
  /// some of several directories are lost. Call it on the thread of the owner.
  [[nodiscard]] std::optional<StoreHealth> storage_health() const;
  /// A text for users that says how storage does its I/O. Empty: there is no file storage.
  [[nodiscard]] std::string io() const;
  /// The memory of host tier and staging together.
  [[nodiscard]] HostArena& arena();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
