#pragma once

#include "base/free_slots.hpp"
#include "base/indexed_heap.hpp"
#include "base/large_memory.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "storage/index/block_store.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace terrace {

/// What a store holds, without a byte of it: which key has which slot, who is whose parent, and who goes next. The heart of
/// every store; no I/O, no events, no clock (time is a count of calls to advance()).
///
/// Slots go lowest first, but a block takes the slot after its parent's where that is free, so that a path's blocks lie side
/// by side. Leaves (no child stored or being written) that no operation holds stand in a heap: oldest last use on top, the
/// deeper of two equals first.
///
/// Closed under parent at all times: an entry that is `ready` has a `ready` parent or depth 0, and one that is `writing` or
/// `awaiting_parent` has a parent in one of the three. check_invariants() walks all of it.
///
/// Threads: one. Costs of all that serving calls: O(1), and O(log n) in the heap.
class StoreIndex {
 public:
  ///   absent --place()--> writing --data_arrived(), parent ready---------------------------------> ready
  ///                          \------data_arrived()--> awaiting_parent --the parent becomes ready--> ready
  ///
  ///   writing, awaiting_parent, ready --drop(), held by nobody--> absent
  ///                                   \-drop(), held----------> removing --last release()--> absent
  ///                                                                   \----the same, retired--> bad, for ever
  ///
  ///   absent, closed, bad --lose()--> lost, for ever: its device is gone
  ///
  /// What of the slots may be used is bounded by limit(); while there are more, a slot that would become absent is `closing`:
  ///
  ///   absent <--open()-- closed <--close()-- closing <--(limit)-- absent, and where the above leads to absent
  ///      ^                                      |
  ///      \--------------open()-----------------/
  enum class State : unsigned char { absent, writing, awaiting_parent, ready, removing, bad, closing, closed, lost };
  static constexpr std::size_t state_count = 9;

  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  struct Entry {
    StoredBlock block;
    std::uint64_t last_use = 0;
    std::uint64_t write_token = 0;  ///< of the write that stored it, or as adopted
    std::uint32_t operations = 0;   ///< that may touch the slot; see hold()
    std::uint32_t parent = none;    ///< slots, as are the next three
    std::uint32_t first_child = none;
    std::uint32_t next_sibling = none;
    std::uint32_t previous_sibling = none;
    State state = State::absent;
    bool marked_for_removal = false;  ///< to be given up when its write has ended; takes no more children
    bool slot_retired = false;        ///< its slot must not be used again
  };

  struct Evicted {
    BlockKey key;
    std::uint64_t write_token = 0;
  };

  struct Placed {
    SlotId slot;
    std::optional<Evicted> evicted;  ///< who had to make room, and whose slot this was
  };

  struct Dropped {
    SlotId slot;
    BlockKey key;
    State was;
    std::uint64_t write_token = 0;
  };

  explicit StoreIndex(std::uint32_t capacity);

