#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

namespace terrace::test {
namespace {

TEST(CliDoctor, says_what_is_here_and_why_what_is_not_is_not) {
  const Ended ended = run({paths.program, "doctor"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(ended.out.starts_with("memory   ")) << ended.out;
  for (const char* const line :
       {"cgroup   ", "pages    ", "memlock  ", "io_uring ", "direct   ", "numa     ", "device   emulated: always"}) {
    EXPECT_NE(ended.out.find("\n" + std::string{line}), std::string::npos) << line << " is missing in\n" << ended.out;
  }
  EXPECT_TRUE(ended.out.find("CUDA: ") != std::string::npos || ended.out.find("cuda:0") != std::string::npos) << ended.out;
}

TEST(CliDoctor, compares_a_configuration_with_the_machine) {
  const TemporaryDirectory directory;
  const std::string kv = (directory.path() / "kv").string();
  const std::string config = directory
                                 .write("t.toml", "[storage]\nwhere = \"file:" + kv + "\"\ncapacity = \"64MiB\"\n[[pool]]\n" +
                                                      "block-bytes = \"4KiB\"\ndevice-blocks = 256\nhost-blocks = 768\n")
                                 .string();
  const Ended ended = run({paths.program, "doctor", "--config", config});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("; the configuration takes 4MiB\n"), std::string::npos) << ended.out;
  const std::size_t direct = ended.out.find("\ndirect ");
  EXPECT_NE(ended.out.find(kv, direct), std::string::npos) << ended.out;
  EXPECT_LE(width(ended.out.substr(0, direct)), 80U) << ended.out;
}

TEST(CliDoctor, refuses_a_device_that_is_not_there) {
  for (const Words& words : {Words{"--device", "cuda:999"}, Words{"--device", "gpu"}, Words{"--frobnicate"}}) {
    Words all{paths.program, "doctor"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

TEST(CliDoctor, explains_itself) {
  const Ended help = run({paths.program, "doctor", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* const word : {"--device", "--measure", "--report", "Examples:"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace terrace::test
