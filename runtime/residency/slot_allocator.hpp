#pragma once

#include "base/free_slots.hpp"
#include "base/large_memory.hpp"
#include "base/strong_id.hpp"
#include "base/tier.hpp"
#include "transfer/host/arena_chunks.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// What a slot holds.
///
///     free --> held ----------> ready --> free        held: a request's own, or a copy on its way through
///       |      | | |              ^
///       |      | v |              |
///       |      | free             |
///       +------|-----> filling ---+
///              |          |
///              +----------+--> quarantined --> free   quarantined: a transfer that was given up, or compute of a request whose
///                                                     lease ended without a word of its last use, may still touch it
///
/// A pool that was made smaller: what would become free becomes `retired` there, until the pool is made larger again.
enum class SlotState : std::uint8_t { free, held, filling, ready, quarantined, null, retired };
inline constexpr std::size_t slot_state_count = 7;

/// The states of a pool's slots add up to its size, always.
struct Ledger {
  std::uint64_t free = 0;
  std::uint64_t held = 0;
  std::uint64_t filling = 0;
  std::uint64_t ready = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t null = 0;
  std::uint64_t retired = 0;
  std::uint64_t total = 0;  ///< of the largest size that the pool has had

  [[nodiscard]] bool balanced() const { return free + held + filling + ready + quarantined + null + retired == total; }
};

/// One tier's slots: who holds each, and what still reads it. Threads: one.
class SlotAllocator {
 public:
  static constexpr std::uint32_t no_load = std::numeric_limits<std::uint32_t>::max();

  explicit SlotAllocator(std::uint32_t slots);

  /// The lowest free slot, the highest, or the one after `neighbour` if that is free.
  [[nodiscard]] std::optional<SlotId> take(SlotState state);
  [[nodiscard]] std::optional<SlotId> take_last(SlotState state);
  [[nodiscard]] std::optional<SlotId> take_after(SlotId neighbour, SlotState state);
  /// Appends up to `count` slots to `out`, each after the one before it where that is free; the first after `neighbour`.
  void take_many(std::uint32_t count, std::optional<SlotId> neighbour, SlotState state, std::vector<SlotId>& out);
  /// As put, change and raise_fence, for many.
  void put_all(std::span<const SlotId> slots);
  void change_all(std::span<const SlotId> slots, SlotState from, SlotState to);
  void raise_fences(std::span<const SlotId> slots, Fence fence);
  /// Takes the slot out of use for ever: the null block, or a slot that is not this pool's.
  void make_null(SlotId slot);
  void put(SlotId slot);
  void change(SlotId slot, SlotState to);

  [[nodiscard]] SlotState state(SlotId slot) const { return slots_[slot.value()].state(); }
  [[nodiscard]] std::uint64_t count(SlotState state) const { return counts_[static_cast<std::size_t>(state)]; }
  /// Slots that are, or will be, used: those below stay, those from here on retire.
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  /// Slots that are not retired, those that are to be included.
  [[nodiscard]] std::uint64_t in_use() const { return slots_.size() - count(SlotState::retired); }

  /// From now on the pool is slots [0, capacity). Those from there on retire, at once where they are free, else when they would
  /// become free; retired ones below are free again, and so are those that are new. Takes time in proportion to the difference
  /// (where the pool becomes larger than ever, to its size).
  void resize(std::uint32_t capacity);
  [[nodiscard]] bool retires(SlotId slot) const { return slot.value() >= capacity_; }
  /// Slots in this state that are to be retired, and those of them whose copy is evicting.
  [[nodiscard]] std::uint64_t retiring(SlotState state) const { return retiring_[static_cast<std::size_t>(state)]; }
  [[nodiscard]] std::uint64_t retiring_and_evicting() const { return retiring_evicting_; }
  /// Retires the highest free slot, a closed one first; there must be a free one. Until unretire(), which frees the last
  /// retired one that is not closed: false where there is none.
  void retire_free();
  [[nodiscard]] bool unretire();

