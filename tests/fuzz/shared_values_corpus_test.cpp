// Reads the inputs of value-corpus/, every beginning of each, and each with one byte changed, with any compiler
// (tests/fuzz/README.md).

#include "tests/fuzz/shared_values.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_shared_values_ends_in_the_block_or_in_a_mismatch) {
  std::size_t inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::filesystem::path{test::paths.source} / "tests/fuzz/value-corpus"}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string text(std::istreambuf_iterator<char>{file}, {});
    for (std::size_t length = 0; length <= text.size(); ++length) {
      run_shared_values(std::as_bytes(std::span{text}.first(length)));
    }
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = text;
        changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << bit));
        run_shared_values(std::as_bytes(std::span{changed}));
      }
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 10U);
}

}  // namespace
}  // namespace terrace::test
