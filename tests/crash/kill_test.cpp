// A process that uses a store is killed, at random moments and at every single operation. The next process must find the store in
// order. TERRACE_KILLS sets the number of kills at random moments for each engine; the default is 50. Of all operations, only a
// long run takes each.

#include "storage/file/store_owner.hpp"
#include "storage/format/catalog_scan.hpp"
#include "tests/crash/driver.hpp"
#include "tests/crash/pointed_io.hpp"
#include "tests/crash/victim.hpp"
#include "tests/seed.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/storage/blocks.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

struct Room {
  Bytes sizes{};
  Bytes allocated{};
};

Room room_of(const FileStoreConfig& config) {
  Room room;
  for (const fs::path& directory : directories_of(config)) {
    for (const auto& entry : fs::directory_iterator{directory}) {
      struct stat found {};
      EXPECT_EQ(::lstat(entry.path().c_str(), &found), 0);
      room.sizes += Bytes{static_cast<std::uint64_t>(found.st_size)};
      room.allocated += Bytes{static_cast<std::uint64_t>(found.st_blocks) * 512};
    }
  }
  return room;
}

void expect_nothing_else(const FileStoreConfig& config, const Superblock& store) {
  const std::vector<fs::path> directories = directories_of(config);
  for (std::uint32_t n = 0; n < directories.size(); ++n) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator{directories[n]}) names.insert(entry.path().filename());
    EXPECT_EQ(names, names_of_store(store, n)) << directories[n];
  }
}

Superblock superblock_in(const fs::path& directory) {
  std::ifstream file{directory / "catalog", std::ios::binary};
  std::vector<char> page(catalog_page_bytes);
  file.read(page.data(), static_cast<std::streamsize>(page.size()));
  const Result<Superblock> found = decode_superblock(std::as_bytes(std::span{page}));
  EXPECT_TRUE(found.has_value());
  return found ? *found : Superblock{};
}

/// The result of one victim: what it reported, and what the next owner found.
class Aftermath {
 public:
  explicit Aftermath(fs::path directory) : directory_{std::move(directory)} {}

  /// Adds these messages to what was known of the store before.
  void hear(const std::vector<Saying>& said) {
    for (const Saying& saying : said) {
      if (saying.what == Said::capacity) blocks_ = static_cast<std::uint32_t>(key_as_number(saying.key));
      promises_.hear(saying);
    }
    for (const std::string& what : promises_.broken()) ADD_FAILURE() << what;
  }

  /// Starts the store and checks everything.
  void check(EngineKind kind) {
    const FileStoreConfig config = crash_config(directory_, blocks_);
    const auto engine = make_engine(kind);
    PointedIo io{*engine, [](std::uint64_t, PointedIo::Moment) {}};
    Driver::Ground ground;
    ground.engine = &io;
    ground.advance = [&] { io.wait(); };
    ground.config = config;
    Superblock store;
    std::uint64_t files = 0;
    std::uint64_t at_opening = 0;
    ground.opened = [&] {
      store = superblock_in(directory_);
      files = layout_of(store).data_files();
      // A store that became smaller while it served keeps its files.
      EXPECT_TRUE(store.slots == blocks_ || (store.slots > blocks_ && store.open_slots == blocks_))
          << store.slots << " slots of " << store.open_slots << " open where " << blocks_ << " were asked for";
      left_smaller_ += store.slots > blocks_;
      // Every attempt to lock the store that came too early has read the name of the owner.
      at_opening = io.operations();
      EXPECT_LE(at_opening, 40 * store.directories + 8 * files + 2 * io.locks());
      expect_nothing_else(config, store);
    };
    ground.settled = [&] {
      // At most one hole and one write per slot, and the updates of both superblocks.
      EXPECT_LE(io.operations() - at_opening, 2 * store.slots + 16);
      // Before the first write, the disk holds what the ledger of the store says.
      const Bytes whole = crash_capacity(config, static_cast<std::uint32_t>(store.slots));
      const Room room = room_of(config);
      EXPECT_LE(room.sizes, whole);
      // A file of many extents, which holes cause, costs the file system one more page.
      const Bytes holes{(store.slots - blocks_) * block_size};
      EXPECT_LE(room.allocated, whole - holes + Bytes{(files + 2) * 4096});
      expect_nothing_else(config, superblock_in(directory_));
    };
    const Restarted found = restart_and_check(ground, promises_);  // throws if the old lock still blocks the store
    for (const std::string& what : found.objections) ADD_FAILURE() << what;
    kept_ += promises_.kept().size();
    away_ += promises_.away().size();
    corrupt_ += found.corrupt;

    promises_ = {};
    promises_.hear({Said::capacity, number_as_key(blocks_)});
    promises_.hear({Said::started, {}});
    for (const StoredBlock& block : Universe::get().blocks()) {
      promises_.hear({found.served.contains(block.key) ? Said::written : Said::gone, block.key});
    }
    promises_.hear({Said::flushing, {}});
    promises_.hear({Said::flushed, {}});
  }

  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t kept() const { return kept_; }
  [[nodiscard]] std::uint64_t away() const { return away_; }
  [[nodiscard]] std::uint64_t corrupt() const { return corrupt_; }
  /// Starts that found a store that had become smaller while it served.
  [[nodiscard]] std::uint64_t left_smaller() const { return left_smaller_; }

