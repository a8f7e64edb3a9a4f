#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// For Lease::used_until(): compute has finished using the blocks of the lease, or has never used them.
inline constexpr Fence no_longer_used{};

/// For expect_use(): the session has ended, and nobody will continue the prefix.
inline constexpr Duration no_use = Duration::max();

/// The part of a lease that is returned to the cache. It is allocated together with the lease, so that the end of a lease
/// allocates no memory.
struct ReturnedLease {
  RequestId id{};
  std::optional<Fence> last_use{};               ///< none: used_until() was not called
  std::optional<std::uint64_t> output_tokens{};  ///< none: set_output_tokens() was not called
  std::optional<Duration> next_use{};            ///< none: expect_use() was not called
  ReturnedLease* next = nullptr;
};

/// Takes back leases that end.
class TERRACE_API LeaseHome {
 public:
  virtual ~LeaseHome() = default;
  virtual void give_back(std::unique_ptr<ReturnedLease> lease) noexcept = 0;
};

/// Holds the blocks of one request until it is destroyed. Move-only. The LeaseHome must outlive it: a cache that is destroyed
/// before its leases stops the process with a message. A lease that was moved from, or that has ended, is empty: calls of the
/// cache fail with unknown_request for it, and its destructor does nothing.
///
/// Threads: it can end on any thread. In loop mode, and in confined mode on another thread than the cache thread, the cache takes
/// it back in its next call, and is woken for that (Cache::wake_fd).
///
/// used_until() names the point of compute until which the blocks may still be touched. If a lease ends without it, for example
/// because an exception was thrown between a launch and its fence, this is safe but slower. The slots are then quarantined, and
/// the blocks that were hit stay pinned, until compute has finished all work that it was given before the end of the lease
/// (Device::after_all_work). If the block table of the request was never read, compute cannot use its slots, and the lease ends
/// without a quarantine.
class TERRACE_API Lease {
 public:
  Lease() = default;
  Lease(LeaseHome& home, RequestId id) : Lease{home, id, std::make_unique<ReturnedLease>()} {}
  /// Makes a lease in the memory of a lease that has ended.
  Lease(LeaseHome& home, RequestId id, std::unique_ptr<ReturnedLease> returned) : home_{&home}, lease_{std::move(returned)} {
    *lease_ = {.id = id};
  }
  ~Lease() { reset(); }
  Lease(Lease&& other) noexcept : home_{other.home_}, lease_{std::move(other.lease_)} {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      reset();
      home_ = other.home_;
      lease_ = std::move(other.lease_);
    }
    return *this;
  }

  [[nodiscard]] explicit operator bool() const { return lease_ != nullptr; }
  /// Returns the id of the request. Stops the process if the lease is empty.
  [[nodiscard]] RequestId id() const {
    if (lease_ == nullptr) stop_for_empty();
    return lease_->id;
  }
  /// Work that was launched up to `fence` may still touch the blocks after the lease has ended; work that was launched later does
  /// not. Transfers that reuse the slots wait for the fence. Call it after each launch, or with `no_longer_used` if there is
  /// nothing to wait for. A fence that was never given out is ignored.
  void used_until(Fence fence) {
    if (lease_) lease_->last_use = fence;
  }
  /// Tells how many tokens the request has written. The adaptive policy learns from it which requests are continued: a very short
  /// answer often ends a conversation, or is the call of a tool. The cache gets the last number when the lease ends. Optional:
  /// without it, the policy knows only after how many requests this one continued an earlier one.
  void set_output_tokens(std::uint64_t tokens) {
    if (lease_) lease_->output_tokens = tokens;
  }
  /// Tells after what time, from the end of the lease on, a request is expected to continue this one: about as long as the call
  /// of a tool takes, or `no_use` if the session has ended. The cache gets the last one when the lease ends
  /// (Cache::expect_use). Optional.
  void expect_use(Duration in) {
    if (lease_) lease_->next_use = in;
  }
  /// Ends the lease now.
  void reset() noexcept {
    if (lease_) home_->give_back(std::move(lease_));
  }

 private:
  [[noreturn]] static void stop_for_empty();

  LeaseHome* home_ = nullptr;
  std::unique_ptr<ReturnedLease> lease_;
};

/// The longest cached prefix of a sequence: the number of its blocks by the source that they would come from.
struct TERRACE_API MatchResult {
  PerSource<std::uint32_t> found{};

  [[nodiscard]] std::uint32_t total() const { return found.sum(); }
};

