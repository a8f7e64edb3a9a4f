#pragma once

#include "base/clock.hpp"
#include "base/indexed_heap.hpp"
#include "base/result.hpp"
#include "runtime/manager/group_part.hpp"
#include "runtime/manager/use_clock.hpp"
#include "runtime/manager/write_back_jobs.hpp"
#include "runtime/measure/load_costs.hpp"
#include "runtime/tiering/actions.hpp"
#include "runtime/tiering/tiered_pool.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/request.hpp"
#include "runtime/types/write_back.hpp"
#include "storage/index/block_store.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// The control plane: which request holds which blocks, what lives where, what moves. It turns calls and completions into
/// decisions and transfers; it does no I/O, reads no clock, takes no lock and never waits. Whoever owns it
/// (runtime/cache/cache.hpp, or a simulation) has `actions()` done after each call and reports how they ended.
///
/// Life of a request:
///
///     acquire --> pending --> ready --> release
///        |           |          ^  \--> extend, commit (any number)
///        |           |          |
///        +-----------|----------+   everything it needs is there
///                    +--> failed --> release
///
/// One by layer that is pending may be told of leading layers (RequestEvent); then it is still pending, but has its block table.
///
/// A request holds blocks in each of the model's groups (radix/groups/groups.hpp), in tables of their own. What it finds in the
/// cache is the longest beginning that every group but optional ones can serve. Where a group needs no more of the beginning than
/// its last blocks, the table has the null block (its pool's first slot) in the others' places.
///
/// Everything that can fail says why and changes nothing when it does. Threads: one.
class CacheManager {
 public:
  /// Throws as validate(), and std::invalid_argument where config.policy makes no policy.
  explicit CacheManager(const ManagerConfig& config);
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  // ---- requests

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

  // ---- life of the cache

