#pragma once

#include "base/result.hpp"
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

/// The ways in which pieces cross the link.
enum class CopyMethod : unsigned char {
  batch,        ///< the copy engine, all pieces in one call (cuMemcpyBatchAsync)
  plain,        ///< the copy engine, a call a piece (cuMemcpyHtoDAsync, cuMemcpyDtoHAsync)
  kernel,       ///< a gather or scatter kernel on a few thread blocks, 16 bytes an access
  bulk_kernel,  ///< the same through shared memory with bulk copies; needs aligned pieces and compute capability 9.0
};
inline constexpr std::size_t copy_method_count = 4;
using CopyMethods = std::bitset<copy_method_count>;

[[nodiscard]] std::string_view to_string(CopyMethod method);
[[nodiscard]] std::optional<CopyMethod> parse_copy_method(std::string_view text);

/// Which method serves which pieces best on one device: by direction, size of a piece and number of pieces. Whether they are
/// contiguous needs no dimension of its own: what is contiguous has been joined to larger pieces.
///
/// Comes from a calibration (calibration.hpp), by way of a file that holds for one device and driver; the default is what is to
/// be expected where nobody has measured. Threads: constant once made.
class CopyMethodTable {
 public:
  /// The least bytes and pieces of each class; a class ends where the next begins.
  static constexpr std::array<std::uint64_t, 6> piece_bytes{0, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20};
  static constexpr std::array<std::uint64_t, 4> piece_counts{1, 4, 32, 256};

  /// Bytes per second by CopyMethod; 0 is a method that was not to be had.
  using Rates = std::array<double, copy_method_count>;
  struct Cell {
    std::array<CopyMethod, copy_method_count> order{};  ///< best first
    Rates rates{};                                      ///< all 0: not measured
  };

  /// Not measured: batches from 32 KiB a piece on; below that kernels, where there are many pieces; single pieces plainly.
  CopyMethodTable();

  [[nodiscard]] const Cell& cell(Direction direction, std::size_t bytes_class, std::size_t count_class) const {
    return cells_[static_cast<std::size_t>(direction)][bytes_class][count_class];
  }
  /// Orders the cell's methods by these rates.
  void measured(Direction direction, std::size_t bytes_class, std::size_t count_class, const Rates& rates);

  /// The best of those that are to be had and, where the pieces are not aligned, do well without. `available` has `plain`.
  [[nodiscard]] CopyMethod choose(Direction direction, const PieceShape& shape, CopyMethods available) const;

  /// JSON, with whose figures they are.
  [[nodiscard]] std::string to_json(std::string_view device, std::string_view driver) const;
  /// Fails: incompatible (of another device, driver or version), corrupt (not such a table).
  [[nodiscard]] static Result<CopyMethodTable> from_json(std::string_view text, std::string_view device, std::string_view driver);

  /// Fails: not_found, and as from_json.
  [[nodiscard]] static Result<CopyMethodTable> load(const std::filesystem::path& file, std::string_view device,
                                                    std::string_view driver);
  /// Whole or not at all, readable by its owner alone. Fails: io_failed.
  [[nodiscard]] Result<void> save(const std::filesystem::path& file, std::string_view device, std::string_view driver) const;

 private:
  using Cells = std::array<std::array<Cell, piece_counts.size()>, piece_bytes.size()>;
  std::array<Cells, direction_count> cells_;
};

}  // namespace terrace
