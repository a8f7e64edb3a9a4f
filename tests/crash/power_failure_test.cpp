// The power fails after every single thing that happens to the disk, and any part of what was not synced is lost: writes
// whole, torn or in another order, names, sizes. Then the store starts again.

#include "storage/stepped_io.hpp"

#include "tests/crash/driver.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace terrace::test {
namespace {

/// A disk's last moment, as one of several kinds of disks has it.
std::function<bool(bool)> any_survival(Random& random) {
  switch (random.below(5)) {
    case 0: return [](bool) { return false; };
    case 1: return [](bool) { return true; };
    case 2:
      return [&random, last = false](bool whole) mutable {
        if (whole) last = random.chance(0.5);
        return last;
      };
    case 3: return [&random](bool) { return random.chance(0.5); };
    default: return [&random](bool) { return random.chance(0.9); };
  }
}

Driver::Ground ground_on(SteppedIo& io, Random& random, std::function<void(const Saying&)> say) {
  Driver::Ground ground;
  ground.engine = &io;
  ground.advance = [&io, &random] {
    if (io.queued() == 0) return io.wait();
    io.step(random.below(io.queued()));
  };
  ground.config = crash_config("/store", 48);
  ground.say = std::move(say);
  return ground;
}

struct Count {
  std::uint64_t failures = 0;
  std::uint64_t kept = 0;
  std::uint64_t away = 0;
  std::uint64_t corrupt = 0;
};

/// False where something was wrong.
bool restart_after(const SteppedFiles& disk, const FileStoreConfig& config, const Promises& promises, Random& random,
                   Count& count) {
  SteppedIo io{disk};
  Driver::Ground ground = ground_on(io, random, [](const Saying&) {});
  ground.config = config;
  const Restarted found = restart_and_check(ground, promises);
  for (const std::string& what : found.objections) ADD_FAILURE() << what;
  for (const auto& file : io.files().files_in("/store")) {
    const std::string name = file.filename();
    const bool ours = name == "lock" || name == "catalog" ||
                      (name.starts_with("blocks-") && std::stoul(name.substr(7)) * 20 < slots_within(config.capacity, 8192));
    EXPECT_TRUE(ours) << name << " was left behind";
    if (!ours) return false;
  }
  ++count.failures;
  count.kept += promises.kept().size();
  count.away += promises.away().size();
  count.corrupt += found.corrupt;
  return found.objections.empty();
}

void at_every_change(std::uint64_t seed, Count& count) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random order{seed};
  Random survival{seed + 1};
  SteppedIo io;
  Promises promises;
  Driver::Ground ground = ground_on(io, order, [&](const Saying& saying) { promises.hear(saying); });
  FileStoreConfig config = ground.config;
  std::uint64_t changes = 0;
  bool fine = true;
  const std::uint64_t steps = 60;
  std::optional<Driver> driver;
  io.files().on_change([&] {
    ++changes;
    if (!fine) return;
    SCOPED_TRACE("change " + std::to_string(changes));
    if (driver) config = driver->config();
    fine = restart_after(io.files().after_power_failure(any_survival(survival)), config, promises, survival, count);
  });
  driver.emplace(ground, seed);
  for (std::uint64_t step = 0; step < steps && fine; ++step) driver->step();
  for (const std::string& what : promises.broken()) ADD_FAILURE() << what;
}

std::uint64_t seeds() {
  const char* text = std::getenv("TERRACE_SEEDS");
  return text == nullptr ? 20 : std::strtoull(text, nullptr, 10);
}

TEST(PowerFailure, at_any_moment_costs_nothing_that_was_flushed_and_brings_nothing_back) {
  const std::uint64_t first = seed_from_env_or(1);
  Count count;
  for (std::uint64_t seed = first; seed < first + seeds() && !testing::Test::HasFailure(); ++seed) at_every_change(seed, count);
  EXPECT_GT(count.failures, 100U);
  EXPECT_GT(count.kept, count.failures) << "nothing was promised";
  EXPECT_GT(count.away, count.failures);
  EXPECT_GT(count.corrupt, 0U) << "no write was torn";
  RecordProperty("failures", std::to_string(count.failures));
}

}  // namespace
}  // namespace terrace::test
