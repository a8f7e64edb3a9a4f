#pragma once

#include "tools/exit_status.hpp"
#include "tools/replay/report/report.hpp"

#include <string>

namespace terrace::tools {

struct Verdict {
  ExitStatus status = ExitStatus::done;
  std::string line;  ///< for standard error; empty if the status is `done`
};

/// Judges the run. The worst result counts: first a failed check, then a failed run, then an interruption. With --inject, a run
/// without mismatches means that the verification did not detect the fault.
[[nodiscard]] Verdict judge(const ReplayOptions& options, const ReplayResult& result);

}  // namespace terrace::tools
