#pragma once

#include "base/check.hpp"
#include "base/free_slots.hpp"
#include "base/large_memory.hpp"
#include "base/vector_pool.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// State of a slot.
///
///     free --> held ----------> ready --> free        held: a request's own slot, or a staging slot
///       |      | | |              ^
///       |      | v |              |
///       |      | free             |
///       +------|-----> filling ---+
///              |          |
///              +----------+--> quarantined --> free   quarantined: something may still touch the slot: a transfer that was
///                                                     abandoned, or compute of a request whose lease ended without a fence
///
/// filling: a transfer writes the copy's bytes. ready: the slot holds a cached copy. null: the slot is never used. retired: the
/// pool was made smaller; a slot that would become free is retired instead, until the pool is made larger again.
enum class SlotState : std::uint8_t { free, held, filling, ready, quarantined, null, retired };
inline constexpr std::size_t slot_state_count = 7;

/// Number of slots in each state. They add up to the size of the pool at all times.
struct Ledger {
  std::uint64_t free = 0;
  std::uint64_t held = 0;
  std::uint64_t filling = 0;
  std::uint64_t ready = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t null = 0;
  std::uint64_t retired = 0;
  std::uint64_t total = 0;  ///< the largest size that the pool has had

  [[nodiscard]] bool balanced() const { return free + held + filling + ready + quarantined + null + retired == total; }
};

/// Hands out the slots of one tier, and keeps the state of each slot: what holds it, how many transfers read it, and which
/// compute may touch it.
///
/// Slots that are to be taken out of use are *closed*, and then *retire*. A pool of the device is made smaller at its end
/// (resize): a free closed slot retires at once, and a taken one when it becomes free. The host arena returns memory in chunks,
/// anywhere in the pool (close): a free closed slot retires when retire_free() is called.
///
/// Threads: one.
class SlotAllocator {
 public:
  static constexpr std::uint32_t no_load = std::numeric_limits<std::uint32_t>::max();

  explicit SlotAllocator(std::uint32_t slots);

  /// These take a free slot that is not closed, and return nothing if there is none. take(): the lowest slot. take_last(): the
  /// highest.
  [[nodiscard]] std::optional<SlotId> take(SlotState state) { return occupy(free_.take(), state); }
  [[nodiscard]] std::optional<SlotId> take_last(SlotState state) { return occupy(free_.take_last(), state); }
  /// Appends up to `count` free slots to `out`. If possible, the first one follows `neighbour`, and the slots are adjacent.
  void take_many(std::uint32_t count, std::optional<SlotId> neighbour, SlotState state, std::vector<SlotId>& out);
  /// The same for the highest slots, in ascending order. Returns their number.
  std::uint32_t take_last_many(std::uint32_t count, SlotState state, std::vector<SlotId>& out);
  /// The same as put(), change() and raise_fence(), for many slots.
  void put_all(std::span<const SlotId> slots);
  void change_all(std::span<const SlotId> slots, SlotState from, SlotState to);
  void raise_fences(std::span<const SlotId> slots, Fence fence);
  /// Takes the free slot out of use permanently: it is the null block, or does not belong to this pool.
  void make_null(SlotId slot);
  /// The taken slot becomes free, or retired. Nothing may read it.
  void put(SlotId slot) { put_all({&slot, 1}); }
  void change(SlotId slot, SlotState to);

  [[nodiscard]] SlotState state(SlotId slot) const { return slots_[slot.value()].state(); }
  [[nodiscard]] std::uint64_t count(SlotState state) const { return counts_[static_cast<std::size_t>(state)]; }
  /// Slots below this number are in use. After resize(), the slots from this number on are closed.
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  /// Number of slots that have not retired. Slots that still have to retire are included.
  [[nodiscard]] std::uint64_t in_use() const { return slots_.size() - count(SlotState::retired); }

