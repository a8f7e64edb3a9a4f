#include "tools/doctor/doctor.hpp"

#include "tests/tools/temporary_directory.hpp"
#include "tools/device_name.hpp"
#include "tools/usage_error.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;

CopyMethods all() { return CopyMethods{}.set(); }

/// A table in which kernels are best for small pieces from host to device, and batches for everything else; at most 50 GB/s.
CopyMethodTable measured() {
  CopyMethodTable table;
  for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
    for (std::size_t count = 0; count < CopyMethodTable::piece_counts.size(); ++count) {
      const double batch = 8e9 * static_cast<double>(bytes + 1);
      table.measured(Direction::swap_out, bytes, count, {batch, 1e9, 2e9, 0});
      table.measured(Direction::swap_in, bytes, count, {batch + 2e9, 1e9, bytes == 0 ? 20e9 : 2e9, 0});
    }
  }
  return table;
}

TEST(Doctor, says_which_copy_method_is_used_and_how_fast_it_is) {
  const std::string table = to_table(measured(), all());
  EXPECT_NE(table.find("device to host: at most 48.0 GB/s"), std::string::npos) << table;
  EXPECT_NE(table.find("host to device: at most 50.0 GB/s"), std::string::npos) << table;
  EXPECT_NE(table.find("kernel 20.0"), std::string::npos) << table;
  EXPECT_NE(table.find("batch 8.0"), std::string::npos) << table;
  EXPECT_NE(table.find("under 8KiB"), std::string::npos) << table;
  EXPECT_NE(table.find("from 2MiB"), std::string::npos) << table;
  EXPECT_EQ(table.find("plain"), std::string::npos) << table;
}

TEST(Doctor, names_no_copy_method_that_is_not_available) {
  CopyMethods without_kernels = all();
  without_kernels.reset(static_cast<std::size_t>(CopyMethod::kernel));
  without_kernels.reset(static_cast<std::size_t>(CopyMethod::bulk_kernel));
  const std::string table = to_table(measured(), without_kernels);
  EXPECT_EQ(table.find("kernel"), std::string::npos) << table;
  EXPECT_NE(table.find("batch 10.0"), std::string::npos) << table;
}

TEST(Doctor, says_where_nothing_was_measured) {
  EXPECT_NE(to_table(CopyMethodTable{}, all()).find("device to host: not measured"), std::string::npos);
  EXPECT_EQ(link_peak(CopyMethodTable{}, Direction::swap_in), 0);
}

TEST(Doctor, reports_every_figure_to_programs) {
  CudaFacts facts;
  facts.device = "a GPU";
  facts.methods = all();
  const json::value report = json::parse(to_json(facts, measured()));
  EXPECT_EQ(report.at("device").as_string(), "a GPU");
  const json::value& in = report.at("swap_in");
  EXPECT_EQ(in.at("peak_bytes_per_second").to_number<double>(), 50e9);
  const json::array& cells = in.at("cells").as_array();
  ASSERT_EQ(cells.size(), CopyMethodTable::piece_bytes.size() * CopyMethodTable::piece_counts.size());
  EXPECT_EQ(cells.front().at("path").as_string(), "kernel");
  EXPECT_EQ(cells.front().at("bytes_per_second").at("plain").to_number<double>(), 1e9);
  EXPECT_EQ(cells.back().at("path").as_string(), "batch");
}

TEST(DeviceName, of_a_device_that_is_not_there_is_refused_with_the_reason) {
  EXPECT_FALSE(parse_cuda("--device", "emulated"));
  EXPECT_EQ(device_name(std::nullopt), "emulated");
  EXPECT_EQ(device_name(3), "cuda:3");
  try {
    (void)parse_cuda("--device", "cuda:999");
    FAIL() << "nobody has a thousand devices";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string{error.what()}.find("--device cuda:999: "), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)parse_cuda("--device", "cuda:1x"), UsageError);
  EXPECT_THROW((void)parse_cuda("--device", "cuda0"), UsageError);
}

TEST(DeviceName, of_several_are_by_rank) {
  const std::vector<std::optional<int>> none{std::nullopt, std::nullopt, std::nullopt};
  EXPECT_EQ(device_names(none), "emulated");
  EXPECT_EQ(device_names(std::vector<std::optional<int>>{0, 2}), "cuda:0,cuda:2");
  EXPECT_EQ(device_names(std::vector<std::optional<int>>{std::nullopt, 1}), "emulated,cuda:1");
}

TEST(CalibrationFile, is_in_the_users_cache) {
  const test::TemporaryDirectory directory;
  ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
  EXPECT_EQ(calibration_file(), directory.path() / "terrace" / "copy-paths.json");
  EXPECT_TRUE(std::filesystem::is_directory(directory.path() / "terrace"));
  ::setenv("XDG_CACHE_HOME", "", 1);
  ::setenv("HOME", directory.path().c_str(), 1);
  EXPECT_EQ(calibration_file(), directory.path() / ".cache" / "terrace" / "copy-paths.json");
  ::unsetenv("HOME");
  EXPECT_TRUE(calibration_file().empty());
}

}  // namespace
}  // namespace terrace::tools
