#pragma once

#include "tools/plan/plan.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace terrace::tools {

/// A diagram with one line for each series, as SVG. The background is transparent, and text and lines have colours that can be
/// read on white and on black. Each series has a marker of its own, too, so that colours are not needed to tell the lines apart.
struct LineChart {
  struct Point {
    double x = 0;
    double y = 0;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;  ///< by x, which is greater than 0
  };

  std::string title;
  std::string x_title;
  std::string y_title;
  /// The text of a mark of the x axis, which is logarithmic. It may have a second line.
  std::function<std::string(double)> x_text;
  std::vector<Series> series;  ///< a few; at least one of them has a point
};

/// Returns the text of the SVG file. Names may have any bytes.
[[nodiscard]] std::string to_svg(const LineChart& chart);

/// Marks for an axis from 0 that are easy to read: steps of 1, 2 or 5 times a power of ten, the last one not below `highest`.
[[nodiscard]] std::vector<double> linear_marks(double highest);
/// Marks for a logarithmic axis: 1, 2 and 5 times powers of ten from `lowest` to `highest`, or only the powers of ten if there
/// would be many. If there is none, the two ends.
[[nodiscard]] std::vector<double> logarithmic_marks(double lowest, double highest);

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