  /// The pool has slots [0, capacity) from now on. Higher slots are closed, and from now on a free closed slot retires at once. A
  /// retired slot below `capacity` is free again, and a new slot is free. Takes time in proportion to the change (in proportion
  /// to the size, if the pool becomes larger than it ever was).
  void resize(std::uint32_t capacity);
  /// Retires a free slot: a closed one if there is one, else the highest one. There must be a free slot.
  void retire_free();
  /// Frees the open slot that retire_free() retired last. Returns false if there is none.
  [[nodiscard]] bool unretire();

  /// The pool has `slots` slots from now on. The new ones are closed and retired. Takes time in proportion to its size.
  void extend(std::uint32_t slots);
  /// close(): the slots are not handed out any more, except by take_closed(), and retire before open slots. open(): the slots are
  /// ordinary slots again, and retired ones become free. Both take time in proportion to `slots`.
  void close(SlotSpan slots);
  void open(SlotSpan slots);
  [[nodiscard]] bool closed(SlotId slot) const { return slots_[slot.value()].closed != 0; }
  [[nodiscard]] std::uint64_t closed_total() const { return closed_total_; }
  /// Number of closed slots in state ready. They hold copies that the cache has to evict.
  [[nodiscard]] std::uint64_t closed_ready() const { return closed_ready_; }
  /// Number of evictions under way, in slots that are closed, and in the other ones. Only the latter make slots free.
  [[nodiscard]] std::uint64_t closed_evicting() const { return closed_evicting_; }
  [[nodiscard]] std::uint64_t evicting_open() const { return evicting_total_ - closed_evicting_; }
  /// Retires a free closed slot in place of a retired open one, which becomes free. Returns false if there is no such pair.
  [[nodiscard]] bool retire_closed_instead() { return !retired_free_.empty() && take_closed(SlotState::retired) && unretire(); }
  /// Returns true if retire_closed_instead() would return true.
  [[nodiscard]] bool retires_closed_instead() const { return !retired_free_.empty() && !closed_free_.empty(); }
  /// Takes a free closed slot, for a block that stays in it only for a short time.
  [[nodiscard]] std::optional<SlotId> take_closed(SlotState state);

  /// A transfer begins to read the slot, or has ended its read. The slot is ready. Both return the number of readers after the
  /// call.
  std::uint32_t add_reader(SlotId slot) {
    Slot& s = slots_[slot.value()];
    TERRACE_CHECK(s.state() == SlotState::ready);
    TERRACE_CHECK(s.note < Slot::note_max);
    ++readers_total_;
    return ++s.note;
  }
  /// The same for many slots. If `evicting`, they are evicted from now on.
  void add_readers(std::span<const SlotId> slots, bool evicting);
  std::uint32_t remove_reader(SlotId slot);
  /// Ends the last read of each slot. If `evicting`, all of them are being evicted, and that ends, too: the caller frees them at
  /// once. Otherwise none of them is being evicted. If any slot is not like this, it returns false and changes nothing.
  [[nodiscard]] bool end_reads(std::span<const SlotId> slots, bool evicting);
  [[nodiscard]] std::uint32_t readers(SlotId slot) const { return slots_[slot.value()].readers(); }
  [[nodiscard]] std::uint64_t readers_total() const { return readers_total_; }
  /// Number of reads that have ended. It only grows.
  [[nodiscard]] std::uint64_t reads_ended() const { return reads_ended_; }

  /// Returns true if the slot's copy is evicted when its last reader has ended. The eviction can be cancelled.
  [[nodiscard]] bool evicting(SlotId slot) const { return slots_[slot.value()].evicting != 0; }
  void set_evicting(SlotId slot, bool evicting);
  [[nodiscard]] std::uint64_t evicting_total() const { return evicting_total_; }

  /// The load that fills the slot (no_load if none does), and the source that its bytes come from. Known while the slot is
  /// filling.
  [[nodiscard]] std::uint32_t load(SlotId slot) const;
  [[nodiscard]] Source source(SlotId slot) const;
  /// The slots are all held, and a load fills them from now on.
  void begin_load(std::span<const SlotId> slots, std::uint32_t load, Source source);

