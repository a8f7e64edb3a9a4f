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
/// Ordinary memory in place of a disk: for tests and demonstrations.
struct MemoryStorage {
  Bytes capacity{};
};
struct FileStorage {
  std::filesystem::path directory;
  Bytes capacity{};  ///< of all directories together
  /// So much of each file system stays free: FileStoreConfig::floor.
  Bytes floor{};
  /// io_uring where the kernel allows it, else threads; or the one that is named.
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;  ///< of the pool
  /// Per second, to try a slower disk than the one at hand; 0: as fast as it goes. Of the pool.
  Bytes bandwidth{};
  /// Further directories, each on a disk of its own, over which blocks are striped; as the next two, FileStoreConfig's.
  std::vector<std::filesystem::path> more_directories{};
  Bytes stripe_bytes = FileStoreConfig{}.stripe_bytes;
  bool accept_lost_directories = false;
  /// The store's own directory in each of the directories; of several stores there, of processes or models, each needs another:
  /// FileStoreConfig::name, store_directory_name().
  std::string name = FileStoreConfig{}.name;
};
using StorageOptions = std::variant<NoStorage, MemoryStorage, FileStorage>;

/// Ordinary memory in place of a GPU's, on any machine.
struct EmulatedGpu {
  LinkModel link;
  EmulatedFaults faults;
};
/// An NVIDIA GPU. CudaDevice::unavailable() says beforehand whether there is one.
struct CudaGpu {
  int ordinal = 0;
  /// Where the copy methods measured on this device are kept (CudaDevice::calibrated); empty: not measured, the usual ones.
  std::filesystem::path calibration;
};
/// Ordinary memory in which copies and computations happen at once, on the caller's thread (InstantDevice). It is for a cache
/// that one thread calls, without an event loop.
struct InstantGpu {};
using DeviceOptions = std::variant<EmulatedGpu, CudaGpu, InstantGpu>;
/// A host tier of hundreds of gigabytes takes its time to be touched. Until then the cache can serve with what is warm.
enum class HostWarmUp : bool {
  before_serving,  ///< CacheSystem's constructor returns when all of it is warm
  while_serving,   ///< it returns as soon as staging is; the tier grows in the polls that follow
};

struct CacheSystemOptions {
  DeviceOptions device;
  /// Of the ranks beyond the first, where a model is spread over several devices: the cache decides for all of them, and each
  /// moves its part. At most RankedTransfers::ranks_max together, of any kind; several may be on one GPU (each with its own
  /// device_blocks there), which shows that it works and not how fast.
  std::vector<DeviceOptions> other_ranks;
  /// sharded: each rank has an equal share of every block.
  RankPayload rank_payload = RankPayload::sharded;
  /// Of one block, all layers and all shares together. With file storage a multiple of 4 KiB.
  Bytes block_bytes = KiB * 64;
  /// Of a block, side by side and of one size: what requests by layer are told of. 1: such a request waits for all of its load.
  std::uint32_t layers = 1;
  std::uint32_t device_blocks = 0;
  std::uint32_t host_blocks = 0;
  /// Memory is made for so many, so that Cache::resize may go up to them; at least the above. The host tier needs no such bound:
  /// its memory comes and goes with its size.
  std::uint32_t device_blocks_max = 0;
  /// Bounce slots where there is storage; 0: chosen.
  std::uint32_t staging_blocks = 0;
  HostWarmUp host_warm_up = HostWarmUp::before_serving;
  /// How the host tier's pages are first touched: on how many threads, on which NUMA node, whether in huge pages.
  TouchOptions host_touch;
  /// What the host tier's memory is checked against, now and whenever the tier grows. Null: nothing.
  std::function<MemoryLimits()> memory_limits = [] { return read_memory_limits(); };
  StorageOptions storage;
  /// Of file storage: what fails for a while is tried again, and not used while it goes on failing. None: failures go straight
  /// to the cache.
  std::optional<ResilienceOptions> storage_guard = ResilienceOptions{};
  /// What storage holds survives a power failure at most so long after it was written, and what a flush takes; 0: only what a
  /// durable job wrote, or what a CacheSystem that was taken down had stored.
  Duration flush_interval = std::chrono::seconds{5};
  /// As ManagerConfig's: an instance that decodes has the first off, and the second on where others are to hit what it writes.
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
  /// As ManagerConfig's.
  LoadPolicy loads = LoadPolicy::measured;
  double unit_prefill_seconds = 0;
  /// Of the link, for what nobody waits for; Cache::limit_transfers changes them.
  LaneRates lane_rates{};
  /// Identifies model and geometry: a store written under another one is refused.
  std::array<std::byte, 32> fingerprint{};
  /// Where it is said, once, that a part works less well than was asked for: storage that is not used after failures, growth that
  /// stopped, lost directories, copy kernels that cannot be loaded. Default: nowhere.
  LogOptions log;
  /// Slots are overwritten as they become free. For tests.
  bool poison = false;
};

/// Everything a cache needs, made, owned and taken down in order: the devices, the host arena, a transfer engine for each
/// device (on a thread of its own, but for an instant device), the store, and the cache itself. Throws std::system_error,
/// std::invalid_argument or std::runtime_error, with one clear sentence, where a part cannot be made (a host tier that does not
/// fit: with the largest size that does); nothing is left behind then.
class CacheSystem {
 public:
  explicit CacheSystem(const CacheSystemOptions& options);
  /// Drains. Every lease has ended before.
  ~CacheSystem();

  [[nodiscard]] Cache& cache();
  /// The first rank's: the device, where there is one.
  [[nodiscard]] Device& device();
  /// By rank.
  [[nodiscard]] RankDevices& devices();
  /// By rank; empty where there is one, which cannot fall behind the others.
  [[nodiscard]] std::vector<RankHealth> rank_health() const;
  /// What the faults of EmulatedGpu have planted so far, on all ranks.
  [[nodiscard]] std::uint64_t faults_planted() const;
  /// What the cache uses: the ResilientStore, where there is one. Null: none.
  [[nodiscard]] BlockStore* store();
  /// How file storage does, as its ResilientStore sees it; none where there is no ResilientStore. Also `degraded` where
  /// directories of several are lost. The owner's thread.
  [[nodiscard]] std::optional<StoreHealth> storage_health() const;
  /// What does storage's I/O, for people; empty: there is none.
  [[nodiscard]] std::string io() const;
  /// Of host tier and staging together.
  [[nodiscard]] HostArena& arena();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
