#pragma once

#include "tools/replay/options/options.hpp"
#include "tools/replay/report/report.hpp"
#include "tools/replay/report/verdict.hpp"

namespace terrace::tools {

/// Replays, to the end or until something stops it; a SIGINT or SIGTERM does so in good order. Throws UsageError before anything
/// is made or served, std::exception where the run itself breaks.
[[nodiscard]] ReplayResult run_replay(const ReplayOptions& options);

/// The command: replays, prints the table on standard output, writes the report, and where the outcome is not `done` prints one
/// line on standard error. Throws as run_replay().
[[nodiscard]] ExitStatus replay(const ReplayOptions& options);

}  // namespace terrace::tools