  [[nodiscard]] CacheStatus status() const { return status_; }
  /// Raised by every clear(). Completions of an older epoch publish nothing.
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  /// Forgets everything that is cached. Pending requests fail with `cleared`; those that are ready keep their slots until they
  /// are released, but share nothing any more. Pins end.
  void clear(const ClearOptions& options);
  /// Clears as clear() does, but refuses while any request is alive or quarantined. Fails: in_use.
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  /// After a clear() that waits. Fails: paused (something of what was cached is still there).
  [[nodiscard]] Result<void> resume();
  /// Gives up the prefix's device and host copies from its end, up to the first block that others follow, hold or are just
  /// reading. Returns how many device blocks that freed. Fails: not_found (the prefix is not all in the tree), in_use (its last
  /// block is held).
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  /// Gives up the blocks that are cached in these device slots, and all that follow them, in every tier, storage included: for
  /// blocks whose bytes have turned out to be wrong. Slots without a cached block are passed over. Where a request, a pin or a
  /// transfer holds a block or one that follows it, all of these stay, and its slot is in EvictedBlocks::in_use. Looks at the
  /// whole tree. Fails, and changes nothing: invalid_argument (no such slot).
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  /// Finds a block by its key alone; nothing if no tier has it. For tools and tests: the tree finds
  /// blocks by their prefixes (match), and looks at all that it has for this.
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const;
  /// Keeps what is cached of the prefix from eviction above storage, until unpin() or `until`. Fails: not_found (nothing is, or
  /// caching is off), no_room (ManagerConfig::pinned_blocks_max).
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never);
  /// Fails: not_found (or its time has passed).
  [[nodiscard]] Result<void> unpin(PinId pin);
  /// In the pool, by pin().
  [[nodiscard]] std::uint64_t pinned_blocks(PoolId pool = {}) const { return pinned_.at(pool.value()); }
  /// What is cached of the prefix, in device and host, is given up after all of lower priority (0 to highest_priority; what
  /// nobody retains has usual_priority) and before all of higher, until end_retention() or `until`; where several retain a block,
  /// the highest counts. It holds nothing: a block that is given up all the same, and comes back, comes back without. Costs no
  /// room, but its keys are kept. Fails: not_found (nothing is cached), no_room (ManagerConfig::retained_blocks_max),
  /// invalid_argument (no such priority, or a policy that has none: lru and adaptive do).
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never);
  /// Fails: not_found (or its time has passed).
  [[nodiscard]] Result<void> end_retention(RetentionId retention);
  [[nodiscard]] std::uint64_t retained_blocks() const { return retained_blocks_; }
  /// What a tenant may keep cached in a pool (runtime/residency/quotas.hpp says what that means), from now on. An operator's
  /// step: it looks at the whole tree. Fails: invalid_argument (a policy that knows no tenants: lru and adaptive do).
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {});
  /// Fails: not_found.
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {});
  /// Copies that a tenant with a quota has in the tier; nothing for one without.
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const;
  /// Leading blocks of the group that all ready requests share; 0 where there are none, and for groups that do not keep the
  /// beginning of a sequence.
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const;
  /// Makes a serving tier of a pool larger or smaller (runtime/tiering/pool_resizer.hpp says how, and what is lost). Larger: the
  /// device's memory has the slots, by the caller's word; the host tier has those for which open_host() says that there is
  /// memory, and others as that comes. Smaller: `closing` slots of the host arena are to go. Requests that wait for room keep
  /// their promise; never_fits goes by the new size. Fails as PoolResizer::resize does.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, PoolId pool = {}, std::span<const SlotSpan> closing = {});
  /// There is memory for these slots of the host arena, from now on, or again. At first there is for host_blocks +
  /// staging_blocks.
  void open_host(SlotSpan slots, PoolId pool = {});
  /// As PoolResizer::first_in_use.
  [[nodiscard]] std::uint32_t first_in_use(SlotSpan slots, PoolId pool = {}) const {
    return at(pool).resizer().first_in_use(slots);
  }
  /// Slots that a resize has still to retire, of device or host.
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const { return at(pool).resizer().retiring(tier); }
  /// Follows one in `one_in` of each pool's blocks from now on (runtime/measure/residency_sample.hpp); 0: none, as at first.
  /// Allocates.
  void sample_residency(std::uint32_t one_in) {
    for (const auto& pool : pools_) pool->follow_sample(one_in);
  }
  /// Totals of the sampled blocks so far.
  [[nodiscard]] const ResidencyTotals& residency_totals(PoolId pool = {}) const { return residency(pool).sample().totals(); }
  /// Stored, removed, cleared: from the first call on. Swaps, so that the caller's vector is re-used.
  void record_events() { kv_events_.record_from_now_on(); }
  void take_events(std::vector<KvEvent>& events) { kv_events_.take(events); }

  // ---- writing back

  /// Brings cached blocks to storage now (runtime/types/write_back.hpp). Looks at the tree bit by bit, in the calls of settle()
  /// that follow. Fails: invalid_argument (there is no storage), unknown_request, not_ready, not_found (nothing of the prefix is
  /// cached), refused (WriteBackJobs::running_max jobs run), paused.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  [[nodiscard]] WriteBackJobs& write_backs() { return *write_backs_; }
  [[nodiscard]] const WriteBackJobs& write_backs() const { return *write_backs_; }
  /// Of all pools together.
  [[nodiscard]] Durability durability() const;
  /// Of the pool's blocks, for what is counted in bytes. 1 until it is said.
  void set_block_bytes(Bytes bytes, PoolId pool = {}) { at(pool).set_block_bytes(bytes); }
  [[nodiscard]] WriteBudget& write_budget() { return write_budget_; }
  [[nodiscard]] const WriteBudget& write_budget() const { return write_budget_; }

  // ---- what happened elsewhere

  void on_transfer(TransferEvent event);
  /// Of the pool's store.
  void on_store(const StoreEvent& event, PoolId pool = {});
  /// Fails pending requests whose deadline has passed, and ends loads whose reads are late.
  void on_time(TimePoint now);
  /// Whether a hit is loaded only where that is sooner than computing it, and a load has a deadline for what storage gives.
  [[nodiscard]] bool measures_loads() const {
    return config_.loads == LoadPolicy::measured && (prefill_is_stated() || config_.storage);
  }
  /// Whether learn_prefill() is waited for.
  [[nodiscard]] bool learns_prefill() const { return measures_loads() && !prefill_is_stated(); }
  /// The time is at least this. Call before what may begin a load.
  void note_time(TimePoint now) { now_ = std::max(now_, now); }
  /// Sets what computing a hash unit was found to take, in seconds; 0: not known. It counts where
  /// ManagerConfig::unit_prefill_seconds is not stated.
  void learn_prefill(double unit_seconds) { learned_unit_seconds_ = unit_seconds; }
  /// Units of the request's prompt (AcquireRequest::keys) that are not committed yet; 0 for one that is not ready.
  [[nodiscard]] std::uint32_t prompt_left(RequestId id) const;
  /// What bringing up a block of the pool costs by now.
  void set_load_costs(const LoadCosts& costs, PoolId pool = {}) { at(pool).set_load_costs(costs); }
  /// Call after a batch of the above: serves who waits with what has become free.
  void settle();
  /// For blocks that the pool's store holds from before: CatalogRecovery::begin and CatalogRecovery::add.
  void begin_recovery(PoolId pool = {}) { at(pool).begin_recovery(); }
  void recover(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers, PoolId pool = {}) {
    at(pool).recover(blocks, numbers);
  }

  // ---- what is to be done, and what to know

  /// Filled by every call; its owner takes and clears each pool's.
  [[nodiscard]] Actions& actions(PoolId pool = {}) { return at(pool).actions(); }
  /// Pending requests that ended their wait; the owner takes and clears them.
  [[nodiscard]] std::vector<RequestEvent>& events() { return events_; }
  [[nodiscard]] TimePoint next_deadline() const;
  /// Transfers, loads and writes to storage under way, or requests that wait.
  [[nodiscard]] bool has_pending_work() const;
  /// For people: what is under way, and who waits.
  [[nodiscard]] std::string describe_pending() const;

  /// Poison mode: its owner overwrites slots as they become free (`device`, `arena`: those since the last call), and says by
  /// when that will be done.
  void remember_freed();
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena, PoolId pool = {});
  void overwritten_by(std::span<const SlotId> device, Fence fence, PoolId pool = {});

  /// Of the device's pool or the host tier's; what an acquire of so many blocks finds.
  [[nodiscard]] Usage usage(Tier tier, PoolId pool = {}) const { return at(pool).usage(tier); }
  /// Slots that a request of so many tokens needs.
  [[nodiscard]] static constexpr std::uint32_t blocks_for(std::uint64_t tokens, std::uint32_t block_tokens) {
    return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
  }
  /// Of the pool's tree. Looks at every node.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const { return residency(pool).tree().counts(); }
  /// For people: what is cached where, one line a node, down to `lines_max` of them.
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;

  [[nodiscard]] const ManagerConfig& config() const { return config_; }
  [[nodiscard]] const ManagerStats& stats() const { return stats_; }
  [[nodiscard]] std::size_t live_requests() const { return by_id_.size(); }
  [[nodiscard]] Ledger device_ledger(PoolId pool = {}) const { return residency(pool).pool(Tier::device).ledger(); }
  /// Of the host arena: the host tier's slots and the staging slots (held while in use) together.
  [[nodiscard]] Ledger host_ledger(PoolId pool = {}) const { return residency(pool).pool(Tier::host).ledger(); }
  /// Transfers that read a copy just now.
  [[nodiscard]] std::uint64_t readers() const;
  [[nodiscard]] const Residency& residency(PoolId pool = {}) const { return at(pool).residency(); }
  [[nodiscard]] std::size_t pool_count() const { return pools_.size(); }
  [[nodiscard]] std::size_t group_count() const { return rules_.size(); }
  /// Tokens of a hash unit; 1 for a manager that was given no groups, which does not know.
  [[nodiscard]] std::uint32_t unit_tokens() const { return unit_tokens_; }
  /// Memory of the books that grow with the cached blocks.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  enum class State : std::uint8_t { unused, waiting_for_room, loading, ready, failed };
  using Index = std::uint32_t;
  struct LoadRef {
    PoolId pool;
    Loads::LoadId load = 0;
    friend bool operator==(const LoadRef&, const LoadRef&) = default;
  };
  struct Request {
    RequestId id;
    State state = State::unused;
    std::vector<GroupPart> parts;          ///< by GroupId
    std::vector<std::vector<SlotId>> own;  ///< by PoolId: slots the request holds before it is ready, in the order of their use
    std::uint32_t rooms_waited_for = 0;    ///< pools that still owe it slots
    std::uint32_t key_count = 0;           ///< of acquire
    std::uint32_t hits = 0;                ///< blocks that come from the cache
    std::uint32_t blocks = 0;              ///< asked for in all
    std::uint32_t blocks_now = 0;          ///< that it has, or waits for
    std::vector<Tier> found;               ///< where each hit was found
    std::vector<LoadRef> loads;
    std::span<const BlockKey> keys;  ///< to plan again: the caller's during acquire, then those that are kept
    std::vector<BlockKey> kept_keys;
    std::uint32_t hit_blocks_max = 0;
    std::uint32_t new_blocks_max = 0;
    std::uint32_t external_blocks = 0;
    std::uint32_t encoder_tokens = 0;
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
  /// What a prompt finds in one group.
  struct GroupHit {
    Found found;                   ///< chained: the prefix; else sums over the unchained blocks
    std::vector<Found> unchained;  ///< of blocks [first, end)
    std::uint32_t first = 0;
    std::uint32_t end = 0;
    bool serves = true;
    bool looked_up = false;
    std::vector<Tier> tiers;  ///< of blocks [first, end)
  };

  [[nodiscard]] TieredPool& at(PoolId pool) { return *pools_.at(pool.value()); }
  [[nodiscard]] const TieredPool& at(PoolId pool) const { return *pools_.at(pool.value()); }
  [[nodiscard]] TieredPool& pool_of(std::size_t group) { return *pools_[rules_[group].config().pool.value()]; }
  [[nodiscard]] const TieredPool& pool_of(std::size_t group) const { return *pools_[rules_[group].config().pool.value()]; }

  [[nodiscard]] Result<Index> find(RequestId id) const;
  [[nodiscard]] Result<Index> find_ready(RequestId id) const;
  [[nodiscard]] Result<Index> find_with_table(RequestId id) const;
  [[nodiscard]] RequestStats stats_of(const Request& request) const;
  [[nodiscard]] Index new_request();
  void end(Index index, Fence last_use);
  void forget(Index index);
  [[nodiscard]] std::vector<std::pair<PoolId, SlotId>> own_slots(const Request& request) const;
  [[nodiscard]] static GroupId id_of(std::size_t group) { return GroupId{static_cast<std::uint16_t>(group)}; }
  [[nodiscard]] SlotId null_of(std::size_t group) const { return SlotId{pool_of(group).config().first_slot}; }
  [[nodiscard]] bool is_null(std::size_t group, SlotId slot) const {
    return slot == null_of(group) && pool_of(group).config().null_block;
  }

  [[nodiscard]] std::span<const BlockKey> keys_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t from) const;
  [[nodiscard]] BlockKey key_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block) const;
  [[nodiscard]] std::uint32_t look_up(std::span<const BlockKey> keys, Tier lowest) const;
  void look_up_group(std::size_t group, std::span<const BlockKey> keys, Tier lowest) const;
  void note_tiers(std::uint32_t hits) const;
  [[nodiscard]] std::uint32_t worth_loading(std::uint32_t hits) const;
  [[nodiscard]] bool prefill_is_stated() const { return config_.unit_prefill_seconds > 0; }
  [[nodiscard]] double unit_seconds() const { return prefill_is_stated() ? config_.unit_prefill_seconds : learned_unit_seconds_; }
  [[nodiscard]] TimePoint reads_wanted_by(const Request& request) const;
  void add_costs(std::size_t group) const;
  [[nodiscard]] std::uint32_t new_blocks(std::size_t group, const Request& request, std::uint32_t from) const;
  enum class Hold : bool { pin, unpin };
  void hold_hits(Hold hold);
  [[nodiscard]] bool could_ever_fit(const Request& request) const;
  void sum_needs(const Request& request) const;
  [[nodiscard]] bool can_promise_all() const;

  [[nodiscard]] Result<void> plan(Index index, std::span<const BlockKey> keys);
  void take_hits(Request& request, std::span<const BlockKey> keys, std::uint32_t hits);
  void handle_events(TieredPool& pool);
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
  void flush();
  void commit_chain(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  void commit_unchained(Request& request, std::size_t group, std::span<const BlockKey> keys, Fence written);
  void release_part(GroupPart& part, std::size_t group, Fence last_use);
  void give_up_before(GroupPart& part, std::size_t group, std::uint32_t first, Fence last_use);
  [[nodiscard]] Result<WriteBackId> write_back_request(const WriteBackOrder& order);
  [[nodiscard]] Result<WriteBackId> write_back_prefix(const WriteBackOrder& order);
  struct PinnedPrefix {
    PoolId pool;
    Prefix prefix;
  };
  struct Pin {
    std::vector<PinnedPrefix> prefixes;
    TimePoint until = never;
  };
  void end_pin(std::map<PinId, Pin>::iterator pin);
  struct Retention {
    std::vector<BlockKey> keys;
    TimePoint until = never;
  };
  void end_retention(std::map<RetentionId, Retention>::iterator retention);

  ManagerConfig config_;
  ManagerStats stats_;
  std::vector<RequestEvent> events_;
  KvEvents kv_events_;
  std::uint32_t unit_tokens_ = 1;
  std::vector<GroupRule> rules_;  ///< by GroupId
  std::uint32_t alignment_ = 1;   ///< of hits, in units
  bool single_ = true;            ///< one group, whose blocks are the units
  WriteBudget write_budget_;
  std::vector<std::unique_ptr<TieredPool>> pools_;
  std::unique_ptr<WriteBackJobs> write_backs_;
  UseClock use_clock_;
  TimePoint now_{};  ///< the latest we were told

  std::vector<Request> requests_;
  std::vector<Index> free_requests_;
  boost::unordered_flat_map<RequestId, Index, std::hash<RequestId>> by_id_;
  std::deque<Index> quarantined_;     ///< by the points they wait for
  IndexedHeap<TimePoint> deadlines_;  ///< of pending requests, by Index
  std::vector<Index> to_replan_;
  std::map<PinId, Pin> pins_;
  PinId last_pin_;
  std::map<RetentionId, Retention> retentions_;
  RetentionId last_retention_;
  std::uint64_t retained_blocks_ = 0;
  std::vector<std::uint64_t> pinned_;  ///< blocks, by PoolId
  CacheStatus status_ = CacheStatus::normal;
  Epoch epoch_;
  std::vector<Duplicate> duplicates_;
  mutable std::vector<GroupHit> hits_;               ///< scratch: by GroupId, of the last look_up()
  mutable std::vector<Tier> found_;                  ///< scratch: by block, of the last look_up()
  mutable std::vector<Tier> island_tier_;            ///< scratch: of one block, of a group whose blocks stand by themselves
  mutable std::vector<UnitCost> unit_costs_;         ///< scratch: by block, of the last worth_loading()
  mutable std::vector<BlockKey> group_keys_;         ///< scratch
  mutable std::vector<std::uint32_t> needs_;         ///< scratch: slots by PoolId
  std::vector<Copy> row_;                            ///< scratch
  std::vector<std::vector<LoadPart>> load_parts_;    ///< scratch: by GroupId
  std::vector<std::size_t> used_;                    ///< scratch: of Request::own, by PoolId
  std::vector<DeviceSlotAllocator::Served> served_;  ///< scratch
  std::vector<Loads::Event> load_events_;            ///< scratch
  double learned_unit_seconds_ = 0;
  std::uint64_t last_transfer_ = 0;
  std::uint64_t last_stamp_ = 0;
};

}  // namespace terrace
