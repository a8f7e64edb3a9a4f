#include "tools/plan/plots.hpp"

#include "tools/table.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view begin_of_svg = "<svg";
constexpr std::array<const char*, 2> names{"hit-rate.svg", "first-token.svg"};

LineChart chart_of(const PlanOptions& options, const PlanResult& result, const std::function<double(const TierCosts&)>& value) {
  LineChart chart;
  const Bytes block_bytes = options.machine.block_bytes;
  chart.x_title = fmt::format("size of the {}, in blocks of {}", to_string(options.planned), to_string(block_bytes));
  chart.x_text = [block_bytes](double blocks) {
    const auto whole = static_cast<std::uint64_t>(std::llround(blocks));
    return fmt::format("{}\n{}", grouped(whole), to_string(block_bytes * whole));
  };
  for (std::size_t policy = 0; policy < options.policies.size(); ++policy) {
    LineChart::Series& series = chart.series.emplace_back();
    series.name = to_string(options.policies[policy]);
    for (const PlanResult::Row& row : result.rows) {
      if (row.size > 0) series.points.push_back({static_cast<double>(row.size), value(row.costs[policy])});
    }
  }
  return chart;
}

void write(const fs::path& file, const std::string& text) {
  errno = 0;
  std::ofstream out{file, std::ios::binary};
  out << text;
  out.close();
  if (!out) {
    throw std::runtime_error{fmt::format("cannot write the plot {}: {}", file.string(), std::generic_category().message(errno))};
  }
}

}  // namespace

LineChart hit_rate_chart(const PlanOptions& options, const PlanResult& result) {
  LineChart chart = chart_of(options, result, [&](const TierCosts& costs) { return per_cent(costs.hits(), result.blocks); });
  chart.title = fmt::format("Hit rate: {}", options.source());
  chart.y_title = "hit blocks, per cent";
  return chart;
}

LineChart first_token_chart(const PlanOptions& options, const PlanResult& result) {
  LineChart chart = chart_of(options, result, [](const TierCosts& costs) { return costs.first_token_seconds * 1e3; });
  chart.title = fmt::format("Time to first token: {}", options.source());
  chart.y_title = "mean, without waiting, ms";
  return chart;
}

void check_plots(const fs::path& directory) {
  const auto refuse = [&](const fs::path& path, const std::string& why) {
    throw UsageError{fmt::format("--plot: cannot write {}: {}", path.string(), why)};
  };
  std::error_code error;
  fs::path existing = fs::absolute(directory);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  if (!fs::is_directory(existing, error)) refuse(existing, "it is not a directory");
  if (::access(existing.c_str(), W_OK | X_OK) != 0) refuse(existing, std::generic_category().message(errno));
  for (const char* const name : names) {
    const fs::path file = directory / name;
    if (!fs::exists(file, error)) continue;
    if (!fs::is_regular_file(file, error)) refuse(file, "it is not a file");
    if (::access(file.c_str(), W_OK) != 0) refuse(file, std::generic_category().message(errno));
    std::string begin(begin_of_svg.size(), '\0');
    std::ifstream in{file, std::ios::binary};
    in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    if (in.gcount() != 0 && begin != begin_of_svg) refuse(file, "it exists and is not an SVG file");
  }
}

void write_plots(const fs::path& directory, const PlanOptions& options, const PlanResult& result) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw std::runtime_error{fmt::format("cannot make the directory {}: {}", directory.string(), error.message())};
  write(directory / names[0], to_svg(hit_rate_chart(options, result)));
  write(directory / names[1], to_svg(first_token_chart(options, result)));
}

}  // namespace terrace::tools
