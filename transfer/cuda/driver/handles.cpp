#include "transfer/cuda/driver/handles.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <chrono>

namespace terrace {

PrimaryContext::PrimaryContext(const CudaDriver& driver, CUdevice device) : driver_{driver}, device_{device} {
  driver.check(driver.cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
  const CUresult pushed = driver.cuCtxPushCurrent(context_);
  if (pushed != CUDA_SUCCESS) {
    static_cast<void>(driver.cuDevicePrimaryCtxRelease(device));
    driver.check(pushed, "cuCtxPushCurrent");
  }
  current_ = true;
}

PrimaryContext::~PrimaryContext() {
  leave();
  static_cast<void>(driver_.cuDevicePrimaryCtxRelease(device_));
}

void PrimaryContext::leave() noexcept {
  CUcontext popped = nullptr;
  if (std::exchange(current_, false)) static_cast<void>(driver_.cuCtxPopCurrent(&popped));
}

void PrimaryContext::enter() noexcept {
  if (!current_) current_ = driver_.cuCtxPushCurrent(context_) == CUDA_SUCCESS;
}

CurrentContext::CurrentContext(const CudaDriver& driver, CUcontext context)
    : driver_{driver}, pushed_{driver.cuCtxPushCurrent(context)} {}

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  if (pushed_ == CUDA_SUCCESS) static_cast<void>(driver_.cuCtxPopCurrent(&popped));
}

RelaxedCapture::RelaxedCapture(const CudaDriver& driver) : driver_{driver} {
  static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&before_));
}

RelaxedCapture::~RelaxedCapture() { static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&before_)); }

DeviceMemory allocate_device(const CudaDriver& driver, Bytes size, std::string_view what) {
  CUdeviceptr memory = 0;
  driver.check(driver.cuMemAlloc(&memory, count(size)), "cuMemAlloc", fmt::format("{} for {}", to_string(size), what));
  return {memory, driver.cuMemFree};
}

StreamHandle make_stream(const CudaDriver& driver) {
  CUstream stream = nullptr;
  driver.check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return {stream, driver.cuStreamDestroy};
}

StreamHandle make_first_stream(const CudaDriver& driver) {
  int least = 0;
  int greatest = 0;
  driver.check(driver.cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
  CUstream stream = nullptr;
  driver.check(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest), "cuStreamCreateWithPriority");
  return {stream, driver.cuStreamDestroy};
}

EventHandle make_event(const CudaDriver& driver, EventTiming timing) {
  CUevent made = nullptr;
  const unsigned flags = CU_EVENT_BLOCKING_SYNC | (timing == EventTiming::yes ? 0 : CU_EVENT_DISABLE_TIMING);
  driver.check(driver.cuEventCreate(&made, flags), "cuEventCreate");
  return {made, driver.cuEventDestroy};
}

CUresult await_stream(const CudaDriver& driver, CUstream stream) {
  const CUresult result = driver.cuStreamSynchronize(stream);
  if (result != CUDA_SUCCESS) static_cast<void>(driver.cuStreamSynchronize(stream));
  return result;
}

CUresult await_event(const CudaDriver& driver, CUevent event) {
  const CUresult result = driver.cuEventSynchronize(event);
  if (result != CUDA_SUCCESS) static_cast<void>(driver.cuEventSynchronize(event));
  return result;
}

CUresult await_event_soon(const CudaDriver& driver, CUevent event) {
  constexpr std::chrono::microseconds asks_for{30};
  const auto sleeps_at = std::chrono::steady_clock::now() + asks_for;
  CUresult result = driver.cuEventQuery(event);
  while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < sleeps_at) result = driver.cuEventQuery(event);
  if (result == CUDA_SUCCESS) return result;
  const CUresult awaited = await_event(driver, event);
  return result == CUDA_ERROR_NOT_READY ? awaited : result;
}

PinnedBuffer::PinnedBuffer(const CudaDriver& driver, Bytes size, std::string_view what) {
  void* memory = nullptr;
  const CUresult result = driver.cuMemHostAlloc(&memory, count(size), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  driver.check(result, "cuMemHostAlloc", fmt::format("{} for {}", to_string(size), what));
  memory_ = {memory, driver.cuMemFreeHost};
  bytes_ = {static_cast<std::byte*>(memory), count(size)};
  driver.check(driver.cuMemHostGetDevicePointer(&device_, memory, 0), "cuMemHostGetDevicePointer", what);
}

CUdeviceptr HostRanges::device_address(const std::byte* host, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(host);
  auto range = ranges_.upper_bound(address);
  TERRACE_CHECK(range != ranges_.begin());
  --range;
  const std::uint64_t within = address - range->first;
  TERRACE_CHECK(within <= range->second.size);
  TERRACE_CHECK(bytes <= range->second.size - within);
  return range->second.device + within;
}

void HostMap::add(std::span<std::byte> host, CUdeviceptr device) {
  const std::lock_guard lock{mutex_};
  const auto next = std::make_shared<HostRanges>(*now_);
  const HostRanges::Range range{host.size(), device};
  const bool added = next->ranges_.emplace(reinterpret_cast<std::uintptr_t>(host.data()), range).second;
  TERRACE_CHECK(added);
  now_ = next;
}

void HostMap::remove(std::span<std::byte> host) {
  const std::lock_guard lock{mutex_};
  const auto next = std::make_shared<HostRanges>(*now_);
  TERRACE_CHECK(next->ranges_.erase(reinterpret_cast<std::uintptr_t>(host.data())) == 1);
  now_ = next;
}

std::shared_ptr<const HostRanges> HostMap::now() const {
  const std::lock_guard lock{mutex_};
  return now_;
}

EventPool::~EventPool() { TERRACE_CHECK(out_ == 0); }

EventPool::Event EventPool::take(CUresult& result) {
  const std::lock_guard lock{mutex_};
  result = CUDA_SUCCESS;
  if (free_.empty()) {
    CUevent made = nullptr;
    const unsigned timing = timing_ == EventTiming::yes ? 0 : CU_EVENT_DISABLE_TIMING;
    result = driver_.cuEventCreate(&made, CU_EVENT_BLOCKING_SYNC | timing);
    if (result != CUDA_SUCCESS) return nullptr;
    all_.emplace_back(made, driver_.cuEventDestroy);
    free_.push_back(made);
  }
  ++out_;
  const auto give_back = [this](const CUevent* event) {
    const std::lock_guard giving{mutex_};
    free_.push_back(*event);
    --out_;
    delete event;
  };
  Event taken{new CUevent{free_.back()}, give_back};
  free_.pop_back();
  return taken;
}

}  // namespace terrace