  /// The pool has slots up to `slots` from now on; the new ones are closed, and retired. Takes time in proportion to its size.
  void extend(std::uint32_t slots);
  /// Closed slots are not handed out by take() and its like: those that are free retire before any others, and who is in one
  /// should go. Opening takes that back; those that have retired are free again. Both take time in proportion to `slots`.
  void close(SlotSpan slots);
  void open(SlotSpan slots);
  [[nodiscard]] bool closed(SlotId slot) const { return slots_[slot.value()].closed != 0; }
  [[nodiscard]] std::uint64_t closed_total() const { return closed_total_; }
  /// Closed slots whose state is `ready`: cached, with nobody to ask but who caches.
  [[nodiscard]] std::uint64_t closed_ready() const { return closed_ready_; }
  /// Retires a closed slot that is free, in the place of one that is not closed, which is free again. False: no such pair.
  [[nodiscard]] bool retire_closed_instead();
  /// A closed slot that is free, for what will not be in it for long.
  [[nodiscard]] std::optional<SlotId> take_closed(SlotState state);

  /// Transfers that read the slot. Returns the count after the call.
  std::uint32_t add_reader(SlotId slot);
  std::uint32_t remove_reader(SlotId slot);
  [[nodiscard]] std::uint32_t readers(SlotId slot) const { return slots_[slot.value()].readers(); }
  [[nodiscard]] std::uint64_t readers_total() const { return readers_total_; }

  /// The slot's copy goes as soon as its readers are done, unless somebody changes their mind.
  [[nodiscard]] bool evicting(SlotId slot) const { return slots_[slot.value()].evicting != 0; }
  void set_evicting(SlotId slot, bool evicting);
  [[nodiscard]] std::uint64_t evicting_total() const { return evicting_total_; }

  /// The load that fills the slot, for as long as it does, and where from; no_load where none was set.
  [[nodiscard]] std::uint32_t load(SlotId slot) const;
  [[nodiscard]] Tier source(SlotId slot) const;
  void set_load(SlotId slot, std::uint32_t load, Tier source);

  /// The last compute that touched the slot.
  [[nodiscard]] Fence fence(SlotId slot) const { return std::bit_cast<Fence>(slots_[slot.value()].fence); }
  void raise_fence(SlotId slot, Fence fence);

  /// From now on remembers which slots became free, for the poison mode.
  void remember_freed() { remember_freed_ = true; }
  /// Those since the last call. Swaps, so that the caller's vector is re-used.
  void take_freed(std::vector<SlotId>& freed) {
    freed.clear();
    freed.swap(freed_);
  }

  [[nodiscard]] Ledger ledger() const;
  /// Memory of the pool's own books.
  [[nodiscard]] std::size_t bytes_held() const { return slots_.capacity() * sizeof(Slot) + slots_.size() / 8; }
  void check_invariants() const;

 private:
  /// Twelve bytes, since there are as many as blocks: that is why a fence is in two words, and why one field counts readers while
  /// the slot is ready and names the load, by one more, and its source while it is filling. In other states it is neither.
  struct Slot {
    static constexpr unsigned note_bits = 27;
    static constexpr std::uint32_t note_max = (1U << note_bits) - 1;
    static constexpr unsigned source_bits = 2;

    std::array<std::uint32_t, 2> fence{};
    std::uint32_t state_now : 3 = static_cast<std::uint32_t>(SlotState::free);
    std::uint32_t evicting : 1 = 0;
    std::uint32_t closed : 1 = 0;
    std::uint32_t note : note_bits = 0;

    void set_state(SlotState to) { state_now = static_cast<std::uint32_t>(to) & 7U; }
    [[nodiscard]] SlotState state() const { return static_cast<SlotState>(state_now); }
    [[nodiscard]] std::uint32_t readers() const { return state() == SlotState::ready ? note : 0; }
  };
  static_assert(sizeof(Slot) == 12);

  void occupy(SlotId slot, SlotState state);
  void move(SlotId slot, SlotState to);

  FreeSlots free_;
  std::uint32_t capacity_;
  std::vector<Slot, LargeAllocator<Slot>> slots_;
  std::array<std::uint64_t, slot_state_count> counts_{};
  std::array<std::uint64_t, slot_state_count> retiring_{};  ///< of the slots from capacity_ on, without those that have retired
  std::uint64_t retiring_evicting_ = 0;
  std::vector<SlotId> retired_free_;  ///< by retire_free(), without closed ones
  std::uint64_t closed_total_ = 0;
  std::uint64_t closed_ready_ = 0;
  std::vector<SlotId> closed_free_;  ///< the closed slots that are free; free_ has the others
  std::uint64_t readers_total_ = 0;
  std::uint64_t evicting_total_ = 0;
  bool remember_freed_ = false;
  std::vector<SlotId> freed_;
};

}  // namespace terrace
