#include "base/whole_file.hpp"

#include "base/descriptor.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace terrace {
namespace {

std::string why_not(const std::filesystem::path& file) {
  try {
    (void)read_whole(file, 100);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(WholeFile, is_read_to_its_end_or_to_the_limit) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(read_whole(directory.write("some", "text\n"), 100), "text\n");
  EXPECT_EQ(read_whole(directory.write("long", std::string(10'000, 'x')), 5000), std::string(5000, 'x'));
  EXPECT_EQ(read_whole(directory.write("empty", ""), 100), "");
  EXPECT_EQ(why_not(directory.path() / "none"), "No such file or directory");
  EXPECT_EQ(why_not(directory.path()), "Is a directory");
}

TEST(WholeFile, that_is_a_pipe_is_read_but_not_waited_for) {
  const test::TemporaryDirectory directory;
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(why_not(pipe), "nobody writes to this pipe");
  Descriptor both{::open(pipe.c_str(), O_RDWR | O_CLOEXEC)};
  EXPECT_EQ(why_not(pipe), "nobody writes to this pipe") << "it is open, and nothing comes";
  ASSERT_EQ(::write(both.get(), "text", 4), 4);
  EXPECT_EQ(read_whole(pipe, 4), "text");
}

}  // namespace
}  // namespace terrace