/// The needs of a request. Blocks are counted from the start of the sequence, in hash units (hash_unit() of the groups), and
/// "block" means a hash unit here and in the statistics. With one group, a hash unit is one of its blocks, unless
/// CacheSystemOptions::hash_unit_tokens is smaller.
struct TERRACE_API AcquireRequest {
  RequestId id{};
  /// Keys of the full blocks that are known, from the first block on. They must stay valid only during the call.
  std::span<const BlockKey> keys{};
  /// All blocks that the request needs now: the blocks of `keys`, a last block that is not full, and lookahead. At least
  /// keys.size(); 0 stands for keys.size(). A request gets at most CacheSystemOptions::request_units_max, and keys beyond them
  /// are ignored. (A group with recurrent state keeps a slot after the last of `keys`, and one in each block behind them.)
  HashUnits units{};
  /// The most blocks to allocate now in addition to cached ones: the first chunk of a prompt that is computed in chunks. The
  /// caller gets the other blocks with extend().
  HashUnits new_units_max = std::numeric_limits<std::uint32_t>::max();
  /// Number of blocks after the cached ones that are filled externally, for example by the prefill of another instance. They
  /// belong to this request like the blocks that it computes, and the caller commits them when their data has arrived. The cache
  /// neither finds nor loads them, so they have no Source.
  HashUnits external_units{};
  /// Number of encoder tokens, which groups with cross attention keep until the request ends.
  std::uint32_t encoder_tokens = 0;
  /// The most blocks that may come from the cache. A caller that needs logits sets it so that at least one token is left to
  /// compute.
  HashUnits hit_units_max = std::numeric_limits<std::uint32_t>::max();
  /// Uses one cached block less than was found. Speculative decoding computes this block again for the state of its draft model.
  bool drop_last_hit = false;
  /// The farthest source from which blocks are loaded. Blocks that only farther sources have are computed, and then cached as
  /// usual. The default allows every source that this header knows. A value that the library does not know allows all sources.
  Source farthest_source = all_sources.back();
  /// Device slots of each pool that must be left, free or evictable, when the request has its own: for the rest of its prompt, or
  /// in reserve. Otherwise it is refused with no_room, so a caller need not acquire it to see what is left.
  std::uint32_t room_left = 0;
  /// True if the request was preempted before and is acquired again. It is counted in separate totals.
  bool preempted = false;
  /// The tenant: the first eight bytes of the root key (BlockKey::prefix64). Stored with the blocks, for statistics and jobs.
  TenantId tenant{};
  /// The deadline for all waits of the request, for free slots as well as for loads.
  TimePoint deadline = never;
  /// Report loads layer by layer. While the request waits for loads, events say how many leading layers of all its blocks have
  /// arrived (RequestEvent::layers), so that compute can start before the other layers arrive. This works for loads that this
  /// request starts. If another request already loads a block, and not by layer, the block counts only when all its layers have
  /// arrived.
  bool by_layer = false;
};

/// Identifies a prefetch. A number is never used again.
using PrefetchId = StrongId<struct PrefetchIdTag, std::uint64_t>;

/// Describes what to prefetch for a future request, for example one that still waits in a queue of the engine or of a router.
struct TERRACE_API PrefetchOrder {
  /// The same as in AcquireRequest. They must stay valid only during the call.
  std::span<const BlockKey> keys{};
  /// The farthest source from which blocks are brought: storage or the shared store.
  Source farthest_source = all_sources.back();
  /// Stored with blocks that come from the shared store (AcquireRequest::tenant).
  TenantId tenant{};
  /// Blocks that have not arrived by then are not fetched any more.
  TimePoint deadline = never;
};

/// State of an accepted request. `pending`: it waits for slots, for loads, or for the answer of a shared store.
enum class Acquired : bool { pending, ready };

/// State of a lease.
enum class RequestState : std::uint8_t {
  unknown,  ///< the lease has ended, or belongs to another cache
  waiting,  ///< it waits for slots, loads or the answer of a shared store; an event will report the end of the wait
  failed,   ///< the request must be released; Cache::wait() says why, as does an event of this or the next poll()
  ready,
};

/// Whether a group can serve the hits of a request. Only optional groups may be unable to.
enum class GroupState : std::uint8_t {
  unknown,  ///< there is no such request or group, or the request has no block table yet
  serves,
  does_not_serve,  ///< the block table has null blocks there, and the group shares no block of this request
};

/// The waits of a request, by their reasons. Loads from several sources run at the same time, so the sum of these times can be
/// longer than the wait. All 0 for a request that was ready at once.
struct RequestWaits {
  Duration looking{};           ///< for the answer of the shared store, or for the end of a prefetch
  Duration room{};              ///< for slots
  PerSource<Duration> loads{};  ///< from then on, until the last block from this source was on the device
};

