#include "storage/memory/memory_store.hpp"

#include "base/check.hpp"
#include "storage/io/checksum.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

constexpr Fingerprint any_geometry{};

std::uint32_t checked_capacity(std::uint32_t capacity_blocks, Bytes block_bytes) {
  if (capacity_blocks == 0) throw std::invalid_argument{"a memory store needs a capacity of at least one block"};
  if (count(block_bytes) == 0) throw std::invalid_argument{"a memory store needs blocks of at least one byte"};
  return capacity_blocks;
}

}  // namespace

// The memory is not initialised, so that a large store does not touch all its memory before it holds blocks.
MemoryStore::MemoryStore(std::uint32_t capacity_blocks, Bytes block_bytes, Waker* waker)
    : block_bytes_{block_bytes},
      waker_{waker},
      checksums_(checked_capacity(capacity_blocks, block_bytes), 0),
      operations_{capacity_blocks, block_bytes, std::numeric_limits<std::uint32_t>::max()} {
  chunks_.push_back({0, std::unique_ptr<std::byte[]>{new std::byte[capacity_blocks * count(block_bytes)]}});
}

std::span<std::byte> MemoryStore::slot_bytes(SlotId slot) {
  auto chunk = chunks_.end() - 1;
  while (chunk->first > slot.value()) --chunk;
  return {chunk->bytes.get() + (slot.value() - chunk->first) * count(block_bytes_), count(block_bytes_)};
}

void MemoryStore::read(std::span<const StoreRead> batch) {
  operations_.begin_call();
  for (const StoreRead& read : batch) {
    TERRACE_CHECK(read.into.size() == count(block_bytes_));
    if (const auto started = operations_.start_read(read)) queue_.push_back({*started, read.key, read.into, {}});
  }
  wake();
}

void MemoryStore::write(std::span<const StoreWrite> batch) {
  operations_.begin_call();
  for (const StoreWrite& write : batch) {
    TERRACE_CHECK(write.from.size() == count(block_bytes_));
    if (const auto started = operations_.start_write(write)) queue_.push_back({*started, write.block.key, {}, write.from});
  }
  wake();
}

void MemoryStore::remove(std::span<const BlockKey> keys, std::uint64_t token) {
  operations_.begin_call();
  operations_.remove(keys, token);
  wake();
}

void MemoryStore::touch(std::span<const BlockKey> keys) {
  operations_.begin_call();
  operations_.touch(keys);
}

void MemoryStore::flush(std::uint64_t token) {
  flushes_.push_back(token);
  wake();
}

Result<void> MemoryStore::resize(Blocks wanted) {
  const std::uint32_t blocks = wanted.value();
  if (blocks == 0) return Errc::invalid_argument;
  if (blocks == std::numeric_limits<std::uint32_t>::max()) return Errc::never_fits;
  StoreIndex& index = operations_.index();
  const std::uint32_t before = index.slots();
  if (blocks > before) {
    std::unique_ptr<std::byte[]> bytes{new (std::nothrow) std::byte[(blocks - before) * count(block_bytes_)]};
    if (!bytes) return Errc::no_room;
    chunks_.push_back({before, std::move(bytes)});
    checksums_.resize(blocks, 0);
    operations_.extend(blocks);
    for (std::uint32_t slot = before; slot < blocks; ++slot) index.put_closed(SlotId{slot});
  }
  operations_.begin_call();
  index.limit(blocks);
  closed_.clear();
  if (blocks > index.capacity()) index.take_closed(blocks - index.capacity(), closed_);
  for (const SlotId slot : closed_) index.open(slot);
  shrink();
  wake();
  return {};
}

void MemoryStore::shrink() {
  StoreIndex& index = operations_.index();
  if (index.excess() > 0) (void)operations_.shrink(index.excess());
  index.take_closing(closed_);
  for (const SlotId slot : closed_) index.close(slot);
}

std::size_t MemoryStore::poll(std::vector<StoreEvent>& out) {
  for (const Work& work : queue_) carry_out(work);
  queue_.clear();
  shrink();
  operations_.take_changed(changed_);
  if (!flushes_held_) {
    for (const std::uint64_t token : flushes_) operations_.end_flush(token, flush_error_);
    flushes_.clear();
  }
  return operations_.poll(out);
}

void MemoryStore::carry_out(const Work& work) {
  const std::span<std::byte> slot = slot_bytes(work.started.slot);
  std::uint64_t& checksum = checksums_[work.started.slot.value()];
  if (!work.into.empty()) {
    std::memcpy(work.into.data(), slot.data(), slot.size());
    const bool verified = payload_checksum(work.key, any_geometry, work.into) == checksum;
    using Outcome = StoreOperations::ReadOutcome;
    operations_.end_read(work.started.id, verified ? Outcome::verified : Outcome::corrupt);
    return;
  }
  using Outcome = StoreOperations::WriteOutcome;
  if (std::exchange(fail_next_write_, false)) return operations_.end_write(work.started.id, Outcome::io_failed);
  checksum = payload_checksum(work.key, any_geometry, work.from);
  std::memcpy(slot.data(), work.from.data(), slot.size());
  operations_.end_write(work.started.id, Outcome::done);
}

std::span<std::byte> MemoryStore::raw(const BlockKey& key) {
  const std::optional<SlotId> slot = operations_.index().find(key);
  if (!slot || operations_.index().at(*slot).state != StoreIndex::State::ready) return {};
  return slot_bytes(*slot);
}

void MemoryStore::wake() {
  if (waker_ != nullptr && in_flight() > 0) waker_->wake();
}

}  // namespace terrace
