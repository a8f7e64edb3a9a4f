#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

namespace terrace::test {
namespace {

TEST(CliDoctor, says_what_is_here_and_why_what_is_not_is_not) {
  const Ended ended = run({TERRACE_PROGRAM, "doctor"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const char* const line : {"memory   ", "pages    ", "storage  ", "device   emulated: always", "CUDA", "\n"}) {
    const bool named = ended.out.find(line) != std::string::npos || ended.out.find("cuda:0") != std::string::npos;
    EXPECT_TRUE(named) << line << " is missing in\n" << ended.out;
  }
}

TEST(CliDoctor, refuses_a_device_that_is_not_there) {
  for (const Words& words : {Words{"--device", "cuda:999"}, Words{"--device", "gpu"}, Words{"--frobnicate"}}) {
    Words all{TERRACE_PROGRAM, "doctor"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

TEST(CliDoctor, explains_itself) {
  const Ended help = run({TERRACE_PROGRAM, "doctor", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* const word : {"--device", "--measure", "--report", "Examples:"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace terrace::test
