#pragma once

#include "base/result.hpp"
#include "base/strong_id.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace terrace {

/// Slots [first, first + count).
struct SlotSpan {
  SlotId first;
  std::uint32_t count = 0;

  [[nodiscard]] std::uint32_t end() const { return first.value() + count; }
  friend bool operator==(const SlotSpan&, const SlotSpan&) = default;
};

/// A piece of the host arena's memory, mapped by itself.
struct ArenaChunk {
  SlotSpan slots;
  std::span<std::byte> bytes;
};

/// Who wants to know what memory the arena has: a device that registers each chunk for its copies, an I/O engine that keeps a
/// table of buffers. Made known with HostArena::observe.
///
/// Threads: the arena's worker's, or the one that calls observe(); one call at a time. May take as long as it must: nobody's
/// step waits. No member calls the arena.
class ArenaChunks {
 public:
  virtual ~ArenaChunks() = default;
  /// Every page of the chunk is there; none of its slots has been handed out. Fails: then the arena does without the chunk,
  /// and says so.
  [[nodiscard]] virtual Result<void> chunk_added(const ArenaChunk& chunk) = 0;
  /// What chunk_added failed with last, in words; asked right after it, on its thread. Empty: the error says it all.
  [[nodiscard]] virtual std::string refusal() const { return {}; }
  /// The chunk, which was added before, is about to be unmapped: no transfer names its slots any more.
  virtual void chunk_removing(const ArenaChunk& chunk) = 0;
};

}  // namespace terrace
