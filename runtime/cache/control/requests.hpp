#pragma once

#include "base/indexed_heap.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/control/group_part.hpp"
#include "runtime/cache/control/hit_planner.hpp"
#include "runtime/cache/control/prefetches.hpp"
#include "runtime/cache/control/shared_questions.hpp"
#include "terrace/result.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// The requests that use the cache: the blocks that each request holds, and the slots and loads that it waits for.
///
/// The states of a request:
///
///     acquire --> pending --> ready         ready: commit, advance and extend, any number of times
///        |           |          ^           any state: release or quarantine ends the request
///        |           |          |
///        +-----------|----------+           if everything that it needs is on the device already
///                    +--> failed
///
/// A pending request waits for one of these, by its internal state:
///
///     looking            the answer of the shared store (SharedQuestions), or the end of a prefetch of its blocks (Prefetches)
///     waiting_for_slots  device slots: evictions, which may be swap-outs (DeviceSlotAllocator)
///     loading            its loads. Each block waits for a landing slot and a read, unless the host has it,
///                        then for its turn in the lane of requests, and for the fence of its device slot
///
/// In loop mode, a request that acquire() has refused with no_room waits in AsyncCache, and is not here yet.
///
/// A request in to_replan_ waits only for the next round of CacheManager::settle(), which plans it again.
///
/// A request in state looking has no slots, and no promise of slots. It has pinned its local hits, unless it waits for a
/// prefetch. When the wait ends, it is planned like a new request. If there is no room for it then, it fails with no_room.
///
/// If a request asks for loading by layer, events report its leading layers while it is still pending (RequestEvent). The request
/// has its block table from the first of these events on.
///
/// A request has a block table in each of the model's groups (radix/groups/groups.hpp). If a group needs only the last blocks of
/// the hit, its table has the null block (the first slot of its pool) in place of the blocks before them.
///
/// No call of this class continues other requests, or makes transfers: CacheManager::settle() does that after each call.
///
/// Ownership: CacheManager owns this object; `state`, `planner`, `questions` and `prefetches` outlive it.
/// Threads: the manager's.
/// Units: blocks and keys are counted in hash units, unless a comment names a group (AcquireRequest).
/// Errors: a call that fails returns the reason and changes nothing. Its comment lists the errors.
class Requests {
 public:
  using Index = std::uint32_t;  ///< of the record of a request

