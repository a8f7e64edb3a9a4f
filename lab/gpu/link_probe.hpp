#pragma once

#include "lab/gpu/link_facts.hpp"
#include "transfer/cuda/driver/driver.hpp"

namespace terrace::tools {

/// The same with this driver, which must outlive the call. Throws CudaUnavailable and CudaError.
[[nodiscard]] LinkFacts probe_link(const CudaDriver& driver, int ordinal, const LinkProbeSize& size);

}  // namespace terrace::tools
