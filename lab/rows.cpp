#include "lab/rows.hpp"

#include "lab/rounds.hpp"
#include "terrace/types.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace terrace::tools {
namespace {

const boost::json::value* find(const Row& row, std::string_view name) {
  const std::size_t dot = name.find('.');
  const boost::json::value* const found = row.if_contains(name.substr(0, dot));
  if (found == nullptr || dot == std::string_view::npos) return found;
  return found->as_object().if_contains(name.substr(dot + 1));
}

std::string shown(const Row& row, const Column& column) {
  const boost::json::value* const value = find(row, column.name);
  if (value == nullptr) return "-";
  if (value->is_bool()) return value->as_bool() ? "yes" : "no";
  if (value->is_string()) return std::string{value->as_string()};
  if (value->is_double()) return fmt::format("{:.{}f}", value->as_double(), column.precision);
  const auto whole = value->to_number<std::uint64_t>();
  return column.name.ends_with("_bytes") ? to_string(Bytes{whole}) : std::to_string(whole);
}

template <class TextOf>
void print_line(std::span<const Column> columns, TextOf text_of) {
  std::string line;
  for (const Column& column : columns) {
    const std::string text{text_of(column)};
    if (column.width >= 0) line += fmt::format("{:>{}}", text, column.width);
    else line += fmt::format("{}{:<{}}", line.empty() ? "" : "  ", text, -column.width);
  }
  write_output(line + '\n');
}

}  // namespace

void Figures::add(std::string_view name, double figure) {
  auto found = std::ranges::find(figures_, name, &std::pair<std::string, std::vector<double>>::first);
  if (found == figures_.end()) found = figures_.insert(figures_.end(), {std::string{name}, {}});
  found->second.push_back(figure);
}

void Figures::add_micros(std::vector<double> micros) {
  std::ranges::sort(micros);
  add("mean_us", std::accumulate(micros.begin(), micros.end(), 0.0) / static_cast<double>(micros.size()));
  add("p50_us", micros[micros.size() / 2]);
  add("p99_us", micros[micros.size() * 99 / 100]);
  add("max_us", micros.back());
}

double Figures::median(std::string_view name) const {
  return tools::median(std::ranges::find(figures_, name, &std::pair<std::string, std::vector<double>>::first)->second);
}

void Figures::add_medians(Row& row) const {
  for (const auto& [name, figures] : figures_) row[name] = tools::median(figures);
}

void print_head(std::span<const Column> columns) {
  print_line(columns, [](const Column& column) { return column.heading.empty() ? column.name : column.heading; });
}

void print_row(std::span<const Column> columns, const Row& row) {
  print_line(columns, [&](const Column& column) { return shown(row, column); });
  flush_output();
}

void add_row(boost::json::array& rows, std::span<const Column> columns, Row row) {
  print_row(columns, row);
  rows.push_back(std::move(row));
}

void print_table(std::string_view title, std::span<const Column> columns, const boost::json::array& rows) {
  if (rows.empty()) return;
  print("\n{}\n", title);
  print_head(columns);
  for (const boost::json::value& row : rows) print_row(columns, row.as_object());
}

}  // namespace terrace::tools
