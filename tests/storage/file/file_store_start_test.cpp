// How a file store starts: what it creates, what it refuses, and what it leaves behind after a refusal.

#include "storage/file/file_store.hpp"

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <system_error>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;

class FileStoreStart : public testing::Test {
 protected:
  /// Expects the start to fail, and returns the error.
  std::system_error refusal(const FileStoreConfig& config) {
    ThreadedIo io{{.threads = 2}, waker_, calls_};
    return thrown_by([&] { const FileStore store{config, io}; });
  }
  std::unique_ptr<ThreadsHarness> open(const FileStoreConfig& config) { return std::make_unique<ThreadsHarness>(config, calls_); }
  [[nodiscard]] bool is_empty() const { return fs::is_empty(directory_.path()); }
  [[nodiscard]] FileStoreConfig config(std::uint32_t blocks = 8) const { return config_for(where_, blocks); }

  static unsigned mode_of(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777U;
  }
  static bool is_code(const std::system_error& error, Errc code) {
    return error.code() == static_cast<std::error_code>(make_error_code(code));
  }

  TemporaryDirectory directory_;
  fs::path where_ = directory_.path() / "store";
  NullWaker waker_;
  FaultyCalls calls_;
};

#define EXPECT_SAYS(error, part) EXPECT_NE(std::string{(error).what()}.find(part), std::string::npos) << (error).what()

TEST_F(FileStoreStart, files_are_private) {
  const mode_t before = ::umask(0);
  open(config())->write({root_block(1)});
  ::umask(before);
  EXPECT_EQ(mode_of(where_), 0700U);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator{where_}) {
    ++files;
    EXPECT_EQ(mode_of(entry.path()), 0600U) << entry.path();
  }
  EXPECT_EQ(files, 3U);
}

TEST_F(FileStoreStart, takes_its_room_at_once_and_no_more_than_its_capacity) {
  const auto h = open(config(100));
  std::uintmax_t total = 0;
  for (const auto& entry : fs::directory_iterator{where_}) {
    struct stat found {};
    ASSERT_EQ(::stat(entry.path().c_str(), &found), 0);
    total += static_cast<std::uintmax_t>(found.st_blocks) * 512;
  }
  EXPECT_LE(total, count(config(100).capacity));
  EXPECT_GE(total, 100 * block_size);
}

TEST_F(FileStoreStart, nonsense_is_refused_in_one_sentence) {
  auto wrong = config();
  wrong.capacity = Bytes{};
  EXPECT_SAYS(refusal(wrong), "has no capacity");
  wrong.capacity = Bytes{block_size};
  const auto too_small = refusal(wrong);
  EXPECT_TRUE(is_code(too_small, Errc::invalid_argument));
  EXPECT_SAYS(too_small, "8KiB, too small for one block of 8KiB: give 20KiB or more");
  wrong = config();
  wrong.block_bytes = Bytes{5000};
  EXPECT_SAYS(refusal(wrong), "multiple of 4KiB");
  wrong = config();
  wrong.data_file_bytes_max = Bytes{4096};
  EXPECT_SAYS(refusal(wrong), "less than one block");
  EXPECT_TRUE(is_empty());
}

TEST_F(FileStoreStart, a_directory_that_cannot_be_made_is_named) {
  std::ofstream{directory_.path() / "file"} << "not a directory";
  auto under_a_file = config();
  under_a_file.directory = directory_.path() / "file" / "store";
  const auto error = refusal(under_a_file);
  EXPECT_EQ(error.code(), std::errc::not_a_directory);
  EXPECT_SAYS(error, under_a_file.directory.string());
  auto is_a_file = config();
  is_a_file.directory = directory_.path() / "file";
  EXPECT_EQ(refusal(is_a_file).code(), std::errc::not_a_directory);
  auto no_parent = config();
  no_parent.directory = directory_.path() / "not" / "mounted";
  EXPECT_EQ(refusal(no_parent).code(), std::errc::no_such_file_or_directory);
  EXPECT_FALSE(fs::exists(directory_.path() / "not"));
}

TEST_F(FileStoreStart, a_directory_that_is_not_writable_is_named) {
  // The same as root would get on a read-only file system.
  calls_.open_error = EACCES;
  const auto error = refusal(config());
  EXPECT_EQ(error.code(), std::errc::permission_denied);
  EXPECT_SAYS(error, where_.string());
  EXPECT_TRUE(is_empty());
}

TEST_F(FileStoreStart, a_disk_that_is_too_small_is_told_before_anything_is_taken) {
  auto huge = config();
  huge.block_bytes = Bytes{1U << 30};
  huge.capacity = Bytes{1ULL << 50};
  const auto error = refusal(huge);
  EXPECT_EQ(error.code(), std::errc::no_space_on_device);
  EXPECT_SAYS(error, "cannot take its capacity of 1024TiB: the file system has");
  EXPECT_LE(calls_.fallocates, 1) << "its lock's, which says whether room can be taken at all";
  EXPECT_LT(calls_.opens, 512) << "of 1024 files: a process may not be able to open so many";
  EXPECT_TRUE(is_empty());
}

