// Runs the inputs that the fuzzer started from and those that it found, with any compiler (tests/fuzz/README.md).

#include "tests/fuzz/fuzzed.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::test {
namespace {

/// Calls `run` with the content of each file of a corpus. There are more than `least`.
template <class Run>
void for_each_input(const char* corpus, std::size_t least, const Run& run) {
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator{std::filesystem::path{paths.source} / "tests/fuzz" / corpus}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    run(std::string(std::istreambuf_iterator<char>{file}, {}));
    ++inputs;
  }
  EXPECT_GT(inputs, least);
}

/// Calls `run` with each input of a corpus, with every beginning of it, and with it after one byte has become each of
/// others(byte).
template <class Others>
void run_and_vary(const char* corpus, std::size_t least, void (*run)(std::string_view), const Others& others) {
  for_each_input(corpus, least, [&](const std::string& text) {
    for (std::size_t length = 0; length <= text.size(); ++length) run(std::string_view{text}.substr(0, length));
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const char c : others(text[at])) {
        std::string changed = text;
        changed[at] = c;
        run(changed);
      }
    }
  });
}

TEST(FuzzCorpus, of_crafted_stores_ends_in_answers_and_none_is_a_lie) {
  run_crafted_store({});
  for_each_input("corpus", 10, [](const std::string& changes) { run_crafted_store(changes); });
}

TEST(FuzzCorpus, of_configurations_ends_in_options_or_in_one_sentence) {
  run_and_vary("config-corpus", 5, run_config_text, [](char) { return std::vector{'\0', '"', '\n', '[', '9', '\xff'}; });
}

TEST(FuzzCorpus, of_admin_requests_ends_in_a_command_or_in_one_sentence) {
  run_and_vary("admin-corpus", 5, run_admin_request, [](char) { return std::vector{'\0', '"', '\n', '[', '9', '-', '\xff'}; });
}

TEST(FuzzCorpus, of_redis_replies_ends_the_same_however_the_bytes_arrive) {
  run_and_vary("reply-corpus", 10, run_redis_replies,
               [](char) { return std::vector{'\0', '$', '*', '\r', '\n', ':', '-', '9', '|', '>', '\xff'}; });
}

TEST(FuzzCorpus, of_shared_values_ends_in_the_block_or_in_a_mismatch) {
  run_and_vary("value-corpus", 10, run_shared_values, [](char byte) {
    std::vector<char> flipped;
    for (int bit = 0; bit < 8; ++bit) flipped.push_back(static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << bit)));
    return flipped;
  });
}

}  // namespace
}  // namespace terrace::test
