#pragma once

#include "terrace/types.hpp"
#include "tools/replay/options/options.hpp"

#include <optional>

namespace terrace::tools {

/// How much memory this process may still take: the available memory of the machine, or what its control groups leave of it.
/// Empty if the system does not tell.
[[nodiscard]] std::optional<Bytes> available_memory();

/// The approximate memory for the tiers and tables of the replay.
[[nodiscard]] Bytes needed_memory(const ReplayOptions& options);

/// Refuses a run that would fail later, before anything is made: tiers larger than `available` (the message says what would fit),
/// or a report that cannot be written. Throws UsageError.
void check_feasible(const ReplayOptions& options, std::optional<Bytes> available);

}  // namespace terrace::tools
