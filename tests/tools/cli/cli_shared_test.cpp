// `terrace shared check` where no server is needed. tests/servers/test_shared.py has real ones.
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

TEST(SharedCheck, says_in_one_sentence_what_is_wrong) {
  struct Case {
    Words words;
    int status;
    std::string sentence;
  };
  // Port 1 belongs to a service that no machine has any more.
  const std::vector<Case> cases{{{}, 2, "no shared store is named"},
                                {{"none"}, 2, "no shared store is named"},
                                {{"memory:"}, 2, "there is no server to check"},
                                {{"http://a"}, 2, "there is no \"http\""},
                                {{"redis://user:word@a"}, 2, "it has no password"},
                                {{"redis://a?prefix=x"}, 2, "has an option of its own"},
                                {{"redis://127.0.0.1:1", "--shared-ca-file", "x"}, 2, "rediss://HOST"},
                                {{"redis://127.0.0.1:1", "--shared-secret-file", "/no/file"}, 1, "nobody listens there"},
                                {{"redis://127.0.0.1:1", "--block-bytes", "0B"}, 2, "--block-bytes: 0B is not 1B to 512MiB"},
                                {{"redis://127.0.0.1:1", "--block-bytes", "1GiB"}, 2, "--block-bytes: 1GiB is not 1B to 512MiB"},
                                {{"redis://127.0.0.1:1", "--prefill-tokens-per-second", "0"}, 2, "--prefill-tokens-per-second"},
                                {{"redis://127.0.0.1:1"}, 1, "127.0.0.1:1: nobody listens there"},
                                {{"redis://127.0.0.1:1,127.0.0.1:2?cluster=1"}, 1, "127.0.0.1:1: nobody listens there"}};
  for (const Case& each : cases) {
    Words words{"shared", "check"};
    words.insert(words.end(), each.words.begin(), each.words.end());
    const Ended ended = run(program(words));
    EXPECT_EQ(ended.status, each.status) << ended.err;
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_NE(ended.err.find(each.sentence), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

}  // namespace
}  // namespace terrace::test
