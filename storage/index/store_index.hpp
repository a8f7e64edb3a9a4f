#pragma once

#include "base/free_slots.hpp"
#include "base/indexed_heap.hpp"
#include "base/key_table.hpp"
#include "base/large_memory.hpp"
#include "terrace/block_store.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// The index of a store: the slot of each key, the parents of blocks, and the order of eviction. It holds no block data, does no
/// I/O, emits no events and reads no clock; its time is the number of calls to advance().
///
/// place() takes the slot after the parent's slot if that is free, so that the blocks of a prefix are adjacent. Otherwise it
/// takes the lowest free slot. Leaves (ready blocks without a stored child or a child that is being written) that no operation
/// holds are in a heap. The least recently used leaf is on top; of two leaves used at the same time, the deeper one.
///
/// Invariant: a `ready` entry has depth 0 or a `ready` parent. A `writing` or `awaiting_parent` entry has depth 0 or a parent
/// that is `writing`, `awaiting_parent` or `ready`. check_invariants() checks every entry.
///
/// Threads: one. Errors: see place(). Cost of a call during service: O(log n) for each block that it changes; count_orphans() and
/// for_each_ready() visit every slot.
class StoreIndex {
 public:
  ///   absent --place()--> writing --data_arrived(), parent ready---------------------------------> ready
  ///                          \------data_arrived()--> awaiting_parent --the parent becomes ready--> ready
  ///
  ///   writing, awaiting_parent, ready --drop(), no operation holds it--> absent
  ///                                   \-drop(), an operation holds it--> removing --last release()--> absent
  ///                                                                              \--the same, after retire_slot()--> bad (final)
  ///
  ///   absent, closed, bad --lose()--> lost (final): the device of the slot is gone
  ///
  /// limit() bounds how many slots may be in use. While more are in use, a slot that would become absent becomes `closing`:
  ///
  ///   absent <--open()-- closed <--close()-- closing <-- absent, or any arrow above that leads to absent
  ///      ^                                      |
  ///      \--------------open()-----------------/
  enum class State : unsigned char { absent, writing, awaiting_parent, ready, removing, bad, closing, closed, lost };
  static constexpr std::size_t state_count = 9;

  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  /// The key of the parent is in the parent's entry; see block().
  struct Entry {
    BlockKey key;
    TenantId tenant;
    std::uint64_t last_use = 0;
    std::uint64_t write_token = 0;  ///< token of the last write of the block that was not refused, or set by Adopt
    std::uint32_t depth = 0;
    std::uint32_t operations = 0;  ///< number of operations that may access the slot; see hold()
    std::uint32_t parent = none;   ///< slot numbers, as in the next three members
    std::uint32_t first_child = none;
    std::uint32_t next_sibling = none;
    std::uint32_t previous_sibling = none;
    GroupId group = {};
    State state = State::absent;
    bool marked_for_removal = false;  ///< the block is removed when its write has ended; it accepts no more children
    bool slot_retired = false;        ///< the slot must not be used again
  };

  struct Evicted {
    BlockKey key;
    std::uint64_t write_token = 0;
  };

  struct Freed {
    SlotId slot;
    std::optional<Evicted> evicted;  ///< the block that was evicted to free the slot
  };

  struct Dropped {
    SlotId slot;
    BlockKey key;
    State was;
    std::uint64_t write_token = 0;
  };

  explicit StoreIndex(std::uint32_t capacity);

