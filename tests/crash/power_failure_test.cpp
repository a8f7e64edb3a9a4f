// The power fails after every single change of the disk. Any part of what was not synced is lost: writes (whole, torn or out of
// order), names, sizes. Then the store starts again.

#include "storage/file/store_owner.hpp"
#include "storage/format/catalog_scan.hpp"
#include "tests/simulated/simulated_io.hpp"

#include "tests/crash/driver.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>
#include <string>

namespace terrace::test {
namespace {

/// Chooses what survives a power failure, for one of several kinds of disks.
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

Driver::Ground ground_on(SimulatedIo& io, Random& random, const std::filesystem::path& directory,
                         std::function<void(const Saying&)> say) {
  Driver::Ground ground;
  ground.engine = &io;
  ground.advance = [&io, &random] {
    if (io.queued() == 0) return io.wait();
    io.step(random.below(io.queued()));
  };
  ground.config = crash_config(directory, 48);
  ground.say = std::move(say);
  return ground;
}

struct Count {
  std::uint64_t failures = 0;
  std::uint64_t kept = 0;
  std::uint64_t away = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t resized = 0;       ///< resizes that ended while the store served
  std::uint64_t left_smaller = 0;  ///< failures after which the store had slots that it may not use
  std::uint64_t torn = 0;          ///< failures that left one of the two superblocks damaged
};

/// If both superblocks exist, also tears one of them or overwrites it with zeros. Returns false if they do not both exist.
bool damage_superblock(SimulatedFiles& disk, const std::filesystem::path& directory, Random& random) {
  const std::span<std::byte> catalog = disk.content(directory / "catalog");
  const std::span<std::byte> lock = disk.content(directory / "lock");
  if (catalog.size() < catalog_page_bytes || lock.size() < lock_file_bytes) return false;
  const std::span<std::byte> page = catalog.first(catalog_page_bytes);
  const std::span<std::byte> copy = lock.subspan(superblock_copy_at, sector_bytes);
  if (!decode_superblock(page) || !decode_superblock(copy)) return false;
  const std::span<std::byte> damaged = random.chance(0.5) ? page : copy;
  const std::span<std::byte> lost = random.chance(0.5) ? damaged : damaged.subspan(random.below(sector_bytes));
  std::ranges::fill(lost, std::byte{static_cast<unsigned char>(random.chance(0.5) ? 0 : 0xA5)});
  return true;
}

/// Disk space of a store that has reached its size. Its catalog covers all of its slots.
Bytes bytes_of(const FileStoreConfig& config, const Superblock& store, std::uint32_t open_slots) {
  Bytes parts{};
  for (const auto& more : config.more_directories) {
    parts += Bytes{lock_file_bytes + part_text_bytes + more.native().size()};  // and the link
  }
  if (parts > Bytes{}) parts += Bytes{part_text_bytes};
  return Bytes{lock_file_bytes} + parts + layout_of(store).catalog_bytes() + Bytes{open_slots * store.block_bytes};
}

/// Returns false if something was wrong.
bool restart_after(const SimulatedFiles& disk, const FileStoreConfig& config, const Promises& promises, Random& random,
                   Count& count) {
  SimulatedIo io{disk};
  if (random.chance(0.3)) count.torn += damage_superblock(io.files(), config.directory, random);
  Driver::Ground ground = ground_on(io, random, config.directory, [](const Saying&) {});
  ground.config = config;
  const Restarted found = restart_and_check(ground, promises);
  for (const std::string& what : found.objections) ADD_FAILURE() << what;
  const Result<Superblock> store = decode_superblock(io.files().content(config.directory / "catalog").first(catalog_page_bytes));
  EXPECT_TRUE(store.has_value());
  const std::vector<std::filesystem::path> directories = directories_of(config);
  for (std::uint32_t n = 0; n < directories.size(); ++n) {
    std::set<std::string> names;
    for (const auto& file : io.files().files_in(directories[n])) names.insert(file.filename());
    EXPECT_EQ(names, names_of_store(store.value(), n));
  }
  const std::uint32_t open_slots = crash_blocks(config);
  // The record of a removed block may have survived, and the hole in its place too. This is noticed only when the block is read.
  EXPECT_LE(io.files().used_bytes(), bytes_of(config, *store, open_slots));
  EXPECT_GE(io.files().used_bytes() + config.block_bytes * found.unserved, bytes_of(config, *store, open_slots));
  if (testing::Test::HasFailure()) return false;
  ++count.failures;
  count.left_smaller += store->slots > open_slots;
  count.kept += promises.kept().size();
  count.away += promises.away().size();
  count.corrupt += found.corrupt;
  return found.objections.empty();
}

void at_every_change(std::uint64_t seed, Count& count) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random order{seed};
  Random survival{seed + 1};
  SimulatedIo io;
  Promises promises;
  FileStoreConfig config;
  Driver::Ground ground = ground_on(io, order, seed % 3 == 0 ? "/striped" : "/store", [&](const Saying& saying) {
    promises.hear(saying);
    count.resized += saying.what == Said::resized;
    if (saying.what != Said::capacity) return;
    config.capacity = crash_capacity(config, static_cast<std::uint32_t>(key_as_number(saying.key)));
  });
  config = ground.config;
  std::uint64_t changes = 0;
  bool fine = true;
  const std::uint64_t steps = 60;
  io.files().on_change([&] {
    ++changes;
    if (!fine) return;
    SCOPED_TRACE("change " + std::to_string(changes));
    fine = restart_after(io.files().after_power_failure(any_survival(survival)), config, promises, survival, count);
  });
  Driver driver{ground, seed};
  for (std::uint64_t step = 0; step < steps && fine; ++step) driver.step();
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
  EXPECT_GT(count.resized, 5U);
  EXPECT_GT(count.left_smaller, 100U);
  EXPECT_GT(count.torn, 100U);
  EXPECT_GT(count.corrupt, 0U) << "no write was torn";
  RecordProperty("failures", std::to_string(count.failures));
}

}  // namespace
}  // namespace terrace::test
