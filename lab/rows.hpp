#pragma once

#include <boost/json.hpp>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tools {

/// The results of a bench, by name, as the report has them: numbers, texts, and objects with figures of their own.
using Row = boost::json::object;

/// The figures of several rounds.
class Figures {
 public:
  void add(std::string_view name, double figure);
  /// Adds the mean, the median, the 99th percentile and the largest of at least one time in microseconds: mean_us, p50_us, p99_us
  /// and max_us.
  void add_micros(std::vector<double> micros);
  [[nodiscard]] double median(std::string_view name) const;
  /// Adds the median of each figure to the row.
  void add_medians(Row& row) const;

 private:
  std::vector<std::pair<std::string, std::vector<double>>> figures_;  ///< in the order in which they came first
};

/// A column of a table of rows.
struct Column {
  std::string_view name;     ///< of the figure in a row; "busy_us.p50" is p50 of the object busy_us; sizes end in "_bytes"
  std::string_view heading;  ///< empty: the name
  int width = 0;             ///< with the blanks before the figure; negative: the text is at the left, two blanks after the last
  int precision = 0;         ///< digits after the point
};

/// Prints the headings, or the figures of a row, which is then visible at once. A figure that the row does not have is "-".
void print_head(std::span<const Column> columns);
void print_row(std::span<const Column> columns, const Row& row);
/// Prints the figures of a row, and appends it.
void add_row(boost::json::array& rows, std::span<const Column> columns, Row row);
/// Prints a title, the headings and the rows. Prints nothing if there are no rows.
void print_table(std::string_view title, std::span<const Column> columns, const boost::json::array& rows);

}  // namespace terrace::tools
