#pragma once

#include "radix/eviction/eviction_policy.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "runtime/measure/residency_sample.hpp"
#include "runtime/residency/quotas.hpp"
#include "runtime/residency/slot_allocator.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/kv_events.hpp"

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

/// What happens to the slot of a copy that did not come about.
enum class FailedSlot : bool { free, quarantine };

/// Which block has a copy where: the prefix tree and the pools of slots, changed together so that they always agree. Each
/// member is one arrow of the copy's states; when to take it is others' business.
///
/// The host arena is one pool of slots in two roles with a budget each: copies of the host tier (filling, ready, quarantined:
/// at most host_blocks) and staging (held, and lent: at most staging_blocks).
///
/// A host copy that is written to storage is *lent*: it stays an ordinary copy, which may be evicted at any time. Then its slot
/// becomes a staging slot, with the bytes, until the write has ended. A lent slot counts against the budget of staging from the
/// beginning, so that this never takes room from the host tier. Threads: one.
class Residency {
 public:
  /// `events` outlives it.
  Residency(const ManagerConfig& config, KvEvents& events);

  /// To look at. All changes go through the members below.
  [[nodiscard]] const PrefixTree& tree() const { return tree_; }
  /// The slots of the device, or those of the host arena. To look at, as the tree.
  [[nodiscard]] const SlotAllocator& pool(Tier tier) const { return tier == Tier::device ? device_ : arena_; }

  [[nodiscard]] Copy copy(BlockRef block, Tier tier) const { return tree_.copy(block, tier); }
  [[nodiscard]] bool usable(BlockRef block, Tier tier) const { return copy(block, tier).usable(); }
  [[nodiscard]] bool stored(BlockRef block) const { return usable(block, Tier::storage); }
  /// The block is to be stored, and nothing has been done for that yet.
  [[nodiscard]] bool wished(BlockRef block) const {
    const Copy now = copy(block, Tier::storage);
    return now.present() && wished_[now.slot().value()];
  }
  /// Storage has the block, or is being given it, whatever becomes of the other copies once nothing reads them.
  [[nodiscard]] bool saved(BlockRef block) const { return copy(block, Tier::storage).present() && !wished(block); }

  /// Says whose copies go first where tenants have quotas.
  [[nodiscard]] const Quotas& quotas() const { return quotas_; }
  /// Gives the tenant this quota, in place of one it had. Looks at the whole tree. Call only where ranks() is true.
  void set_quota(TenantId tenant, TenantQuota quota);
  /// Returns false if the tenant has no quota.
  bool remove_quota(TenantId tenant);
  /// Whether what goes first goes by priority and tenant, too: not under every policy.
  [[nodiscard]] bool ranks() const { return device_policy_->knows_tenants() && host_policy_->knows_tenants(); }

  // ---- prefixes

  /// Adds the blocks of `keys` that are missing behind the prefix `at` (PrefixTree::extend), and pins the whole prefix.
  [[nodiscard]] Prefix extend_pinned(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group);
  /// As in PrefixTree. Each pin needs one unpin() or one unpin_incomplete() of the same length.
  void pin(Prefix prefix) { tree_.pin(prefix); }
  void unpin(Prefix prefix) { tree_.unpin(prefix); }
  /// Unpins a prefix that may have a gap: a block without what the blocks after it depend on. These are dropped, unless another
  /// request pins them. `missing`: a block of the prefix whose copy has just failed.
  void unpin_incomplete(Prefix prefix, std::optional<BlockRef> missing = std::nullopt);
  void touch(Prefix prefix, std::uint64_t stamp) { tree_.touch(prefix, stamp); }
  void retain(Prefix prefix, RetentionId id, Priority priority) { tree_.retain(prefix, id, priority); }
  void end_retention(Prefix prefix, RetentionId id) { tree_.end_retention(prefix, id); }
  /// Hides everything that is cached now (PrefixTree::hide_all). The sample forgets it.
  void hide_all();

  // ---- device and host copies

