#pragma once

#include "terrace/block_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/options.hpp"
#include "terrace/result.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/turn.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// Returns a sentence that says why this machine has no NVIDIA GPU with this ordinal, or why this build cannot use it. Returns
/// nothing if the GPU can be used. The call initialises the driver, so child processes that are forked later cannot use CUDA.
/// Threads: any.
[[nodiscard]] TERRACE_API std::optional<std::string> cuda_unavailable(int ordinal = 0);

/// Result of CacheSystem::close().
struct CloseReport {
  WorkLeft left{};      ///< the work that was left after the cache was drained or the time was over
  bool closed = false;  ///< true: all work has ended, and all memory was freed
};

/// The new memory of the engine on one rank: CacheSystem::relocate().
struct RankRegions {
  std::uint32_t rank = 0;
  /// The same as RankOptions::regions. Blocks of a pool without regions here stay where they are.
  std::vector<std::vector<DeviceRegion>> regions{};
};

/// A cache with all its parts: the devices, a host arena and a store for each pool, a transfer engine for each device (with its
/// own thread, except for an instant device), and the cache itself. It creates and owns these parts, and destroys them in the
/// right order.
///
/// Errors: if a part cannot be made, the constructor throws std::system_error, std::invalid_argument or std::runtime_error with
/// one clear sentence, and leaves nothing behind. If the host tier does not fit, the sentence names the largest size that fits.
class TERRACE_API CacheSystem {
 public:
  explicit CacheSystem(const CacheSystemOptions& options);
  /// Waits until no work is under way, without a time limit. Does nothing after close(), and in a child process that was forked
  /// after the construction. All leases must have ended before.
  ~CacheSystem();
  /// Returns false in a child process that was forked after the construction. Only the destructor may be called there. Threads:
  /// any.
  [[nodiscard]] bool is_of_this_process() const;

  /// Does the same as the destructor, but returns at `until` at the latest, even if a disk or a device does not respond. Cancels
  /// write-back jobs and resumes transfers before it waits. If there are leases, it does nothing. Otherwise the object is empty
  /// afterwards, and may only be destroyed: any other call stops the process with a message.
  ///
  /// If the result is not `closed`, a new thread continues the work. It keeps all parts and their memory until the disk or device
  /// responds, and then destroys them as usual, so I/O under way never accesses freed memory. Until then, the directories of the
  /// store stay locked, and the functions in the options must stay valid; the log's sink is no longer used. The process may
  /// continue, or end as usual. No durable data is lost. If no thread can be started, the parts are never freed.
  [[nodiscard]] CloseReport close(TimePoint until);

  /// Takes a turn. With an idle service (CacheSystemOptions::idle_service), call the cache and this object only while a turn
  /// exists. Take one turn for each step; it costs some ten nanoseconds. Without an idle service it does nothing. Threads: the
  /// thread of the engine.
  ///
  ///     const Turn turn = system.take_turn();
  ///     for (const RequestEvent& event : system.cache().poll()) …
  [[nodiscard]] Turn take_turn() const;
  /// Pauses the idle service for this time, or until a call with 0. It is for an engine that relies on the results of an earlier
  /// call: during the pause, the content of the cache changes only by calls of the engine. Call it in a turn.
  void pause_idle_service(Duration longest);
  /// Returns the totals of the idle service's slices, and of the waits of the engine for the end of a slice. Call it in a turn.
  [[nodiscard]] IdleTotals idle_totals() const;
  [[nodiscard]] Cache& cache();
  /// The device of the first rank.
  [[nodiscard]] Device& device();
  /// By rank.
  [[nodiscard]] RankDevices& devices();
  /// Moves the blocks of these ranks to other addresses, for an engine that releases its GPU memory while it sleeps, and gets
  /// other memory when it wakes. The regions keep their layout, as Device::relocate() says. Nothing is copied, and no block may
  /// be cached on the device: before the engine releases its memory, it drops these blocks with Cache::reset(), with
  /// ClearOptions::keep_storage if the stored blocks shall stay, and it resumes the cache after this call. For an OffloadCache,
  /// whose device slots hold no blocks of the cache, it is enough that all jobs have ended.
  ///
  /// The call first checks that all ranks accept, and then moves one rank after the other. If a rank still refuses, the ranks
  /// before it move back. A rank that cannot move back stays at its new addresses. After a failure, call it again with all ranks
  /// before the cache resumes.
  ///
  /// Threads: the cache thread; for an AsyncCache, call it by perform(). If it fails, the log has a sentence. Fails: in_use
  /// (there are leases, quarantined slots, write-back jobs, jobs of an OffloadCache, or work under way; blocks are cached on the
  /// device; launched work is not done), invalid_argument (no such rank, or a rank twice; regions that do not fit, or that are
  /// not of this device; the device has allocated the memory of the pool itself), io_failed.
  [[nodiscard]] Result<void> relocate(std::span<const RankRegions> ranks);
  /// By rank. Empty if there is only one rank.
  [[nodiscard]] std::vector<RankHealth> rank_health() const;
  /// Returns the number of faults that the EmulatedGpu options have caused so far, on all ranks.
  [[nodiscard]] std::uint64_t faults_planted() const;
  /// The calls that take a pool throw std::invalid_argument if there is no such pool.
  [[nodiscard]] std::size_t pool_count() const;
  /// Returns the pool's store as the cache uses it: the ResilientStore, if there is one. Null: there is no store.
  [[nodiscard]] BlockStore* store(PoolId pool = {});
  /// Returns the health of the pool's file storage, as its ResilientStore reports it. Empty if there is no ResilientStore. The
  /// state is also `degraded` if some of several directories are lost. Call it on the thread of the owner.
  [[nodiscard]] std::optional<StoreHealth> storage_health(PoolId pool = {}) const;
  /// Returns the shared store that the cache uses. Null: there is none.
  [[nodiscard]] SharedStore* shared();
  /// None if there is no shared store.
  [[nodiscard]] std::optional<SharedHealth> shared_health() const;
  /// Does the same as Cache::resume_shared(), for these weights (SharedStorage::weights_revision) from now on.
  [[nodiscard]] Result<void> resume_shared(std::string_view weights_revision);
  /// Returns the address of the admin endpoint, with the port or the name of the socket that was chosen:
  /// "unix:/run/terrace/vllm-4711.sock". Empty: there is no endpoint.
  [[nodiscard]] std::string admin_address() const;
  /// Ends the trace of CacheSystemOptions::trace_out; nothing is recorded afterwards. The destructor also ends it, but only logs
  /// a failure. Fails if the trace could not be written completely.
  [[nodiscard]] Result<void> end_trace();
  /// Returns a text for users that describes how storage does its I/O. Empty: there is no file storage.
  [[nodiscard]] std::string io() const;
  [[nodiscard]] Bytes block_bytes(PoolId pool = {}) const;

 private:
  [[nodiscard]] std::size_t index_of(PoolId pool) const;

  struct Parts;
  [[nodiscard]] Parts& parts() const;

  std::unique_ptr<Parts> parts_;  ///< none after close()
};

}  // namespace terrace
