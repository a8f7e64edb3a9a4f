#pragma once

#include "base/bytes.hpp"
#include "base/strong_id.hpp"
#include "transfer/mapping.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The host tier's memory: slots of one block each, in chunks that are mapped one by one. Slots start at page boundaries where
/// the block size is a multiple of the page, so that they serve as direct I/O buffers, and never straddle two chunks, so that
/// no copy descriptor crosses two registrations.
///
/// Slots [0, cache_slots) are the host tier's pool, [cache_slots, slots) the staging slots through which device and storage
/// meet; the arena itself makes no difference between them.
///
/// Threads: constant after construction; who may touch which slot is the slot's owner's affair.
class HostArena {
 public:
  /// Maps and touches `slots` slots; 0 is an arena without any. Throws std::system_error where the memory is not to be had
  /// (what, how much), and std::invalid_argument where block_bytes is 0 or over a chunk.
  HostArena(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes = GiB);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::span<std::byte> block(SlotId slot) const;
  /// How many slots from this one on lie in one piece of memory, itself included.
  [[nodiscard]] std::uint32_t contiguous_from(SlotId slot) const;

 private:
  std::uint32_t slots_;
  Bytes block_bytes_;
  std::uint32_t slots_per_chunk_;
  std::vector<Mapping> chunks_;
};

}  // namespace terrace