  /// absent → filling, in a slot that the caller holds.
  void begin_fill(BlockRef block, Tier tier, SlotId slot);
  /// The same on the device, by a load (`load` is its number) from the tier `source`.
  void begin_load(BlockRef block, SlotId slot, std::uint32_t load, Tier source);
  /// filling → ready.
  void publish(BlockRef block, Tier tier);
  /// filling → absent.
  void fail_fill(BlockRef block, Tier tier, FailedSlot slot);
  /// absent → ready on the device, in a slot that the caller holds, and that compute has filled when it reaches `written`.
  void adopt(BlockRef block, SlotId slot, Fence written);
  /// The same for the last blocks of a prefix, which the last extend_pinned() added.
  void adopt_added(Prefix prefix, std::span<const SlotId> slots, Fence written);
  /// ready → absent; nothing may be reading it.
  void drop(BlockRef block, Tier tier);
  /// The same for a run of victims.
  void drop(Run victims, Tier tier);
  /// A transfer reads the copy: ready → busy.
  void hold(BlockRef block, Tier tier);
  /// It does no more; with the last of them busy → ready. True where nothing reads it now.
  bool unhold(BlockRef block, Tier tier);
  /// The copy goes, or does not, when its last reader is done; say so while it has one.
  void set_evicting(BlockRef block, Tier tier, bool evicting);
  /// The copy is wanted after all. True where it was evicting.
  bool cancel_eviction(BlockRef block, Tier tier);

