// The threads of the library have names, and leave signals to the program (docs/design/threads.md).
#include "terrace/emulated_stream.hpp"
#include "terrace/system.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>

namespace terrace {
namespace {

struct ThreadFacts {
  std::string name;
  std::string blocked;  ///< the mask of blocked signals, in hexadecimal digits
};

class Quiet final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

std::map<std::string, ThreadFacts> threads_of_this_process() {
  std::map<std::string, ThreadFacts> threads;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    ThreadFacts facts;
    std::getline(std::ifstream{task.path() / "comm"} >> std::ws, facts.name);
    std::ifstream status{task.path() / "status"};
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) facts.blocked = line.substr(line.find_last_of("\t ") + 1);
    }
    threads.emplace(task.path().filename(), facts);
  }
  return threads;
}

TEST(LibraryThreads, have_names_and_leave_signals_to_the_program) {
  const auto before = threads_of_this_process();
  std::set<std::string> names;
  Quiet sink;
  {
    CacheSystemOptions options;
    options.pools[0].device_blocks = 8;
    options.pools[0].host_blocks = 8;
    options.log.sink = &sink;
    CacheSystem system{options};
    ASSERT_TRUE(system.cache().resize(Tier::host, 64).has_value());  // the arena's thread begins with its first task
    EmulatedStream stream;
    stream.synchronize();
    // A thread sets its name after it has been started.
    (void)system.device().launch([](BlockAccess&) {});
    system.cache().drain();
    for (int attempt = 0; attempt < 1'000 && names.size() < 6; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      names.clear();
      for (const auto& [id, facts] : threads_of_this_process()) {
        if (before.contains(id) || facts.blocked.empty()) continue;  // of the test program, or just gone
        if (facts.name.starts_with("terrace-")) names.insert(facts.name);
        // Signals 32 and 33 belong to the C library, and SIGKILL and SIGSTOP (9 and 19) cannot be blocked.
        EXPECT_EQ(std::stoull(facts.blocked, nullptr, 16) | 0x1'8004'0100U, 0xFFFF'FFFF'FFFF'FFFFU) << facts.name;
      }
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"terrace-arena", "terrace-compute", "terrace-copy", "terrace-log", "terrace-stream",
                                          "terrace-xfer"}));
}

}  // namespace
}  // namespace terrace
