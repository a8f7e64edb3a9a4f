#pragma once

#include "base/waker.hpp"
#include "storage/index/block_store.hpp"
#include "storage/index/store_operations.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace terrace {

/// Keeps its blocks in memory: the store of tests, of replays without a disk, and the simplest example of the contract. Gone
/// with the process. What a call asked for is done by the next poll(), in order, so that everything the contract says about
/// operations under way can be seen here too. Reads are verified as a file's are.
///
/// Memory is taken at construction and by a resize() that needs more, touched as slots are first written, and kept until the end.
/// resize() fails with no_room, too, where there is no memory; what it opens is there at once. Threads: one.
class MemoryStore final : public BlockStore {
 public:
  /// `waker`, where given, is woken by every call that leaves something to poll; it outlives the store. Throws
  /// std::invalid_argument where a number is 0, std::bad_alloc where the memory is not to be had.
  MemoryStore(std::uint32_t capacity_blocks, Bytes block_bytes, Waker* waker = nullptr);

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  [[nodiscard]] bool contains(const BlockKey& key) const override { return operations_.contains(key); }
  void touch(std::span<const BlockKey> keys) override;
  /// Nothing survives the process; what this says is that there is nothing to wait for.
  void flush(std::uint64_t token) override;
  void adopt_all(const Adopt& adopt) override { operations_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(std::uint32_t blocks) override;
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return operations_.in_flight() + flushes_.size(); }
  [[nodiscard]] Bytes block_bytes() const override { return block_bytes_; }
  [[nodiscard]] StoreStat stat() const override { return operations_.stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override;
  void check_invariants() const override { operations_.check_invariants(); }

  /// The block's bytes, for tests that damage them; empty where it is not readable.
  [[nodiscard]] std::span<std::byte> raw(const BlockKey& key);
  /// The next write that is carried out fails with io_failed, as on a bad sector.
  void fail_next_write() { fail_next_write_ = true; }
  /// What flushes end with from now on.
  void fail_flushes(ErrorCode error) { flush_error_ = error; }
  /// While they are held, flushes are under way, as on a slow disk.
  void hold_flushes(bool held) { flushes_held_ = held; }

 private:
  struct Work {
    StoreOperations::Started started;
    BlockKey key;
    std::span<std::byte> into;        ///< of a read
    std::span<const std::byte> from;  ///< of a write
  };

  [[nodiscard]] std::span<std::byte> slot_bytes(SlotId slot);
  void carry_out(const Work& work);
  void wake();
  void shrink();
  void open_closed();

  struct Chunk {
    std::uint32_t first;  ///< slot
    std::unique_ptr<std::byte[]> bytes;
  };

  Bytes block_bytes_;
  Waker* waker_;
  std::vector<Chunk> chunks_;             ///< in the order of their slots
  std::vector<std::uint64_t> checksums_;  ///< by slot
  StoreOperations operations_;
  std::vector<Work> queue_;
  std::vector<SlotId> changed_;  ///< scratch: there is no catalog to tell
  std::vector<SlotId> closed_;   ///< scratch
  bool fail_next_write_ = false;
  std::vector<std::uint64_t> flushes_;  ///< by token
  ErrorCode flush_error_;
  bool flushes_held_ = false;
};

}  // namespace terrace
