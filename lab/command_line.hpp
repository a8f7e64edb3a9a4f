#pragma once

#include "lab/rows.hpp"
#include "tools/cli.hpp"

#include <filesystem>
#include <functional>
#include <vector>

namespace terrace::tools {

/// The measurement that the command line of `terrace-lab` names.
struct ChosenBench {
  std::function<Row()> run;                   ///< prints the medians, and returns the report
  std::filesystem::path report;               ///< the file to write it to, as JSON; empty: none
  std::vector<std::filesystem::path> traces;  ///< what it reads
};

/// Adds the commands that measure (`index`, `keys` and so on) and their flags. `chosen` must outlive the parsing.
void add_bench_options(CLI::App& lab, ChosenBench& chosen);
/// Runs the measurement. Throws UsageError for invalid sizes, Interrupted after a signal, std::runtime_error if the report cannot
/// be written.
void run_bench(const ChosenBench& chosen);

}  // namespace terrace::tools
