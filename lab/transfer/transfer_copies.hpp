#pragma once

#include "lab/transfer/transfer_rig.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// The direction of the bytes in a measurement.
enum class Way : unsigned char { swap_out, swap_in, both };
/// Whether the blocks of a transfer are adjacent on both sides, or no two of them are.
enum class Layout : unsigned char { contiguous, scattered };

[[nodiscard]] std::string_view to_string(Way way);
[[nodiscard]] std::string_view to_string(Layout layout);

/// The values are medians. Speeds are for both directions together.
struct CopyRow {
  Bytes block_bytes{};
  std::uint32_t blocks = 0;           ///< in each direction
  std::uint32_t transfer_blocks = 0;  ///< blocks in each transfer except the last one
  Layout layout = Layout::contiguous;
  Way way = Way::swap_out;
  double gb_per_s = 0;        ///< from the first submit to the last event
  double plain_gb_per_s = 0;  ///< one plain copy of everything, with one thread for each direction
  double ratio = 0;           ///< relative to plain, in the same round
  double store_gb_per_s = 0;  ///< the same transfers as no request waits for
  double store_ratio = 0;     ///< relative to plain, in the same round
  double bare_gb_per_s = 0;   ///< the copies of all pieces, one after the other, with one thread for each direction
  double bare_ratio = 0;      ///< relative to bare, in the same round
  // Processor time of the control plane's thread for each block.
  double submit_ns = 0;   ///< from pairs to runs, the transfer, the queue, the wake-up
  double collect_ns = 0;  ///< collecting the events
};

/// Moves all blocks of the rig in every direction and layout. The four kinds of copy take turns in each round. A first round
/// only warms up and checks the content of every block. `piece_bytes` is that of the scheduler.
[[nodiscard]] std::vector<CopyRow> measure_copies(TransferRig& rig, Bytes piece_bytes, unsigned rounds);

}  // namespace terrace::tools
