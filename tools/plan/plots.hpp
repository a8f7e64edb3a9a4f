#pragma once

#include "tools/plan/line_chart.hpp"
#include "tools/plan/plan.hpp"

#include <filesystem>

namespace terrace::tools {

/// The hit rate by the size of the planned tier, with one line for each policy.
[[nodiscard]] LineChart hit_rate_chart(const PlanOptions& options, const PlanResult& result);
/// The mean time to the first token by the same.
[[nodiscard]] LineChart first_token_chart(const PlanOptions& options, const PlanResult& result);

/// Throws UsageError if the plots cannot be written to this directory, or if they would overwrite files that are not SVG files.
/// It changes nothing: the directory need not exist.
void check_plots(const std::filesystem::path& directory);
/// Makes the directory if it does not exist, and writes hit-rate.svg and first-token.svg. Throws std::runtime_error.
void write_plots(const std::filesystem::path& directory, const PlanOptions& options, const PlanResult& result);

}  // namespace terrace::tools
