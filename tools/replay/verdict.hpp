#pragma once

#include "tools/replay/report.hpp"

#include <string>

namespace terrace::tools {

/// The program's exit status.
enum class ExitStatus : int { done = 0, check_failed = 1, bad_input = 2, run_failed = 3, interrupted = 130 };

struct Verdict {
  ExitStatus status = ExitStatus::done;
  std::string line;  ///< for standard error; empty where it is done
};

/// What the run comes to, worst first: a check that failed, a run that failed, an interruption. With --inject a run that ends
/// well is a verification that did not catch.
[[nodiscard]] Verdict judge(const ReplayOptions& options, const ReplayResult& result);

}  // namespace terrace::tools
