#include "tools/plan/plots.hpp"

#include "tools/report_file.hpp"
#include "tools/table.hpp"
#include "tools/text.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr double width = 760;
constexpr double height = 460;
constexpr double left = 70;
constexpr double right = 730;
constexpr double top = 80;
constexpr double bottom = 385;

constexpr std::string_view text_colour = "#767676";
constexpr std::array<std::string_view, 4> colours{"#2f7fc1", "#d9792b", "#2f9e62", "#a868b8"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string text(double x, double y, std::string_view anchor, std::string_view words, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more, escaped(words));
}

std::string rule(double x1, double y1, double x2, double y2, double opacity) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-opacity=\"{}\"/>\n", x1,
                     y1, x2, y2, text_colour, opacity);
}

/// The marker of a series: a circle, a square, a triangle or a diamond.
std::string marker(std::size_t series, double x, double y) {
  const std::string_view colour = colours[series % colours.size()];
  switch (series % colours.size()) {
    case 0: return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y, colour);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\" fill=\"{}\"/>\n", x - 3.5, y - 3.5, colour);
    case 2: return fmt::format("<path d=\"M{:.1f} {:.1f}l4 7.5h-8z\" fill=\"{}\"/>\n", x, y - 4.5, colour);
    default: return fmt::format("<path d=\"M{:.1f} {:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\" fill=\"{}\"/>\n", x, y - 4.5, colour);
  }
}

/// Turns values into places of the drawing.
struct Scale {
  double x_low = 1;
  double x_high = 10;
  double y_high = 1;

  [[nodiscard]] double x(double value) const {
    return left + (right - left) * std::log(value / x_low) / std::log(x_high / x_low);
  }
  [[nodiscard]] double y(double value) const { return bottom - (bottom - top) * value / y_high; }
};

Scale scale_of(const LineChart& chart) {
  Scale scale{.x_low = 0, .x_high = 0, .y_high = 0};
  for (const LineChart::Series& series : chart.series) {
    for (const LineChart::Point& point : series.points) {
      scale.x_low = scale.x_low == 0 ? point.x : std::min(scale.x_low, point.x);
      scale.x_high = std::max(scale.x_high, point.x);
      scale.y_high = std::max(scale.y_high, point.y);
    }
  }
  if (scale.x_low <= 0) scale.x_low = scale.x_high = 1;
  if (scale.x_low == scale.x_high) {  // a single point is in the middle
    scale.x_low /= 2;
    scale.x_high *= 2;
  }
  scale.y_high = linear_marks(scale.y_high).back();
  return scale;
}

std::string axes(const LineChart& chart, const Scale& scale) {
  std::string out;
  for (const double mark : linear_marks(scale.y_high)) {
    out += rule(left, scale.y(mark), right, scale.y(mark), mark == 0 ? 1 : 0.3);
    out += text(left - 8, scale.y(mark) + 4, "end", fmt::format("{:g}", mark));
  }
  for (const double mark : logarithmic_marks(scale.x_low, scale.x_high)) {
    out += rule(scale.x(mark), top, scale.x(mark), bottom + 5, 0.3);
    const std::string words = chart.x_text(mark);
    const std::size_t end = std::min(words.find('\n'), words.size());
    out += text(scale.x(mark), bottom + 20, "middle", words.substr(0, end));
    if (end < words.size()) out += text(scale.x(mark), bottom + 36, "middle", words.substr(end + 1));
  }
  out += text((left + right) / 2, height - 14, "middle", chart.x_title);
  out += text(0, 0, "middle", chart.y_title, fmt::format(" transform=\"translate(18 {:.1f}) rotate(-90)\"", (top + bottom) / 2));
  return out;
}

std::string line_of(const LineChart::Series& series, std::size_t number, const Scale& scale) {
  std::string points;
  std::string markers;
  for (const LineChart::Point& point : series.points) {
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", scale.x(point.x), scale.y(point.y));
    markers += marker(number, scale.x(point.x), scale.y(point.y));
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points,
                     colours[number % colours.size()]) +
         markers;
}

constexpr std::string_view begin_of_svg = "<svg";
constexpr std::array<const char*, 2> plot_names{"hit-rate.svg", "first-token.svg"};

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

}  // namespace

std::vector<double> linear_marks(double highest) {
  constexpr double steps_max = 6;
  double step = highest > 0 ? std::pow(10, std::floor(std::log10(highest / steps_max))) : 1;
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (step * steps_max >= highest) break;
    step *= factor;
  }
  std::vector<double> marks{0};
  while (marks.size() < 2 || marks.back() < highest * (1 - 1e-9)) marks.push_back(static_cast<double>(marks.size()) * step);
  return marks;
}

std::vector<double> logarithmic_marks(double lowest, double highest) {
  constexpr std::size_t marks_max = 10;
  std::vector<double> all;
  std::vector<double> powers;
  for (double power = std::pow(10, std::floor(std::log10(lowest))); power <= highest; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double mark = factor * power;
      if (mark < lowest || mark > highest) continue;
      all.push_back(mark);
      if (factor == 1.0) powers.push_back(mark);
    }
  }
  if (all.empty()) return {lowest, highest};
  return all.size() <= marks_max ? all : powers;
}

std::string to_svg(const LineChart& chart) {
  const Scale scale = scale_of(chart);
  std::string out = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
                                "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{2}\">\n",
                                width, height, text_colour);
  out += fmt::format("<title>{}</title>\n", escaped(chart.title));
  out += text(left, 26, "start", chart.title, " font-size=\"15\"");
  out += axes(chart, scale);
  double x = left + 6;
  for (std::size_t number = 0; number < chart.series.size(); ++number) {
    out += line_of(chart.series[number], number, scale);
    const std::string& name = chart.series[number].name;
    out += fmt::format("<line x1=\"{0:.1f}\" y1=\"52\" x2=\"{1:.1f}\" y2=\"52\" stroke=\"{2}\" stroke-width=\"2\"/>\n", x, x + 24,
                       colours[number % colours.size()]);
    out += marker(number, x + 12, 52) + text(x + 30, 56, "start", name);
    constexpr double letter = 7.5;
    x += 54 + letter * static_cast<double>(name.size());
  }
  return out + "</svg>\n";
}

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
  for (const char* const name : plot_names) {
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
  write_file(directory / plot_names[0], "plot", to_svg(hit_rate_chart(options, result)));
  write_file(directory / plot_names[1], "plot", to_svg(first_token_chart(options, result)));
}

}  // namespace terrace::tools
