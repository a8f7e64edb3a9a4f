#pragma once

#include "transfer/arena_chunks.hpp"
#include "transfer/cuda/driver.hpp"
#include "transfer/cuda/failure_log.hpp"
#include "transfer/cuda/handles.hpp"
#include "transfer/host_arena.hpp"

#include <cstddef>
#include <set>
#include <span>
#include <string>

namespace terrace {

/// The chunks of one host arena, each pinned by a registration of its own from when the arena shows it until it goes. What is
/// registered is in the HostMap; a copy names nothing else.
///
/// A chunk that cannot be registered is refused, with the driver's reason: the arena does without it, and a copy never meets
/// memory that is not pinned. One whose registration cannot be taken back goes all the same, and the failure is noted. The
/// context need not be current on the arena's worker: it is made so, and what was current before is afterwards.
///
/// Threads: the arena's worker for the members of ArenaChunks; made and destroyed on the control plane's.
class PinnedChunks final : public ArenaChunks {
 public:
  /// Registers what the arena has, and follows it. What is given outlives this. Throws CudaError, and std::invalid_argument where
  /// another follows the arena: what is pinned once cannot be pinned again.
  PinnedChunks(const CudaDriver& driver, CUcontext context, HostArena& arena, HostMap& map, FailureLog& failures);
  /// Nothing of the arena is registered afterwards. No transfer is under way.
  ~PinnedChunks() override;
  PinnedChunks(const PinnedChunks&) = delete;
  PinnedChunks& operator=(const PinnedChunks&) = delete;

  [[nodiscard]] HostArena& arena() const { return arena_; }

  /// Fails: io_failed.
  [[nodiscard]] Result<void> chunk_added(const ArenaChunk& chunk) override;
  void chunk_removing(const ArenaChunk& chunk) override;
  [[nodiscard]] std::string refusal() const override { return refusal_; }

 private:
  [[nodiscard]] CudaOutcome pin(std::span<std::byte> memory);

  const CudaDriver& driver_;
  const CUcontext context_;
  HostArena& arena_;
  HostMap& map_;
  FailureLog& failures_;
  // One at a time, as the arena calls.
  std::set<const std::byte*> registered_;  ///< where chunks begin
  CUresult failed_ = CUDA_SUCCESS;
  std::string refusal_;
};

}  // namespace terrace
