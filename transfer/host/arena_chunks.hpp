#pragma once

#include "terrace/result.hpp"
#include "terrace/types.hpp"

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

/// A chunk of the host arena's memory. Each chunk is mapped separately.
struct ArenaChunk {
  SlotSpan slots;
  std::span<std::byte> bytes;
};

/// An observer of the host arena's chunks: for example a device, which registers each chunk for its copies, or an I/O engine,
/// which keeps a table of buffers. HostArena::observe() adds an observer. It must stay alive until HostArena::unobserve().
///
/// Threads: the arena's worker, or the thread that calls observe() or unobserve(); one call at a time. A call may take long,
/// because no step of the control plane waits for it. No member may call the arena.
class ArenaChunks {
 public:
  virtual ~ArenaChunks() = default;
  /// Is called when every page of the chunk is present, and before a new chunk's slots are handed out. If it fails, the arena
  /// does without the chunk and reports why.
  [[nodiscard]] virtual Result<void> chunk_added(const ArenaChunk& chunk) = 0;
  /// Returns the reason of chunk_added()'s last failure as text. The arena calls this right after the failure, on the same
  /// thread. Empty: the error code says everything.
  [[nodiscard]] virtual std::string refusal() const { return {}; }
  /// Is called before a chunk that was added is unmapped. No transfer uses its slots any more.
  virtual void chunk_removing(const ArenaChunk& chunk) = 0;
};

}  // namespace terrace
