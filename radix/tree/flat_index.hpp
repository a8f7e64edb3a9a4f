#pragma once

#include "base/chunked_table.hpp"
#include "base/key_table.hpp"
#include "radix/tree/copy.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace terrace {

/// The index of a flat PrefixTree: the slots of cached blocks that do not depend on each other. A block takes a row of 60 bytes,
/// and four bytes in an open hash table that is between three fifths and three quarters full. The rows also hold the order of
/// eviction: the least recently used block without a pin is evicted first. So a block costs at most 67 bytes, including its
/// eviction order. A prefix tree needs three times as much for an unchained block.
///
/// Only host and storage have copies here. The NodeId of a block is the number of its row; it is valid while the block exists. A
/// block is removed when it has lost its last copy and its last pin.
///
/// Threads: one. Each call costs O(1), except hide_all(), the visits and the checks.
class FlatIndex {
 public:
  [[nodiscard]] std::optional<NodeId> find(const BlockKey& key) const;
  /// Returns the block with this key, which is added without copies if there is none. The caller must pin it or give it a copy.
  [[nodiscard]] NodeId add(const BlockKey& key, TenantId tenant);

  [[nodiscard]] Copy copy(NodeId block, Tier tier) const { return *copies(block, tier); }
  /// Returns the address of the copy. For the device, the copy is always absent.
  [[nodiscard]] const Copy* copies(NodeId block, Tier tier) const;
  void set_copy(NodeId block, Tier tier, Copy copy);
  [[nodiscard]] const BlockKey& key(NodeId block) const { return rows_[block.value()].key; }
  [[nodiscard]] TenantId tenant(NodeId block) const { return tenants_[rows_[block.value()].tenant]; }

  void pin(NodeId block);
  void unpin(NodeId block);
  [[nodiscard]] bool pinned(NodeId block) const { return rows_[block.value()].pins > 0; }
  [[nodiscard]] std::uint32_t pins(NodeId block) const { return rows_[block.value()].pins; }
  /// Records a use of the block. A stamp that is older than the last use changes nothing.
  void touch(NodeId block, std::uint64_t stamp);
  [[nodiscard]] std::uint64_t last_use(NodeId block) const;
  /// Returns the block whose host copy is evicted first: the least recently used block that is ready and not pinned. The end of
  /// the last pin counts as a use.
  [[nodiscard]] std::optional<NodeId> victim() const;

  /// Hides all blocks that exist now: find() does not return them any more.
  void hide_all();
  [[nodiscard]] bool hidden(NodeId block) const { return rows_[block.value()].hidden != 0; }
  [[nodiscard]] bool any_hidden() const { return hidden_ > 0; }

  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t resident(Tier tier) const { return resident_[index(tier)]; }
  /// Returns the number of host copies of pinned blocks.
  [[nodiscard]] std::uint64_t pinned_resident() const { return pinned_resident_; }
  /// Returns a number that is larger than the numbers of all blocks.
  [[nodiscard]] std::uint32_t end() const { return static_cast<std::uint32_t>(rows_.size()); }
  [[nodiscard]] bool exists(NodeId block) const { return block.value() < rows_.size() && rows_[block.value()].live != 0; }
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr unsigned row_bits = Copy::slot_bits;
  static constexpr std::uint32_t pins_max = (1U << 24U) - 1;
  struct Row {
    BlockKey key;
    std::array<Copy, 2> copies{};  ///< host, storage
    std::uint32_t next = none;     ///< in the order of eviction, or in the list of free rows
    std::uint32_t previous = none;
    std::uint32_t last_use_low = 0;
    std::uint32_t pins : 24 = 0;
    std::uint32_t last_use_high : 8 = 0;
    std::uint16_t tenant = 0;
    std::uint16_t live : 1 = 0;
    std::uint16_t hidden : 1 = 0;
    std::uint16_t listed : 1 = 0;  ///< in the order of eviction
  };
  static_assert(sizeof(Row) == 60);

  [[nodiscard]] Row& row(NodeId block) { return rows_[block.value()]; }
  /// The row and three bits of the key, so that most other rows need not be read.
  struct Bucket {
    std::uint32_t word = none;

    Bucket() = default;
    Bucket(const BlockKey& key, std::uint32_t row) : word{static_cast<std::uint32_t>(key.prefix64() >> 61U) << row_bits | row} {}
    [[nodiscard]] bool empty() const { return word == none; }
    [[nodiscard]] std::uint32_t row() const { return word & ((1U << row_bits) - 1); }
    friend bool operator==(Bucket, Bucket) = default;
  };
  [[nodiscard]] static std::uint32_t hash(const BlockKey& key) { return static_cast<std::uint32_t>(key.prefix64()); }
  [[nodiscard]] auto hash_of() const {
    return [this](Bucket bucket) { return hash(rows_[bucket.row()].key); };
  }
  [[nodiscard]] std::uint16_t tenant_index(TenantId tenant);
  void refresh(NodeId block);
  void list(NodeId block);
  void unlist(NodeId block);
  void leave_if_empty(NodeId block);

  ChunkedTable<Row> rows_;
  ProbedTable<Bucket> table_;
  std::uint32_t free_ = none;
  std::uint32_t oldest_ = none;
  std::uint32_t newest_ = none;
  std::vector<TenantId> tenants_{TenantId{}};
  boost::unordered_flat_map<TenantId, std::uint16_t, std::hash<TenantId>> tenant_indices_;
  std::uint64_t blocks_ = 0;
  std::uint64_t hidden_ = 0;
  std::array<std::uint64_t, tier_count> resident_{};
  std::uint64_t pinned_resident_ = 0;
};

}  // namespace terrace
