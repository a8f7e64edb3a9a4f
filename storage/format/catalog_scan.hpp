#pragma once

#include "storage/format/format.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Classifies the records of a catalog by the rules that a store applies when it starts. Each record becomes a block that the
/// store would serve, an orphan, a superseded record or a damaged one. It does no I/O. The owner passes the records to add(), in
/// pieces and in any order, and then calls finish() once. A slot that take_unreadable() has returned may be added again.
///
/// Threads: one. Errors: none, because every sequence of bytes has a class. Memory grows with the number of records that are not
/// zero, and not with the number of slots.
class CatalogScan {
 public:
  enum class Flaw : unsigned char {
    unreadable,  ///< the record's own checksum does not match
    misplaced,   ///< the record names another slot, another block size, or another store
    no_data,     ///< the data file ends before its block
  };
  struct Damaged {
    std::uint32_t slot = 0;
    Flaw flaw = Flaw::unreadable;
    std::optional<BlockKey> key;
  };

  /// `data_bytes(file)` returns the size of a data file, or 0 if the file is missing. It is called only for files to which
  /// records refer.
  CatalogScan(const Superblock& superblock, std::function<std::uint64_t(std::uint32_t file)> data_bytes);

  /// Adds whole records, which belong to the slots from `first` on. Records beyond the last slot are ignored.
  void add(std::uint32_t first, std::span<const std::byte> records);
  /// Returns the slots whose record was `unreadable`, and drops these records, so that they can be added again.
  [[nodiscard]] std::vector<std::uint32_t> take_unreadable();
  void finish();

  // Valid only after finish().
  /// Blocks that a store would serve, parents before children.
  [[nodiscard]] const std::vector<CatalogRecord>& blocks() const { return blocks_; }
  /// Blocks whose parent is not in blocks(). A store drops them when it starts.
  [[nodiscard]] const std::vector<CatalogRecord>& orphans() const { return orphans_; }
  /// Older records of keys that are in blocks() or orphans().
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

/// Returns true if the numbers in the superblock are within the limits that StoreLayout and CatalogScan rely on.
[[nodiscard]] bool plausible(const Superblock& superblock);
/// The superblock must be plausible().
[[nodiscard]] StoreLayout layout_of(const Superblock& superblock);

}  // namespace terrace
