// Reads the inputs of reply-corpus/, every beginning of each, and each with one byte changed, with any compiler
// (tests/fuzz/README.md).

#include "tests/fuzz/redis_replies.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_redis_replies_ends_the_same_however_the_bytes_arrive) {
  std::size_t inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::filesystem::path{test::paths.source} / "tests/fuzz/reply-corpus"}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string text(std::istreambuf_iterator<char>{file}, {});
    for (std::size_t length = 0; length <= text.size(); ++length) run_redis_replies(std::string_view{text}.substr(0, length));
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const char c : {'\0', '$', '*', '\r', '\n', ':', '-', '9', '|', '>', '\xff'}) {
        std::string changed = text;
        changed[at] = c;
        run_redis_replies(changed);
      }
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 10U);
}

}  // namespace
}  // namespace terrace::test
