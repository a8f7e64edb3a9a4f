#pragma once

#include "lab/transfer/transfer_rig.hpp"
#include "terrace/types.hpp"

#include <cstdint>

namespace terrace::tools {

/// How early compute could begin: one transfer of all the rig's blocks as a whole, and the same by layer. The values are medians
/// of the time from submit to the event.
struct LayersRow {
  Bytes block_bytes{};
  std::uint32_t blocks = 0;
  std::uint32_t layers = 0;
  std::uint32_t told = 0;     ///< how many events reported further layers, without the last event
  double whole_us = 0;        ///< as a whole, until its end
  double first_us = 0;        ///< by layer, until the first layers arrived
  double all_us = 0;          ///< by layer, until its end
  double first_of_whole = 0;  ///< first_us divided by whole_us, in the same round
  double all_of_whole = 0;
};

/// The two kinds take turns, `rounds` times. The rig's blocks must have layers.
[[nodiscard]] LayersRow measure_layers(TransferRig& rig, unsigned rounds);

}  // namespace terrace::tools
