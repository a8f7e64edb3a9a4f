// The directory and the files of a store belong to its user alone: what it creates, and what it refuses to use.

#include "storage/file/file_store.hpp"
#include "storage/offline/store_reader.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* about_files =
    "must be a regular file of this user, without further links, that nobody else may read or write";
constexpr const char* about_directories = "must belong to this user and be closed to all others";

class PrivateFiles : public OnRealDisk {
 protected:
  /// In a directory that other users may write, as container platforms mount volumes.
  PrivateFiles() { fs::permissions(volume_.path(), fs::perms::all); }

  [[nodiscard]] FileStoreConfig config() const {
    FileStoreConfig config = config_for(volume_.path(), 8);
    config.name = default_store_name;
    return config;
  }
  /// Creates the store and closes it.
  void make_store() { open(config())->write({root_block(1)}); }

  /// The reason why the store does not start; empty if it starts.
  [[nodiscard]] std::string refusal(const FileStoreConfig& config) {
    try {
      (void)open(config);
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code(), static_cast<std::error_code>(make_error_code(Errc::incompatible))) << error.what();
      return error.what();
    }
    return {};
  }
  void expect_refused(const fs::path& what, const std::string& why) {
    const std::string said = refusal(config());
    EXPECT_NE(said.find(what.string()), std::string::npos) << said;
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }

  TemporaryDirectory volume_;
  fs::path where_ = volume_.path() / "store";
};

INSTANTIATE_TEST_SUITE_P(Engines, PrivateFiles, testing::ValuesIn(kinds_on_disk()),
                         [](const auto& tested) { return to_string(tested.param); });