/// Number of the request's blocks with keys by the source in which they were found. units = found.sum() + external + miss. A
/// block that another request was already loading counts under the source that it is loaded from. A block whose load failed is a
/// miss. With several groups, a block counts under the farthest source from which any group needed it.
struct RequestStats {
  std::uint32_t units = 0;
  PerSource<std::uint32_t> found{};
  std::uint32_t external = 0;  ///< neither found nor computed: AcquireRequest::external_units
  std::uint32_t miss = 0;
  std::uint32_t joined = 0;  ///< the part of `found` (device hits excluded) that another request was already loading
  bool preempted = false;    ///< AcquireRequest::preempted
  bool looked = false;       ///< the request asked the shared store for blocks, and waited for the answer
  RequestWaits waits{};      ///< the waits that have ended
};

/// The copies of a cached block.
struct BlockPlace {
  std::optional<SlotId> device{};
  std::optional<SlotId> host{};
  bool storage = false;
  bool in_use = false;  ///< a request, a pin or a transfer holds it
};

/// Result of an eviction by name.
struct EvictedBlocks {
  std::uint32_t evicted = 0;     ///< number of evicted blocks, including blocks that followed the named ones
  std::vector<SlotId> in_use{};  ///< named slots whose blocks stay cached, because they or blocks after them are held
};

/// Reports on a pending request. If ends_wait() is true and there is no error, the request is ready. With an error it has failed
/// and must be released; it holds no blocks unless layers were reported. Errors: no_room (something that it relied on is gone,
/// and there are not enough slots to plan the request again), deadline_exceeded, cleared, load_failed (only by layer).
///
/// For a request by layer, events with increasing `layers` can come first. After the first of them the block table is final and
/// can be read. Compute may be launched that reads these layers of the hits, or that writes any of the new blocks. No other call
/// is allowed for this request until it is ready. A group whose blocks have fewer layers has received all of them by then.
///
/// If the request fails after such an event (load_failed is possible then, because the request is not planned again), discard all
/// computed results. They cannot be committed, and the blocks that compute read may have been overwritten. The new blocks belong
/// to the request until it is released. The fence of the release must cover compute that may still write them.
struct RequestEvent {
  RequestId id{};
  ErrorCode error{};
  /// If not 0, the wait continues, and this many leading layers of all blocks of the request have arrived.
  std::uint32_t layers = 0;

  [[nodiscard]] bool ends_wait() const { return layers == 0; }
};

/// State of the whole cache.
enum class CacheStatus : std::uint8_t {
  normal,
  clearing,  ///< serves no requests until everything that was cached has been dropped and cannot come back (Cache::erasing)
  cleared,   ///< clearing is complete; resume() returns to normal
};

/// Options of a clear. By default no block from before is ever a hit again, which is correct after any change of the weights.
/// Keep the blocks of storage or of the shared store only if their keys still identify their content: the weights are the same,
/// or new weights have new keys (RootFields::weight_epoch), so that the old keys are never requested again.
struct ClearOptions {
  /// If true, nothing is served until transfers of cleared blocks have ended, requests that hold such blocks have been released,
  /// and resume() is called.
  /// If false, new requests are served at once, in the slots that are free.
  bool wait = false;
  /// If true, stored blocks stay, and can be hits again. If false, they are removed; after Cache::erasing() has become false, a
  /// kill or a power failure cannot bring them back.
  bool keep_storage = false;
  /// If true, the cache continues to use the shared store. If false, it does not use it until Cache::resume_shared().
  bool keep_shared = false;
  /// If true, the memory of the host tiers is given back to the system when the clear is complete (CacheStatus::cleared), except
  /// what the staging slots need, up to one chunk of 1 GiB in each pool. Cache::resume() makes the tiers as large again; they
  /// warm up in later polls (Cache::host_memory()). Includes `wait`. Has no effect on memory of the embedder
  /// (PoolOptions::host_rows).
  bool release_host = false;
};

/// The most blocks that a tenant can keep cached in each tier of a pool. Blocks beyond the quota are evicted first when slots are
/// needed. The tenant of a block is AcquireRequest::tenant.
struct TERRACE_API TenantQuota {
  Blocks device_blocks = std::numeric_limits<std::uint32_t>::max();
  Blocks host_blocks = std::numeric_limits<std::uint32_t>::max();

  friend bool operator==(const TenantQuota&, const TenantQuota&) = default;

  /// The quota in the device or the host tier.
  [[nodiscard]] Blocks in(Tier tier) const { return tier == Tier::device ? device_blocks : host_blocks; }
};

/// A block whose content was already cached when it was committed. The request keeps its own slot until it is released, because
/// the block tables of some engines can only grow. An engine whose table can change may use the shared slot from now on.
struct Duplicate {
  GroupId group{};
  std::uint32_t block = 0;  ///< index in the block table of the group
  SlotId own{};
  SlotId shared{};
};

}  // namespace terrace
