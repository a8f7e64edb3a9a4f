#pragma once

#include "lab/benches.hpp"

namespace terrace {
struct CudaDriver;
}

namespace terrace::tools {

/// Measures in some seconds what the driver and the link of the GPU with this number can do, without the transfers of Terrace:
///
/// - swap_in, swap_out, both: copies of the whole area, with half of it in each direction at once for `both`;
/// - ends: how long a copy of 1 MiB takes beyond its own time on the device, until a thread knows of its end;
/// - queues: the speed of pieces that are put on the stream one after the other, so many of them at a time;
/// - pins: how long the driver takes to pin memory of the size of the area, and to give it back; and whether a kernel that ran at
///   the beginning still ran at the end.
///
/// In a build without CUDA it throws std::runtime_error. Throws as probe_link().
[[nodiscard]] Row measure_link(int ordinal, const LinkProbeSize& size);
/// The same with this driver, which must outlive the call. Throws CudaUnavailable and CudaError.
[[nodiscard]] Row probe_link(const CudaDriver& driver, int ordinal, const LinkProbeSize& size);

}  // namespace terrace::tools
