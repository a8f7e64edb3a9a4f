// Routes the requests of admin-corpus/, and every beginning of each, with any compiler (tests/fuzz/README.md).

#include "tests/fuzz/admin_request.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_admin_requests_ends_in_a_command_or_in_one_sentence) {
  std::size_t inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::filesystem::path{test::paths.source} / "tests/fuzz/admin-corpus"}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string text(std::istreambuf_iterator<char>{file}, {});
    for (std::size_t length = 0; length <= text.size(); ++length) run_admin_request(std::string_view{text}.substr(0, length));
    // One byte of each request is another one.
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const char c : {'\0', '"', '\n', '[', '9', '-', '\xff'}) {
        std::string changed = text;
        changed[at] = c;
        run_admin_request(changed);
      }
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 5U);
}

}  // namespace
}  // namespace terrace::test
