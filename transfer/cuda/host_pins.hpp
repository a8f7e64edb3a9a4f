#pragma once

#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

namespace terrace {

/// What is pinned of the host's memory for the devices that share this: the driver registers memory once for all contexts, and
/// refuses to do it again. So the first device that wants a range registers it, the others count, and the last that lets go
/// takes the registration back. Each has its own address of the memory, asked for in its own context.
///
/// A registration lives and dies with the context that made it, which is kept until it is taken back: the device that registered
/// may be closed before the others. Where that context has failed, it is taken back in the context of who lets go last.
///
/// Ownership: shared by the devices (CudaOptions::pins); nothing is pinned when the last of them is gone. Threads: any.
class HostPins {
 public:
  HostPins() = default;
  ~HostPins();
  HostPins(const HostPins&) = delete;
  HostPins& operator=(const HostPins&) = delete;

  /// Whose memory it is to be.
  struct User {
    const CudaDriver& driver;
    CUdevice device;
    CUcontext context;  ///< the device's; need not be current, and is not afterwards
  };

  /// The range, whole pages that nobody pins but devices that share this, is the user's from now on, at `address`. Ranges
  /// are equal or apart. Failed: nothing has changed.
  [[nodiscard]] CudaOutcome pin(const User& user, std::span<std::byte> memory, CUdeviceptr& address);
  /// The user lets go of a range that it has, by its first byte. Failed: all the same, and the driver has the registration
  /// still.
  [[nodiscard]] CudaOutcome unpin(const User& user, const std::byte* begin);

 private:
  struct Pin {
    std::size_t size = 0;
    std::uint32_t users = 0;
    CUcontext registered_in = nullptr;
    Owned<CUdevice> retained;  ///< its device, whose context is kept
  };

  [[nodiscard]] static CudaOutcome register_in(const User& user, std::span<std::byte> memory, Pin& pin);
  [[nodiscard]] static CudaOutcome take_back_in(const CudaDriver& driver, CUcontext context, const std::byte* begin);

  std::mutex mutex_;
  std::map<const std::byte*, Pin> pins_;  ///< by where they begin
};

}  // namespace terrace
