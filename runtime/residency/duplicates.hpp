#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// The host copies whose blocks are on the device too, in the order in which the host gives them up (InclusionPolicy
/// lazy_exclusive): that of the block that came to the device last goes first, because that block leaves the device last. So the
/// block that leaves it next still has its host copy, and need not be copied down.
///
/// A list by host slot; each call takes O(1). Threads: the manager's.
class Duplicates {
 public:
  /// The block's host copy, in this slot, became a duplicate. It goes first; if the copy of the block before it in its prefix,
  /// in slot `before`, is the last that was added, it goes next after that one, because a prefix leaves the device from its end.
  void add(BlockRef block, SlotId slot, std::optional<SlotId> before);
  /// Does nothing if the copy in this slot is no duplicate.
  void remove(SlotId slot);
  [[nodiscard]] bool contains(SlotId slot) const { return slot.value() < entries_.size() && entries_[slot.value()].is_in_list; }
  /// Nothing if there is none.
  [[nodiscard]] std::optional<BlockRef> first() const;
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] BlockRef block(SlotId slot) const { return entries_[slot.value()].block; }
  [[nodiscard]] std::size_t bytes_held() const { return entries_.capacity() * sizeof(Entry); }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct Entry {
    BlockRef block{};
    std::uint32_t next = none;
    std::uint32_t previous = none;
    bool is_in_list = false;
  };

  std::vector<Entry> entries_;  ///< by host slot
  std::uint32_t first_ = none;
  std::uint32_t last_added_ = none;
  std::uint64_t size_ = 0;
};

}  // namespace terrace
