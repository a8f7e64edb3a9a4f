#pragma once

#include "base/bytes.hpp"
#include "transfer/cuda/driver/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

/// What the driver gave out and takes back with one call: move-only. A failure to take it back has no one to hear of it.
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

/// The device's primary context, which the engine's framework uses as well: current on the thread that made it from
/// construction to leave(), and again from enter() on, so that what is made and destroyed beside it finds it current.
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

/// Makes a context current on this thread for as long as it lives, and then what was current before.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  /// How that went.
  [[nodiscard]] CUresult result() const { return pushed_; }

 private:
  const CudaDriver& driver_;
  CUresult pushed_;
};

/// An engine that captures a graph forbids other threads what could disturb the capture, registering memory among it. What we do
/// does not touch its streams: on this thread all is allowed for as long as this lives.
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

/// `what` is in the text of a failure, beside the size.
[[nodiscard]] DeviceMemory allocate_device(const CudaDriver& driver, Bytes size, std::string_view what);
/// One that does not wait for the legacy default stream, nor it for this.
[[nodiscard]] StreamHandle make_stream(const CudaDriver& driver);

/// Until all that is on the stream is done, or that the event stands for. A call may report what went wrong earlier, without
/// having waited; it is made again then. Failed all the same: the context is gone, and nothing moves in it any more. Returns
/// the first failure.
[[nodiscard]] CUresult await_stream(const CudaDriver& driver, CUstream stream);
[[nodiscard]] CUresult await_event(const CudaDriver& driver, CUevent event);

/// Pinned host memory that the device can address.
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

/// Stretches of pinned host memory, each with an address of the device's.
class HostRanges {
 public:
  void add(std::span<std::byte> host, CUdeviceptr device);
  void remove(std::span<std::byte> host);
  /// The bytes lie in one range.
  [[nodiscard]] CUdeviceptr device_address(const std::byte* host, std::uint64_t bytes) const;

 private:
  struct Range {
    std::uint64_t size;
    CUdeviceptr device;
  };
  std::map<std::uintptr_t, Range> ranges_;
};

/// Where the device sees pinned host memory, while ranges of it come and go. Whoever looks something up takes the ranges
/// of the moment once, and looks in them without a lock: what a command names was there before it and stays until its end.
/// Threads: any.
class HostMap {
 public:
  void add(std::span<std::byte> host, CUdeviceptr device);
  /// A range that was added, whole or from its first byte on.
  void remove(std::span<std::byte> host);
  [[nodiscard]] std::shared_ptr<const HostRanges> now() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const HostRanges> now_ = std::make_shared<const HostRanges>();
};

/// Events with timing write the device's time when they happen, and cost the stream a little more than those without.
enum class EventTiming : bool { no, yes };

/// Events whose waiters sleep, to be used again: an event goes back when the last that holds it lets go, so that no wait finds it
/// recorded for something else. Outlives its events. Threads: any.
class EventPool {
 public:
  using Event = std::shared_ptr<const CUevent>;

  explicit EventPool(const CudaDriver& driver, EventTiming timing = EventTiming::no) : driver_{driver}, timing_{timing} {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// Null, with the driver's reason in `result`, where there is none to be had.
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
