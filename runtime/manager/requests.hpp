#pragma once

#include "base/indexed_heap.hpp"
#include "base/result.hpp"
#include "runtime/manager/group_part.hpp"
#include "runtime/manager/hit_planner.hpp"
#include "runtime/manager/write_back_jobs.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// The requests that use the cache: which blocks each of them holds, and what it waits for.
///
/// Life of a request:
///
///     acquire --> pending --> ready --> release
///        |           |          ^  \--> extend, commit (any number)
///        |           |          |
///        +-----------|----------+   everything that it needs is on the device
///                    +--> failed --> release
///
/// A pending request that asked for loading by layer may be told of leading layers (RequestEvent). It is still pending then, but
/// has its block table.
///
/// A request has a block table in each of the model's groups (radix/groups/groups.hpp). If a group needs only the last blocks of
/// the hit, its table has the null block (its pool's first slot) in place of the blocks before.
///
/// A call that fails says why, and changes nothing.
///
/// Ownership: CacheManager owns this object; `state`, `planner` and `write_backs` outlive it. Threads: the manager's.
class Requests {
 public:
  Requests(ManagerState& state, HitPlanner& planner, WriteBackJobs& write_backs);
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// The longest cached prefix, as far as its blocks are in `lowest_tier` or above. No side effect: it neither pins nor renews.
  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Tier lowest_tier = Tier::storage) const;

  /// All of what the request needs now, or nothing. Where it is pending, an event will tell. Fails: never_fits, no_room,
  /// duplicate_request, invalid_argument, paused.
  [[nodiscard]] Result<Acquired> acquire(const AcquireRequest& request);
  /// So many tokens of the sequence are computed: what no later token attends to is given up, and null blocks take its place.
  /// What compute launched up to `last_use` may still read it. Call after commit(), so that it stays cached, and before
  /// extend(), so that its room serves. Groups with full attention keep everything. Fails: unknown_request, not_ready,
  /// invalid_argument (more tokens than there are blocks for).
  [[nodiscard]] Result<void> advance(RequestId id, std::uint64_t tokens, Fence last_use);
  /// `blocks` more at the end of the request's tables, as far as ManagerConfig::request_blocks_max. Takes free slots, else drops
  /// what is cached; never waits. Fails:
  /// unknown_request, not_ready, invalid_argument (0), never_fits, no_room.
  [[nodiscard]] Result<void> extend(RequestId id, std::uint32_t blocks);
  /// The request's first keys.size() blocks are full and, once compute reaches `written`, hold what their keys say: they
  /// become shared. `keys` begins with those of acquire. Idempotent for what is committed. Returns the blocks whose content was
  /// there already (valid until the next call). Stops early before a block that is being loaded just now: call again.
  /// Fails: unknown_request, not_ready, invalid_argument (more keys than blocks).
  [[nodiscard]] Result<std::span<const Duplicate>> commit(RequestId id, std::span<const BlockKey> keys, Fence written);
  /// Gives up the request's hold, whatever its state. What compute launched up to `last_use` may still touch its slots.
  /// Fails: unknown_request.
  Result<void> release(RequestId id, Fence last_use);
  /// The same, where nobody knows the last use: the request is over, but its slots are quarantined, and what it hit stays
  /// pinned, until end_quarantines(until). `until` comes after all that compute has been given so far. A request whose block
  /// table nobody has asked for is released at once. While quarantined_max of them last, acquire() fails with no_room. Fails:
  /// unknown_request.
  Result<void> quarantine(RequestId id, Fence until);
  /// Compute has reached this point.
  void end_quarantines(Fence reached);
  [[nodiscard]] std::size_t quarantined_requests() const { return quarantined_.size(); }
  static constexpr std::size_t quarantined_max = 1024;

  [[nodiscard]] RequestState state(RequestId id) const;
  /// A slot per block of the sequence, of a request that is ready or was told of layers. Valid until the next call for this
  /// request. Fails: unknown_request, not_ready, invalid_argument (no such group).
  [[nodiscard]] Result<std::span<const SlotId>> block_table(RequestId id, GroupId group = {}) const;
  /// The end of its block table: the blocks that have no key yet, because they are not committed (or never will be, in a group
  /// that shares nothing). Null blocks may be among them. Fails as block_table().
  [[nodiscard]] Result<std::span<const SlotId>> unkeyed_blocks(RequestId id, GroupId group = {}) const;
  [[nodiscard]] GroupState group_state(RequestId id, GroupId group) const;
  [[nodiscard]] Result<RequestStats> request_stats(RequestId id) const;
  /// Where each of the request's leading blocks was found, one per hit. Fails: unknown_request.
  [[nodiscard]] Result<std::span<const Tier>> hit_tiers(RequestId id) const;
  /// Blocks committed so far, hits included.
  [[nodiscard]] Result<std::uint32_t> committed_blocks(RequestId id) const;

  /// Units of the request's prompt (AcquireRequest::keys) that are not committed yet; 0 for one that is not ready.
  [[nodiscard]] std::uint32_t prompt_left(RequestId id) const;
  /// Leading blocks of the group that all ready requests share; 0 where there are none, and for groups that do not keep the
  /// beginning of a sequence.
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const;
  /// The prefixes that a ready request has pinned, in all groups. Fails: unknown_request, not_ready, cleared (it is older than
  /// the last clear).
  [[nodiscard]] Result<std::vector<PoolPrefix>> pinned_prefixes(RequestId id) const;
  /// Requests that were acquired and not released or quarantined yet.
  [[nodiscard]] std::size_t live_requests() const { return by_id_.size(); }
  /// Pending requests that ended their wait; the owner takes and clears them.
  [[nodiscard]] std::vector<RequestEvent>& events() { return events_; }

  // ---- what happened elsewhere

  /// Handles what has happened in a pool to the requests that wait there. Call after each call that may leave events.
  void handle_events(TieredPool& pool);
  /// Fails each pending request.
  void fail_pending(ErrorCode error);
  /// Fails the pending requests whose deadline has passed.
  void on_time();
  [[nodiscard]] TimePoint next_deadline() const { return deadlines_.empty() ? never : deadlines_.top().priority; }
  /// Serves the requests that wait with what has become free, lets write-back jobs go on, and makes transfers of what was
  /// decided.
  void settle();

  /// Adds to `held`, by PoolId, the device slots that requests hold.
  void check_invariants(std::span<std::uint64_t> held) const;

 private:
  enum class State : std::uint8_t { unused, waiting_for_room, loading, ready, failed };
  using Index = std::uint32_t;
  struct LoadRef {
    PoolId pool;
    Loads::LoadId load = 0;
    friend bool operator==(const LoadRef&, const LoadRef&) = default;
  };
  struct Request : RequestSize {
    RequestId id;
    State state = State::unused;
    std::vector<GroupPart> parts;          ///< by GroupId
    std::vector<std::vector<SlotId>> own;  ///< by PoolId: slots the request holds before it is ready, in the order of their use
    std::uint32_t rooms_waited_for = 0;    ///< pools that still owe it slots
    std::uint32_t hits = 0;                ///< blocks that come from the cache
    std::vector<Tier> found;               ///< where each hit was found
    std::vector<LoadRef> loads;
    std::span<const BlockKey> keys;  ///< to plan again: the caller's during acquire, then those that are kept
    std::vector<BlockKey> kept_keys;
    std::uint32_t hit_blocks_max = 0;
    std::uint32_t new_blocks_max = 0;
    std::uint32_t external_blocks = 0;
    bool drop_last_hit = false;
    Tier lowest_tier = Tier::storage;
    std::uint32_t joined = 0;
    bool preempted = false;
    std::uint32_t failures = 0;  ///< loads that failed it
    TenantId tenant;
    std::uint64_t stamp = 0;
    Epoch epoch;
    TimePoint deadline = never;
    bool announce = false;  ///< acquire said "pending": the caller waits for an event
    bool by_layer = false;
    std::uint32_t layers = 0;                ///< that it was told of; while it is loading, its tables are made then
    mutable bool table_told = false;         ///< compute may know its slots
    std::optional<Fence> quarantined_until;  ///< its lease has ended, and by_id_ does not know it any more
  };

  [[nodiscard]] Result<Index> find(RequestId id) const;
  [[nodiscard]] Result<Index> find_ready(RequestId id) const;
  [[nodiscard]] Result<Index> find_with_table(RequestId id) const;
  [[nodiscard]] RequestStats stats_of(const Request& request) const;
  [[nodiscard]] Index new_request();
  void end(Index index, Fence last_use);
  void forget(Index index);
  [[nodiscard]] std::vector<std::pair<PoolId, SlotId>> own_slots(const Request& request) const;

  [[nodiscard]] Result<void> plan(Index index, std::span<const BlockKey> keys);
  void take_hits(Request& request, std::span<const BlockKey> keys, std::uint32_t hits);
  void on_served(PoolId pool, const DeviceSlotAllocator::Served& served);
  [[nodiscard]] BlockRef hit_block(const GroupPart& part, std::size_t group, std::uint32_t block) const;
  void read_hits(const GroupPart& part, std::size_t group);
  [[nodiscard]] bool collect_loads(Index index, std::size_t group);
  void start_loads(Index index);
  void make_tables(Request& request);
  void become_ready(Index index);
  void count_ready(const Request& request);
  void tell_layers(Index index);
  void withdraw_layers(const Request& request);
  void let_go_of_hits(Index index);
  void let_go_of_room(Index index);
  void undo(Index index);
  void fence_slots(const Request& request, Fence last_use);
  void fail(Index index, ErrorCode error);
  void on_load_failed(PoolId pool, BlockRef missing, Loads::Late late);
  void on_load_ended(Index index, LoadRef load);
  void replan_failed();
  void commit_chain(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  void commit_unchained(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  void release_part(GroupPart& part, std::size_t group, Fence last_use);
  void give_up_before(GroupPart& part, std::size_t group, std::uint32_t first, Fence last_use);

  ManagerState& state_;
  ModelGroups& groups_;
  HitPlanner& planner_;
  WriteBackJobs& write_backs_;
  std::vector<Request> requests_;
  std::vector<Index> free_requests_;
  boost::unordered_flat_map<RequestId, Index, std::hash<RequestId>> by_id_;
  std::deque<Index> quarantined_;     ///< in the order of the points that they wait for
  IndexedHeap<TimePoint> deadlines_;  ///< of pending requests, by Index
  std::vector<Index> to_replan_;
  std::vector<RequestEvent> events_;
  std::uint64_t last_transfer_ = 0;
  std::vector<Duplicate> duplicates_;                ///< of the last commit()
  std::vector<std::uint32_t> needs_;                 ///< scratch: slots by PoolId
  std::vector<Copy> row_;                            ///< scratch
  std::vector<std::vector<LoadPart>> load_parts_;    ///< scratch: by group
  std::vector<std::size_t> used_;                    ///< scratch: number of slots used of Request::own, by PoolId
  std::vector<DeviceSlotAllocator::Served> served_;  ///< scratch
  std::vector<Loads::Event> load_events_;            ///< scratch
};

}  // namespace terrace
