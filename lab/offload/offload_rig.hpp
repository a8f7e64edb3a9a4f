#pragma once

#include "lab/offload/offload.hpp"
#include "lab/questions.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::tools {

enum class OffloadWay : unsigned char { store, load };
enum class OffloadHome : unsigned char {
  host,     ///< the host tier has room for twice the blocks
  storage,  ///< it has room for a quarter of them, and memory in place of a disk has all
};

struct OffloadShape {
  OffloadDevice device = OffloadDevice::instant;
  Bytes block_bytes{};
  std::uint32_t blocks = 0;  ///< a multiple of keys_a_question
  KeyOrder key_order = KeyOrder::flat;
  OffloadHome home = OffloadHome::host;
  OffloadLimits limits{};
};

/// An OffloadCache over a device in memory of the rig, and memory for plain copies of the same blocks. Blocks are moved in orders
/// of 32, from and to scattered slots. In prefix order, the 32 keys are a prefix. Threads: one.
class OffloadRig {
 public:
  /// Throws as CacheSystem does.
  explicit OffloadRig(const OffloadShape& shape);

  /// Gives all slots new keys. Blocks of earlier keys stay in the cache until they are evicted.
  void name_new_blocks();
  /// Orders a move of all blocks and waits for its end. Returns the seconds. Throws std::runtime_error if a block is not moved.
  [[nodiscard]] double move(OffloadWay way);
  /// Copies the same blocks with memcpy, in the same order. Returns the seconds.
  [[nodiscard]] double copy(OffloadWay way);
  /// Waits until nothing is under way, writes to storage included.
  void settle();
  /// Overwrites the first bytes of every slot.
  void overwrite();
  /// Throws std::runtime_error if the slots do not have their content.
  void check() const;
  /// Orders a load that exceeds the bound of blocks, `orders` times. Returns the seconds. Throws std::runtime_error if one is
  /// accepted.
  [[nodiscard]] double refuse(std::uint32_t orders);

  [[nodiscard]] const OffloadShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<BlockKey>& keys() const { return keys_; }
  [[nodiscard]] const OffloadCache& cache() const { return *offload_; }

 private:
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t n) const;
  [[nodiscard]] OffloadOrder order(std::uint32_t n) const;
  /// Returns whether another order can begin now.
  [[nodiscard]] bool has_room(OffloadWay way) const;
  /// Returns the number of jobs that have ended.
  std::uint32_t collect();
  void wait() const;

  OffloadShape shape_;
  AlignedBuffer device_memory_;
  AlignedBuffer plain_memory_;
  std::vector<SlotId> slots_;  ///< in the order in which they are moved
  std::vector<BlockKey> keys_;
  std::vector<std::uint64_t> marks_;  ///< the first bytes of every slot
  std::uint64_t next_key_ = 0;
  std::uint32_t in_flight_max_ = 0;
  std::unique_ptr<CacheSystem> system_;
  std::unique_ptr<OffloadCache> offload_;
};

}  // namespace terrace::tools