  Requests(ManagerState& state, HitPlanner& planner, SharedQuestions& questions, Prefetches& prefetches);
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // Cache has the same calls (terrace/cache.hpp). The comments here tell only what is different.

  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Source farthest = all_sources.back());

  /// Cache::acquire in two halves, with settle() between (CacheManager::acquire). begin() accepts and plans the request; it fails
  /// as Cache::acquire. settled() tells whether the request is ready now. If it is still pending, an event will report the end of
  /// the wait. The keys of the request must be valid until then.
  [[nodiscard]] Result<Index> begin(const AcquireRequest& request);
  [[nodiscard]] Acquired settled(Index index);
  [[nodiscard]] Result<void> advance(RequestId id, std::uint64_t tokens, Fence last_use);
  [[nodiscard]] Result<void> extend(RequestId id, std::uint32_t blocks);
  [[nodiscard]] Result<std::span<const Duplicate>> commit(RequestId id, std::span<const BlockKey> keys, Fence written);
  /// Ends the request in any state: frees its own slots and unpins its hits. Compute that was launched up to `last_use` may still
  /// touch its slots. Fails: unknown_request.
  Result<void> release(RequestId id, Fence last_use);
  /// The lease of the request is about to end: release() or quarantine() follows. It has written this many tokens.
  void set_output_tokens(RequestId id, std::uint64_t tokens);
  /// The same. Another request is expected to continue it after this time.
  void expect_use(RequestId id, Duration in);
  /// Ends a request if its last use by compute is not known. `until` is a fence after all work that compute has been given so
  /// far; it must not decrease from call to call. The request's own slots are quarantined until end_quarantines() is called with
  /// that fence or a later one. Its hits stay pinned until then, unless one of its loads fails or the cache is cleared. A request
  /// whose block table was never asked for is released at once, because compute cannot know its slots. While quarantined_max
  /// requests are in quarantine, acquire() fails with no_room. Fails: unknown_request.
  Result<void> quarantine(RequestId id, Fence until);
  /// Compute has reached this fence: ends the quarantines that waited for it. Returns true if there were any.
  bool end_quarantines(Fence reached);
  [[nodiscard]] std::size_t quarantined_requests() const { return quarantined_.size(); }
  static constexpr std::size_t quarantined_max = 1024;

  [[nodiscard]] RequestState state(RequestId id) const;
  /// The error with which the request has failed, as in its event. No error if it has not failed.
  [[nodiscard]] ErrorCode error(RequestId id) const;
  /// The transfers that still bring the leading `layers` layers of the request's hits; none if they have arrived. Valid until the
  /// next call. Fails: unknown_request, not_ready (the request waits for slots, or for storage), the error of a request that has
  /// failed.
  [[nodiscard]] Result<std::span<const TransferId>> transfers_for(RequestId id, std::uint32_t layers);
  /// Compute waits on the device for these layers, so the request counts as if an event had reported them: it has its block
  /// tables, and keeps its slots until its lease ends.
  void expect_layers(RequestId id, std::uint32_t layers);
  [[nodiscard]] Result<std::span<const SlotId>> block_table(RequestId id, GroupId group = {}) const;
  [[nodiscard]] Result<std::span<const SlotId>> unkeyed_blocks(RequestId id, GroupId group = {}) const;
  [[nodiscard]] GroupState group_state(RequestId id, GroupId group) const;
  [[nodiscard]] Result<RequestStats> request_stats(RequestId id) const;
  [[nodiscard]] Result<std::span<const Source>> hit_sources(RequestId id) const;
  [[nodiscard]] Result<std::uint32_t> committed_units(RequestId id) const;
  [[nodiscard]] Result<std::uint32_t> units(RequestId id) const;

  /// Number of blocks of the request's prompt (AcquireRequest::keys) that are not committed yet. 0 if the request is not ready.
  [[nodiscard]] std::uint32_t prompt_left(RequestId id) const;
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const;
  /// The prefixes that a ready request has pinned, in all groups. Fails: unknown_request, not_ready, cleared (the cache was
  /// cleared after the request had been acquired).
  [[nodiscard]] Result<std::vector<PoolPrefix>> pinned_prefixes(RequestId id) const;
  /// Number of requests that were acquired, and were neither released nor quarantined since.
  [[nodiscard]] std::size_t live_requests() const { return by_id_.size(); }
  /// Returns true if there are events of pending requests: ends of waits, or more layers.
  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// The events since the last call, in order.
  void take_events(std::vector<RequestEvent>& events) { take_all(events_, events); }
  /// Takes only the event that reports the end of this request's wait. Returns nothing if there is no such event.
  [[nodiscard]] std::optional<RequestEvent> take_end(RequestId id);

  // ---- what happened elsewhere

  /// Handles the events of a pool: slots that waiting requests have got, and events of loads. Call it after
  /// TieredPool::on_transfer, on_store, on_time and pump. Loads::leave also adds events; the next round of settle() handles
  /// these. No other call of the pool adds events.
  void handle_events(TieredPool& pool);
  /// Takes an answer of the shared store: plans the request with this number again.
  void on_answer(SharedQuestions::Answer& answer);
  /// Fails each pending request.
  void fail_pending(ErrorCode error);
  /// Fails the pending requests whose deadline has passed.
  void on_time();
  [[nodiscard]] TimePoint next_deadline() const { return deadlines_.empty() ? never : deadlines_.top().priority; }
  /// Plans the requests again whose load has failed. Returns true if there were any.
  bool replan_failed();
  /// replan_failed() would do nothing.
  [[nodiscard]] bool rests() const { return to_replan_.empty(); }
  /// Plans the requests again whose prefetch has ended.
  void resume_waiting();

  /// Adds to held[pool] the number of device slots that requests own. Slots in quarantine do not count.
  void check_invariants(std::span<std::uint64_t> held) const;

 private:
  enum class State : std::uint8_t { unused, looking, waiting_for_slots, loading, ready, failed };
  /// The blocks of a group that a request loads, and a slot for each.
  struct PlannedLoad {
    std::vector<LoadRun> runs;
    std::vector<SlotId> slots;
  };
  struct LoadRef {
    PoolId pool;
    Loads::LoadId load = 0;
    friend bool operator==(const LoadRef&, const LoadRef&) = default;
  };
  struct RequestFields : RequestSize {
    RequestId id;
    State state = State::unused;
    std::uint32_t pools_waited_for = 0;  ///< pools that still have to give it slots
    std::uint32_t hits = 0;              ///< blocks that come from the cache
    std::uint32_t known = 0;             ///< units up to the last one that was cached when the request shared it
    /// The keys with which the request is planned again: the caller's keys during acquire(), then kept_keys, or none (keep_keys).
    std::span<const BlockKey> keys;
    bool keys_are_hits = false;  ///< `keys` has only the keys of the hit (recall_keys)
    std::uint32_t hit_units_max = 0;
    std::uint32_t new_units_max = 0;
    std::uint32_t room_left = 0;
    std::uint32_t external_units = 0;
    bool drop_last_hit = false;
    bool all_on_device = false;            ///< `found` is the device for all hits
    Source farthest = all_sources.back();  ///< AcquireRequest::farthest_source, or nearer after a failure
    bool may_look = false;                 ///< it is new, and may ask the shared store
    bool looked = false;
    std::uint32_t joined = 0;
    bool preempted = false;
    std::uint32_t failures = 0;  ///< number of times that a block it needed did not arrive
    TenantId tenant;
    std::uint64_t stamp = 0;
    std::optional<std::uint64_t> output_tokens;  ///< set at the end of the lease, if the engine has told it
    std::optional<Duration> next_use;            ///< the same
    Epoch epoch;
    TimePoint deadline = never;
    TimePoint phase_begun;  ///< when it began to wait for what it waits for now
    RequestWaits waits;
    ErrorCode error;        ///< in state failed: why
    bool announce = false;  ///< acquire() returned `pending`: the caller waits for an event
    bool by_layer = false;
    /// Number of leading layers that events have reported or that compute waits for. If not 0, the tables have been made.
    std::uint32_t layers = 0;
    mutable bool table_was_read = false;     ///< block_table() was called: compute may know its slots
    std::optional<Fence> quarantined_until;  ///< set while it is in quarantine: its lease has ended, and by_id_ lacks it
  };
  /// Its vectors keep their memory for the next request with the same index.
  struct Request : RequestFields {
    std::vector<GroupPart> parts;          ///< by GroupId
    std::vector<std::vector<SlotId>> own;  ///< by PoolId: slots that it owns before it is ready, in the order of their use
    std::vector<Source> found;             ///< the source in which each hit was found
    std::vector<LoadRef> loads;            ///< loads that the request waits for; it is a waiter of each
    std::vector<BlockKey> kept_keys;
    SharedAnswer shared;  ///< blocks of the shared store for it; none if it was not asked
  };

  [[nodiscard]] Result<Index> find(RequestId id) const;
  [[nodiscard]] Result<Index> find_ready(RequestId id) const;
  [[nodiscard]] Result<Index> find_with_table(RequestId id) const;
  [[nodiscard]] RequestStats stats_of(const Request& request) const;
  [[nodiscard]] Index new_request();
  /// The lease of the request ends.
  void end(Index index, Fence last_use);
  void forget(Index index);
  [[nodiscard]] static bool pends(const Request& r) {
    return r.state == State::waiting_for_slots || r.state == State::loading || r.state == State::looking;
  }
  [[nodiscard]] std::vector<std::pair<PoolId, SlotId>> own_slots(const Request& request) const;

  [[nodiscard]] Result<Index> accept(const AcquireRequest& wanted);
  void keep_keys(Request& request);
  void recall_keys(Request& request);
  [[nodiscard]] Result<void> plan(Index index, std::span<const BlockKey> keys);
  [[nodiscard]] bool waits_for_prefetch(Index index, std::span<const BlockKey> usable);
  void stop_looking(Index index);
  /// The request ends one of its waits: adds the time since phase_begun to `waited`.
  void end_phase(Request& request, Duration& waited) const {
    waited += state_.now - request.phase_begun;
    request.phase_begun = state_.now;
  }
  void begin_look(Index index, const SharedQuestions::Question& question);
  void note_misses(std::span<const BlockKey> usable, std::uint32_t hits, std::uint32_t found);
  void take_hits(Request& request, std::span<const BlockKey> keys);
  void handle(TieredPool& pool, const Loads::Event& event);
  void on_served(PoolId pool, const DeviceSlotAllocator::Served& served, std::span<const SlotId> slots);
  /// Returns a hit of a pending request, by its index in the group's block table.
  [[nodiscard]] BlockRef hit_block(const GroupPart& part, std::size_t group, std::uint32_t block) const {
    return groups_.rules()[group].chained() ? BlockRef{part.prefix.node, block}
                                            : part.unchained[block - part.first].prefix.last();
  }
  void read_hits(const GroupPart& part, std::size_t group, Tier tier, std::vector<Copy>& row) const;
  [[nodiscard]] Loads::Deadlines load_deadlines(const Request& request) const {
    return {request.deadline, planner_.reads_wanted_by(request.found), state_.now};
  }
  void join_load(Index index, PoolId pool, BlockRef block);
  void join_loads(Index index);
  [[nodiscard]] bool collect_loads(Index index, std::size_t group);
  void start_loads(Index index);
  void make_tables(Request& request);
  void become_ready(Index index);
  void count_ready(const Request& request);
  void report_layers(Index index);
  void withdraw_layers(const Request& request);
  void release_hits(Index index);
  void release_slots(Index index);
  void undo(Index index);
  void fence_slots(const Request& request, Fence last_use);
  void fail(Index index, ErrorCode error);
  [[nodiscard]] static bool waits_for(const Request& request, LoadRef load) {
    return std::ranges::find(request.loads, load) != request.loads.end();
  }
  void on_load_failed(LoadRef load, const Loads::Event& missing);
  void on_load_ended(Index index, LoadRef load);
  void commit_chain(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  void commit_unchained(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  [[nodiscard]] bool useful(const Request& request, std::size_t group, std::uint32_t block, bool ends) const;
  /// Which blocks get owners: hits; those that a later hit probably needs; the same when the request ends.
  enum class Tie : std::uint8_t { all, useful, useful_at_end };
  void tie_companions(Request& request, Tie which, std::optional<std::uint64_t> computed = {}) {
    if (groups_.owners()) tie_all_companions(request, which, computed);
  }
  void tie_all_companions(Request& request, Tie which, std::optional<std::uint64_t> computed);
  void tie_companion(Request& request, std::size_t group, const UnchainedBlock& block, Tie which);
  void release_part(GroupPart& part, std::size_t group, Fence last_use);
  void give_up_before(GroupPart& part, std::size_t group, std::uint32_t first, Fence last_use);
  void check_slots(Index index) const;

  ManagerState& state_;
  ModelGroups& groups_;
  HitPlanner& planner_;
  SharedQuestions& questions_;
  Prefetches& prefetches_;
  std::vector<Request> requests_;
  std::vector<Index> free_requests_;
  boost::unordered_flat_map<RequestId, Index, std::hash<RequestId>> by_id_;
  std::deque<Index> quarantined_;     ///< in the order of the fences that they wait for
  IndexedHeap<TimePoint> deadlines_;  ///< deadlines of pending requests, by Index
  std::vector<Index> to_replan_;
  std::vector<RequestEvent> events_;                 ///< not taken yet
  std::vector<TransferId> awaited_;                  ///< result of the last transfers_for()
  std::vector<Duplicate> duplicates_;                ///< result of the last commit()
  Hit hit_;                                          ///< scratch: of the last look-up
  std::vector<std::uint32_t> needs_;                 ///< scratch: slots by PoolId
  std::vector<Copy> row_;                            ///< scratch: copies on the device
  std::vector<Copy> host_row_;                       ///< scratch
  std::vector<PlannedLoad> planned_loads_;           ///< scratch: by group
  std::vector<std::size_t> used_;                    ///< scratch: by PoolId, number of slots of Request::own that are used
  std::vector<DeviceSlotAllocator::Served> served_;  ///< scratch
  std::vector<SlotId> served_slots_;                 ///< scratch, the slots of served_
  std::vector<Loads::Event> load_events_;            ///< scratch
  std::vector<Prefetches::Resumed> resumed_;         ///< scratch
};

}  // namespace terrace
