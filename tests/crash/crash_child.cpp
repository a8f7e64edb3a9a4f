// Drives a file store. It writes to standard output what it does and what the store tells it, one message at a time. So
// everything that the parent has not read did not happen before the kill.
//
// Usage: DIRECTORY ENGINE SEED BLOCKS STEPS [OPERATION MOMENT]

#include "tests/crash/pointed_io.hpp"
#include "tests/crash/victim.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <string>

namespace terrace::test {
namespace {

void say(const Saying& saying) {
  std::array<char, saying_bytes> bytes{static_cast<char>(saying.what)};
  std::memcpy(bytes.data() + 1, saying.key.bytes.data(), saying.key.bytes.size());
  // A message is written as a whole or not at all: writes of so few bytes to a pipe are atomic.
  while (::write(STDOUT_FILENO, bytes.data(), bytes.size()) < 0) {
    if (errno != EINTR) std::_Exit(3);
  }
}

int run(const std::vector<std::string>& words) {
  const std::unique_ptr<IoEngine> engine = make_engine(words[1] == "uring" ? EngineKind::uring : EngineKind::threads);
  const std::uint64_t seed = std::stoull(words[2]);
  const std::uint64_t steps = std::stoull(words[4]);
  const bool dies = words.size() > 5;
  const std::uint64_t last = dies ? std::stoull(words[5]) : std::numeric_limits<std::uint64_t>::max();
  const unsigned moment = dies ? static_cast<unsigned>(std::stoul(words[6])) : 0;
  PointedIo pointed{*engine, [&](std::uint64_t number, PointedIo::Moment at) {
                      if (dies && number == last && static_cast<unsigned>(at) == moment) ::raise(SIGKILL);
                      if (at == PointedIo::Moment::halfway) say({Said::halfway, number_as_key(number)});
                    }};

  Driver::Ground ground;
  ground.engine = dies ? static_cast<IoEngine*>(&pointed) : engine.get();
  ground.advance = [&] { ground.engine->wait(); };
  ground.config = crash_config(words[0], static_cast<std::uint32_t>(std::stoul(words[3])));
  ground.say = say;
  ground.system_lasts = true;
  Driver driver{ground, seed};
  for (std::uint64_t step = 0; steps == 0 || step < steps; ++step) driver.step();
  driver.close();
  say({Said::done, {}});
  return 0;
}

}  // namespace
}  // namespace terrace::test

int main(int count, char** words) {
  try {
    return terrace::test::run({words + 1, words + count});
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "crash_child: %s\n", error.what());
    return 2;
  }
}
