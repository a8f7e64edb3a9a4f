#pragma once

#include "base/bytes.hpp"
#include "tools/replay/options/options.hpp"

#include <optional>

namespace terrace::tools {

/// What this process may still take: the machine's available memory, or what its control groups leave of it. Nothing where the
/// system does not say.
[[nodiscard]] std::optional<Bytes> available_memory();

/// What the replay's tiers and tables take, roughly.
[[nodiscard]] Bytes needed_memory(const ReplayOptions& options);

/// Refuses what would end in the middle, before anything is made: tiers larger than `available` (the message says what would
/// fit), a report that could not be written. Throws UsageError.
void check_feasible(const ReplayOptions& options, std::optional<Bytes> available);

}  // namespace terrace::tools
