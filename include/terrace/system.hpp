#pragma once

#include "terrace/block_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

class HostArena;

/// Returns a sentence that says why this machine has no NVIDIA GPU of this ordinal, or why this build cannot use it. Nothing: it
/// has one. Threads: any.
[[nodiscard]] TERRACE_API std::optional<std::string> cuda_unavailable(int ordinal = 0);

/// Result of CacheSystem::close().
struct CloseReport {
  WorkLeft left{};      ///< when the cache had been drained, or the time was over
  bool closed = false;  ///< everything has ended and was freed
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
  /// Waits until nothing is under way, for as long as that takes; does nothing after close(). All leases must have ended before.
  ~CacheSystem();

  /// Does what the destructor does, but returns at `until` at the latest, even if a disk or a device does not answer. Cancels
  /// write-back jobs and resumes transfers before it waits. If there are leases, it does nothing. Otherwise the object is empty
  /// afterwards, and may only be destroyed.
  ///
  /// If the result is not `closed`, a thread of its own goes on with the work. It holds all parts and their memory until the disk
  /// or device answers, and then destroys them as usual: the I/O that is under way never meets freed memory. Until then, the
  /// directories of the store stay locked, and the functions in the options must stay valid; the log's sink is no longer used.
  /// The process may go on, or end as usual. It loses nothing that is durable. If no thread can be started, the parts are never
  /// freed.
  [[nodiscard]] CloseReport close(TimePoint until);

  [[nodiscard]] Cache& cache();
  /// The device of the first rank.
  [[nodiscard]] Device& device();
  /// By rank.
  [[nodiscard]] RankDevices& devices();
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
  /// A text for users that says how storage does its I/O. Empty: there is no file storage.
  [[nodiscard]] std::string io() const;
  /// Used by Terrace's own tools and tests: the type is internal. The memory of the pool's host tier and staging together.
  [[nodiscard]] HostArena& arena(PoolId pool = {});

 private:
  [[nodiscard]] std::size_t index_of(PoolId pool) const;

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
