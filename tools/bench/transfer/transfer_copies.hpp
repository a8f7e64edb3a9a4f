#pragma once

#include "base/bytes.hpp"
#include "tools/bench/transfer/transfer_rig.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// Which way the bytes of a measurement go.
enum class Way : unsigned char { swap_out, swap_in, both };
/// Whether a transfer's blocks are adjacent on both sides, or no two of them.
enum class Layout : unsigned char { contiguous, scattered };

[[nodiscard]] std::string_view to_string(Way way);
[[nodiscard]] std::string_view to_string(Layout layout);

/// Medians. Speeds are of both directions together.
struct CopyRow {
  Bytes block_bytes{};
  std::uint32_t blocks = 0;           ///< a direction
  std::uint32_t transfer_blocks = 0;  ///< of each transfer but the last
  Layout layout = Layout::contiguous;
  Way way = Way::swap_out;
  double gb_per_s = 0;        ///< from the first submit to the last event
  double plain_gb_per_s = 0;  ///< one plain copy of everything, a thread a direction
  double ratio = 0;           ///< to plain, round by round
  double bare_gb_per_s = 0;   ///< the copies that the pieces consist of, one after the other, a thread a direction
  double bare_ratio = 0;      ///< to bare
  // Of the control plane's thread's processor time, a block.
  double submit_ns = 0;   ///< pairs to runs, the transfer, the queue, the wake-up
  double collect_ns = 0;  ///< taking in the events
};

/// Moves all blocks of the rig in every way and layout, the three kinds of copy in turn in each round, after a round that warms
/// up and in which every block is looked at. `piece_bytes`: the lanes'.
[[nodiscard]] std::vector<CopyRow> measure_copies(TransferRig& rig, Bytes piece_bytes, unsigned rounds);

}  // namespace terrace::tools
