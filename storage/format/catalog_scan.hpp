#pragma once

#include "storage/format/format.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// What a catalog's records come to, by the rules by which a store that starts takes them: which blocks it would serve, and
/// what of the rest is of no use to it. No I/O: the records are handed in, in pieces, in any order, and a piece once more where
/// it may have changed; finish() then sorts it out, once.
///
/// Trusts nothing: any bytes end in some classification. Costs: memory for the records that say something, not for slots.
class CatalogScan {
 public:
  enum class Flaw : unsigned char {
    unreadable,  ///< does not check itself
    misplaced,   ///< a record of another slot, another size of block, or another store
    no_data,     ///< the data file ends before its block
  };
  struct Damaged {
    std::uint32_t slot = 0;
    Flaw flaw = Flaw::unreadable;
    std::optional<BlockKey> key;
  };

  /// `data_bytes(file)`: the size of a data file, 0 where it is missing; asked only for files that records name.
  CatalogScan(const Superblock& superblock, std::function<std::uint64_t(std::uint32_t file)> data_bytes);

  /// Whole records, of the slots from `first` on. What lies beyond the last slot is left out.
  void add(std::uint32_t first, std::span<const std::byte> records);
  /// Slots whose record does not check itself, so far; they are forgotten, to be added again.
  [[nodiscard]] std::vector<std::uint32_t> take_unreadable();
  void finish();

  // After finish().
  /// What a store would serve; parents before children.
  [[nodiscard]] const std::vector<CatalogRecord>& blocks() const { return blocks_; }
  /// Blocks whose parent is not among blocks(); a store that starts drops them.
  [[nodiscard]] const std::vector<CatalogRecord>& orphans() const { return orphans_; }
  /// Older records of keys that are among blocks() or orphans().
  [[nodiscard]] const std::vector<CatalogRecord>& superseded() const { return superseded_; }
  [[nodiscard]] const std::vector<Damaged>& damaged() const { return damaged_; }
  [[nodiscard]] std::uint64_t free_slots() const;

 private:
  Superblock superblock_;
  StoreLayout layout_;
  std::function<std::uint64_t(std::uint32_t)> data_bytes_;
  std::vector<CatalogRecord> blocks_;
  std::vector<CatalogRecord> orphans_;
  std::vector<CatalogRecord> superseded_;
  std::vector<Damaged> damaged_;
};

/// Whether the superblock's numbers can be a store's: what layouts and CatalogScan rely on.
[[nodiscard]] bool plausible(const Superblock& superblock);
/// Of a plausible one.
[[nodiscard]] StoreLayout layout_of(const Superblock& superblock);

}  // namespace terrace