  /// Closure: whether the block before it has a copy in this tier or above (the first block of a prefix needs none).
  [[nodiscard]] bool supported(BlockRef block, Tier tier) const;
  /// Gives up the device and host copies below this block that lost their support, where nothing reads or pins them.
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
  /// Compute launched up to `fence` may touch these device slots, whatever is in them.
  void raise_fences(std::span<const SlotId> slots, Fence fence) { device_.raise_fences(slots, fence); }
  /// For the poison mode: remembers from now on which slots became free.
  void remember_freed();
  /// The slots that became free since the last call. Swaps the vectors, so that their memory is used again.
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena);

  // ---- sizes

  /// The device pool is slots [0, blocks) from now on (SlotAllocator::resize). What of the cache is in slots from there on is in
  /// `retiring()`, for others to give up.
  void resize_device(std::uint32_t blocks);
  /// A device copy that was matched in its slot when that was to be retired, or came to be since. Some have gone: those whose
  /// slot is not ready any more. While it is, the block is the same.
  struct Retiring {
    BlockRef block;
    SlotId slot;
  };
  [[nodiscard]] const std::vector<Retiring>& retiring() const { return retiring_; }
  /// Of them, those that nobody pins. Looks at each.
  [[nodiscard]] std::uint64_t retiring_unpinned() const { return unpinned_of(retiring_, device_); }
  /// The host tier is to have so many of the arena's slots: it has them as far as they are open. The arena's pool follows, by
  /// retire_host_slots() as far as it becomes smaller. No copy moves.
  void resize_host(std::uint32_t blocks);
  /// The arena's memory comes and goes by chunks. Open: there is memory for these slots. Close: it is to go; what of the cache is
  /// there is in `closing_host()`, for others to give up. At least staging_blocks stay open. Time: an operator's step.
  void open_host(SlotSpan slots);
  void close_host(SlotSpan slots);
  [[nodiscard]] const std::vector<Retiring>& closing_host() const { return closing_host_; }
  /// Takes an entry whose slot is not ready any more out of `retiring()` (device) or `closing_host()` (host). The last entry
  /// moves to its place.
  void erase_retired(Tier tier, std::size_t entry);
  [[nodiscard]] std::uint64_t closing_host_unpinned() const { return unpinned_of(closing_host_, arena_); }
  /// Retires the arena's slots that neither role will need, closed ones first. True where anything changed.
  bool retire_host_slots();
  [[nodiscard]] std::uint32_t host_blocks() const { return host_blocks_; }
  [[nodiscard]] std::uint32_t host_blocks_wanted() const { return host_blocks_wanted_; }
  [[nodiscard]] std::uint32_t staging_blocks() const { return staging_blocks_; }
  [[nodiscard]] std::uint64_t host_retiring() const { return arena_.in_use() - (std::uint64_t{host_blocks_} + staging_blocks_); }

  // ---- the arena's two roles

  [[nodiscard]] std::uint64_t host_used() const;
  [[nodiscard]] std::uint64_t host_free() const { return host_blocks_ - std::min<std::uint64_t>(host_used(), host_blocks_); }
  [[nodiscard]] std::uint64_t staging_free() const { return staging_blocks_ - arena_.count(SlotState::held) - lent_count_; }
  /// A held slot, to be filled as a host copy at once. Prefixes go down from their end and come up from their beginning: told
  /// which, the pool lays both out in ascending order, so that neighbours are copied in one run.
  enum class PrefixOrder : bool { from_begin, from_end };
  [[nodiscard]] std::optional<SlotId> take_host(PrefixOrder order);
  /// A held slot for something on its way through.
  [[nodiscard]] std::optional<SlotId> take_staging();
  /// Lends the block's host copy. Its slot, or nothing where staging is full.
  [[nodiscard]] std::optional<SlotId> lend_host(BlockRef block);
  [[nodiscard]] bool lent(SlotId slot) const { return slot.value() < lent_.size() && lent_[slot.value()]; }
  /// Ends the use of a slot of take_staging() or lend_host().
  void end_staging(SlotId slot);

  // ---- stored blocks, known by a number of ours

  /// absent → filling, as a wish: nothing is done for it yet. The number stays the block's until forget_stored().
  std::uint32_t begin_store(BlockRef block);
  /// The block's bytes are being taken to storage: from now on it is saved().
  void start_store(BlockRef block) { wished_[copy(block, Tier::storage).slot().value()] = false; }
  void publish_stored(BlockRef block);
  void forget_stored(BlockRef block);
  struct Restored {
    Prefix prefix;
    std::uint64_t blocks = 0;  ///< that got a number
  };
  /// Storage has the blocks of `keys`, which follow the prefix `at`, from before: adds them to the tree where they are missing,
  /// and sets the number of each. A block that is in storage already keeps its number, and gets none here.
  Restored restore(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group,
                   std::span<std::optional<std::uint64_t>> numbers);
  /// The block that has this number, if any has.
  [[nodiscard]] std::optional<BlockRef> stored_block(std::uint32_t number) const;

  // ---- what becomes of copies, sampled

  [[nodiscard]] const ResidencySample& sample() const { return sample_; }
  /// As ResidencySample::set_now.
  void set_sample_time(std::uint64_t requests) { sample_.set_now(requests); }
  /// As ResidencySample::follow, of as many blocks as device and host have room for now.
  void follow_sample(std::uint32_t one_in) { sample_.follow(one_in, std::uint64_t{device_.capacity()} + host_blocks_); }
  /// A request hit these blocks of a prefix.
  void used(std::span<const BlockKey> keys);

  /// Memory of the books: tree, pools, policies.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  [[nodiscard]] SlotAllocator& slots_in(Tier tier) { return tier == Tier::device ? device_ : arena_; }
  [[nodiscard]] std::uint32_t number_stored(BlockRef block);
  void restore_added(Prefix prefix, std::span<std::optional<std::uint64_t>> numbers);
  void show_state(BlockRef block, Tier tier, SlotId slot);
  /// Somebody wants to know what becomes of each block.
  [[nodiscard]] bool watched() const { return events_.on() || sample_.on(); }
  /// True where it was.
  bool unlend(SlotId slot);
  void record(KvEvent::Kind kind, BlockRef block, Tier tier);
  void record(KvEvent::Kind kind, Run run, Tier tier);
  void add_event(KvEvent::Kind kind, BlockRef block, Tier tier);
  void check_closure(BlockRef block) const;
  void note_retiring(BlockRef block, Tier tier, SlotId slot);
  [[nodiscard]] std::uint64_t unpinned_of(std::span<const Retiring> entries, const SlotAllocator& slots) const;
  void follow_host_slots();

  std::uint32_t host_blocks_;  ///< of those that are wanted, the ones there is memory for
  std::uint32_t host_blocks_wanted_;
  std::uint32_t staging_blocks_;
  std::unique_ptr<EvictionPolicy> device_policy_;
  std::unique_ptr<EvictionPolicy> host_policy_;
  PrefixTree tree_;
  Quotas quotas_{tree_};
  SlotAllocator device_;
  SlotAllocator arena_;
  KvEvents& events_;  ///< a copy that matches is one, and so is its end
  ResidencySample sample_;
  std::vector<bool> lent_;  ///< by slot
  std::uint64_t lent_count_ = 0;
  std::vector<std::optional<BlockRef>> stored_;
  std::vector<bool> wished_;  ///< by number
  std::vector<std::uint32_t> free_numbers_;
  std::vector<Retiring> retiring_;
  std::vector<Retiring> closing_host_;  ///< the same of the arena's closed slots
  std::vector<BlockRef> below_;         ///< scratch
  struct Orphans {
    std::vector<std::array<bool, 2>> goes;                         ///< by place in below_, and by tier
    boost::unordered_flat_map<std::uint64_t, std::size_t> places;  ///< in below_, by block
  };
  Orphans orphans_;            ///< scratch
  std::vector<SlotId> slots_;  ///< scratch
};

}  // namespace terrace
