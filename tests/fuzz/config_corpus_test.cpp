// Reads the inputs of config-corpus/, and every beginning of each, with any compiler (tests/fuzz/README.md).

#include "tests/fuzz/config_text.hpp"
#include "tests/fuzz/corpus.hpp"

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_configurations_ends_in_options_or_in_one_sentence) {
  const auto others = [](char) { return std::string{'\0', '"', '\n', '[', '9', '\xff'}; };
  EXPECT_GT(run_corpus("config-corpus", others, run_config_text), 5U);
}

}  // namespace
}  // namespace terrace::test