TEST_F(FileStoreStart, a_limit_on_open_files_is_named) {
  calls_.open_error = EMFILE;
  const auto error = refusal(config());
  EXPECT_EQ(error.code(), std::errc::too_many_files_open);
  EXPECT_SAYS(error, "ulimit -n");
  EXPECT_TRUE(is_empty());
}

TEST_F(FileStoreStart, room_that_somebody_else_takes_meanwhile_leaves_nothing_behind) {
  for (const int code : {ENOSPC, EDQUOT}) {
    calls_.fallocate_error = code;
    const auto error = refusal(config());
    EXPECT_EQ(error.code(), std::errc::no_space_on_device);
    EXPECT_SAYS(error, "but could not allocate them: check for a quota, or for another process that fills the disk");
    EXPECT_TRUE(is_empty());
  }
}

TEST_F(FileStoreStart, where_room_cannot_be_reserved_it_is_taken_as_it_is_needed) {
  calls_.fallocate_error = EOPNOTSUPP;
  const auto h = open(config());
  h->write({root_block(1)});
  EXPECT_TRUE(h->reads_back(key_of(1)));
}

TEST_F(FileStoreStart, a_directory_that_was_there_stays_when_the_start_fails) {
  fs::create_directory(where_);
  std::ofstream{where_ / "somebody's"} << "file";
  calls_.fallocate_error = ENOSPC;
  (void)refusal(config());
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator{where_}) left.push_back(entry.path().filename());
  EXPECT_EQ(left, std::vector{fs::path{"somebody's"}});
}

TEST_F(FileStoreStart, another_owner_is_named) {
  const auto h = open(config());
  h->write({root_block(1)});
  const auto error = refusal(config());
  EXPECT_TRUE(is_code(error, Errc::in_use));
  EXPECT_SAYS(error, where_.string());
  EXPECT_SAYS(error, "in use by process " + std::to_string(::getpid()) + " (storage_tests");
  EXPECT_TRUE(h->reads_back(key_of(1))) << "the owner has not noticed";
}

TEST_F(FileStoreStart, the_lock_goes_with_its_owner) {
  open(config())->write({root_block(1)});
  const auto h = open(config());
  EXPECT_TRUE(h->reads_back(key_of(1)));
  EXPECT_FALSE(h->store().close().has_error());
  EXPECT_TRUE(open(config())->reads_back(key_of(1))) << "close() lets go of it too";
}

TEST_F(FileStoreStart, another_geometry_is_refused_with_both_values) {
  open(config())->write({root_block(1)});
  auto other = config();
  other.block_bytes = Bytes{2 * block_size};
  const auto block_bytes = refusal(other);
  EXPECT_TRUE(is_code(block_bytes, Errc::incompatible));
  EXPECT_SAYS(block_bytes, "has blocks of 8KiB, and this configuration has 16KiB");
  other = config();
  other.fingerprint = key_of(4712).bytes;
  const auto fingerprint = refusal(other);
  EXPECT_TRUE(is_code(fingerprint, Errc::incompatible));
  EXPECT_SAYS(fingerprint, "was made for the model and geometry ");
  EXPECT_SAYS(fingerprint, to_hex(key_of(4711)).substr(0, 16));
  EXPECT_SAYS(fingerprint, to_hex(key_of(4712)).substr(0, 16));
  EXPECT_TRUE(open(config())->reads_back(key_of(1))) << "a refusal changes nothing";
}

TEST_F(FileStoreStart, a_foreign_or_damaged_catalog_is_refused_and_not_touched) {
  fs::create_directory(where_);
  const std::string foreign(5000, 'x');
  for (const std::string& content : {foreign, std::string{"short"}}) {
    std::ofstream{where_ / "catalog"} << content;
    const auto error = refusal(config());
    EXPECT_TRUE(is_code(error, Errc::incompatible));
    EXPECT_SAYS(error, (where_ / "catalog").string());
    std::ifstream file{where_ / "catalog"};
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>{file}, {}), content);
  }
}

TEST_F(FileStoreStart, another_format_version_is_refused) {
  open(config());
  AlignedBuffer page{catalog_page_bytes};
  encode(Superblock{99, block_size, 8, 8, 1, config().fingerprint}, page.span());
  std::fstream file{where_ / "catalog", std::ios::in | std::ios::out | std::ios::binary};
  file.write(reinterpret_cast<const char*>(page.data()), catalog_page_bytes);
  file.close();
  EXPECT_SAYS(refusal(config()), "has format version 99, and this program has 2");
}

TEST_F(FileStoreStart, a_store_whose_making_was_interrupted_is_made_anew) {
  fs::create_directory(where_);
  std::ofstream{where_ / "lock"} << "pid 1\n";
  std::ofstream{where_ / "blocks-0000"} << std::string(3 * block_size, 'x');
  std::ofstream{where_ / "catalog"} << std::string(4096, '\0') << std::string(4096, 'x');
  const auto h = open(config());
  EXPECT_EQ(h->store().stat().blocks, 0U);
  h->write({root_block(1)});
  EXPECT_TRUE(h->reads_back(key_of(1)));
}

