#pragma once

#include "base/waker.hpp"
#include "storage/index/store_operations.hpp"
#include "terrace/block_store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace terrace {

/// A store that keeps its blocks in memory and loses them at the end of the process. It is for tests and replays without a disk,
/// and it is the simplest example of the BlockStore contract. The next poll() executes the submitted operations in order, so
/// callers see operations under way as with any other store. Reads are verified as in a file store.
///
/// Memory is allocated by the constructor, and by a resize() to more blocks than ever before; it is kept until the end. Pages are
/// first touched when a slot is first written. resize() also fails with no_room if there is no memory; new slots are usable at
/// once. Threads: one.
class MemoryStore final : public BlockStore {
 public:
  /// `waker` may be null. If given, it is woken by every call that leaves something to poll, and it must outlive the store.
  /// Throws std::invalid_argument if a number is 0, std::bad_alloc if there is not enough memory.
  MemoryStore(std::uint32_t capacity_blocks, Bytes block_bytes, Waker* waker = nullptr);
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  [[nodiscard]] bool contains(const BlockKey& key) const override { return operations_.contains(key); }
  void touch(std::span<const BlockKey> keys) override;
  /// The `flushed` event only means that no operation is left to wait for. No block survives the process.
  void flush(std::uint64_t token) override;
  void adopt_all(const Adopt& adopt) override { operations_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(Blocks blocks) override;
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return operations_.in_flight() + flushes_.size(); }
  void set_waker(Waker* waker) override { waker_ = waker; }
  [[nodiscard]] Bytes block_bytes() const override { return block_bytes_; }
  [[nodiscard]] StoreStat stat() const override { return operations_.stat(); }
  [[nodiscard]] StoreStat quick_stat() const override { return operations_.quick_stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { operations_.for_each(visit); }
  void check_invariants() const override { operations_.check_invariants(); }

  /// For tests that damage blocks: the bytes of the block, or an empty span if the block is not readable.
  [[nodiscard]] std::span<std::byte> raw(const BlockKey& key);
  /// For tests: the next write fails with io_failed, as on a bad sector.
  void fail_next_write() { fail_next_write_ = true; }
  /// For tests: the error with which flushes end from now on.
  void fail_flushes(ErrorCode error) { flush_error_ = error; }
  /// For tests: while this is true, flushes stay under way, as on a slow disk.
  void hold_flushes(bool held) { flushes_held_ = held; }

 private:
  struct Work {
    StoreOperations::Started started;
    BlockKey key;
    std::span<std::byte> into;        ///< for a read
    std::span<const std::byte> from;  ///< for a write
  };

  [[nodiscard]] std::span<std::byte> slot_bytes(SlotId slot);
  void carry_out(const Work& work);
  void wake();
  void shrink();

  struct Chunk {
    std::uint32_t first;  ///< the number of its first slot
    std::unique_ptr<std::byte[]> bytes;
  };

  Bytes block_bytes_;
  Waker* waker_;
  std::vector<Chunk> chunks_;             ///< in the order of slot numbers
  std::vector<std::uint64_t> checksums_;  ///< by slot
  StoreOperations operations_;
  std::vector<Work> queue_;
  std::vector<SlotId> changed_;  ///< scratch; there is no catalog that needs it
  std::vector<SlotId> closed_;   ///< scratch
  bool fail_next_write_ = false;
  std::vector<std::uint64_t> flushes_;  ///< tokens
  ErrorCode flush_error_;
  bool flushes_held_ = false;
};

}  // namespace terrace
