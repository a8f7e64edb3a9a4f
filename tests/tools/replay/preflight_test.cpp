#include "tools/replay/options/preflight.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <string>

namespace terrace::tools {
namespace {

ReplayOptions of_blocks(std::uint32_t device, std::uint32_t host) {
  ReplayOptions options;
  options.block_bytes = MiB;
  options.device_blocks = device;
  options.host_blocks = host;
  return options;
}

std::string refusal(const ReplayOptions& options, std::optional<Bytes> available) {
  try {
    check_feasible(options, available);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Preflight, lets_pass_what_fits_and_what_nobody_can_tell) {
  EXPECT_EQ(refusal(of_blocks(100, 100), GiB), "");
  EXPECT_EQ(refusal(of_blocks(100'000'000, 0), std::nullopt), "");
}

TEST(Preflight, refuses_more_memory_than_there_is_and_says_what_fits) {
  const std::string text = refusal(of_blocks(1000, 1000), GiB);
  EXPECT_NE(text.find("1GiB is available: at most 959 blocks of 1MiB"), std::string::npos) << text;
  EXPECT_EQ(refusal(of_blocks(959, 0), GiB), "") << "the figure it gave";
  EXPECT_NE(refusal(of_blocks(961, 0), GiB), "");
}

TEST(Preflight, counts_storage_in_memory_and_does_not_overflow) {
  ReplayOptions options = of_blocks(1, 1);
  options.system.storage = MemoryStorage{GiB};
  EXPECT_NE(refusal(options, GiB), "");
  options.system.storage = MemoryStorage{TiB * 16'000'000};
  options.host_blocks = 1'000'000'000;
  options.block_bytes = MiB * 512;
  EXPECT_NE(refusal(options, GiB), "");
}

TEST(Preflight, finds_out_what_this_machine_has) {
  const std::optional<Bytes> available = available_memory();
  ASSERT_TRUE(available);
  EXPECT_GT(*available, MiB);
}

TEST(Preflight, refuses_a_report_that_could_not_be_written) {
  const test::TemporaryDirectory directory;
  ReplayOptions options = of_blocks(1, 1);
  options.report = directory.path() / "absent" / "report.json";
  EXPECT_NE(refusal(options, GiB).find("cannot write"), std::string::npos);
  options.report = directory.path();
  EXPECT_NE(refusal(options, GiB).find("is a directory"), std::string::npos);
  options.report = directory.path() / "report.json";
  EXPECT_EQ(refusal(options, GiB), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace terrace::tools