TEST_F(FileStoreStart, a_symbolic_link_in_place_of_a_file_is_not_followed) {
  fs::create_directory(where_);
  std::ofstream{directory_.path() / "precious"} << "data";
  fs::create_symlink(directory_.path() / "precious", where_ / "blocks-0000");
  EXPECT_SAYS(refusal(config()), "must be a regular file of this user");
}

TEST_F(FileStoreStart, grows_and_shrinks_between_runs) {
  const auto prefix = prefix_of(1, 40);
  open(config(40))->write(prefix);
  struct Run {
    std::uint32_t capacity;
    std::uint32_t kept;
  };
  for (const auto& [capacity, kept] : {Run{100, 40}, Run{40, 40}, Run{33, 33}, Run{20, 20}, Run{50, 20}}) {
    const auto h = open(config(capacity));
    EXPECT_EQ(h->store().stat().capacity_blocks, capacity);
    EXPECT_EQ(h->store().stat().blocks, kept);
    for (std::uint32_t n = 0; n < kept; ++n) EXPECT_TRUE(h->reads_back(prefix[n].key));
    EXPECT_EQ(fs::file_size(where_ / "blocks-0000"), capacity * block_size);
  }
}

TEST_F(FileStoreStart, slots_that_come_back_come_back_empty) {
  open(config(70))->write(prefix_of(1, 70));
  for (const std::uint32_t capacity : {40U, 70U, 70U}) {
    EXPECT_EQ(open(config(capacity))->store().stat().blocks, 40U) << capacity;
  }
}

TEST_F(FileStoreStart, records_that_a_killed_start_left_beyond_its_slots_do_not_come_back_with_them) {
  open(config(70))->write(prefix_of(1, 70));
  fs::copy_file(where_ / "catalog", directory_.path() / "before");
  open(config(40));
  // The superblock, followed by the part that was not cut and cleared yet.
  std::ifstream now{where_ / "catalog", std::ios::binary};
  std::string superblock(catalog_page_bytes, '\0');
  now.read(superblock.data(), static_cast<std::streamsize>(superblock.size()));
  now.close();
  fs::copy_file(directory_.path() / "before", where_ / "catalog", fs::copy_options::overwrite_existing);
  std::fstream catalog{where_ / "catalog", std::ios::in | std::ios::out | std::ios::binary};
  catalog.write(superblock.data(), static_cast<std::streamsize>(superblock.size()));
  catalog.close();
  EXPECT_EQ(open(config(70))->store().stat().blocks, 40U);
  EXPECT_EQ(open(config(70))->store().stat().blocks, 40U);
}

TEST_F(FileStoreStart, what_a_start_that_was_killed_while_it_made_the_store_smaller_left_is_given_back) {
  auto split = config(12);
  split.data_file_bytes_max = Bytes{4 * block_size};
  open(split)->write(prefix_of(1, 5));
  // Everything except the superblock, which already says five.
  fs::copy(where_, directory_.path() / "before");
  split.capacity = capacity_for(5, split.block_bytes);
  open(split);
  for (const char* name : {"blocks-0001", "blocks-0002"}) {
    fs::copy_file(directory_.path() / "before" / name, where_ / name, fs::copy_options::overwrite_existing);
  }
  const auto h = open(split);
  EXPECT_EQ(h->store().stat().blocks, 5U);
  EXPECT_FALSE(fs::exists(where_ / "blocks-0002"));
  EXPECT_EQ(fs::file_size(where_ / "blocks-0001"), block_size);
  for (const StoredBlock& block : prefix_of(1, 5)) EXPECT_TRUE(h->reads_back(block.key));
}

TEST_F(FileStoreStart, a_growth_that_fails_leaves_the_store_as_it_was) {
  const auto prefix = prefix_of(1, 8);
  open(config(8))->write(prefix);
  calls_.fallocate_error = ENOSPC;
  (void)refusal(config(64));
  calls_.fallocate_error = 0;
  EXPECT_EQ(fs::file_size(where_ / "blocks-0000"), 8 * block_size);
  const auto h = open(config(8));
  for (const StoredBlock& block : prefix) EXPECT_TRUE(h->reads_back(block.key));
}

TEST_F(FileStoreStart, a_smaller_store_gives_back_the_files_it_does_not_need) {
  auto split = config(12);
  split.data_file_bytes_max = Bytes{4 * block_size};
  open(split)->write(prefix_of(1, 12));
  EXPECT_TRUE(fs::exists(where_ / "blocks-0002"));
  split.capacity = capacity_for(5, split.block_bytes);
  const auto h = open(split);
  EXPECT_EQ(h->store().stat().blocks, 5U);
  EXPECT_FALSE(fs::exists(where_ / "blocks-0002"));
  EXPECT_EQ(fs::file_size(where_ / "blocks-0001"), block_size);
}

}  // namespace
}  // namespace terrace::test
