#pragma once

#include "base/check.hpp"
#include "base/strong_id.hpp"

#include <cstdint>

namespace terrace {

/// A block's presence in a tier.
///
///     absent --> filling --> ready <--> busy <--> evicting
///        ^          |          |                      |
///        +----------+----------+----------------------+
///
/// filling: its bytes are on their way. ready: matches, may be evicted. busy: matches, but a transfer reads it, so that it may
/// not be evicted now. evicting: the same, and it is evicted when that transfer ends; the block before it may be evicted already.
enum class CopyState : std::uint8_t { absent, filling, ready, busy, evicting };

/// State and slot in four bytes: a tree of millions of blocks is mostly keys and these.
class Copy {
 public:
  static constexpr unsigned slot_bits = 29;
  static constexpr std::uint32_t slots_max = 1U << slot_bits;

  constexpr Copy() = default;
  constexpr Copy(CopyState state, SlotId slot)
      : word_{(static_cast<std::uint32_t>(state) << slot_bits) | (state == CopyState::absent ? 0 : slot.value())} {}

  [[nodiscard]] constexpr CopyState state() const { return static_cast<CopyState>(word_ >> slot_bits); }
  /// Where the bytes are (device and host), or the number under which the owner knows the stored block (storage).
  [[nodiscard]] SlotId slot() const {
    TERRACE_CHECK(present());
    return SlotId{word_ & (slots_max - 1)};
  }
  [[nodiscard]] constexpr bool present() const { return state() != CopyState::absent; }
  /// Stays, as far as is known: what follows it in the tier keeps it from being a leaf.
  [[nodiscard]] constexpr bool stays() const { return present() && state() != CopyState::evicting; }
  /// Its bytes are there.
  [[nodiscard]] constexpr bool usable() const { return state() >= CopyState::ready; }

  friend constexpr bool operator==(Copy, Copy) = default;

 private:
  std::uint32_t word_ = 0;
};

}  // namespace terrace
