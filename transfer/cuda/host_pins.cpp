#include "transfer/cuda/host_pins.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace terrace {
namespace {

/// Rounds up to whole pages, which are always mapped. The driver pins whole pages, and some drivers require them.
std::span<std::byte> whole_pages(std::span<std::byte> bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {bytes.data(), (bytes.size() + page - 1) / page * page};
}

}  // namespace

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

PinnedChunks::PinnedChunks(const HostPins::User& user, HostPins& pins, HostSlots& host, HostMap& map, FailureLog& failures)
    : user_{user}, pins_{pins}, host_{host}, map_{map}, failures_{failures} {
  if (!host.observe(*this)) throw CudaError{failed_, refusal_};
}

Result<void> PinnedChunks::chunk_added(const HostChunk& chunk) {
  const std::span<std::byte> memory = whole_pages(chunk.bytes);
  CUdeviceptr address = 0;
  const CudaOutcome outcome = pins_.pin(user_, memory, address);
  if (!failures_.note(outcome)) {
    map_.add(memory, address);
    return {};
  }
  failed_ = outcome.result;
  refusal_ = fmt::format("{}: {}: pinning {} of the host arena, slots {} to {}, for device {}", outcome.call,
                         user_.driver.describe(outcome.result), to_string(Bytes{memory.size()}), chunk.slots.first.value(),
                         chunk.slots.end() - 1, user_.device);
  if (outcome.result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
    refusal_ += "; another device has pinned it, and does not share its pins (CudaOptions::pins)";
  }
  return Errc::io_failed;
}

void PinnedChunks::chunk_removing(const HostChunk& chunk) {
  map_.remove(chunk.bytes);
  const CudaOutcome outcome = pins_.unpin(user_, chunk.bytes.data());
  failures_.note(outcome);
}

}  // namespace terrace
