// Routes the requests of admin-corpus/, and every beginning of each, with any compiler (tests/fuzz/README.md).

#include "tests/fuzz/admin_request.hpp"
#include "tests/fuzz/corpus.hpp"

namespace terrace::test {
namespace {

TEST(FuzzCorpus, of_admin_requests_ends_in_a_command_or_in_one_sentence) {
  const auto others = [](char) { return std::string{'\0', '"', '\n', '[', '9', '-', '\xff'}; };
  EXPECT_GT(run_corpus("admin-corpus", others, run_admin_request), 5U);
}

}  // namespace
}  // namespace terrace::test
