#include "transfer/cuda/host_pins.hpp"

#include "base/check.hpp"

#include <sys/mman.h>

#include <utility>

namespace terrace {

HostPins::~HostPins() { TERRACE_CHECK(pins_.empty()); }

CudaOutcome HostPins::pin(const User& user, std::span<std::byte> memory, CUdeviceptr& address) {
  const std::lock_guard lock{mutex_};
  const CurrentContext current{user.driver, user.context};
  if (current.result() != CUDA_SUCCESS) return {current.result(), "cuCtxPushCurrent"};
  const RelaxedCapture relaxed{user.driver};
  const auto found = pins_.find(memory.data());
  Pin made;
  if (found == pins_.end()) {
    const CudaOutcome registered = register_in(user, memory, made);
    if (registered.failed()) return registered;
  } else {
    TERRACE_CHECK(found->second.size == memory.size());
  }
  const CUresult mapped = user.driver.cuMemHostGetDevicePointer(&address, memory.data(), 0);
  if (mapped != CUDA_SUCCESS) {
    if (found == pins_.end()) static_cast<void>(user.driver.cuMemHostUnregister(memory.data()));
    return {mapped, "cuMemHostGetDevicePointer"};
  }
  Pin& pin = found == pins_.end() ? pins_.emplace(memory.data(), std::move(made)).first->second : found->second;
  ++pin.users;
  return {};
}

CudaOutcome HostPins::register_in(const User& user, std::span<std::byte> memory, Pin& pin) {
  const CUresult retained = user.driver.cuDevicePrimaryCtxRetain(&pin.registered_in, user.device);
  if (retained != CUDA_SUCCESS) return {retained, "cuDevicePrimaryCtxRetain"};
  pin.retained = {user.device, user.driver.cuDevicePrimaryCtxRelease};
  pin.size = memory.size();
  // Register the memory for all contexts, and map it so that kernels can reach it.
  constexpr unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  const CUresult registered = user.driver.cuMemHostRegister(memory.data(), memory.size(), flags);
  // After a fork, the first write to a page would give this process a copy of the page, and the device would keep the old one. It
  // is a precaution: the kernel may refuse it for special mappings.
  if (registered == CUDA_SUCCESS) static_cast<void>(::madvise(memory.data(), memory.size(), MADV_DONTFORK));
  return {registered, "cuMemHostRegister"};
}

CudaOutcome HostPins::unpin(const User& user, const std::byte* begin) {
  const std::lock_guard lock{mutex_};
  const auto found = pins_.find(begin);
  TERRACE_CHECK(found != pins_.end());
  if (--found->second.users > 0) return {};
  const auto last = pins_.extract(found);
  static_cast<void>(::madvise(const_cast<std::byte*>(begin), last.mapped().size, MADV_DOFORK));
  const CUcontext registered_in = last.mapped().registered_in;
  const CudaOutcome outcome = take_back_in(user.driver, registered_in, begin);
  if (!outcome.failed() || registered_in == user.context) return outcome;
  return take_back_in(user.driver, user.context, begin);
}

CudaOutcome HostPins::take_back_in(const CudaDriver& driver, CUcontext context, const std::byte* begin) {
  const CurrentContext current{driver, context};
  if (current.result() != CUDA_SUCCESS) return {current.result(), "cuCtxPushCurrent"};
  const RelaxedCapture relaxed{driver};
  return {driver.cuMemHostUnregister(const_cast<std::byte*>(begin)), "cuMemHostUnregister"};
}

}  // namespace terrace
