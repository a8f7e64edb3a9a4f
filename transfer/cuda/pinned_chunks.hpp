#pragma once

#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/host_pins.hpp"
#include "transfer/host/arena_chunks.hpp"
#include "transfer/host/host_arena.hpp"

#include <string>

namespace terrace {

/// The chunks of one host arena for one device, each pinned by itself from when the arena shows it until it goes. What is
/// pinned is in the HostMap; a copy names nothing else.
///
/// A chunk that cannot be pinned, or that the device has no address of, is refused, with the driver's reason: the arena does
/// without it, as do the other devices that follow it, and a copy never meets memory that is not pinned. One whose registration
/// cannot be taken back goes all the same, and the failure is noted. The context need not be current on the arena's worker.
///
/// Threads: the arena's worker for the members of ArenaChunks; made and destroyed on the control plane's.
class PinnedChunks final : public ArenaChunks {
 public:
  /// Pins what the arena has, and follows it. What is given outlives this. Throws CudaError.
  PinnedChunks(const HostPins::User& user, HostPins& pins, HostArena& arena, HostMap& map, FailureLog& failures);
  /// Nothing of the arena is pinned for the device afterwards. No transfer of its is under way.
  ~PinnedChunks() override;
  PinnedChunks(const PinnedChunks&) = delete;
  PinnedChunks& operator=(const PinnedChunks&) = delete;

  [[nodiscard]] HostArena& arena() const { return arena_; }

  /// Fails: io_failed.
  [[nodiscard]] Result<void> chunk_added(const ArenaChunk& chunk) override;
  void chunk_removing(const ArenaChunk& chunk) override;
  [[nodiscard]] std::string refusal() const override { return refusal_; }

 private:
  const HostPins::User user_;
  HostPins& pins_;
  HostArena& arena_;
  HostMap& map_;
  FailureLog& failures_;
  // One at a time, as the arena calls.
  CUresult failed_ = CUDA_SUCCESS;
  std::string refusal_;
};

}  // namespace terrace
