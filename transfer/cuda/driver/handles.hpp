#pragma once

#include "terrace/types.hpp"
#include "transfer/cuda/driver/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

/// An object of the driver that is released by one call. Move-only. A failure of that call is ignored, because a destructor
/// cannot report it.
template <class T>
class Owned {
 public:
  using Release = CUresult(CUDAAPI*)(T);

  Owned() = default;
  Owned(T value, Release release) : value_{value}, release_{release} {}
  ~Owned() {
    if (release_ != nullptr) static_cast<void>(release_(value_));
  }
  Owned(Owned&& other) noexcept : value_{other.value_}, release_{std::exchange(other.release_, nullptr)} {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(release_, other.release_);
    return *this;
  }

  [[nodiscard]] T get() const { return value_; }

 private:
  T value_{};
  Release release_ = nullptr;
};

/// The primary context of a device, which the engine's framework also uses. It is current on the constructing thread until
/// leave(), and again after enter(), because it must be current when objects of the same owner are constructed or destroyed.
/// Threads: one.
class PrimaryContext {
 public:
  PrimaryContext(const CudaDriver& driver, CUdevice device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  void leave() noexcept;
  void enter() noexcept;
  [[nodiscard]] CUcontext get() const { return context_; }

 private:
  const CudaDriver& driver_;
  CUdevice device_;
  CUcontext context_ = nullptr;
  bool current_ = false;
};

/// Makes a context current on this thread for its lifetime. The destructor makes the former context current again.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  /// Returns the result of making the context current.
  [[nodiscard]] CUresult result() const { return pushed_; }

 private:
  const CudaDriver& driver_;
  CUresult pushed_;
};

/// Allows all driver calls on this thread for its lifetime. While an engine captures a graph, the driver refuses calls of other
/// threads that could disturb the capture, for example the registration of memory. Terrace's calls do not affect the engine's
/// streams.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

using DeviceMemory = Owned<CUdeviceptr>;
using StreamHandle = Owned<CUstream>;
using EventHandle = Owned<CUevent>;

/// Allocates device memory. Throws CudaError, with `what` and the size in its text.
[[nodiscard]] DeviceMemory allocate_device(const CudaDriver& driver, Bytes size, std::string_view what);
/// Makes a stream that does not wait for the legacy default stream, and for which that stream does not wait. Throws CudaError.
[[nodiscard]] StreamHandle make_stream(const CudaDriver& driver);
/// Does the same with the highest priority: the few thread blocks of a copy kernel start before waiting thread blocks of compute.
[[nodiscard]] StreamHandle make_first_stream(const CudaDriver& driver);

/// Whether events have timing. An event with timing records the device's time when it happens, and costs slightly more time on
/// the stream.
enum class EventTiming : bool { no, yes };

/// Makes an event for which a waiting thread sleeps. Throws CudaError.
[[nodiscard]] EventHandle make_event(const CudaDriver& driver, EventTiming timing);

/// Wait until all work on the stream is done, or until the event has happened, and return the first failure. A call may report an
/// earlier failure without having waited, so it is repeated after a failure. If the second call also fails, the context is
/// destroyed, and no copy runs in it any more.
[[nodiscard]] CUresult await_stream(const CudaDriver& driver, CUstream stream);
[[nodiscard]] CUresult await_event(const CudaDriver& driver, CUevent event);
/// Does the same for an event that is expected soon: polls it for about 30 microseconds before it sleeps, because waking a thread
/// takes about the same time.
[[nodiscard]] CUresult await_event_soon(const CudaDriver& driver, CUevent event);

/// Pinned host memory that the device can address. The constructor throws CudaError, with `what` in its text.
class PinnedBuffer {
 public:
  PinnedBuffer(const CudaDriver& driver, Bytes size, std::string_view what);

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] CUdeviceptr device_address() const { return device_; }

 private:
  Owned<void*> memory_;
  std::span<std::byte> bytes_;
  CUdeviceptr device_ = 0;
};

/// Ranges of pinned host memory, each with the device's address for it.
class HostRanges {
 public:
  /// Returns the device's address of these bytes, which must lie in one range.
  [[nodiscard]] CUdeviceptr device_address(const std::byte* host, std::uint64_t bytes) const;

 private:
  friend class HostMap;
  struct Range {
    std::uint64_t size;
    CUdeviceptr device;
  };
  std::map<std::uintptr_t, Range> ranges_;
};

/// Finds the device's addresses of pinned host memory, while ranges are added and removed. A reader calls now() once to get the
/// current ranges, and searches them without a lock. This is safe because the memory of a command is pinned before the command
/// begins and until it has ended. Threads: any.
class HostMap {
 public:
  void add(std::span<std::byte> host, CUdeviceptr device);
  /// Removes a range that was added. Only its first byte is used.
  void remove(std::span<std::byte> host);
  [[nodiscard]] std::shared_ptr<const HostRanges> now() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const HostRanges> now_ = std::make_shared<const HostRanges>();
};

/// A pool of reusable events. A thread that waits for such an event sleeps. An event returns to the pool when its last holder
/// releases it, so that it is never recorded again while a thread waits for it.
///
/// Ownership: the pool must outlive its events. Threads: any.
class EventPool {
 public:
  using Event = std::shared_ptr<const CUevent>;

  explicit EventPool(const CudaDriver& driver, EventTiming timing = EventTiming::no) : driver_{driver}, timing_{timing} {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// Returns an event. If none can be made, returns null and sets `result` to the driver's reason.
  [[nodiscard]] Event take(CUresult& result);

 private:
  const CudaDriver& driver_;
  const EventTiming timing_;
  std::mutex mutex_;
  std::size_t out_ = 0;
  std::vector<EventHandle> all_;
  std::vector<CUevent> free_;
};

}  // namespace terrace
