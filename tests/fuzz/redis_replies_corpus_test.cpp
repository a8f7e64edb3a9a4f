// Reads the inputs of reply-corpus/, every beginning of each, and each with one byte changed, with any compiler
// (tests/fuzz/README.md).

#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/redis_replies.hpp"

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_redis_replies_ends_the_same_however_the_bytes_arrive) {
  const auto others = [](char) { return std::string{'\0', '$', '*', '\r', '\n', ':', '-', '9', '|', '>', '\xff'}; };
  EXPECT_GT(run_corpus("reply-corpus", others, run_redis_replies), 10U);
}

}  // namespace
}  // namespace terrace::test
