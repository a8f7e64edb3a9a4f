#pragma once

#include "base/check.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// State of one block's copy in one tier.
///
///     absent --> filling --> ready <--> busy <--> evicting
///        ^          |          |                      |
///        +----------+----------+----------------------+
///
/// absent: the tier has no copy. filling: the copy has a slot, but its bytes have not arrived. ready: a request can use the copy,
/// and the tier can evict it. busy: a request can use it, but a transfer reads it, so the tier cannot evict it now. evicting:
/// like busy, but the copy is evicted when the transfer ends. The block before an evicting block may be evicted already.
enum class CopyState : std::uint8_t { absent, filling, ready, busy, evicting };

/// One copy of a block: its state and its slot. It takes four bytes, because a tree of millions of blocks consists mostly of
/// keys and copies.
class Copy {
 public:
  static constexpr unsigned slot_bits = 29;
  static constexpr std::uint32_t slots_max = 1U << slot_bits;

  constexpr Copy() = default;
  constexpr Copy(CopyState state, SlotId slot)
      : word_{(static_cast<std::uint32_t>(state) << slot_bits) | (state == CopyState::absent ? 0 : slot.value())} {}

  [[nodiscard]] constexpr CopyState state() const { return static_cast<CopyState>(word_ >> slot_bits); }
  /// On device and host: the slot with the bytes. In storage: the number that the owner of the tree gave to the stored block.
  [[nodiscard]] SlotId slot() const {
    TERRACE_CHECK(present());
    return SlotId{word_ & (slots_max - 1)};
  }
  [[nodiscard]] constexpr bool present() const { return state() != CopyState::absent; }
  /// Returns true if the copy is present and not being evicted. While this is true, no block before it is a leaf in the tier.
  [[nodiscard]] constexpr bool stays() const { return present() && state() != CopyState::evicting; }
  /// Returns true if no transfer fills or reads the copy, or if there is none.
  [[nodiscard]] constexpr bool at_rest() const { return !present() || state() == CopyState::ready; }
  /// Returns true if the bytes have arrived.
  [[nodiscard]] constexpr bool usable() const { return state() >= CopyState::ready; }

  friend constexpr bool operator==(Copy, Copy) = default;
  friend bool all_usable(std::span<const Copy> copies);
  friend CopyState lowest_state(std::span<const Copy> copies);
  friend void read_slots(std::span<const Copy> copies, SlotId* out);

 private:
  std::uint32_t word_ = 0;
};

// The loops below have a form that the compiler vectorises.

/// Returns true if all copies are ready or busy.
inline bool all_usable(std::span<const Copy> copies) {
  // Only these two states have 01 in the upper two bits of the word.
  static_assert(static_cast<int>(CopyState::ready) == 0b010 && static_cast<int>(CopyState::busy) == 0b011);
  std::uint32_t any = 0;
  std::uint32_t all = ~std::uint32_t{0};
  for (const Copy& copy : copies) {
    any |= copy.word_;
    all &= copy.word_;
  }
  return copies.empty() || ((any >> 31U) == 0 && (all >> 30U) == 1);
}

/// Returns the first of the copies' states, in the order of CopyState. There must be a copy.
inline CopyState lowest_state(std::span<const Copy> copies) {
  std::uint32_t lowest = ~std::uint32_t{0};
  for (const Copy& copy : copies) lowest = std::min(lowest, copy.word_);
  return static_cast<CopyState>(lowest >> Copy::slot_bits);
}

/// Writes the slot of each copy to `out`: 0 if it has none.
inline void read_slots(std::span<const Copy> copies, SlotId* out) {
  for (std::size_t i = 0; i < copies.size(); ++i) out[i] = SlotId{copies[i].word_ & (Copy::slots_max - 1)};
}

}  // namespace terrace
