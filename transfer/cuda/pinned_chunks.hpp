#pragma once

#include "terrace/host_memory.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/host_pins.hpp"

#include <string>

namespace terrace {

/// Pins the chunks of one host arena for one device. Each chunk is pinned separately, from its addition to the arena until its
/// removal. The HostMap has the pinned ranges; copies use no other host memory.
///
/// If a chunk cannot be pinned, or the device has no address for it, it is refused with the driver's reason. Then the arena does
/// not use the chunk, and neither do the other devices that observe the arena, so no copy uses memory that is not pinned. If the
/// registration of a chunk cannot be removed, the chunk is still removed, and the failure is noted.
///
/// Threads: the members of HostChunkObserver as described there, where the device's context need not be current; construction and
/// destruction on the control plane's thread.
class PinnedChunks final : public HostChunkObserver {
 public:
  /// Pins the chunks that the arena has, and observes the arena. All arguments must outlive this object. Throws CudaError.
  PinnedChunks(const HostPins::User& user, HostPins& pins, HostSlots& host, HostMap& map, FailureLog& failures);
  /// Unpins all chunks. No transfer of the device may be under way.
  ~PinnedChunks() override;
  PinnedChunks(const PinnedChunks&) = delete;
  PinnedChunks& operator=(const PinnedChunks&) = delete;

  /// Pins the chunk. Fails: io_failed.
  [[nodiscard]] Result<void> chunk_added(const HostChunk& chunk) override;
  void chunk_removing(const HostChunk& chunk) override;
  [[nodiscard]] std::string refusal() const override { return refusal_; }

 private:
  const HostPins::User user_;
  HostPins& pins_;
  HostSlots& host_;
  HostMap& map_;
  FailureLog& failures_;
  // The arena makes one call at a time, so these members need no lock.
  CUresult failed_ = CUDA_SUCCESS;
  std::string refusal_;
};

}  // namespace terrace
