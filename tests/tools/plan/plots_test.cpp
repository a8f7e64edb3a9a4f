#include "tools/plan/plots.hpp"

#include "tests/refusal.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/usage_error.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

using test::TemporaryDirectory;

/// Stops at the first place at which the text is no well-formed XML, and returns it. Comments and declarations do not occur.
std::string first_fault(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t at = 0;
  const auto rest = [&] { return xml.substr(at, 60); };
  while (at < xml.size()) {
    if (xml[at] == '&') {
      const std::size_t end = xml.find(';', at);
      const std::string entity = xml.substr(at, end == std::string::npos ? 1 : end - at + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") return rest();
    }
    if (xml[at] == '>') return rest();
    if (xml[at] != '<') {
      if (open.empty() && xml[at] != '\n') return rest();
      ++at;
      continue;
    }
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return rest();
    std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return rest();
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return rest();
      open.pop_back();
    } else {
      if (std::ranges::count(tag, '"') % 2 != 0) return rest();
      const bool is_empty = tag.ends_with('/');
      if (!is_empty) open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

std::size_t number_of(const std::string& what, const std::string& text) {
  std::size_t number = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++number;
  return number;
}

TEST(LineChart, is_well_formed_whatever_its_names_are) {
  LineChart chart;
  chart.title = "<a & \"b\"> \x1b[31m \xff";
  chart.x_title = "x";
  chart.y_title = "y";
  chart.x_text = [](double) { return std::string{"1\n<2>"}; };
  chart.series = {{"&", {{1, 0}, {10, 5}, {1000, 7}}}, {"two", {{1, 1}}}, {"three", {}}, {"four", {{3, 3}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt; \\x1b[31m \\xff"), std::string::npos) << svg;
  EXPECT_EQ(number_of("<polyline", svg), 4U);
  EXPECT_EQ(number_of("<circle", svg), 4U) << "three points and one in the legend";
}

TEST(LineChart, of_one_point_or_of_none_is_well_formed) {
  LineChart chart;
  chart.x_text = [](double) { return std::string{}; };
  chart.series = {{"one", {{7, 0}}}};
  EXPECT_EQ(first_fault(to_svg(chart)), "");
  chart.series = {{"none", {}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(LineChart, has_marks_that_are_easy_to_read) {
  EXPECT_EQ(linear_marks(38.2), (std::vector<double>{0, 10, 20, 30, 40}));
  EXPECT_EQ(linear_marks(10), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_marks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(logarithmic_marks(171, 5000), (std::vector<double>{200, 500, 1000, 2000, 5000}));
  EXPECT_EQ(logarithmic_marks(1, 100'000), (std::vector<double>{1, 10, 100, 1000, 10'000, 100'000}));
  EXPECT_EQ(logarithmic_marks(3, 4), (std::vector<double>{3, 4})) << "there is always something to read";
}

class Plots : public testing::Test {
 protected:
  Plots() {
    options_.trace = "a<b.jsonl";
    options_.planned = PlannedTier::host;
    options_.fixed.device = 40;
    options_.policies.assign(all_plan_policies.begin(), all_plan_policies.end());
    options_.machine.block_tokens = test::log_block_tokens;
    options_.machine.block_bytes = MiB;
  }

  TemporaryDirectory directory_;
  PlanOptions options_;
};

TEST_F(Plots, are_two_files_with_a_line_for_each_policy) {
  PlanProgress progress;
  const PlanResult result = make_plan(options_, test::log_of(test::random_prompts(3, 500, 6, 3)), test::always, progress);
  const std::filesystem::path folder = directory_.path() / "new" / "plots";
  check_plots(folder);
  EXPECT_FALSE(std::filesystem::exists(folder.parent_path()));
  write_plots(folder, options_, result);
  const std::string rates = test::read_file(folder / "hit-rate.svg");
  const std::string times = test::read_file(folder / "first-token.svg");
  for (const std::string& svg : {rates, times}) {
    EXPECT_EQ(first_fault(svg), "");
    EXPECT_EQ(number_of("<polyline", svg), 3U);
    EXPECT_NE(svg.find("a&lt;b.jsonl"), std::string::npos);
    EXPECT_NE(svg.find(">default<"), std::string::npos);
  }
  EXPECT_NE(rates.find("Hit rate"), std::string::npos);
  EXPECT_NE(times.find("Time to first token"), std::string::npos);
  // They may replace what an earlier plan has written.
  check_plots(folder);
  write_plots(folder, options_, result);
}

TEST_F(Plots, replace_no_file_that_is_not_an_svg_file) {
  directory_.write("hit-rate.svg", "my notes");
  const std::string said = test::refusal_of<UsageError>([&] { check_plots(directory_.path()); });
  EXPECT_TRUE(said.ends_with("hit-rate.svg: it exists and is not an SVG file")) << said;
  directory_.write("hit-rate.svg", "");
  check_plots(directory_.path());
}

TEST_F(Plots, need_a_directory) {
  const std::filesystem::path file = directory_.write("file", "x");
  EXPECT_THROW(check_plots(file), UsageError);
  EXPECT_THROW(check_plots(file / "below"), UsageError);
  std::filesystem::create_directory(directory_.path() / "first-token.svg");
  EXPECT_THROW(check_plots(directory_.path()), UsageError);
}

TEST_F(Plots, that_cannot_be_written_are_an_error_with_the_name) {
  const std::string said =
      test::refusal_of<std::runtime_error>([&] { write_plots(directory_.write("file", "x"), options_, {}); });
  EXPECT_NE(said.find("file"), std::string::npos);
}

}  // namespace
}  // namespace terrace::tools
