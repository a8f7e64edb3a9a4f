// tools/package: which arguments it accepts and refuses. It builds everything anew, so no test runs it to its end.
#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <string>

namespace terrace::test {
namespace {

const std::string package = std::string{paths.source} + "/tools/package";

TEST(CliPackage, explains_itself) {
  const Ended help = run({package, "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* const word : {"usage: tools/package", "--output", "--deb", "CUDA toolkit", "gpu-day first"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
}

TEST(CliPackage, refuses_what_it_does_not_know_before_it_builds) {
  for (const Words& words : {Words{"--frobnicate"}, Words{"file.tar.gz"}, Words{"--output"}, Words{"--output", "file.zip"},
                             Words{"--deb", "--wheel"}, Words{"--output", "a.tar.gz", "--deb"}, Words{"--wheel", "x"}}) {
    Words all{package};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(ended.err.starts_with("tools/package: ")) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

}  // namespace
}  // namespace terrace::test
