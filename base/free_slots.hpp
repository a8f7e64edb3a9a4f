#pragma once

#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The free slots of a pool, as a bitmap with summary levels. Each bit of a summary level represents one word of 64 bits of the
/// level below. So every operation costs a few word operations, even in a large pool. The lowest free slot is taken first, so
/// that adjacent blocks get adjacent slots, and their copies can be joined.
///
/// This class is in base/, because the pools of runtime/ and the file store both use it. Threads: one.
class FreeSlots {
 public:
  /// The slots are [0, capacity). All are free.
  explicit FreeSlots(std::uint32_t capacity);

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t size() const { return free_; }
  [[nodiscard]] bool empty() const { return free_ == 0; }
  [[nodiscard]] bool contains(SlotId slot) const;

  /// Takes the lowest free slot. Returns nothing if no slot is free.
  [[nodiscard]] std::optional<SlotId> take();
  /// Takes the slot after `neighbour` if it is free, so that the blocks of a prefix are adjacent. Otherwise it does the same as
  /// take().
  [[nodiscard]] std::optional<SlotId> take_after(SlotId neighbour);
  /// Takes up to `count` free slots and appends them to `out`: first the slots that follow `neighbour` without a gap, then the
  /// lowest free slots.
  void take_many(std::uint32_t count, std::optional<SlotId> neighbour, std::vector<SlotId>& out);
  /// Takes the highest free slot. A caller that takes slots for a prefix from its last block to its first gets ascending slots in
  /// this way.
  [[nodiscard]] std::optional<SlotId> take_last();
  /// Takes the `count` highest free slots, or all if there are fewer, and appends them to `out` in ascending order.
  void take_last_many(std::uint32_t count, std::vector<SlotId>& out);
  /// Takes this slot, which must be free.
  void take_exactly(SlotId slot);
  /// Makes a taken slot free again.
  void put(SlotId slot) { put_many({&slot, 1}); }
  /// Does the same for several slots. Adjacent slots that are consecutive in the span cost little more than one slot.
  void put_many(std::span<const SlotId> slots);
  /// Adds the slots [capacity(), capacity) as free slots. The time is in proportion to `capacity`.
  void grow(std::uint32_t capacity);

  void check_invariants() const;

 private:
  void make_levels(std::size_t slots);
  void set_bits(std::size_t word, std::uint64_t bits);
  void clear(std::uint32_t slot);
  void clear_bits(std::size_t word, std::uint64_t bits);
  [[nodiscard]] std::uint32_t lowest() const;
  [[nodiscard]] std::uint32_t highest() const;

  std::uint32_t capacity_;
  std::uint32_t free_;
  /// levels_[0] has one bit for each slot, which is set if the slot is free. A bit of levels_[n + 1] is set if its word of
  /// levels_[n] is not zero.
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace terrace
