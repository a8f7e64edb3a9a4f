#pragma once

#include "tools/replay/options/options.hpp"
#include "tools/replay/report/report.hpp"

namespace terrace::tools {

/// Runs a replay until its end, or until something stops it; a SIGINT or SIGTERM ends it in an orderly way. Throws UsageError
/// before anything is made or served, std::exception if the run itself fails.
[[nodiscard]] ReplayResult run_replay(const ReplayOptions& options);

/// Runs the command: replays, prints the table to standard output, and writes the report. If the outcome is not `done`, prints
/// one line to standard error. Throws what run_replay() throws.
[[nodiscard]] ExitStatus replay(const ReplayOptions& options);

}  // namespace terrace::tools