 private:
  fs::path directory_;
  std::uint32_t blocks_ = 48;
  Promises promises_;
  std::uint64_t kept_ = 0;
  std::uint64_t away_ = 0;
  std::uint64_t corrupt_ = 0;
  std::uint64_t left_smaller_ = 0;
};

class Kill : public testing::TestWithParam<EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Engines, Kill, testing::ValuesIn(engine_kinds()),
                         [](const auto& param) { return to_string(param.param); });

std::uint64_t resizes_in(const std::vector<Saying>& said) {
  return static_cast<std::uint64_t>(std::ranges::count(said, Said::resized, &Saying::what));
}

std::uint64_t kills() {
  const char* text = std::getenv("TERRACE_KILLS");
  return text == nullptr ? 50 : std::strtoull(text, nullptr, 10);
}

void kill_at_random(EngineKind engine, const char* name) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const TemporaryDirectory directory;
  const fs::path where = directory.path() / name;
  Random random{seed};
  Aftermath aftermath{where};
  std::uint64_t heard = 0;
  std::uint64_t resized = 0;
  for (std::uint64_t n = 0; n < kills() && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE("kill " + std::to_string(n));
    Victim victim{{.directory = where, .engine = engine, .seed = seed + n, .blocks = aftermath.blocks()}};
    // Some are killed while they start, the others after some work.
    if (random.chance(0.3)) {
      victim.listen(~std::size_t{0}, std::chrono::microseconds{random.below(12'000)});
    } else {
      victim.listen(160 + random.below(1500), std::nullopt);
      victim.listen(~std::size_t{0}, std::chrono::microseconds{random.below(2'000)});
    }
    victim.kill();
    ASSERT_TRUE(WIFSIGNALED(victim.status()) && WTERMSIG(victim.status()) == SIGKILL) << victim.status();
    heard += victim.said().size();
    resized += resizes_in(victim.said());
    aftermath.hear(victim.said());
    if (fs::exists(where)) aftermath.check(n % 2 == 0 ? engine : EngineKind::threads);
  }
  EXPECT_GT(heard, 100 * kills());
  EXPECT_GT(aftermath.kept(), 2 * kills()) << "nothing was promised";
  EXPECT_GT(aftermath.away(), 2 * kills());
  EXPECT_GT(resized, kills() / 4);
  EXPECT_GT(aftermath.left_smaller(), kills() / 20);
  testing::Test::RecordProperty("heard", std::to_string(heard));
  testing::Test::RecordProperty("kept", std::to_string(aftermath.kept()));
  testing::Test::RecordProperty("corrupt", std::to_string(aftermath.corrupt()));
}

TEST_P(Kill, at_any_moment_leaves_a_store_that_keeps_its_promises) { kill_at_random(GetParam(), "store"); }
TEST_P(Kill, at_any_moment_leaves_a_striped_store_that_keeps_its_promises) { kill_at_random(GetParam(), "striped"); }

void kill_at_every_operation(EngineKind engine, const char* name) {
  const std::uint64_t seed = seed_from_env_or(3);
  Sample sample{seed + static_cast<std::uint64_t>(engine), 6};
  std::uint64_t operations = 0;
  std::uint64_t runs = 0;
  std::uint64_t kept = 0;
  std::uint64_t resized = 0;
  std::uint64_t left_smaller = 0;
  std::set<std::uint64_t> with_halves;
  for (const unsigned moment : {0U, 1U, 2U}) {
    for (std::uint64_t operation = sample.leaves_out(); !testing::Test::HasFailure(); operation += 1 + sample.leaves_out()) {
      if (moment == 1 && operation < operations && !with_halves.contains(operation)) continue;
      SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + ", operation " + std::to_string(operation) + ", moment " +
                   std::to_string(moment));
      const TemporaryDirectory directory;
      const fs::path where = directory.path() / name;
      Victim victim{{.directory = where, .engine = engine, .seed = seed, .steps = 45, .operation = operation, .moment = moment}};
      victim.wait();
      const bool done = !victim.said().empty() && victim.said().back().what == Said::done;
      ASSERT_TRUE(done || WIFSIGNALED(victim.status())) << victim.status();
      Aftermath aftermath{where};
      aftermath.hear(victim.said());
      if (fs::exists(where)) aftermath.check(engine);
      kept += aftermath.kept();
      left_smaller += aftermath.left_smaller();
      if (done) resized = resizes_in(victim.said());
      for (const Saying& saying : victim.said()) {
        if (done && saying.what == Said::halfway) with_halves.insert(key_as_number(saying.key));
      }
      operations = std::max(operations, operation);
      if (done) break;
      if (moment == 0) ++runs;
    }
  }
  EXPECT_GT(operations, 100U);
  EXPECT_GT(runs, 100U / sample.of());
  EXPECT_GT(with_halves.size(), 30U);
  EXPECT_GT(kept, runs);
  EXPECT_GT(resized, 1U);
  EXPECT_GT(left_smaller, 10U / sample.of());
  testing::Test::RecordProperty("operations", std::to_string(operations));
  testing::Test::RecordProperty("killed_at_first_moment", std::to_string(runs));
}

TEST_P(Kill, at_every_operation_leaves_a_store_that_keeps_its_promises) { kill_at_every_operation(GetParam(), "store"); }
TEST_P(Kill, at_every_operation_leaves_a_striped_store_that_keeps_its_promises) {
  kill_at_every_operation(GetParam(), "striped");
}

// ---- the power fails after every single change of the disk. Any part of what was not synced is lost: writes (whole, torn or out
// of order), names, sizes. Then the store starts again.

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
