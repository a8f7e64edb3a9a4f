#pragma once

#include "terrace/result.hpp"
#include "transfer/cuda/copy/copy_pieces.hpp"
#include "transfer/device/transfer.hpp"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// The methods by which pieces are copied over the link.
enum class CopyMethod : unsigned char {
  batch,        ///< the copy engine, all pieces in one call (cuMemcpyBatchAsync)
  plain,        ///< the copy engine, one call for each piece (cuMemcpyHtoDAsync, cuMemcpyDtoHAsync)
  kernel,       ///< a gather or scatter kernel on a few thread blocks, 16 bytes per access
  bulk_kernel,  ///< the same through shared memory with bulk copies; needs aligned pieces and compute capability 9.0
};
inline constexpr std::size_t copy_method_count = 4;
using CopyMethods = std::bitset<copy_method_count>;

[[nodiscard]] std::string_view to_string(CopyMethod method);
[[nodiscard]] std::optional<CopyMethod> parse_copy_method(std::string_view text);

/// Identifies the machine and the code for which measured rates are valid. If any field differs, the rates are measured anew.
struct CopyTableKey {
  std::string device;
  std::string driver;
  std::string kernels;  ///< the revision of the copy kernels, and how they are launched

  friend bool operator==(const CopyTableKey&, const CopyTableKey&) = default;
};

/// The best copy method for pieces on one device, by direction, size of a piece and number of pieces. Contiguous pieces have been
/// joined before, so the table does not distinguish whether pieces are contiguous.
///
/// A calibration (calibration.hpp) makes a table and saves it in a file, which is valid for one CopyTableKey. The default table
/// has estimates. Threads: any, once the table is complete.
class CopyMethodTable {
 public:
  /// The smallest size and the smallest number of pieces of each class. A class ends where the next one begins.
  static constexpr std::array<std::uint64_t, 6> piece_bytes{0, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20};
  static constexpr std::array<std::uint64_t, 4> piece_counts{1, 4, 32, 256};

  /// Bytes per second by CopyMethod; 0: the method was not available.
  using Rates = std::array<double, copy_method_count>;
  struct Cell {
    std::array<CopyMethod, copy_method_count> order{};  ///< best first
    Rates rates{};                                      ///< all 0: not measured
  };

  /// Makes a table of estimates: `plain` for single pieces; `kernel` for many pieces of less than 32 KiB; `batch` otherwise.
  CopyMethodTable();

  [[nodiscard]] const Cell& cell(Direction direction, std::size_t bytes_class, std::size_t count_class) const {
    return cells_[static_cast<std::size_t>(direction)][bytes_class][count_class];
  }
  /// Copies by a kernel take multiprocessors from compute. So a kernel counts as better only if it is faster by this factor.
  static constexpr double kernel_advantage = 1.3;
  /// Orders the methods of the cell by these rates.
  void measured(Direction direction, std::size_t bytes_class, std::size_t count_class, const Rates& rates);

  /// Returns the best available method for these pieces. If they are not aligned, it never returns a kernel. `available` must
  /// contain `plain`.
  [[nodiscard]] CopyMethod choose(Direction direction, const PieceShape& shape, CopyMethods available) const;

  /// Returns the table as JSON, with its key.
  [[nodiscard]] std::string to_json(const CopyTableKey& key) const;
  /// Reads the JSON of a table. Fails: incompatible (it has another key or format version), corrupt (it is not a table).
  [[nodiscard]] static Result<CopyMethodTable> from_json(std::string_view text, const CopyTableKey& key);

  /// Reads the file. Fails: not_found, and as from_json() does.
  [[nodiscard]] static Result<CopyMethodTable> load(const std::filesystem::path& file, const CopyTableKey& key);
  /// Writes the file, completely or not at all. Only its owner can read it. Fails: io_failed.
  [[nodiscard]] Result<void> save(const std::filesystem::path& file, const CopyTableKey& key) const;

 private:
  using Cells = std::array<std::array<Cell, piece_counts.size()>, piece_bytes.size()>;
  std::array<Cells, direction_count> cells_;
};

}  // namespace terrace
