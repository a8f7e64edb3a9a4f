#pragma once

#include "base/check.hpp"
#include "base/chunked_table.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "runtime/cache/index/companions.hpp"
#include "runtime/cache/index/duplicates.hpp"
#include "runtime/cache/index/quotas.hpp"
#include "runtime/cache/index/slot_allocator.hpp"
#include "runtime/cache/measure/miss_reasons.hpp"
#include "runtime/cache/measure/residency_sample.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/cache/types/kv_events.hpp"
#include "terrace/policies.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The next state of the slot of a fill that failed. `quarantine`: a transfer may still write to the slot.
enum class FailedSlot : bool { free, quarantine };

/// Records which block has a copy in which slot. It owns the prefix tree and the slot allocators of device and host. No other
/// class changes them, so they always agree. Each member that changes a copy is one transition of CopyState. Residency does not
/// decide when to change a copy: the classes of runtime/cache/pool do.
///
/// The slots of the host arena have two roles, with a budget each. Slots of the host tier hold its copies (states filling, ready
/// and quarantined: at most host_blocks). Staging slots hold blocks that pass through (state held, and lent slots: at most
/// staging_blocks).
///
/// A host copy that is being written to storage, or to a shared store, is *lent*. It stays an ordinary copy, which can be evicted
/// at any time. If it is evicted before the last write has ended, its slot becomes a staging slot and keeps the bytes until that
/// write ends. A lent slot counts as staging from the start, so an eviction always makes room in the host tier.
///
/// Example: a commit calls extend_pinned(), then adopt_added() with the slots that compute has filled. The copies are ready; a
/// later swap-out holds them (hold), fills host copies (begin_fill, publish), and drops the device copies (unhold, drop).
///
/// Threads: one.
class Residency {
 public:
  /// `sizes` are those of the pool. `events` outlives the Residency. Throws std::invalid_argument if `config` makes no eviction
  /// policy.
  Residency(const ManagerConfig& config, const PoolSizes& sizes, KvEvents& events);

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }
  /// The slots of the device, or those of the host arena.
  [[nodiscard]] const SlotAllocator& slots_of(Tier tier) const { return tier == Tier::device ? device_ : arena_; }

  [[nodiscard]] Copy copy(BlockRef block, Tier tier) const { return tree_.copy(block, tier); }
  [[nodiscard]] bool usable(BlockRef block, Tier tier) const { return copy(block, tier).usable(); }
  [[nodiscard]] bool stored(BlockRef block) const { return usable(block, Tier::storage); }
  /// The block is to be stored, but its write has not been started (begin_store).
  [[nodiscard]] bool wished(BlockRef block) const {
    const Copy now = copy(block, Tier::storage);
    return now.present() && wished_[now.slot().value()];
  }
  /// Storage has the block, or its write has been started. So the block survives the eviction of its other copies.
  [[nodiscard]] bool saved(BlockRef block) const { return copy(block, Tier::storage).present() && !wished(block); }

  /// The block survives without its copy in this memory tier: the other one has a copy, or the block is saved().
  [[nodiscard]] bool survives(BlockRef block, Tier without) const {
    return copy(block, without == Tier::device ? Tier::host : Tier::device).present() || saved(block);
  }

  [[nodiscard]] const Quotas& quotas() const { return quotas_; }
  /// Gives the tenant this quota, and replaces an earlier one. Looks at the whole tree. Call only if ranks() is true.
  void set_quota(TenantId tenant, TenantQuota quota);
  /// Returns false if the tenant has no quota.
  bool remove_quota(TenantId tenant);
  /// The eviction policies of both tiers.
  struct Policies {
    std::unique_ptr<EvictionPolicy> device;
    std::unique_ptr<EvictionPolicy> host;

    /// Returns true if both policies support priorities and tenants. Not every policy does.
    [[nodiscard]] bool rank() const { return device->knows_tenants() && host->knows_tenants(); }
  };
  /// Makes policies with `factory`, for the present sizes of the tiers. Throws std::invalid_argument if it makes none.
  [[nodiscard]] Policies make_policies(const PolicyFactory& factory) const;
  /// Evicts by these policies from now on. Looks at the whole tree. If there are quotas or retentions, they must rank().
  void set_policies(Policies policies);
  [[nodiscard]] bool ranks() const { return !tree_.flat() && policies_.rank(); }
  [[nodiscard]] bool host_admits(BlockRef block) { return tree_.admits(block, Tier::host); }
  [[nodiscard]] EvictionView eviction(Tier tier) const {
    return (tier == Tier::device ? policies_.device : policies_.host)->view();
  }
  /// Lets both policies do the work that they have deferred.
  void catch_up() {
    policies_.device->catch_up();
    policies_.host->catch_up();
  }

  // ---- prefixes

  /// Adds the blocks of `keys` that are missing after the prefix `at` (PrefixTree::extend), and pins the whole prefix.
  [[nodiscard]] Prefix extend_pinned(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group);
  /// The same as in PrefixTree. Each pin() needs one unpin() or unpin_incomplete() of the same length.
  void pin(Prefix prefix) { tree_.pin(prefix); }
  void unpin(Prefix prefix) { tree_.unpin(prefix); }
  /// Unpins a prefix that may have a gap: a block without the copy that the blocks after it depend on. The copies of these blocks
  /// are dropped, unless another request pins them. `missing`: a block of the prefix whose copy has just failed.
  void unpin_incomplete(Prefix prefix, std::optional<BlockRef> missing = std::nullopt);
  /// A companion has no uses of its own.
  void touch(Prefix prefix, std::uint64_t stamp) {
    if (!has_companions_ || !is_companion(prefix)) tree_.touch(prefix, stamp);
  }
  std::uint32_t expect(Prefix prefix, const ExpectedUse& use) { return tree_.expect(prefix, use); }
  void end_request(std::uint64_t stamp, std::uint64_t output_tokens) { tree_.end_request(stamp, output_tokens); }
  void retain(Prefix prefix, RetentionId id, Priority priority) { tree_.retain(prefix, id, priority); }
  void end_retention(Prefix prefix, RetentionId id) { tree_.end_retention(prefix, id); }
  /// Hides everything that is cached now (PrefixTree::hide_all). The sample forgets it.
  void hide_all();

  // ---- device and host copies

  /// absent → filling, in a slot that the caller holds.
  void begin_fill(BlockRef block, Tier tier, SlotId slot);
  /// The same in the host for neighbouring blocks of one node.
  void begin_swap_out(Run run, std::span<const SlotId> slots);
  /// The same on the device, by a load (`load` is its number) from this source.
  void begin_load(Run run, std::span<const SlotId> slots, std::uint32_t load, Source source);
  /// filling → ready.
  void publish(BlockRef block, Tier tier);
  /// The same for neighbouring blocks of one node.
  void publish(Run run, Tier tier);
  /// filling → absent: the bytes did not arrive.
  void fail_fill(BlockRef block, Tier tier, FailedSlot slot);
  /// The same for a host copy that may not be pinned any more. Copies that depend on it are dropped, too. A pinned copy is
  /// dropped when it is unpinned.
  void fail_host_fill(BlockRef block);
  /// absent → ready on the device, in a slot that the caller holds, and that compute has filled when it reaches `written`.
  void adopt(BlockRef block, SlotId slot, Fence written);
  /// The same for the last blocks of a prefix, which the last extend_pinned() added.
  void adopt_added(Prefix prefix, std::span<const SlotId> slots, Fence written);
  /// ready → absent, or after unhold_before_drop(). The slot becomes free, or staging if it is lent.
  void drop(BlockRef block, Tier tier);
  /// The same for neighbouring unpinned blocks of one node, on which no staying copy in the tier depends.
  void drop(Run victims, Tier tier);
  /// Under InclusionPolicy exclusive, a block on the device must not have a host copy, too: drops it if it is ready. Returns true
  /// if it did.
  bool drop_second(BlockRef block);
  /// A transfer begins to read the copy: ready → busy. A copy can have several readers.
  void hold(BlockRef block, Tier tier);
  /// The same for copies of neighbouring blocks of one node, none of which is evicting.
  void hold(Run run, Tier tier);
  /// A transfer has ended to read the copy. Returns true if that was the last reader: then busy → ready.
  bool unhold(BlockRef block, Tier tier);
  /// The same for host copies of neighbouring blocks of one node, from which the device is loaded, that have one reader each and
  /// are not evicting. If any is not like this, it returns false and changes nothing.
  [[nodiscard]] bool unhold_last(Run run);
  /// The same for the last reader. The caller drops the copy at once, so the tree does not get the state in between.
  void unhold_before_drop(BlockRef block, Tier tier) {
    TERRACE_CHECK(slots_in(tier).remove_reader(copy(block, tier).slot()) == 0);
  }
  /// The same for neighbouring blocks of one node whose copies have one reader each, and are all evicting. If they are not, it
  /// returns false and changes nothing.
  [[nodiscard]] bool unhold_before_drop(Run evicting, Tier tier) {
    return slots_in(tier).end_reads(slots_of_copies(evicting, tier), true);
  }
  /// The same as hold() and set_evicting(), at once. DeferredEviction::reader_gone ends that hold.
  void hold_evicting(BlockRef block, Tier tier);
  void hold_evicting(Run run, Tier tier);
  /// busy → evicting, or back. The caller drops an evicting copy when its last reader has ended.
  void set_evicting(BlockRef block, Tier tier, bool evicting);
  /// evicting → busy, because a request wants the copy. Returns false if the copy was not evicting.
  bool cancel_eviction(BlockRef block, Tier tier);

  /// Returns true if the block may have a copy in this tier: it is the first of its prefix, or the block before it has a copy in
  /// this tier or, for a host copy, on the device.
  [[nodiscard]] bool supported(BlockRef block, Tier tier) const;
  /// Ties `companion`, a block that stands alone in the Residency `in`, to `owner`, which has a copy here: each tier evicts the
  /// companion after all other blocks while it has the owner, and before all others while it has not. `ends_hit`: it is the last
  /// companion that a hit needs which ends after the owner. Does nothing if the owner is hidden.
  void tie(BlockRef owner, Residency& in, BlockRef companion, bool ends_hit = false);
  /// In this group, no hit ends after a block to which no such companion was tied. So the last blocks of a prefix can be of no
  /// use.
  void need_companions(GroupId group) { needs_companions_ = group; }
  [[nodiscard]] bool needs_companions() const { return needs_companions_.has_value(); }
  /// Returns true if no hit can end after this block.
  [[nodiscard]] bool ends_no_hit(BlockRef block) const {
    return needs_companions_ && tree_.group(block) == *needs_companions_ && !companions_.ends_hit(tree_.key(block));
  }
  /// Makes a block that stands alone a companion without an owner, unless it is one already.
  void make_companion(BlockRef block);
  /// Under InclusionPolicy lazy_exclusive: the block whose host copy is evicted first, because the block has a device copy, too.
  /// Nothing reads the host copy.
  [[nodiscard]] std::optional<BlockRef> duplicate() const { return duplicates_.first(); }
  /// Drops device and host copies of blocks below this one that are not supported any more, unless something reads or pins them.
  void drop_orphans_below(BlockRef block);

  // ---- slots that the caller holds, or that are quarantined

  /// Appends up to `count` free device slots to `out`, in state held (SlotAllocator::take_many).
  void take_device(std::uint32_t count, std::optional<SlotId> after, std::vector<SlotId>& out) {
    device_.take_many(count, after, SlotState::held, out);
  }
  /// The slots become free.
  void free_slot(Tier tier, SlotId slot) { slots_in(tier).put(slot); }
  void free_slots(Tier tier, std::span<const SlotId> slots) { slots_in(tier).put_all(slots); }
  /// held → quarantined. Device.
  void quarantine(SlotId slot) { device_.change(slot, SlotState::quarantined); }
  /// Compute that was launched up to `fence` may touch these device slots. Transfers to or from them wait for it.
  void raise_fences(std::span<const SlotId> slots, Fence fence) { device_.raise_fences(slots, fence); }
  /// For the poison mode: remembers from now on which slots became free.
  void remember_freed() {
    device_.remember_freed();
    arena_.remember_freed();
  }
  /// The slots that became free since the last call. Swaps the vectors, so that their memory is used again.
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena) {
    device_.take_freed(device);
    arena_.take_freed(arena);
  }

  // ---- sizes

  /// The device has slots [0, blocks) from now on (SlotAllocator::resize). Copies in higher slots are listed in retiring(), for
  /// PoolResizer to evict.
  void resize_device(std::uint32_t blocks);
  /// A copy in a slot that has to retire: on the device in a slot beyond its size, in the host in a closed slot. While the slot
  /// is in state ready, it holds this block. In any other state the copy has been dropped, and the entry is out of date.
  struct Retiring {
    BlockRef block;
    SlotId slot;
  };
  [[nodiscard]] const std::vector<Retiring>& retiring(Tier tier) const { return retiring_[index(tier)]; }
  /// Number of those copies that no pin covers. Looks at each.
  [[nodiscard]] std::uint64_t retiring_unpinned(Tier tier) const;
  /// Erases an entry that is out of date. The last entry takes its place.
  void erase_retired(Tier tier, std::size_t entry);
  /// Sets the wanted size of the host tier in blocks (host_blocks_wanted). Its real size (host_blocks) is limited by the open
  /// slots. If it becomes smaller, retire_host_slots() retires slots as they become free. No copy moves.
  void resize_host(std::uint32_t blocks);
  /// The memory of the arena is allocated and returned in chunks. open_host(): these slots have memory. close_host(): the memory
  /// of these slots is to be returned; copies in them are listed in retiring(), for PoolResizer to evict. At least
  /// staging_blocks slots stay open. Both take time in proportion to the number of slots; close_host() also in proportion to the
  /// size of the tree.
  void open_host(SlotSpan slots);
  void close_host(SlotSpan slots);
  /// Retires free slots of the arena that neither role needs any more, closed ones first. Returns true if anything changed.
  bool retire_host_slots();
  /// Returns true if retire_host_slots() would change anything.
  [[nodiscard]] bool host_slots_can_retire() const {
    return arena_.in_use() > host_slots_needed() || arena_.retires_closed_instead();
  }
  [[nodiscard]] std::uint32_t host_blocks() const { return host_blocks_; }
  [[nodiscard]] std::uint32_t host_blocks_wanted() const { return host_blocks_wanted_; }
  [[nodiscard]] std::uint32_t staging_blocks() const { return staging_blocks_; }
  [[nodiscard]] std::uint64_t host_retiring() const { return arena_.in_use() - (std::uint64_t{host_blocks_} + staging_blocks_); }

  // ---- the arena's two roles

  [[nodiscard]] std::uint64_t host_used() const {
    return arena_.count(SlotState::filling) + arena_.count(SlotState::ready) + arena_.count(SlotState::quarantined);
  }
  [[nodiscard]] std::uint64_t host_free() const { return host_blocks_ - std::min<std::uint64_t>(host_used(), host_blocks_); }
  [[nodiscard]] std::uint64_t staging_free() const { return staging_blocks_ - arena_.count(SlotState::held) - lent_count_; }
  /// Takes a slot, in state held, that the caller fills as a host copy at once; nothing if the tier is full. Swap-outs take a
  /// prefix from its end, loads take it from its start. `order` names the direction. In both cases the slots ascend along the
  /// prefix, so that neighbouring blocks are copied in one run.
  enum class PrefixOrder : bool { from_begin, from_end };
  [[nodiscard]] std::optional<SlotId> take_host(PrefixOrder order);
  /// The same for up to `count` slots, for swap-outs of neighbouring blocks. The slots are appended to `out`, in ascending order.
  void take_host(std::uint32_t count, std::vector<SlotId>& out);
  /// Takes a staging slot, in state held; nothing if staging is full.
  [[nodiscard]] std::optional<SlotId> take_staging();
  /// Lends the block's host copy and returns its slot; nothing if staging is full. Two writers can borrow one copy.
  [[nodiscard]] std::optional<SlotId> lend_host(BlockRef block);
  [[nodiscard]] bool lent(SlotId slot) const { return slot.value() < lent_.size() && lent_[slot.value()]; }
  /// Ends the use of a slot that take_staging() or lend_host() returned.
  void end_staging(SlotId slot);

  // ---- stored blocks. Each has a number, which stands for the slot in its Copy.

  /// absent → filling, as a wish: the write has not been started. Returns the block's number, valid until forget_stored().
  std::uint32_t begin_store(BlockRef block);
  /// The write of the block starts. The block is not wished() any more, but saved().
  void start_store(BlockRef block) { wished_[copy(block, Tier::storage).slot().value()] = false; }
  /// filling → ready.
  void publish_stored(BlockRef block);
  /// filling or ready → absent.
  void forget_stored(BlockRef block);
  struct Restored {
    Prefix prefix;
    std::uint64_t blocks = 0;  ///< number of blocks that got a number
  };
  /// Storage has the blocks of `keys`, which follow the prefix `at`, from an earlier process. Adds the blocks that the tree does
  /// not have, makes their storage copies ready, and sets numbers[i] for each. A block that has a storage copy already keeps its
  /// number, and gets none here.
  Restored restore(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group,
                   std::span<std::optional<std::uint64_t>> numbers);
  /// The block with this number, if there is one.
  [[nodiscard]] std::optional<BlockRef> stored_block(std::uint32_t number) const;

  // ---- sample of how long copies stay

  [[nodiscard]] const ResidencySample& sample() const { return sample_; }
  [[nodiscard]] ResidencySample& sample() { return sample_; }
  /// The same as ResidencySample::follow, for the number of blocks that device and host can hold now.
  void follow_sample(std::uint32_t one_in) { sample_.follow(one_in, std::uint64_t{device_.capacity()} + host_blocks_); }
  /// Reports evictions and other changes of copies to `misses` from now on.
  void tell(MissReasons& misses) { misses_ = &misses; }

  /// Bytes of memory of tree, slot allocators, policies and sample.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  [[nodiscard]] bool is_companion(Prefix prefix) const;
  /// The tier gets copies of these blocks, or begins to evict them (unwanted), or keeps them after all.
  void want_companions(Run owners, Tier tier, Companion companion) {
    if (!companions_.empty()) tell_companions(owners, tier, companion);
  }
  /// The tier loses its copies of these blocks.
  void lose_owners(Run owners, Tier tier) {
    if (!companions_.empty()) forget_owners(owners, tier);
  }
  void forget_owners(Run owners, Tier tier);
  void tell_companions(Run owners, Tier tier, Companion companion);
  [[nodiscard]] static Run only(BlockRef block) { return {block.node, block.depth, block.depth + 1}; }
  [[nodiscard]] SlotAllocator& slots_in(Tier tier) { return tier == Tier::device ? device_ : arena_; }
  [[nodiscard]] std::vector<SlotId>& slots_of_copies(Run run, Tier tier);
  [[nodiscard]] std::uint32_t number_stored(BlockRef block);
  void restore_added(Prefix prefix, std::span<std::optional<std::uint64_t>> numbers);
  void show_state(BlockRef block, Tier tier, SlotId slot);
  /// A copy of the block has changed: its host copy may be a duplicate now, or no longer one.
  void update_duplicate(BlockRef block);
  void update_duplicates(Run run);
  void forget_duplicates(Run run);
  /// Returns true if events, sample or misses must be told when copies come and go.
  [[nodiscard]] bool watched() const { return events_.on() || sample_.on() || misses_ != nullptr; }
  /// Returns false if the slot was not lent.
  bool unlend(SlotId slot);
  void record(KvEvent::Kind kind, BlockRef block, Tier tier);
  void record(KvEvent::Kind kind, Run run, Tier tier);
  void add_event(KvEvent::Kind kind, BlockRef block, Tier tier);
  void check_closure(BlockRef block) const;
  void become_ready(BlockRef block, Tier tier, SlotId slot);
  void note_retiring(BlockRef block, Tier tier, SlotId slot);
  void list_retiring(Tier tier);
  void follow_host_slots();
  /// Number of slots of the arena that its two roles need. At least as many as are taken: if more slots are in use, one of them
  /// is free.
  [[nodiscard]] std::uint64_t host_slots_needed() const {
    return std::max<std::uint64_t>(host_used(), host_blocks_) + staging_blocks_;
  }

  std::uint32_t host_blocks_;  ///< at most host_blocks_wanted_; limited by the slots that have memory
  std::uint32_t host_blocks_wanted_;
  std::uint32_t staging_blocks_;
  std::uint32_t first_slot_;
  InclusionPolicy inclusion_;
  Policies policies_;
  PrefixTree tree_;
  Quotas quotas_{tree_};
  SlotAllocator device_;
  SlotAllocator arena_;
  Companions companions_;        ///< of the blocks here
  bool has_companions_ = false;  ///< there have been companions among the blocks here
  std::optional<GroupId> needs_companions_;
  Duplicates duplicates_;  ///< empty under other inclusion policies
  KvEvents& events_;       ///< gets an event when a copy becomes usable, and when it is dropped
  ResidencySample sample_;
  MissReasons* misses_ = nullptr;  ///< null: the reasons of misses are not recorded
  std::vector<bool> lent_;         ///< by slot
  /// By slot: number of writers that still read it, while it is lent and after the copy was evicted.
  std::vector<std::uint8_t> borrowers_;
  std::uint64_t lent_count_ = 0;
  ChunkedTable<std::optional<BlockRef>> stored_;  ///< by number
  std::vector<bool> wished_;                      ///< by number
  std::vector<std::uint32_t> free_numbers_;
  std::array<std::vector<Retiring>, 2> retiring_;  ///< by tier
  std::vector<BlockRef> below_;                    ///< scratch
  struct Orphans {
    std::vector<std::array<bool, 2>> goes;                         ///< by index in below_, and by tier
    boost::unordered_flat_map<std::uint64_t, std::size_t> places;  ///< by block: its index in below_
  };
  Orphans orphans_;                          ///< scratch
  std::vector<SlotId> slots_;                ///< scratch
  std::array<std::vector<Copy>, 2> copies_;  ///< scratch, by tier
};

}  // namespace terrace
