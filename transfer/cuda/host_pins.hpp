#pragma once

#include "terrace/host_memory.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

namespace terrace {

/// The host memory that is pinned for the devices that share this object. The driver registers memory once for all contexts, and
/// refuses to register it again. So the first device that pins a range registers it, further devices are only counted, and the
/// registration is removed when the last device has released the range. Each device has its own address for the memory, which is
/// queried in its own context.
///
/// Child processes do not inherit pinned memory (MADV_DONTFORK), because a page that both processes map is copied at the next
/// write.
///
/// A registration ends with the context that made it. So that context is retained until the registration is removed, because the
/// device that registered the memory may be closed before the others. If that context has failed, the registration is removed in
/// the context of the device that releases the range last.
///
/// Ownership: the devices share this object (CudaOptions::pins). Nothing may be pinned any more when it is destroyed. Threads:
/// any.
class HostPins {
 public:
  HostPins() = default;
  ~HostPins();
  HostPins(const HostPins&) = delete;
  HostPins& operator=(const HostPins&) = delete;

  /// The device for which memory is pinned.
  struct User {
    const CudaDriver& driver;
    CUdevice device;
    CUcontext context;  ///< the context of the device; it need not be current
  };

  /// Pins a range for the device, and sets `address` to the device's address of the range. The range must consist of whole pages,
  /// which are pinned only through this object. Two ranges must be equal or must not overlap. If it fails, nothing has changed.
  [[nodiscard]] CudaOutcome pin(const User& user, std::span<std::byte> memory, CUdeviceptr& address);
  /// Releases a range that the device has pinned; `begin` is its first byte. If the driver call fails, the range is still
  /// released here, but the driver keeps the registration.
  [[nodiscard]] CudaOutcome unpin(const User& user, const std::byte* begin);

 private:
  struct Pin {
    std::size_t size = 0;
    std::uint32_t users = 0;
    CUcontext registered_in = nullptr;
    Owned<CUdevice> retained;  ///< the device of `registered_in`; keeps that context alive
  };

  [[nodiscard]] static CudaOutcome register_in(const User& user, std::span<std::byte> memory, Pin& pin);
  [[nodiscard]] static CudaOutcome take_back_in(const CudaDriver& driver, CUcontext context, const std::byte* begin);

  std::mutex mutex_;
  std::map<const std::byte*, Pin> pins_;  ///< by their first byte
};

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
  ~PinnedChunks() override { host_.unobserve(*this); }
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
