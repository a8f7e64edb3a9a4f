#pragma once

namespace terrace::tools {

/// The program's exit status. Each status but `done` comes with one line on standard error.
enum class ExitStatus : int { done = 0, check_failed = 1, bad_input = 2, run_failed = 3, interrupted = 130 };

}  // namespace terrace::tools
