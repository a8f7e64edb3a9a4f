#pragma once

#include "base/bytes.hpp"
#include "tools/bench/transfer/transfer_rig.hpp"

#include <cstdint>

namespace terrace::tools {

/// How soon compute could begin: one transfer of all the rig's blocks swapped in whole, and the same by layer. Medians, from
/// submit to the event.
struct LayersRow {
  Bytes block_bytes{};
  std::uint32_t blocks = 0;
  std::uint32_t layers = 0;
  std::uint32_t told = 0;     ///< times that more layers were there, the end not counted
  double whole_us = 0;        ///< not by layer, to the end
  double first_us = 0;        ///< by layer, to the first layers
  double all_us = 0;          ///< by layer, to the end
  double first_of_whole = 0;  ///< first_us in whole_us, round by round
  double all_of_whole = 0;
};

/// The two take turns, `rounds` times. The rig's blocks have layers.
[[nodiscard]] LayersRow measure_layers(TransferRig& rig, unsigned rounds);

}  // namespace terrace::tools
