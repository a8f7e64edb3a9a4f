#include "transfer/cuda/pinned_chunks.hpp"

#include "base/check.hpp"

#include <fmt/format.h>
#include <unistd.h>


namespace terrace {
namespace {

/// Whole pages, which a chunk is mapped in: the driver pins no less, and some insist on it.
std::span<std::byte> whole_pages(std::span<std::byte> bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {bytes.data(), (bytes.size() + page - 1) / page * page};
}

}  // namespace

PinnedChunks::PinnedChunks(const CudaDriver& driver, CUcontext context, HostArena& arena, HostMap& map, FailureLog& failures)
    : driver_{driver}, context_{context}, arena_{arena}, map_{map}, failures_{failures} {
  if (!arena.observe(*this)) throw CudaError{failed_, refusal_};
}

PinnedChunks::~PinnedChunks() { arena_.unobserve(*this); }

Result<void> PinnedChunks::chunk_added(const ArenaChunk& chunk) {
  const std::span<std::byte> memory = whole_pages(chunk.bytes);
  const CudaOutcome outcome = pin(memory);
  if (!outcome.failed()) return {};
  failures_.note(outcome);
  failed_ = outcome.result;
  refusal_ = fmt::format("{}: {}: pinning {} of the host arena, slots {} to {}", outcome.call, driver_.describe(outcome.result),
                         to_string(Bytes{memory.size()}), chunk.slots.first.value(), chunk.slots.end() - 1);
  return Errc::io_failed;
}

CudaOutcome PinnedChunks::pin(std::span<std::byte> memory) {
  const CurrentContext current{driver_, context_};
  if (current.result() != CUDA_SUCCESS) return {current.result(), "cuCtxPushCurrent"};
  const RelaxedCapture relaxed{driver_};
  // For every context, and where kernels can reach it.
  constexpr unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  const CUresult registered = driver_.cuMemHostRegister(memory.data(), memory.size(), flags);
  if (registered != CUDA_SUCCESS) return {registered, "cuMemHostRegister"};
  CUdeviceptr address = 0;
  const CUresult mapped = driver_.cuMemHostGetDevicePointer(&address, memory.data(), 0);
  if (mapped != CUDA_SUCCESS) {
    static_cast<void>(driver_.cuMemHostUnregister(memory.data()));
    return {mapped, "cuMemHostGetDevicePointer"};
  }
  registered_.insert(memory.data());
  map_.add(memory, address);
  return {};
}

void PinnedChunks::chunk_removing(const ArenaChunk& chunk) {
  map_.remove(chunk.bytes);
  const CurrentContext current{driver_, context_};
  if (current.result() != CUDA_SUCCESS) failures_.note({current.result(), "cuCtxPushCurrent"});
  const RelaxedCapture relaxed{driver_};
  TERRACE_CHECK(registered_.erase(chunk.bytes.data()) == 1);
  const CUresult taken_back = driver_.cuMemHostUnregister(chunk.bytes.data());
  if (taken_back != CUDA_SUCCESS) failures_.note({taken_back, "cuMemHostUnregister"});
}

}  // namespace terrace