TEST_P(PrivateFiles, lie_in_a_directory_of_the_stores_own_and_are_found_again_there) {
  make_store();
  for (const auto& entry : fs::recursive_directory_iterator{volume_.path()}) {
    struct stat found {};
    ASSERT_EQ(::stat(entry.path().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777U, entry.is_directory() ? 0700U : 0600U) << entry.path();
  }
  for (const char* name : {"lock", "catalog", "blocks-0000"}) EXPECT_TRUE(fs::exists(where_ / name)) << name;
  EXPECT_TRUE(open(config())->reads_back(key_of(1)));
  EXPECT_EQ(StoreReader{volume_.path()}.directory(), where_) << "a reader is given what the store was given";
  EXPECT_EQ(StoreReader{where_}.directory(), where_);
}

TEST_P(PrivateFiles, are_not_taken_over_from_others) {
  const std::vector<std::pair<const char*, std::function<void(const fs::path&)>>> others{
      {"others may write it", [](const fs::path& file) { EXPECT_EQ(::chmod(file.c_str(), 0666), 0); }},
      {"others may read it", [](const fs::path& file) { EXPECT_EQ(::chmod(file.c_str(), 0640), 0); }},
      {"it has another link", [this](const fs::path& file) { fs::create_hard_link(file, volume_.path() / "other"); }},
      {"it is a symbolic link",
       [this](const fs::path& file) {
         fs::rename(file, volume_.path() / "other");
         fs::create_symlink(volume_.path() / "other", file);
       }},
      {"it is a pipe",
       [this](const fs::path& file) {
         fs::rename(file, volume_.path() / "other");
         EXPECT_EQ(::mkfifo(file.c_str(), 0600), 0);
       }},
      {"it is a directory",
       [this](const fs::path& file) {
         fs::rename(file, volume_.path() / "other");
         fs::create_directory(file);
       }},
      {"it is a device",
       [this](const fs::path& file) {
         if (::geteuid() != 0) return (void)::chmod(file.c_str(), 0666);
         fs::rename(file, volume_.path() / "other");
         EXPECT_EQ(::mknod(file.c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
       }},
      {"it belongs to somebody else",
       [](const fs::path& file) {
         if (::geteuid() != 0) return (void)::chmod(file.c_str(), 0666);
         EXPECT_EQ(::chown(file.c_str(), 12345, static_cast<gid_t>(-1)), 0);
       }},
  };
  for (const auto& [what, change] : others) {
    for (const char* name : {"lock", "catalog", "blocks-0000"}) {
      SCOPED_TRACE(std::string{name} + ": " + what);
      make_store();
      change(where_ / name);
      expect_refused(where_ / name, about_files);
      fs::remove_all(where_);
      fs::remove(volume_.path() / "other");
    }
  }
}

TEST_P(PrivateFiles, are_checked_before_a_store_grows_into_them) {
  FileStoreConfig split = config();
  split.data_file_bytes_max = Bytes{4 * block_size};
  split.capacity = capacity_for(4, split.block_bytes);
  const auto h = open(split);
  ASSERT_EQ(::mkfifo((where_ / "blocks-0001").c_str(), 0600), 0);
  ASSERT_TRUE(h->store().resize(8));
  while (h->store().stat().growth_stopped == 0) {
    h->advance();
    h->drain();
  }
  EXPECT_EQ(h->store().stat().growth_error, errno_code(EPERM));
  EXPECT_EQ(h->store().stat().capacity_blocks, 4U);
}

TEST_P(PrivateFiles, are_not_kept_in_a_directory_that_is_not) {
  const fs::path elsewhere = volume_.path() / "elsewhere";
  make_store();
  EXPECT_EQ(::chmod(where_.c_str(), 0770), 0);
  expect_refused(where_, about_directories);
  EXPECT_EQ(::chmod(where_.c_str(), 0700), 0);
  EXPECT_EQ(refusal(config()), "");
  if (::geteuid() == 0) {
    EXPECT_EQ(::chown(where_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    expect_refused(where_, about_directories);
    EXPECT_EQ(::chown(where_.c_str(), 0, static_cast<gid_t>(-1)), 0);
  }
  fs::rename(where_, elsewhere);
  fs::create_directory_symlink(elsewhere, where_);
  expect_refused(where_, about_directories);
  FileStoreConfig itself = config();
  itself.name.clear();
  EXPECT_NE(refusal(itself).find(about_directories), std::string::npos) << "the volume itself is no store's own directory";
}

TEST_P(PrivateFiles, of_every_directory_that_a_store_is_striped_over_are_checked) {
  FileStoreConfig striped = config();
  striped.more_directories = {volume_.path() / "second"};
  striped.capacity = capacity_for(64, striped.block_bytes, 2);
  striped.stripe_bytes = striped.block_bytes;
  const fs::path part = striped.more_directories[0] / "store";
  open(striped)->write(prefix_of(1, 10));
  for (const char* name : {"lock", "stripe", "blocks-0000", "."}) {
    const mode_t before = name == std::string{"."} ? 0700 : 0600;
    EXPECT_EQ(::chmod((part / name).c_str(), before | 0060U), 0);
    striped.accept_lost_directories = !striped.accept_lost_directories;
    EXPECT_NE(refusal(striped).find("this user"), std::string::npos) << name << ": a mistake, and no loss to go on without";
    EXPECT_EQ(::chmod((part / name).c_str(), before), 0);
  }
  EXPECT_TRUE(open(striped)->reads_back(key_of(10)));
}

TEST_P(PrivateFiles, that_an_earlier_version_left_in_the_directory_itself_are_not_passed_over) {
  FileStoreConfig former = config();
  former.directory = volume_.path() / "former";
  former.name.clear();
  open(former)->write({root_block(1)});
  FileStoreConfig now = former;
  now.name = default_store_name;
  const std::string said = refusal(now);
  EXPECT_NE(said.find("move lock, catalog, blocks-* and stripe* from there into " + (former.directory / "store").string()),
            std::string::npos)
      << said;
  EXPECT_FALSE(fs::exists(former.directory / "store"));
  EXPECT_EQ(StoreReader{former.directory}.catalog().blocks().size(), 1U) << "a reader needs no conversion";

  fs::create_directory(former.directory / "store");
  for (const char* name : {"lock", "catalog", "blocks-0000"}) {
    fs::rename(former.directory / name, former.directory / "store" / name);
  }
  EXPECT_TRUE(open(now)->reads_back(key_of(1)));
}

}  // namespace
}  // namespace terrace::test
