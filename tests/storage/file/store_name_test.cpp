// Several stores in one directory.

#include "storage/format/store_name.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

Fingerprint model(std::uint64_t n) { return key_of(n).bytes; }

TEST(StoreName, tells_models_groups_and_ranks_apart) {
  std::set<std::string> names;
  std::set<Fingerprint> fingerprints;
  for (std::uint64_t m = 0; m < 10; ++m) {
    for (std::uint16_t group = 0; group < 10; ++group) {
      for (std::uint32_t rank = 0; rank < 100; ++rank) {
        const StoreIdentity identity{model(m), GroupId{group}, rank};
        names.insert(store_directory_name(identity));
        fingerprints.insert(store_fingerprint(identity));
      }
    }
  }
  EXPECT_EQ(names.size(), 10'000U);
  EXPECT_EQ(fingerprints.size(), 10'000U);
}

TEST(StoreName, is_the_same_tomorrow) {
  // Stores on disks have this name. If it changes, they are not found, and a new empty store is made.
  EXPECT_EQ(store_directory_name({model(1), GroupId{2}, 3}), "2e37795b6dc4ab670acddc860bcbea10");
}

TEST(StoreName, is_a_hash_and_safe_in_a_path) {
  Fingerprint text{};
  std::memcpy(text.data(), "../../etc/passwd", 16);
  const std::string name = store_directory_name({text, {}, 0});
  EXPECT_EQ(name.size(), 32U);
  EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos) << name;
}

class SharedDirectory : public testing::Test {
 protected:
  FileStoreConfig config(std::uint64_t of_model, std::uint32_t rank) const {
    const StoreIdentity identity{model(of_model), {}, rank};
    FileStoreConfig config = config_for(root_, 8);
    config.name = store_directory_name(identity);
    config.fingerprint = store_fingerprint(identity);
    return config;
  }
  std::system_error refusal(const FileStoreConfig& config) {
    return thrown_by([&] { const ThreadsHarness harness{config, calls_}; });
  }

  TemporaryDirectory directory_;
  fs::path root_ = directory_.path() / "root";
  FaultyCalls calls_;
};

TEST_F(SharedDirectory, keeps_ranks_and_models_from_meeting) {
  const std::vector<FileStoreConfig> configs{config(1, 0), config(1, 1), config(2, 0), config(2, 1)};
  {
    // All are open at the same time, each with its own lock. They have the same keys with different bytes.
    std::vector<std::unique_ptr<ThreadsHarness>> stores;
    for (const FileStoreConfig& each : configs) stores.push_back(std::make_unique<ThreadsHarness>(each, calls_));
    for (std::size_t n = 0; n < stores.size(); ++n) {
      stores[n]->write({root_block(1)});
      stores[n]->write({root_block(100 + n)});
    }
    for (std::size_t n = 0; n < stores.size(); ++n) EXPECT_EQ(stores[n]->store().stat().blocks, 2U);
  }
  for (std::size_t n = 0; n < configs.size(); ++n) {
    ThreadsHarness store{configs[n], calls_};
    for (std::size_t other = 0; other < configs.size(); ++other) {
      EXPECT_EQ(store.reads_back(key_of(100 + other)), n == other) << n << ' ' << other;
    }
  }
}

TEST_F(SharedDirectory, refuses_one_ranks_files_in_anothers_place) {
  { ThreadsHarness{config(1, 0), calls_}.write({root_block(1)}); }
  fs::rename(root_ / config(1, 0).name, root_ / config(1, 1).name);
  const std::system_error error = refusal(config(1, 1));
  EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::incompatible)));
  EXPECT_NE(std::string{error.what()}.find("was made for the model and geometry"), std::string::npos) << error.what();
}

TEST_F(SharedDirectory, is_private_to_its_last_file) {
  const mode_t before = ::umask(0);
  { ThreadsHarness{config(1, 0), calls_}.write({root_block(1)}); }
  ::umask(before);
  const auto mode_of = [](const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777U;
  };
  EXPECT_EQ(mode_of(root_), 0700U);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator{root_}) {
    files += entry.is_regular_file();
    EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 0700U : 0600U) << entry.path();
  }
  EXPECT_EQ(files, 3U);
}

TEST_F(SharedDirectory, takes_no_names_that_lead_elsewhere) {
  for (const std::string& name : std::vector<std::string>{"..", ".", "a/b", "/etc", "A", "a b", std::string(65, 'a')}) {
    FileStoreConfig wrong = config(1, 0);
    wrong.name = name;
    const std::system_error error = refusal(wrong);
    EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::invalid_argument))) << name;
    EXPECT_TRUE(fs::is_empty(directory_.path()));
  }
}

TEST_F(SharedDirectory, is_left_as_it_was_by_a_start_that_fails) {
  calls_.fallocate_error = ENOSPC;
  (void)refusal(config(1, 0));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  calls_.fallocate_error = 0;
  { ThreadsHarness{config(1, 0), calls_}.write({root_block(1)}); }
  calls_.fallocate_error = ENOSPC;
  (void)refusal(config(1, 1));
  EXPECT_TRUE(fs::exists(root_ / config(1, 0).name));
  EXPECT_FALSE(fs::exists(root_ / config(1, 1).name));
}

}  // namespace
}  // namespace terrace::test
