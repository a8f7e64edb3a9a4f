#pragma once

#include "tools/cli.hpp"
#include "tools/exit_status.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace terrace::tools {

struct DoctorArguments {
  std::optional<std::string> device;  ///< as --device of replay; empty: the first CUDA device, if there is one
  bool measure = false;               ///< measure again, even if earlier results are kept
  std::filesystem::path report;       ///< file name; empty: no report
  std::filesystem::path config_file;  ///< the configuration to test; empty: none
};
void add_doctor_options(CLI::App& command, DoctorArguments& into);

/// Prints to standard output what this machine offers to Terrace, and how fast the copy methods of its GPU are, and tests every
/// tier of the configuration, if one is named. check_failed: a tier does not work. Throws UsageError and CudaError.
[[nodiscard]] ExitStatus run_doctor(const DoctorArguments& arguments);

/// The highest rate measured on the link in this direction, in bytes per second.
[[nodiscard]] double link_peak(const CopyMethodTable& methods, Direction direction);
/// For each direction, size and number of pieces: the copy method that is used, and its rate.
[[nodiscard]] std::string to_table(const CopyMethodTable& methods, CopyMethods available);
/// The same as JSON.
[[nodiscard]] std::string to_json(const CudaFacts& facts, const CopyMethodTable& methods);

}  // namespace terrace::tools
