// A process that uses a store is killed, at random moments and at every single operation. The next process must find the store in
// order. TERRACE_KILLS sets the number of kills at random moments for each engine; the default is 50. Of all operations, only a
// long run takes each.

#include "storage/format/catalog_scan.hpp"
#include "tests/crash/pointed_io.hpp"
#include "tests/crash/victim.hpp"
#include "tests/seed.hpp"
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

}  // namespace
}  // namespace terrace::test
