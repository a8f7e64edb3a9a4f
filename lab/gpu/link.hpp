#pragma once

#include "lab/gpu/link_facts.hpp"
#include "terrace/types.hpp"

#include <filesystem>
#include <optional>

namespace terrace::tools {

struct LinkBenchOptions {
  std::optional<int> cuda = 0;  ///< the number of the GPU
  LinkProbeSize size{};
  std::filesystem::path report;  ///< empty: no report
};

/// Prints LinkFacts, and writes them to the report. Throws std::invalid_argument (sizes; a device that is no GPU), what
/// measure_link() throws, and std::runtime_error if the report cannot be written.
void bench_link(const LinkBenchOptions& options);

}  // namespace terrace::tools