  /// Compute may touch the slot until it reaches this point. raise_fence() never lowers it.
  [[nodiscard]] Fence fence(SlotId slot) const { return std::bit_cast<Fence>(slots_[slot.value()].fence); }
  /// The latest of the fences of these slots.
  [[nodiscard]] Fence fence(SlotSpan slots) const;
  void raise_fence(SlotId slot, Fence fence);

  /// For the poison mode: remembers from now on which slots became free.
  void remember_freed() { remember_freed_ = true; }
  /// The slots that became free since the last call.
  void take_freed(std::vector<SlotId>& freed) { take_all(freed_, freed); }

  [[nodiscard]] Ledger ledger() const;
  /// Bytes of memory of the allocator itself.
  [[nodiscard]] std::size_t bytes_held() const { return slots_.capacity() * sizeof(Slot) + slots_.size() / 8; }
  void check_invariants() const;

 private:
  /// `note` has two uses: while the slot is ready, it counts readers; while the slot is filling, it holds the number of the load
  /// plus one, and the source. In other states it is 0.
  struct SlotUse {
    static constexpr unsigned note_bits = 27;
    static constexpr std::uint32_t note_max = (1U << note_bits) - 1;
    static constexpr unsigned source_bits = 2;
    static_assert(source_count <= 1U << source_bits);

    std::uint32_t state_now : 3 = static_cast<std::uint32_t>(SlotState::free);
    std::uint32_t evicting : 1 = 0;
    std::uint32_t closed : 1 = 0;
    std::uint32_t note : note_bits = 0;

    void set_state(SlotState to) { state_now = static_cast<std::uint32_t>(to) & 7U; }
    [[nodiscard]] SlotState state() const { return static_cast<SlotState>(state_now); }
    [[nodiscard]] std::uint32_t readers() const { return state() == SlotState::ready ? note : 0; }
    /// The use as one number, for comparison.
    [[nodiscard]] std::uint32_t word() const { return std::bit_cast<std::uint32_t>(*this); }
  };
  /// A slot takes only twelve bytes, because a pool has many. So the fence is stored as two words, which need no padding.
  struct Slot : SlotUse {
    std::array<std::uint32_t, 2> fence{};
  };
  static_assert(sizeof(Slot) == 12);

  std::optional<SlotId> occupy(std::optional<SlotId> slot, SlotState state);
  void occupy_all(std::span<const SlotId> slots, SlotState state);
  void move(SlotId slot, SlotState to);
  void grow(std::uint32_t slots);
  void note_closed_free(SlotId slot);
  [[nodiscard]] static SlotUse ready_use(bool read, bool evicting);
  [[nodiscard]] bool replace_alike(std::span<const SlotId> slots, SlotUse from, SlotUse to, std::uint32_t ignored = 0);
  [[nodiscard]] bool move_alike(std::span<const SlotId> slots, SlotState from, SlotState to, std::uint32_t note = 0);

  FreeSlots free_;
  std::uint32_t capacity_;
  std::vector<Slot, LargeAllocator<Slot>> slots_;
  std::array<std::uint64_t, slot_state_count> counts_{};
  bool retires_at_once_ = false;      ///< a closed slot retires when it becomes free
  std::vector<SlotId> retired_free_;  ///< open slots that retire_free() retired, in order
  std::uint64_t closed_total_ = 0;
  std::uint64_t closed_ready_ = 0;
  std::uint64_t closed_evicting_ = 0;
  std::vector<SlotId> closed_free_;  ///< free closed slots; free_ has the open ones
  std::uint64_t readers_total_ = 0;
  std::uint64_t reads_ended_ = 0;
  std::uint64_t evicting_total_ = 0;
  bool remember_freed_ = false;
  std::vector<SlotId> freed_;
};

}  // namespace terrace