  /// The number of all slots, including closed and lost ones. Slots are numbered from 0.
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(entries_.size()); }
  /// The number of slots that are neither closed nor lost.
  [[nodiscard]] std::uint32_t capacity() const { return slots() - count(State::closed) - count(State::lost); }
  [[nodiscard]] const Entry& at(SlotId slot) const { return entries_[slot.value()]; }
  /// The slot must have a block that is writing, awaiting its parent, or ready.
  [[nodiscard]] StoredBlock block(SlotId slot) const;
  [[nodiscard]] std::uint32_t count(State state) const { return counts_[static_cast<std::size_t>(state)]; }
  /// Free slots. place() can get further slots by eviction; they are not counted here.
  [[nodiscard]] std::uint32_t free() const { return free_.size(); }

  /// The slot of a block that is writing, awaiting its parent, or ready.
  [[nodiscard]] std::optional<SlotId> find(const BlockKey& key) const;

  /// The current time, which use() and place() record. The store calls advance() once in each of its calls, so all blocks named
  /// in one call are equally old.
  [[nodiscard]] std::uint64_t now() const { return now_; }
  /// Increments the time. It stops at the highest number, which only a crafted catalog can reach; after that, all uses are
  /// equally old.
  void advance() { advance_past(now_); }
  void advance_past(std::uint64_t time) {
    if (now_ <= time) now_ = std::max(time, time + 1);
  }

  /// Finds a slot for a block that is not in the index, and evicts one leaf if no slot is free. The block is then `writing`, and
  /// its write holds it once. Fails: parent_missing (the parent is not in the index, is marked for removal, or is not exactly one
  /// level up), full. A failure changes nothing.
  [[nodiscard]] Result<Freed> place(const StoredBlock& block);

  /// Reports that the bytes of a `writing` block are in its slot; this ends the hold of its write. Appends the blocks that became
  /// `ready`, parents before children: either none, or the block itself and all descendants that waited for it.
  void data_arrived(SlotId slot, std::vector<SlotId>& became_ready);

  /// Removes a block and all its descendants. Appends them to `gone`, children first.
  void drop(SlotId slot, std::vector<Dropped>& gone);

  /// Begin and end of an operation that accesses the slot. A held block is not evicted, and its slot is not reused.
  void hold(SlotId slot);
  void release(SlotId slot);
  /// Forbids any use of this slot after it is released. The block must be `removing`.
  void retire_slot(SlotId slot);
  /// Marks a block for removal. The block must be `writing` or `awaiting_parent`.
  void mark_for_removal(SlotId slot);
  /// Records that the block is used now.
  void use(SlotId slot);
  /// Sets the token by which the owner identifies the block. Evicted and Dropped return it.
  void set_write_token(SlotId slot, std::uint64_t token) { entries_[slot.value()].write_token = token; }

  /// Puts a block back into the slot where a catalog has it, in any order. All restores come before any other use of the index,
  /// and finish_restore() ends them. Of several blocks with the same key, the index keeps the block with the lowest depth, then
  /// the most recently used one, then the one in the lowest slot. Returns the slot of the block that it does not keep, if any;
  /// that slot is free.
  std::optional<SlotId> restore(SlotId slot, const StoredBlock& block, std::uint64_t last_use);
  /// Makes the next restore() of a block with this key faster. Some time must pass in between.
  void expect(const BlockKey& key) const { slots_.prefetch(key); }
  /// Links the restored blocks to their parents. Blocks that lack an ancestor are dropped: appends their slots, which are free
  /// again.
  void finish_restore(std::vector<SlotId>& dropped);

  /// Visits the slot of every ready block, depth first: all descendants of a block come directly after it.
  template <class Visit>
  void for_each_ready(Visit visit) const;

  /// Counts ready blocks whose parent is not ready, or is not found by its key; the result must be 0.
  [[nodiscard]] std::uint64_t count_orphans() const;

  // The next members change the number of slots in use. Any slots may be closed; the most recently used blocks stay.

  /// Sets the largest number of slots that are neither closed nor closing. Excess slots close by shrink(), or when they become
  /// free.
  void limit(std::uint32_t slots) { limit_ = slots; }
  [[nodiscard]] std::uint32_t limit() const { return limit_; }
  /// The number of slots that must still be closed, in addition to those that are closing.
  [[nodiscard]] std::uint32_t excess() const {
    const std::uint32_t open = capacity() - count(State::closing);
    return open > limit_ ? open - limit_ : 0;
  }
  /// Begins to close one slot if there is an excess: the highest free slot, or else the slot of the least recently used leaf.
  /// Returns nothing if there is no excess, or if no block may be evicted now.
  [[nodiscard]] std::optional<Freed> shrink();
  /// Returns the slots that began to close since the last call. The owner must close() or open() each of them once. The vectors
  /// are swapped.
  void take_closing(std::vector<SlotId>& closing);
  void close(SlotId slot);
  /// Makes a slot free. It must be closing, or returned by take_closed().
  void open(SlotId slot);
  /// Takes up to `count` closed slots, the lowest first. The caller must open() or put_closed() each of them.
  void take_closed(std::uint32_t count, std::vector<SlotId>& out) { closed_.take_many(count, std::nullopt, out); }
  void put_closed(SlotId slot) { closed_.put(slot); }
  [[nodiscard]] std::uint32_t closed_to_take() const { return closed_.size(); }
  /// Closes a free slot at once.
  void close_free(SlotId slot);
  /// Marks the slot as lost because its device is gone. Returns false and changes nothing if a block, an operation, or the caller
  /// of take_closed() still has the slot.
  bool lose(SlotId slot);
  /// Adds the slots from slots() up to `slots`. They are closed, and count as taken by take_closed().
  void extend(std::uint32_t slots);

  void check_invariants() const;

 private:
  struct Priority {
    std::uint64_t last_use;
    std::uint32_t depth;
    friend bool operator<(const Priority& a, const Priority& b) {
      return a.last_use != b.last_use ? a.last_use < b.last_use : a.depth > b.depth;
    }
  };

  using Slots = KeyTable<SlotId>;
  struct Child {
    std::uint32_t slot;
    BlockKey parent;
  };

  [[nodiscard]] Entry& entry(std::uint32_t slot) { return entries_[slot]; }
  /// Returns the slot of the block with this key, in whatever state, or Slots::none.
  [[nodiscard]] SlotId slot_of(const BlockKey& key) const {
    return slots_.find(key, [&](SlotId slot) { return at(slot).key == key; });
  }
  [[nodiscard]] bool evictable(const Entry& e) const {
    return e.state == State::ready && e.operations == 0 && e.first_child == none;
  }
  void set_block(std::uint32_t slot, const StoredBlock& block);
  /// The slot of the parent, or `none` if the depth is 0. Returns nothing if the block has no parent to which it could be linked.
  [[nodiscard]] std::optional<std::uint32_t> parent_of(const StoredBlock& block) const;
  void set_state(std::uint32_t slot, State state);
  void consider(std::uint32_t slot);                    ///< adds the slot to the heap or removes it, as its state requires
  void link(std::uint32_t slot, std::uint32_t parent);  ///< makes the slot's block a child; the parent may be a leaf no more
  void link_restored(std::vector<std::uint32_t>& orphans);
  void unlink(std::uint32_t slot);
  enum class Reuse : bool { no, yes };
  /// Removes a block without children from everything except its slot, which stays in use until it is released.
  void forget(std::uint32_t slot, Reuse reuse = Reuse::no);
  /// Evicts the least recently used leaf, of which there must be one. Its parent may become a leaf, unless it is `in_use`.
  Freed evict_leaf(Reuse reuse, std::uint32_t in_use = none);
  void begin_closing(std::uint32_t slot);
  void number_closed();
  /// With Reuse::yes the slot becomes free even if the limit is exceeded, because the caller takes it at once.
  void free_slot(std::uint32_t slot, Reuse reuse = Reuse::no);

  std::vector<Entry, LargeAllocator<Entry>> entries_;  ///< by slot
  Slots slots_;
  FreeSlots free_;
  FreeSlots closed_;             ///< closed slots that have not been taken
  std::vector<SlotId> closing_;  ///< slots that take_closing() has not returned yet
  std::uint32_t limit_;
  IndexedHeap<Priority> leaves_;
  std::array<std::uint32_t, state_count> counts_{};
  std::uint64_t now_ = 1;
  // Between the first restore() and finish_restore().
  std::vector<Child> apart_;         ///< blocks that are not linked to their parent yet
  std::vector<std::uint32_t> ends_;  ///< among others, all slots that may have leaves
};

template <class Visit>
void StoreIndex::for_each_ready(Visit visit) const {
  std::vector<std::uint32_t> path;
  for (std::uint32_t root = 0; root < slots(); ++root) {
    if (entries_[root].state != State::ready || entries_[root].parent != none) continue;
    path.push_back(root);
    while (!path.empty()) {
      const std::uint32_t at = path.back();
      const Entry& e = entries_[at];
      path.pop_back();
      visit(SlotId{at});
      for (std::uint32_t child = e.first_child; child != none; child = entries_[child].next_sibling) {
        if (entries_[child].state == State::ready) path.push_back(child);
      }
    }
  }
}

}  // namespace terrace
