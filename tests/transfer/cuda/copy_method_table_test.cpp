#include "transfer/cuda/copy/copy_method_table.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace terrace {
namespace {

using enum CopyMethod;
using enum Direction;

constexpr CopyMethods all{0b1111};
constexpr CopyMethods copy_engine{0b0011};
constexpr CopyMethods plain_alone{0b0010};

const CopyTableKey key{"H200", "13.0", "revision 2"};

PieceShape shape(std::size_t count, std::uint64_t piece_bytes, bool aligned = true) {
  return {count, count * piece_bytes, aligned};
}

TEST(CopyMethodTable, expects_batches_for_large_pieces_and_kernels_for_many_small_ones) {
  const CopyMethodTable table;
  EXPECT_EQ(table.choose(swap_out, shape(1, 1 << 20), all), plain);
  EXPECT_EQ(table.choose(swap_out, shape(16, 64 << 10), all), batch);
  EXPECT_EQ(table.choose(swap_in, shape(64, 4 << 10), all), kernel);
  EXPECT_EQ(table.choose(swap_in, shape(8, 4 << 10), all), batch);
}

TEST(CopyMethodTable, chooses_among_what_is_to_be_had) {
  const CopyMethodTable table;
  EXPECT_EQ(table.choose(swap_in, shape(64, 4 << 10), copy_engine), batch);
  EXPECT_EQ(table.choose(swap_in, shape(64, 4 << 10), plain_alone), plain);
}

TEST(CopyMethodTable, sends_no_kernel_for_pieces_that_are_not_aligned) {
  EXPECT_EQ(CopyMethodTable{}.choose(swap_in, shape(64, 4 << 10, false), all), batch);
}

TEST(CopyMethodTable, orders_methods_as_measured_in_that_cell_alone) {
  CopyMethodTable table;
  table.measured(swap_in, 3, 2, {10, 5, 20, 40});
  EXPECT_EQ(table.choose(swap_in, shape(32, 128 << 10), all), bulk_kernel);
  EXPECT_EQ(table.choose(swap_in, shape(255, (512 << 10) - 1, false), all), batch);
  EXPECT_EQ(table.choose(swap_in, shape(255, (512 << 10) - 16), CopyMethods{0b0111}), kernel);
  EXPECT_EQ(table.choose(swap_in, shape(256, 128 << 10), all), batch) << "the next class of counts";
  EXPECT_EQ(table.choose(swap_in, shape(32, 512 << 10), all), batch) << "the next class of sizes";
  EXPECT_EQ(table.choose(swap_out, shape(32, 128 << 10), all), batch) << "the other direction";
}

TEST(CopyMethodTable, takes_a_method_that_was_not_measured_last) {
  CopyMethodTable table;
  table.measured(swap_out, 0, 3, {1, 2, 0, 0});
  EXPECT_EQ(table.choose(swap_out, shape(300, 4096), all), plain);
}

TEST(CopyMethodTable, survives_its_text) {
  CopyMethodTable table;
  table.measured(swap_in, 3, 2, {10.5, 5, 20, 40});
  table.measured(swap_out, 5, 0, {1e10, 5e10, 0, 0});
  const std::string text = table.to_json(key);
  const Result<CopyMethodTable> read = CopyMethodTable::from_json(text, key);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cell(swap_in, 3, 2).rates, table.cell(swap_in, 3, 2).rates);
  EXPECT_EQ(read->cell(swap_in, 3, 2).order, table.cell(swap_in, 3, 2).order);
  EXPECT_EQ(read->cell(swap_out, 5, 0).order[0], plain);
  EXPECT_EQ(read->to_json(key), text);
}

