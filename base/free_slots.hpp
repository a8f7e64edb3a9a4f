#pragma once

#include "base/strong_id.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The free slots of a pool, as a bitmap with a summary level above each 64 words' worth, so that every operation costs a few
/// word operations whatever the pool's size. Lowest first: neighbours stay neighbours, so that copies coalesce.
/// Here and not in runtime/ because the file store hands out slots too. Threads: one.
class FreeSlots {
 public:
  /// Slots [0, capacity), all free.
  explicit FreeSlots(std::uint32_t capacity);

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t size() const { return free_; }
  [[nodiscard]] bool empty() const { return free_ == 0; }
  [[nodiscard]] bool contains(SlotId slot) const;

  /// The lowest free slot, or nothing where none is free.
  [[nodiscard]] std::optional<SlotId> take();
  /// The slot after `neighbour` if it is free, so that a prefix's blocks lie side by side; else as take().
  [[nodiscard]] std::optional<SlotId> take_after(SlotId neighbour);
  /// Appends up to `count` free slots to `out`: those right after `neighbour` as far as they are free, then the lowest.
  void take_many(std::uint32_t count, std::optional<SlotId> neighbour, std::vector<SlotId>& out);
  /// The highest free slot: for a prefix that is taken from its end, so that it lies in ascending order all the same.
  [[nodiscard]] std::optional<SlotId> take_last();
  /// Takes this very slot, which must be free.
  void take_exactly(SlotId slot);
  /// Gives a taken slot back.
  void put(SlotId slot) { put_many({&slot, 1}); }
  /// The same for many; neighbours that stand next to each other cost little more than one.
  void put_many(std::span<const SlotId> slots);
  /// Slots [capacity(), capacity) join, free. Takes time in proportion to `capacity`.
  void grow(std::uint32_t capacity);

  void check_invariants() const;

 private:
  void make_levels(std::size_t slots);
  void set_bits(std::size_t word, std::uint64_t bits);
  void clear(std::uint32_t slot);
  void clear_bits(std::size_t word, std::uint64_t bits);
  [[nodiscard]] std::uint32_t lowest() const;

  std::uint32_t capacity_;
  std::uint32_t free_;
  /// levels_[0] has a bit per slot (set: free); a bit of levels_[n + 1] says that a word of levels_[n] is not zero.
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace terrace
