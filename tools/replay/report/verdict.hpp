#pragma once

#include "tools/exit_status.hpp"
#include "tools/replay/report/report.hpp"

#include <string>

namespace terrace::tools {

struct Verdict {
  ExitStatus status = ExitStatus::done;
  std::string line;  ///< for standard error; empty where it is done
};

/// What the run comes to, worst first: a check that failed, a run that failed, an interruption. With --inject a run that ends
/// well is a verification that did not catch.
[[nodiscard]] Verdict judge(const ReplayOptions& options, const ReplayResult& result);

}  // namespace terrace::tools
