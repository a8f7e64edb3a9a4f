#pragma once

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "transfer/host/host_arena.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// Makes the memory of a pool's host tier follow its size. When the tier becomes larger, it orders chunks from the arena, and
/// gives their slots to the manager as the chunks become warm. When the tier becomes smaller, it closes whole chunks, and returns
/// each chunk to the arena when its last slot has retired.
///
/// Mapped memory is the wanted size plus up to 1/128 of it, so that many small growth steps do not produce many small chunks.
/// After shrinking, up to one more chunk stays. Chunks are closed as a whole, from the highest down. A chunk with blocks that are
/// pinned or being read stays until they are released. The slots of a kept chunk that the tier does not need are retired.
///
/// If a growth fails part way (no memory, or refused by the memory check or by an observer), the tier keeps the size that it has
/// reached, and memory() returns the reason. Threads: the thread of the manager.
class HostChunks {
 public:
  /// The arena has, or will have, host_blocks + staging_blocks slots of the pool. The staging slots are warm.
  HostChunks(HostArena& arena, CacheManager& manager, PoolId pool);

  /// Does not wait; memory() reports the progress of the resize. Fails as Administration::resize, with never_fits if the slots
  /// would exceed the numbers of SlotId, and with no_room if there are more blocks than largest(). With Asks::no, a growth that
  /// does not fit into the memory of the machine begins, and stops early. After a failure nothing has changed.
  enum class Asks : bool { no, yes };
  [[nodiscard]] Result<void> resize(std::uint32_t blocks, Asks asks = Asks::yes);
  /// Returns the most blocks that the memory of the machine allows the tier now, or nothing if that is not limited. Reads the
  /// limits.
  [[nodiscard]] std::optional<std::uint64_t> largest() const;
  /// Handles the events of the arena.
  void poll();
  /// Returns true if poll() has nothing to do, and no chunk is on its way.
  [[nodiscard]] bool rests() const { return !arena_.expects_events(); }
  /// Returns chunks whose slots have all retired. Call it after the decisions of the manager have been carried out, because only
  /// then are slots that the manager has retired no longer used.
  void give_back_emptied();
  [[nodiscard]] HostMemory memory() const;
  /// Number of chunks since construction for which there was no memory.
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  /// A chunk that is closing. Its slots before `next` have retired.
  struct Going {
    std::uint32_t chunk = 0;
    SlotSpan slots;
    std::uint32_t next = 0;
  };
  struct Plan {
    std::vector<std::uint32_t> cancel;
    std::vector<std::uint32_t> close;
    std::vector<std::uint32_t> reopen;
    std::uint32_t grow = 0;
  };

  [[nodiscard]] bool goes(std::uint32_t chunk) const { return std::ranges::find(going_, chunk, &Going::chunk) != going_.end(); }
  [[nodiscard]] bool is_cancelled(std::uint32_t chunk) const { return std::ranges::find(cancelled_, chunk) != cancelled_.end(); }
  [[nodiscard]] Plan plan(std::uint64_t slots) const;
  [[nodiscard]] Result<void> close(const Plan& plan, std::uint32_t blocks);
  void cancel(std::uint32_t chunk) {
    arena_.cancel(chunk);
    cancelled_.push_back(chunk);
  }
  void trim();
  void stop_growing();

  HostArena& arena_;
  CacheManager& manager_;
  PoolId pool_;
  std::vector<Going> going_;
  std::vector<std::uint32_t> cancelled_;  ///< cancelled chunks whose events have not arrived yet
  std::string failure_;
  std::uint64_t failures_ = 0;
  std::vector<ArenaEvent> events_;  ///< scratch
};

}  // namespace terrace
