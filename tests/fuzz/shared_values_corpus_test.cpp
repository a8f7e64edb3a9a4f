// Reads the inputs of value-corpus/, every beginning of each, and each with one bit changed, with any compiler
// (tests/fuzz/README.md).

#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/shared_values.hpp"

#include <span>

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_shared_values_ends_in_the_block_or_in_a_mismatch) {
  const auto others = [](char byte) {
    std::string flipped;
    for (int bit = 0; bit < 8; ++bit) flipped += static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << bit));
    return flipped;
  };
  const auto run = [](std::string_view text) { run_shared_values(std::as_bytes(std::span{text})); };
  EXPECT_GT(run_corpus("value-corpus", others, run), 10U);
}

}  // namespace
}  // namespace terrace::test
