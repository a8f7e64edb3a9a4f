#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// The host copies whose blocks are on the device, too, in the order in which the host evicts them (InclusionPolicy
/// lazy_exclusive). The copy of the block that came to the device last is evicted first, because the device evicts that block
/// last. So a block that the device evicts next still has its host copy, and need not be copied down.
///
/// A list by host slot; each call takes O(1). Threads: the manager's.
class Duplicates {
 public:
  /// The block's host copy, in this slot, has become a duplicate. It is put first. But if the copy of the block before it in its
  /// prefix, in slot `before`, was added last, it is put directly after that one, because the device evicts a prefix from its
  /// end.
  void add(BlockRef block, SlotId slot, std::optional<SlotId> before);
  /// Does nothing if the copy in this slot is no duplicate.
  void remove(SlotId slot);
  [[nodiscard]] bool contains(SlotId slot) const { return slot.value() < entries_.size() && entries_[slot.value()].is_in_list; }
  /// The duplicate that the host evicts first, if there is one.
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
