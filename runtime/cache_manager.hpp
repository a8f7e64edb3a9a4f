#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "runtime/actions.hpp"
#include "runtime/back_ups.hpp"
#include "runtime/config.hpp"
#include "runtime/departures.hpp"
#include "runtime/device_room.hpp"
#include "runtime/host_room.hpp"
#include "runtime/loads.hpp"
#include "runtime/persists.hpp"
#include "runtime/request.hpp"
#include "runtime/residency.hpp"
#include "runtime/resizing.hpp"
#include "runtime/room_ahead.hpp"
#include "runtime/swap_outs.hpp"
#include "storage/block_store.hpp"
#include "transfer/plan.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// The control plane: which request holds which blocks, what lives where, what moves. It turns calls and completions into
/// decisions and plans; it does no I/O, reads no clock, takes no lock and never waits. Whoever owns it (runtime/cache.hpp, or a
/// simulation) has `actions()` done after each call and reports how they ended.
///
/// Life of a request:
///
///     acquire --> pending --> ready --> release
///        |           |          ^  \--> extend, commit (any number)
///        |           |          |
///        +-----------|----------+   everything it needs is there
///                    +--> failed --> release
///
/// Everything that can fail says why and changes nothing when it does. Threads: one.
class CacheManager {
 public:
  explicit CacheManager(const ManagerConfig& config);
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  // ---- requests

