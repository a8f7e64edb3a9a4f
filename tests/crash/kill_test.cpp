// A process that uses a store is killed, at any moment and at every single operation; the next one finds everything in order.
// TERRACE_KILLS says how many kills at random moments each engine gets; 50 unless told otherwise.

#include "tests/crash/pointed_io.hpp"
#include "tests/crash/victim.hpp"
#include "tests/seed.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <set>
#include <string>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

struct Room {
  Bytes sizes{};
  Bytes allocated{};
};

Room room_of(const fs::path& directory) {
  Room room;
  for (const auto& entry : fs::directory_iterator{directory}) {
    struct stat found {};
    EXPECT_EQ(::stat(entry.path().c_str(), &found), 0);
    room.sizes += Bytes{static_cast<std::uint64_t>(found.st_size)};
    room.allocated += Bytes{static_cast<std::uint64_t>(found.st_blocks) * 512};
  }
  return room;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator{directory}) names.insert(entry.path().filename());
  return names;
}

/// What a victim's life came to, and what the next owner found.
class Aftermath {
 public:
  explicit Aftermath(fs::path directory) : directory_{std::move(directory)} {}

  /// Beyond what was known of the store before.
  void hear(const std::vector<Saying>& said) {
    for (const Saying& saying : said) {
      if (saying.what == Said::resizing) blocks_ = static_cast<std::uint32_t>(key_as_number(saying.key));
      promises_.hear(saying);
    }
    for (const std::string& what : promises_.broken()) ADD_FAILURE() << what;
  }

  /// Starts the store, and looks at everything.
  void check(EngineKind kind) {
    const FileStoreConfig config = crash_config(directory_, blocks_);
    const auto engine = make_engine(kind);
    PointedIo io{*engine, [](std::uint64_t, PointedIo::Moment) {}};
    Driver::Ground ground;
    ground.engine = &io;
    ground.advance = [&] { io.wait(); };
    ground.config = config;
    const std::uint64_t files = (blocks_ + 19) / 20;
    ground.opened = [&] {
      // Before the first write: the disk holds what the store's books say, which grew with nothing but the number of files.
      const Room room = room_of(directory_);
      EXPECT_LE(room.sizes, config.capacity);
      // A file of many pieces, as holes that are filled again leave it, costs the file system a page of its own.
      EXPECT_LE(room.allocated, config.capacity + Bytes{(files + 2) * 4096});
      // Each try to lock that was too early has read who the owner was.
      EXPECT_LE(io.operations(), 40 + 8 * files + 2 * io.locks());
      std::set<std::string> expected{"lock", "catalog"};
      for (std::uint64_t n = 0; n < files; ++n) expected.insert("blocks-000" + std::to_string(n));
      EXPECT_EQ(names_in(directory_), expected);
    };
    const Restarted found = restart_and_check(ground, promises_);  // throws where the old lock is in the way
    for (const std::string& what : found.objections) ADD_FAILURE() << what;
    kept_ += promises_.kept().size();
    away_ += promises_.away().size();
    corrupt_ += found.corrupt;

    promises_ = {};
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

 private:
  fs::path directory_;
  std::uint32_t blocks_ = 48;
  Promises promises_;
  std::uint64_t kept_ = 0;
  std::uint64_t away_ = 0;
  std::uint64_t corrupt_ = 0;
};

class Kill : public testing::TestWithParam<EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Engines, Kill, testing::ValuesIn(engine_kinds()),
                         [](const auto& param) { return to_string(param.param); });

std::uint64_t kills() {
  const char* text = std::getenv("TERRACE_KILLS");
  return text == nullptr ? 50 : std::strtoull(text, nullptr, 10);
}

TEST_P(Kill, at_any_moment_leaves_a_store_that_keeps_its_promises) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const TemporaryDirectory directory;
  const fs::path where = directory.path() / "store";
  Random random{seed};
  Aftermath aftermath{where};
  std::uint64_t heard = 0;
  for (std::uint64_t n = 0; n < kills() && !HasFailure(); ++n) {
    SCOPED_TRACE("kill " + std::to_string(n));
    Victim victim{{.directory = where, .engine = GetParam(), .seed = seed + n, .blocks = aftermath.blocks()}};
    // Some while they start, the others after so much work and a little.
    if (random.chance(0.3)) {
      victim.listen(~std::size_t{0}, std::chrono::microseconds{random.below(12'000)});
    } else {
      victim.listen(160 + random.below(1500), std::nullopt);
      victim.listen(~std::size_t{0}, std::chrono::microseconds{random.below(2'000)});
    }
    victim.kill();
    ASSERT_TRUE(WIFSIGNALED(victim.status()) && WTERMSIG(victim.status()) == SIGKILL) << victim.status();
    heard += victim.said().size();
    aftermath.hear(victim.said());
    if (fs::exists(where)) aftermath.check(n % 2 == 0 ? GetParam() : EngineKind::threads);
  }
  EXPECT_GT(heard, 100 * kills());
  EXPECT_GT(aftermath.kept(), 2 * kills()) << "nothing was promised";
  EXPECT_GT(aftermath.away(), 2 * kills());
  RecordProperty("heard", std::to_string(heard));
  RecordProperty("kept", std::to_string(aftermath.kept()));
  RecordProperty("corrupt", std::to_string(aftermath.corrupt()));
}

TEST_P(Kill, at_every_operation_leaves_a_store_that_keeps_its_promises) {
  const std::uint64_t seed = seed_from_env_or(3);
  std::uint64_t runs = 0;
  std::uint64_t kept = 0;
  std::set<std::uint64_t> with_halves;
  for (const unsigned moment : {0U, 1U, 2U}) {
    for (std::uint64_t operation = 0; !HasFailure(); ++operation) {
      if (moment == 1 && operation < runs && !with_halves.contains(operation)) continue;
      SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + ", operation " + std::to_string(operation) + ", moment " +
                   std::to_string(moment));
      const TemporaryDirectory directory;
      const fs::path where = directory.path() / "store";
      Victim victim{{.directory = where, .engine = GetParam(), .seed = seed, .steps = 45, .operation = operation,
                     .moment = moment}};
      victim.wait();
      const bool done = !victim.said().empty() && victim.said().back().what == Said::done;
      ASSERT_TRUE(done || WIFSIGNALED(victim.status())) << victim.status();
      Aftermath aftermath{where};
      aftermath.hear(victim.said());
      if (fs::exists(where)) aftermath.check(GetParam());
      kept += aftermath.kept();
      for (const Saying& saying : victim.said()) {
        if (done && saying.what == Said::halfway) with_halves.insert(key_as_number(saying.key));
      }
      if (done) break;
      if (moment == 0) ++runs;
    }
  }
  EXPECT_GT(runs, 100U);
  EXPECT_GT(with_halves.size(), 30U);
  EXPECT_GT(kept, runs);
  RecordProperty("operations", std::to_string(runs));
}

}  // namespace
}  // namespace terrace::test
