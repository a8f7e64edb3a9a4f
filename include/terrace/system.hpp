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

/// Returns a sentence that says why this machine has no NVIDIA GPU of this ordinal, or why this build cannot use it. Nothing: it
/// has one. It initialises the driver: a child that this process forks later cannot use CUDA. Threads: any.
[[nodiscard]] TERRACE_API std::optional<std::string> cuda_unavailable(int ordinal = 0);

/// Result of CacheSystem::close().
struct CloseReport {
  WorkLeft left{};      ///< when the cache had been drained, or the time was over
  bool closed = false;  ///< everything has ended and was freed
};

/// The new memory of the engine on one rank: CacheSystem::relocate().
struct RankRegions {
  std::uint32_t rank = 0;
  /// The same as RankOptions::regions. Blocks of a pool without regions here stay where they are.
  std::vector<std::vector<DeviceRegion>> regions{};
};

/// Everything that a cache needs: the devices, a host arena and a store for each pool, a transfer engine for each device (with
/// its own thread, except for an instant device), and the cache itself. It creates and owns these parts, and destroys them in the
/// right order.
///
/// Errors: if a part cannot be made, the constructor throws std::system_error, std::invalid_argument or std::runtime_error with
/// one clear sentence, and leaves nothing behind. If the host tier does not fit, the sentence says the largest size that does.
class TERRACE_API CacheSystem {
 public:
  explicit CacheSystem(const CacheSystemOptions& options);
  /// Waits until nothing is under way, for as long as that takes; does nothing after close(), and in a child process that was
  /// forked since. All leases must have ended before.
  ~CacheSystem();
  /// False in a child process that was forked since: only the destructor may be called there. Threads: any.
  [[nodiscard]] bool is_of_this_process() const;

  /// Does what the destructor does, but returns at `until` at the latest, even if a disk or a device does not answer. Cancels
  /// write-back jobs and resumes transfers before it waits. If there are leases, it does nothing. Otherwise the object is empty
  /// afterwards, and may only be destroyed: any other call stops the process, and says so.
  ///
  /// If the result is not `closed`, a thread of its own goes on with the work. It holds all parts and their memory until the disk
  /// or device answers, and then destroys them as usual: the I/O that is under way never meets freed memory. Until then, the
  /// directories of the store stay locked, and the functions in the options must stay valid; the log's sink is no longer used.
  /// The process may go on, or end as usual. It loses nothing that is durable. If no thread can be started, the parts are never
  /// freed.
  [[nodiscard]] CloseReport close(TimePoint until);

  /// The calls to the cache, and to this object, may be made while the result exists, if there is an idle service
  /// (CacheSystemOptions::idle_service). Take one for each step: it costs some ten nanoseconds. Without such a service it does
  /// nothing. Threads: that of the engine.
  ///
  ///     const Turn turn = system.take_turn();
  ///     for (const RequestEvent& event : system.cache().poll()) …
  [[nodiscard]] Turn take_turn() const;
  /// The idle service does not work for so long, or until a call with 0. It is for an engine that acts on what it was told in an
  /// earlier call: what the cache has does not change between two calls then, unless one of them changes it. Call it in a turn.
  void pause_idle_service(Duration longest);
  /// Slices of the idle service, and how often and how long the engine has waited for the end of one. Call it in a turn.
  [[nodiscard]] IdleTotals idle_totals() const;
  [[nodiscard]] Cache& cache();
  /// The device of the first rank.
  [[nodiscard]] Device& device();
  /// By rank.
  [[nodiscard]] RankDevices& devices();
  /// Moves the blocks of these ranks to other addresses, for an engine that has released its GPU memory to sleep, and has other
  /// memory when it wakes. The regions keep their layout, as Device::relocate() says. Nothing is copied, and nothing that is
  /// cached on the device may be left: the engine makes the cache forget before it gives its memory up, by Cache::reset(), which
  /// keeps what is in storage, and resumes after this call. For an OffloadCache, whose device slots hold nothing of the cache,
  /// only all jobs must have ended.
  ///
  /// All ranks are asked first whether they accept, and then moved one after the other. If one refuses all the same, those before
  /// it move back. A rank that cannot even do that stays at its new addresses. After a failure, call it again with all
  /// ranks before the cache resumes.
  ///
  /// Threads: that of the cache; for an AsyncCache, call it by perform(). Fails, and the log then has a sentence: in_use (there
  /// are leases, quarantined slots, write-back jobs, jobs of an OffloadCache, or work under way; blocks are cached on the device;
  /// launched work is not done), invalid_argument (no such rank, or a rank twice; regions that do not fit, or that are not of
  /// this device; the device has allocated the memory of the pool itself), io_failed.
  [[nodiscard]] Result<void> relocate(std::span<const RankRegions> ranks);
  /// By rank. Empty if there is only one rank.
  [[nodiscard]] std::vector<RankHealth> rank_health() const;
  /// Number of faults that the EmulatedGpu options have planted so far, on all ranks.
  [[nodiscard]] std::uint64_t faults_planted() const;
  /// The calls that take a pool throw std::invalid_argument if there is no such pool.
  [[nodiscard]] std::size_t pool_count() const;
  /// The pool's store that the cache uses: the ResilientStore, if there is one. Null: none.
  [[nodiscard]] BlockStore* store(PoolId pool = {});
  /// Health of the pool's file storage, as its ResilientStore sees it. None if there is no ResilientStore. The state is also
  /// `degraded` if some of several directories are lost. Call it on the thread of the owner.
  [[nodiscard]] std::optional<StoreHealth> storage_health(PoolId pool = {}) const;
  /// The shared store that the cache uses. Null: none.
  [[nodiscard]] SharedStore* shared();
  /// None if there is no shared store.
  [[nodiscard]] std::optional<SharedHealth> shared_health() const;
  /// The same as Cache::resume_shared(), for these weights (SharedStorage::weights_revision) from now on.
  [[nodiscard]] Result<void> resume_shared(std::string_view weights_revision);
  /// The address of the endpoint for operators, with the port or the name of the socket that was chosen:
  /// "unix:/run/terrace/vllm-4711.sock". Empty: there is none.
  [[nodiscard]] std::string admin_address() const;
  /// Ends the trace of CacheSystemOptions::trace_out; nothing is recorded afterwards. The destructor does so, too, but there a
  /// failure is only logged. Fails: the trace could not be written in full.
  [[nodiscard]] Result<void> end_trace();
  /// A text for users that says how storage does its I/O. Empty: there is no file storage.
  [[nodiscard]] std::string io() const;
  [[nodiscard]] Bytes block_bytes(PoolId pool = {}) const;

 private:
  [[nodiscard]] std::size_t index_of(PoolId pool) const;

  struct Parts;
  [[nodiscard]] Parts& parts() const;

  std::unique_ptr<Parts> parts_;  ///< none after close()
};

}  // namespace terrace
