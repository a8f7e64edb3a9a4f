#pragma once

#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"

#include <optional>
#include <string>

namespace terrace {

/// Returns how much memory the machine and the control groups still allow, or nothing if neither limit is known.
[[nodiscard]] std::optional<Bytes> memory_left(const MemoryLimits& limits);

/// Describes memory that is about to be taken.
struct MemoryRequest {
  Bytes bytes{};
  Bytes unit{1};  ///< the memory is taken in multiples of this
  Bytes spare{};  ///< how much memory must be left for other uses
};

/// Checks, before memory is touched, whether a request fits the limits. The kernel kills a process that exceeds its control
/// group, and a machine that is nearly out of memory becomes slow for all processes. Returns nothing if the request fits.
/// Otherwise returns a sentence with the requested size, the tightest limit, and the largest size that fits, in whole units.
[[nodiscard]] std::optional<std::string> preflight(const MemoryRequest& request, const MemoryLimits& limits);

}  // namespace terrace
