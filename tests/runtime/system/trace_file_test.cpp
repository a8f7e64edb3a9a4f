// Traces of a whole run, in a file.

#include "terrace/log.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

/// The messages may be read after the system has ended.
struct Messages final : LogSink {
  void write(LogLevel, std::string_view sentence) override { all.emplace_back(sentence); }
  std::vector<std::string> all;
};

CacheSystemOptions options_with(const std::filesystem::path& file, Messages& messages) {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 8, .host_blocks = 8}};
  options.ranks[0].device = EmulatedGpu{};
  options.memory_limits = nullptr;
  options.trace_out = file;
  options.log.sink = &messages;
  return options;
}

void serve(CacheSystem& system, std::uint64_t requests) {
  for (std::uint64_t id = 1; id <= requests; ++id) {
    const std::vector<BlockKey> keys = keys_of({static_cast<std::uint32_t>(id), 2, 3});
    Lease lease = system.cache().acquire({.id = RequestId{id}, .keys = keys}).value();
    ASSERT_TRUE(system.cache().wait(lease).has_value());
    ASSERT_TRUE(system.cache().commit(lease, keys, Fence{}).has_value());
    system.cache().release(std::move(lease), no_longer_used);
    (void)system.cache().poll();
  }
}

TEST(TraceFile, has_the_whole_run_for_a_viewer) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  Messages messages;
  {
    CacheSystem system{options_with(file, messages)};
    serve(system, 5);
  }
  const boost::json::value trace = boost::json::parse(read_file(file));
  int acquires = 0;
  int holds = 0;
  int swaps = 0;
  for (const boost::json::value& event : trace.at("traceEvents").as_array()) {
    acquires += event.at("name") == "acquire" ? 1 : 0;
    holds += event.at("name") == "hold" && event.at("ph") == "b" ? 1 : 0;
    swaps += event.at("name") == "swap_out" && event.at("ph") == "b" ? 1 : 0;
  }
  EXPECT_EQ(acquires, 5);
  EXPECT_EQ(holds, 5);
  EXPECT_GT(swaps, 0);
}

TEST(TraceFile, that_has_ended_is_whole_and_takes_nothing_more) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  Messages messages;
  CacheSystem system{options_with(file, messages)};
  serve(system, 5);
  ASSERT_TRUE(system.end_trace().has_value());
  const std::string text = read_file(file);
  EXPECT_NO_THROW((void)boost::json::parse(text));
  ASSERT_NO_FATAL_FAILURE(serve(system, 1));
  EXPECT_TRUE(system.end_trace().has_value());
  EXPECT_EQ(read_file(file), text);
}

TEST(TraceFile, that_cannot_be_made_is_refused_with_its_name) {
  Messages messages;
  try {
    const CacheSystem system{options_with("/proc/trace.json", messages)};
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string{error.what()}.find("trace-out: /proc/trace.json"), std::string::npos) << error.what();
  }
}

TEST(TraceFile, that_is_a_pipe_is_refused_and_not_waited_for) {
  const TemporaryDirectory directory;
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Messages messages;
  try {
    const CacheSystem system{options_with(pipe, messages)};
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), "trace-out: " + pipe + " is no ordinary file");
  }
}

TEST(TraceFile, on_a_full_disk_ends_and_the_cache_goes_on) {
  Messages messages;
  {
    CacheSystem system{options_with("/dev/full", messages)};
    serve(system, 5);
    EXPECT_EQ(system.end_trace().error(), boost::system::errc::no_space_on_device);
  }
  ASSERT_EQ(messages.all.size(), 1U);
  EXPECT_NE(messages.all.front().find("the trace /dev/full ends early"), std::string::npos) << messages.all.front();
}

}  // namespace
}  // namespace terrace::test
