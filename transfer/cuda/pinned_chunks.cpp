#include "transfer/cuda/pinned_chunks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <span>

namespace terrace {
namespace {

/// Rounds up to whole pages, which are always mapped. The driver pins whole pages, and some drivers require them.
std::span<std::byte> whole_pages(std::span<std::byte> bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {bytes.data(), (bytes.size() + page - 1) / page * page};
}

}  // namespace

PinnedChunks::PinnedChunks(const HostPins::User& user, HostPins& pins, HostSlots& host, HostMap& map, FailureLog& failures)
    : user_{user}, pins_{pins}, host_{host}, map_{map}, failures_{failures} {
  if (!host.observe(*this)) throw CudaError{failed_, refusal_};
}

PinnedChunks::~PinnedChunks() { host_.unobserve(*this); }

Result<void> PinnedChunks::chunk_added(const HostChunk& chunk) {
  const std::span<std::byte> memory = whole_pages(chunk.bytes);
  CUdeviceptr address = 0;
  const CudaOutcome outcome = pins_.pin(user_, memory, address);
  if (!outcome.failed()) {
    map_.add(memory, address);
    return {};
  }
  failures_.note(outcome);
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
  if (outcome.failed()) failures_.note(outcome);
}

}  // namespace terrace