  /// All, closed ones included: what slots are numbered below.
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(entries_.size()); }
  /// All but the closed and the lost ones.
  [[nodiscard]] std::uint32_t capacity() const { return slots() - count(State::closed) - count(State::lost); }
  [[nodiscard]] const Entry& at(SlotId slot) const { return entries_[slot.value()]; }
  [[nodiscard]] std::uint32_t count(State state) const { return counts_[static_cast<std::size_t>(state)]; }
  /// Slots that nobody has. Those that place() could still empty are not among them.
  [[nodiscard]] std::uint32_t free() const { return free_.size(); }

  /// The slot of a block that is writing, awaiting its parent, or ready.
  [[nodiscard]] std::optional<SlotId> find(const BlockKey& key) const;

  /// The time that use() and place() stamp with. One advance() a call of the store: what one call names is equally old.
  [[nodiscard]] std::uint64_t now() const { return now_; }
  /// It ends at the highest number, which only a crafted catalog can bring about: from then on all uses are equally old.
  void advance() { advance_past(now_); }
  void advance_past(std::uint64_t time) {
    if (now_ <= time) now_ = std::max(time, time + 1);
  }

  /// Finds a slot for a block that is not here, evicting one leaf where none is free; the block is then `writing` and held
  /// once, by its write. Fails: parent_missing (also where the parent is marked for removal or not one level up), full. A failure
  /// changes nothing.
  [[nodiscard]] Result<Placed> place(const StoredBlock& block);

  /// The block's bytes are in its slot, and its write lets go of it. Appends what became `ready` by that, parents before
  /// children: nothing, or the block itself and all that waited for it. The block must be `writing`.
  void data_arrived(SlotId slot, std::vector<SlotId>& became_ready);

  /// Gives up a block that find() finds, with all its descendants. Appends them, children first.
  void drop(SlotId slot, std::vector<Dropped>& gone);

  /// An operation that touches the slot begins, ends. What is held is not evicted, and its slot not re-used.
  void hold(SlotId slot);
  void release(SlotId slot);
  /// Never use this slot again once it is released. The block must be `removing`.
  void retire_slot(SlotId slot);
  /// Marks a block that is writing or awaiting its parent.
  void mark_for_removal(SlotId slot);
  /// Counts as used now.
  void use(SlotId slot);
  /// What its owner calls the block; told when it goes.
  void set_write_token(SlotId slot, std::uint64_t token) { entries_[slot.value()].write_token = token; }

  /// Puts a block back where a catalog says it was, in any order, before anything else is done with the index; to be ended by
  /// finish_restore().
  void restore(SlotId slot, const StoredBlock& block, std::uint64_t last_use);
  /// What was put back is `ready`, but for blocks that lack an ancestor, and but for one of two that have a key: the less deep
  /// one stays, then the one used last, then the lower slot. Appends the slots of the others, which are free again.
  void finish_restore(std::vector<SlotId>& dropped);

  /// The slot of every ready block, depth first: what hangs on a block follows it before anything else does.
  template <class Visit>
  void for_each_ready(Visit visit) const;

  /// Ready blocks whose parent is not: always 0. Found out by key and not by link, each time anew.
  [[nodiscard]] std::uint64_t count_orphans() const;

  // The number of slots in use. Which of them they are does not matter: the blocks that stay are those used last.

  /// So many slots may be neither closed nor closing. Those beyond it leave by shrink(), and by themselves as they become free.
  void limit(std::uint32_t slots) { limit_ = slots; }
  [[nodiscard]] std::uint32_t limit() const { return limit_; }
  /// Slots that are still to be closed beyond those that are closing.
  [[nodiscard]] std::uint32_t excess() const {
    const std::uint32_t open = capacity() - count(State::closing);
    return open > limit_ ? open - limit_ : 0;
  }
  /// Closes one slot of the excess: the highest free one, else that of the leaf that is used longest ago.
  struct Shrunk {
    SlotId slot;
    std::optional<Evicted> evicted;
  };
  /// Nothing where there is no excess, or nothing may go just now.
  [[nodiscard]] std::optional<Shrunk> shrink();
  /// Slots that are closing since the last call; each is their owner's to close() or open() once. Swaps.
  void take_closing(std::vector<SlotId>& closing);
  void close(SlotId slot);
  /// The slot, closing or taken by take_closed(), is free from now on.
  void open(SlotId slot);
  /// Takes up to `count` closed slots, the lowest first, to open() or put_closed() them.
  void take_closed(std::uint32_t count, std::vector<SlotId>& out) { closed_.take_many(count, std::nullopt, out); }
  void put_closed(SlotId slot) { closed_.put(slot); }
  [[nodiscard]] std::uint32_t closed_to_take() const { return closed_.size(); }
  /// This free slot is closed at once.
  void close_free(SlotId slot);
  /// The slot's device is gone. False, and nothing has changed, where a block, an operation, or who has taken the closed slot,
  /// has to let go of it first.
  bool lose(SlotId slot);
  /// Slots [slots(), `slots`) join, closed and taken.
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

  [[nodiscard]] Entry& entry(std::uint32_t slot) { return entries_[slot]; }
  [[nodiscard]] bool evictable(const Entry& e) const {
    return e.state == State::ready && e.operations == 0 && e.first_child == none;
  }
  /// The slot of the parent, `none` at depth 0, or no answer where there is no such parent to hang a child on.
  [[nodiscard]] std::optional<std::uint32_t> parent_of(const StoredBlock& block) const;
  void set_state(std::uint32_t slot, State state);
  void consider(std::uint32_t slot);  ///< in or out of the heap, as it should be
  void link(std::uint32_t slot, std::uint32_t parent);
  void link_child(std::uint32_t slot, std::uint32_t parent);  ///< the same, but for the heap
  void key_restored(std::vector<SlotId>& dropped);
  void forget_restored(std::uint32_t slot);
  void unlink(std::uint32_t slot);
  enum class Reuse : bool { no, yes };
  /// A childless block: out of everything but the slot's own life.
  void forget(std::uint32_t slot, Reuse reuse = Reuse::no);
  void begin_closing(std::uint32_t slot);
  void number_closed();
  /// `yes`: the slot is wanted at once, whatever the limit.
  void free_slot(std::uint32_t slot, Reuse reuse = Reuse::no);

  std::vector<Entry, LargeAllocator<Entry>> entries_;  ///< by slot
  /// A key's first bytes are as good as random, so that its place in the table follows from the highest: finish_restore().
  struct KeyHash {
    using is_avalanching = void;
    std::size_t operator()(const BlockKey& key) const { return key.prefix64(); }
  };
  boost::unordered_flat_map<BlockKey, std::uint32_t, KeyHash, std::equal_to<>,
                            LargeAllocator<std::pair<const BlockKey, std::uint32_t>>>
      slots_;
  FreeSlots free_;
  FreeSlots closed_;             ///< but for those that are taken
  std::vector<SlotId> closing_;  ///< not yet handed to the owner
  std::uint32_t limit_;
  IndexedHeap<Priority> leaves_;
  std::array<std::uint32_t, state_count> counts_{};
  std::uint64_t now_ = 1;
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