TEST(CopyMethodTable, holds_for_one_device_driver_and_set_of_kernels) {
  const std::string text = CopyMethodTable{}.to_json(key);
  EXPECT_TRUE(CopyMethodTable::from_json(text, key));
  for (std::string CopyTableKey::*const part : {&CopyTableKey::device, &CopyTableKey::driver, &CopyTableKey::kernels}) {
    CopyTableKey other = key;
    other.*part += " ";
    EXPECT_EQ(CopyMethodTable::from_json(text, other).error(), Errc::incompatible);
  }
  EXPECT_EQ(CopyMethodTable::from_json(R"({"version":1,"device":"H200","driver":"13.0","cells":[]})", key).error(),
            Errc::incompatible);
}

TEST(CopyMethodTable, takes_a_kernel_only_where_it_is_much_faster_than_the_copy_engine) {
  CopyMethodTable table;
  table.measured(swap_in, 3, 2, {10, 5, 12.9, 12});
  EXPECT_EQ(table.choose(swap_in, shape(32, 128 << 10), all), batch);
  table.measured(swap_in, 3, 2, {10, 5, 12.9, 13.1});
  EXPECT_EQ(table.choose(swap_in, shape(32, 128 << 10), all), bulk_kernel);
  table.measured(swap_in, 3, 2, {10, 5, 13.2, 13.1});
  EXPECT_EQ(table.choose(swap_in, shape(32, 128 << 10), all), kernel);
}

TEST(CopyMethodTable, refuses_what_is_no_table) {
  for (const std::string cells :
       {R"(7)", R"([7])", R"([{"direction":"up","piece_bytes":0,"pieces":1,"bytes_per_second":{}}])",
        R"([{"direction":"swap_in","piece_bytes":1,"pieces":1,"bytes_per_second":{}}])",
        R"([{"direction":"swap_in","piece_bytes":0,"pieces":-1,"bytes_per_second":{}}])",
        R"([{"direction":"swap_in","piece_bytes":0,"pieces":1}])",
        R"([{"direction":"swap_in","piece_bytes":0,"pieces":1,"bytes_per_second":{"warp":1}}])",
        R"([{"direction":"swap_in","piece_bytes":0,"pieces":1,"bytes_per_second":{"plain":-1}}])",
        R"([{"direction":"swap_in","piece_bytes":0,"pieces":1,"bytes_per_second":{"plain":"fast"}}])"}) {
    const std::string text = R"({"version":2,"device":"a","driver":"b","kernels":"c","cells":)" + cells + "}";
    EXPECT_EQ(CopyMethodTable::from_json(text, {"a", "b", "c"}).error(), Errc::corrupt) << text;
  }
  for (const std::string text :
       {"", "[]", "{", "{}", R"({"version":"1"})", R"({"version":2,"device":"a","driver":"b","kernels":"c"})"}) {
    EXPECT_EQ(CopyMethodTable::from_json(text, {"a", "b", "c"}).error(), Errc::corrupt) << text;
  }
}

class CopyMethodTableFile : public testing::Test {
 protected:
  CopyMethodTableFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "terrace-paths-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CopyMethodTableFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(CopyMethodTableFile, is_kept_whole_and_private) {
  CopyMethodTable table;
  table.measured(swap_in, 3, 2, {10, 5, 20, 40});
  const std::filesystem::path file = folder_ / "paths.json";
  std::ofstream{file} << "something older, and longer than what comes" << std::string(100'000, ' ');
  ASSERT_TRUE(table.save(file, key));
  const Result<CopyMethodTable> read = CopyMethodTable::load(file, key);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cell(swap_in, 3, 2).rates, table.cell(swap_in, 3, 2).rates);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder_}, std::filesystem::directory_iterator{}), 1);
}

TEST_F(CopyMethodTableFile, that_is_not_there_or_cannot_be_written_is_an_error) {
  EXPECT_EQ(CopyMethodTable::load(folder_ / "none", key).error(), Errc::not_found);
  EXPECT_EQ(CopyMethodTable{}.save(folder_ / "no such folder" / "paths", key).error(), Errc::io_failed);
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(CopyMethodTable{}.save(pipe, key).error(), Errc::io_failed);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << "what is no file is not replaced";
}

}  // namespace
}  // namespace terrace
