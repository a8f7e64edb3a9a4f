#pragma once

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "runtime/manager/cache_manager.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// The host tier's memory as it is just now.
struct HostMemory {
  std::uint32_t wanted = 0;  ///< blocks of the tier, by the last resize
  std::uint32_t usable = 0;  ///< of them, those there is memory for
  Bytes mapped{};            ///< by the arena: staging included, and what comes and goes
  std::uint32_t coming = 0;  ///< chunks that are being made
  std::uint32_t going = 0;   ///< chunks that are to be given back, and wait for who is in them
  std::string failure;       ///< why the last growth stopped short; empty: it did not

  /// All of the tier can be used. Before, it is ready: it serves with what is usable.
  [[nodiscard]] bool warm() const { return usable == wanted; }
};

/// Lets a pool's host tier follow its arena, and the arena the tier: orders chunks where the tier becomes larger, opens their
/// slots as they become warm, closes whole chunks where it becomes smaller, and gives them back when the last of their slots has
/// retired.
///
/// What is mapped is what is wanted, and up to a 128th of it more, so that a tier that grows in small steps does not come to
/// consist of small chunks. After shrinking it may be up to one chunk more: chunks go as a whole, from the highest down, and
/// one whose blocks are pinned or read stays until they let go. What stays of a chunk's surplus is retired slots.
///
/// A growth that fails part way (no memory, refused by the preflight or by an observer) ends where it is: the tier's size is what
/// there is memory for from then on, and memory() says why. Threads: the manager's.
class HostChunks {
 public:
  /// The arena has, or will have, the pool's host_blocks and staging_blocks; of these the latter are warm.
  HostChunks(HostArena& arena, CacheManager& manager, PoolId pool);

  /// Fails as CacheManager::resize, and with never_fits where the slots could not be numbered. Nothing has changed then. It does
  /// not wait: how far it has come, says memory().
  [[nodiscard]] Result<void> resize(std::uint32_t blocks);
  /// Takes up what the arena has done meanwhile.
  void poll();
  /// Call after the manager's decisions have been carried out: what it has let go of is nobody's then.
  void give_back_emptied();
  [[nodiscard]] HostMemory memory() const;
  /// Chunks since construction that there was no memory for.
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  /// A chunk on its way out: slots before `next` have retired.
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

  [[nodiscard]] bool goes(std::uint32_t chunk) const;
  [[nodiscard]] bool is_cancelled(std::uint32_t chunk) const;
  [[nodiscard]] Plan plan(std::uint64_t slots) const;
  [[nodiscard]] Result<void> close(const Plan& plan, std::uint32_t blocks);
  void cancel(std::uint32_t chunk);
  void trim();
  void stop_growing();

  HostArena& arena_;
  CacheManager& manager_;
  PoolId pool_;
  std::vector<Going> going_;
  std::vector<std::uint32_t> cancelled_;  ///< and without an event yet
  std::string failure_;
  std::uint64_t failures_ = 0;
  std::vector<ArenaEvent> events_;  ///< scratch
};

}  // namespace terrace
