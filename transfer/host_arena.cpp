#include "transfer/host_arena.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace terrace {
namespace {

std::uint32_t slots_in_a_chunk(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes) {
  if (count(block_bytes) == 0) throw std::invalid_argument{"host arena: the block size must not be 0"};
  if (block_bytes > chunk_bytes) {
    throw std::invalid_argument{fmt::format("host arena: a block of {} does not fit a chunk of {}",
                                            to_string(block_bytes), to_string(chunk_bytes))};
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes / block_bytes, std::max(slots, 1U)));
}

}  // namespace

HostArena::HostArena(std::uint32_t slots, Bytes block_bytes, Bytes chunk_bytes)
    : slots_{slots}, block_bytes_{block_bytes}, slots_per_chunk_{slots_in_a_chunk(slots, block_bytes, chunk_bytes)} {
  for (std::uint64_t mapped = 0; mapped < slots; mapped += slots_per_chunk_) {
    const std::uint64_t here = std::min<std::uint64_t>(slots_per_chunk_, slots - mapped);
    chunks_.emplace_back(block_bytes * here,
                         fmt::format("host arena of {} slots of {}, at slot {}", slots, to_string(block_bytes), mapped));
  }
}

std::span<std::byte> HostArena::block(SlotId slot) const {
  TERRACE_CHECK(slot.value() < slots_);
  const std::uint64_t within = slot.value() % slots_per_chunk_;
  return chunks_[slot.value() / slots_per_chunk_].bytes().subspan(within * count(block_bytes_), count(block_bytes_));
}

std::uint32_t HostArena::contiguous_from(SlotId slot) const {
  TERRACE_CHECK(slot.value() < slots_);
  const std::uint32_t chunk_left = slots_per_chunk_ - slot.value() % slots_per_chunk_;
  return std::min(chunk_left, slots_ - slot.value());
}

}  // namespace terrace
