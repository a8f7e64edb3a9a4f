#pragma once

#include "lab/rows.hpp"
#include "lab/transfer/transfer_rig.hpp"
#include "terrace/types.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <vector>

namespace terrace::tools {

/// Moves all blocks of the rig in every direction (way), from and to blocks that are adjacent on both sides, or no two of which
/// are (layout). A first round only warms up and checks the content of every block.
///
/// The speeds are for both directions together: from the first submit to the last event (gb_per_s), the same of transfers that no
/// request waits for (store_...), of one plain copy of everything (plain_...), and of the copies of all pieces one after the
/// other (bare_...); the plain and bare copies have one thread for each direction. The four take turns in each round, and the
/// ratios are of the same round. submit_ns and collect_ns are processor time of the control plane's thread for each block: from
/// pairs to the wake-up of the lanes, and to collect the events.
[[nodiscard]] std::vector<Row> measure_copies(TransferRig& rig, unsigned rounds);

/// How long a request waits for the swap-in of one block, from submit to event: while nothing else moves (idle_us), and while
/// the store lane of the same direction is always full (busy_us), in turns. A pause of random length comes before each transfer,
/// so that it may start at any moment of a piece. By design, busy_us is at most bound_us: the median of idle_us, and the time
/// that as many pieces of the store lane use the stream as may be under way (pieces_ahead times piece_us).
[[nodiscard]] Row measure_urgent(TransferRig& rig, unsigned rounds);

/// How long steps of compute take, by what they need most: while nothing moves (alone_us), and while the store lanes of both
/// directions are always full (beside_us), in turns; gb_per_s is the speed of both lanes meanwhile. On the emulated device the
/// compute and the copies are different threads that share only memory.
[[nodiscard]] std::vector<Row> measure_compute(TransferRig& rig, unsigned rounds);

/// How early compute could begin: one transfer of all the rig's blocks as a whole (whole_us), and the same by layer, until the
/// first layers arrived (first_us) and until its end (all_us), in turns. `told` is how many events reported further layers,
/// without the last event. The rig's blocks must have layers.
[[nodiscard]] Row measure_layers(TransferRig& rig, unsigned rounds);

}  // namespace terrace::tools
