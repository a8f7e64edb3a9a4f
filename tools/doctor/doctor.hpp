#pragma once

#include "transfer/cuda/cuda_device.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace terrace::tools {

struct DoctorArguments {
  std::optional<std::string> device;  ///< as --device of replay; none: the first CUDA device, if there is one
  bool measure = false;               ///< though there are figures of an earlier time
  std::filesystem::path report;       ///< empty: none
};
void add_doctor_options(CLI::App& command, DoctorArguments& into);

/// What the machine has of what Terrace wants, and what each path of the device is worth, to standard output. Throws UsageError,
/// CudaError.
void run_doctor(const DoctorArguments& arguments);

/// The fastest that the link was seen to be, in bytes per second.
[[nodiscard]] double link_peak(const CopyMethodTable& paths, Direction direction);
/// For each direction, size and number of pieces: the path that is taken, and its speed.
[[nodiscard]] std::string to_table(const CopyMethodTable& paths, CopyMethods available);
/// The same for programs.
[[nodiscard]] std::string to_json(const CudaFacts& facts, const CopyMethodTable& paths);

}  // namespace terrace::tools
