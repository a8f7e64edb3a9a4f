#pragma once

#include "storage/io/io_engine.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/result.hpp"
#include "terrace/tier_store.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace terrace {

/// The memory that a TierStore reads and writes, and which of its rows are in use. A row is used by any number of puts, or by one
/// get. Threads: one.
class RegionTable {
 public:
  /// `engine` gets the memory registered, and must outlive this object; it may be nullptr.
  explicit RegionTable(IoEngine* engine) : engine_{engine} {}
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  /// Fails: invalid_argument, in_use (its bytes overlap those of a region).
  [[nodiscard]] Result<HostRegionId> add(const HostRows& rows, Bytes block_bytes, std::shared_ptr<const void> owner);
  /// Fails: in_use, not_found.
  [[nodiscard]] Result<void> remove(HostRegionId id);

  /// Takes all these rows for a batch of this kind (put or get), or none. Fails: not_found, invalid_argument (a row does not
  /// exist, or a get names it twice), in_use.
  [[nodiscard]] Result<void> claim(HostRegionId id, std::span<const std::uint32_t> rows, BatchKind kind);
  void release(HostRegionId id, std::uint32_t row, BatchKind kind);
  [[nodiscard]] std::span<std::byte> row(HostRegionId id, std::uint32_t row) const { return regions_.at(id).rows.row(row); }
  [[nodiscard]] std::uint32_t regions() const { return static_cast<std::uint32_t>(regions_.size()); }

  void check_invariants() const;

 private:
  /// This value in place of the number of puts: a get uses the row.
  static constexpr std::uint16_t used_by_get = 0xFFFF;
  static constexpr std::uint16_t puts_max = used_by_get - 1;
  /// An I/O engine maps pieces of less than 2 GiB.
  static constexpr Bytes piece_bytes_max = GiB;

  struct Region {
    HostRows rows;
    std::shared_ptr<const void> owner;
    std::vector<std::uint16_t> used;  ///< by row
    std::uint64_t uses = 0;           ///< sum over all rows
    std::vector<std::span<std::byte>> pieces;
  };

  void forget(const Region& region);

  IoEngine* engine_;
  std::map<HostRegionId, Region> regions_;
  std::uint32_t next_id_ = 1;
};

}  // namespace terrace