  /// The longest cached prefix, as far as its blocks are in `lowest_tier` or above. No side effect: it neither pins nor renews.
  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Tier lowest_tier = Tier::storage) const;

  /// All of what the request needs now, or nothing. Where it is pending, an event will tell. Fails: never_fits, no_room,
  /// duplicate_request, invalid_argument, paused.
  [[nodiscard]] Result<Acquired> acquire(const AcquireRequest& request);
  /// `blocks` more slots at the end of the request's table. Takes free slots, else drops what is cached; never waits. Fails:
  /// unknown_request, not_ready, invalid_argument (0), never_fits, no_room (the request has what it had; other cached copies
  /// may have been dropped for it).
  [[nodiscard]] Result<void> extend(RequestId id, std::uint32_t blocks);
  /// The request's first keys.size() blocks are full and, once compute reaches `written`, hold what their keys say: they
  /// become shared. `keys` begins with those of acquire. Idempotent for what is committed. Returns the blocks whose content was
  /// there already (valid until the next call). Stops early before a block that is being loaded just now: call again.
  /// Fails: unknown_request, not_ready, invalid_argument (more keys than blocks).
  [[nodiscard]] Result<std::span<const Duplicate>> commit(RequestId id, std::span<const BlockKey> keys, Fence written);
  /// Gives up the request's hold, whatever its state. What compute launched up to `last_use` may still touch its slots.
  /// Fails: unknown_request.
  Result<void> release(RequestId id, Fence last_use);

  /// A slot per block of the sequence. Valid until the next call for this request. Fails: unknown_request, not_ready.
  [[nodiscard]] Result<std::span<const SlotId>> block_table(RequestId id) const;
  [[nodiscard]] Result<RequestStats> request_stats(RequestId id) const;
  /// Where each of the request's leading blocks was found, one per hit. Fails: unknown_request.
  [[nodiscard]] Result<std::span<const Tier>> hit_tiers(RequestId id) const;
  /// Blocks committed so far, hits included.
  [[nodiscard]] Result<std::uint32_t> committed_blocks(RequestId id) const;

  // ---- life of the cache

  [[nodiscard]] CacheStatus status() const { return status_; }
  /// Raised by every clear(). Completions of an older epoch publish nothing.
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  /// Forgets everything that is cached. Pending requests fail with `cleared`; those that are ready keep their slots until they
  /// are released, but share nothing any more. Pins end.
  void clear(const ClearOptions& options);
  /// As clear(), but refuses while any request is alive. Fails: in_use.
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  /// After a clear() that waits. Fails: paused (something of what was cached is still there).
  [[nodiscard]] Result<void> resume();
  /// Gives up the path's device and host copies from its end, up to the first block that others follow, hold or are just
  /// reading. Returns how many device blocks that freed. Fails: not_found (the path is not all in the tree), in_use (its last
  /// block is held).
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  /// Keeps what is cached of the path from eviction above storage, until unpin() or `until`. Fails: not_found (nothing is),
  /// no_room (ManagerConfig::pinned_blocks_max).
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never);
  /// Fails: not_found (or its time has passed).
  [[nodiscard]] Result<void> unpin(PinId pin);
  [[nodiscard]] std::uint64_t pinned_blocks() const { return pinned_blocks_; }
  /// Leading blocks that all ready requests share; 0 where there are none.
  [[nodiscard]] std::uint32_t common_prefix() const;
  /// Makes a serving tier larger or smaller (runtime/resizing.hpp says how, and what is lost). Larger: the tier's memory has the
  /// slots, by the caller's word. Requests that wait for room keep their promise; never_fits goes by the new size. Fails as
  /// Resizing::resize does; invalid_argument with instant copies.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks);
  /// Slots that a resize has still to retire, of device or host.
  [[nodiscard]] std::uint64_t retiring(Tier tier) const { return resizing_.retiring(tier); }
  /// The counts so far, which begin anew at 0.
  [[nodiscard]] ManagerStats take_stats() { return std::exchange(stats_, {}); }
  /// Stored, removed, cleared: from the first call on. Swaps, so that the caller's vector is re-used.
  void record_events() { residency_.events().record_from_now_on(); }
  void take_events(std::vector<KvEvent>& events) { residency_.events().take(events); }

  // ---- what happened elsewhere

  void on_transfer(const TransferEvent& event);
  void on_store(const StoreEvent& event);
  /// Fails pending requests whose deadline has passed.
  void on_time(TimePoint now);
  /// Call after a batch of the above: serves who waits with what has become free.
  void settle();
  /// Blocks that storage holds from before, parents first. Gives each its number, to be used as the token of its events;
  /// nothing for one whose parent is not among them.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> restore(std::span<const StoredBlock> blocks);

  // ---- what is to be done, and what to know

  /// Filled by every call; its owner takes and clears it.
  [[nodiscard]] Actions& actions() { return actions_; }
  /// Pending requests that ended their wait; the owner takes and clears them.
  [[nodiscard]] std::vector<RequestEvent>& events() { return events_; }
  [[nodiscard]] TimePoint next_deadline() const;
  /// Transfers, loads and persists under way, or requests that wait.
  [[nodiscard]] bool has_pending_work() const;
  /// For people: what is under way, and who waits.
  [[nodiscard]] std::string describe_pending() const;

  /// Hostile mode: its owner overwrites slots as they become free (`device`, `arena`: those since the last call), and says by
  /// when that will be done.
  void remember_freed();
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena);
  void overwritten_by(std::span<const SlotId> device, Fence fence);

  /// Of the device's pool or the host tier's; what an acquire of so many blocks finds.
  [[nodiscard]] Usage usage(Tier tier) const;
  /// Slots that a request of so many tokens needs.
  [[nodiscard]] static constexpr std::uint32_t blocks_for(std::uint64_t tokens, std::uint32_t block_tokens) {
    return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
  }
  /// For people: what is cached where, one line a node, down to `lines_max` of them.
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;

  [[nodiscard]] const ManagerConfig& config() const { return config_; }
  [[nodiscard]] const ManagerStats& stats() const { return stats_; }
  [[nodiscard]] std::size_t live_requests() const { return by_id_.size(); }
  [[nodiscard]] Ledger device_ledger() const { return residency_.pool(Tier::device).ledger(); }
  /// Of the host arena: the host tier's slots and the staging slots (held while in use) together.
  [[nodiscard]] Ledger host_ledger() const { return residency_.pool(Tier::host).ledger(); }
  /// Transfers that read a copy just now.
  [[nodiscard]] std::uint64_t readers() const;
  [[nodiscard]] const Residency& residency() const { return residency_; }
  /// Memory of the books that grow with the cached blocks.
  [[nodiscard]] std::size_t bytes_held() const {
    return residency_.bytes_held() + loads_.bytes_held() + back_ups_.bytes_held();
  }
  void check_invariants() const;

 private:
  enum class State : std::uint8_t { unused, waiting_for_room, loading, ready, failed };
  struct Request {
    RequestId id;
    State state = State::unused;
    Path path;                      ///< pinned: what the request shares
    std::uint32_t key_count = 0;    ///< of acquire
    std::uint32_t hits = 0;         ///< blocks that come from the cache
    std::uint32_t blocks = 0;       ///< needed in all
    std::vector<SlotId> table;      ///< a slot per block, once ready
    std::vector<SlotId> own;        ///< slots the request holds itself, in the order of its blocks, before it is ready
    std::vector<SlotId> redundant;  ///< its own slots behind blocks that are shared now
    std::vector<Tier> found;        ///< where each hit was found
    std::vector<Loads::LoadId> loads;
    std::vector<std::pair<std::uint32_t, SlotId>> detached;  ///< instant exclusive: host slots of hits, by block
    std::span<const BlockKey> keys; ///< to plan again: the caller's during acquire, then those that are kept
    std::vector<BlockKey> kept_keys;
    std::uint32_t hit_blocks_max = 0;
    bool drop_last_hit = false;
    Tier lowest_tier = Tier::storage;
    std::uint32_t joined = 0;
    std::uint32_t failures = 0;     ///< loads that failed it
    std::uint64_t name_space = 0;
    std::uint64_t stamp = 0;
    Epoch epoch;
    TimePoint deadline = never;
    bool announce = false;          ///< acquire said "pending": the caller waits for an event
  };
  using Index = std::uint32_t;

  [[nodiscard]] Result<Index> find(RequestId id) const;
  [[nodiscard]] Result<Index> find_ready(RequestId id) const;
  [[nodiscard]] Index new_request();
  void forget(Index index);

  /// What a prompt finds: the longest prefix whose every block has a copy somewhere.
  struct Available {
    Path path;
    std::uint32_t on_device = 0;  ///< usable there
    std::uint32_t filling = 0;    ///< on their way there
    bool lower = false;           ///< blocks of the path have copies in other tiers, too
    bool leaving = false;         ///< one of the device copies is
  };
  [[nodiscard]] Available available(std::span<const BlockKey> keys, Tier lowest, std::vector<Tier>& found) const;
  [[nodiscard]] Result<void> plan(Index index, std::span<const BlockKey> keys);
  void rescue_path(Index index, const Available& there);
  void detach_hits(Request& request);
  void on_served(Index index, std::span<const SlotId> slots, bool last);
  void start_loads(Index index);
  void become_ready(Index index);
  void undo(Index index);
  void fail(Index index, ErrorCode error);
  void on_load_failed(BlockRef missing);
  void on_load_ended(Index index, Loads::LoadId load);
  void replan_failed();
  void flush();
  [[nodiscard]] bool commit_over(Request& r, BlockRef block, Fence written);
  void copy_down(std::uint32_t from, Path path);
  void clear_deadline(Index index);
  struct Pin {
    Path path;
    TimePoint until = never;
  };
  bool sweep_hidden();
  void end_pin(std::map<PinId, Pin>::iterator pin);

  ManagerConfig config_;
  ManagerStats stats_;
  Actions actions_;
  std::vector<RequestEvent> events_;
  Residency residency_;
  Departures departures_;
  SwapOuts swap_outs_;
  Persists persists_;
  BackUps back_ups_;
  HostRoom host_room_;
  DeviceRoom device_room_;
  Resizing resizing_;
  RoomAhead room_ahead_;
  Loads loads_;

  std::vector<Request> requests_;
  std::vector<Index> free_requests_;
  boost::unordered_flat_map<RequestId, Index, std::hash<RequestId>> by_id_;
  std::multimap<TimePoint, Index> deadlines_;
  std::vector<Index> to_replan_;
  std::map<PinId, Pin> pins_;
  PinId last_pin_;
  std::uint64_t pinned_blocks_ = 0;
  CacheStatus status_ = CacheStatus::normal;
  Epoch epoch_;
  std::vector<std::pair<BlockRef, Tier>> gone_;  ///< scratch
  std::vector<Duplicate> duplicates_;
  mutable std::vector<Copy> copies_[tier_count];  ///< scratch
  mutable std::vector<Tier> found_;               ///< scratch
  std::vector<LoadPart> parts_;                   ///< scratch
  JobId last_job_;
  std::uint64_t last_stamp_ = 0;
};

}  // namespace terrace
