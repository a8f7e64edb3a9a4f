// Runs the inputs that the fuzzer started from and those that it found, with any compiler (tests/fuzz/README.md).

#include "tests/fuzz/crafted_store.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_crafted_stores_ends_in_answers_and_none_is_a_lie) {
  run_crafted_store({});
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator{std::filesystem::path{test::paths.source} / "tests/fuzz/corpus"}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string bytes(std::istreambuf_iterator<char>{file}, {});
    run_crafted_store(std::as_bytes(std::span{bytes}));
    ++inputs;
  }
  EXPECT_GT(inputs, 10U);
}

}  // namespace
}  // namespace terrace::test
