#pragma once

#include "tests/paths.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace terrace::test {

/// Calls `run` with every input of a folder of tests/fuzz, with every beginning of it, and with each of its bytes replaced by
/// each of the bytes `others(byte)`. Returns the number of inputs.
template <class Others, class Run>
std::size_t run_corpus(std::string_view folder, Others others, Run run) {
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator{std::filesystem::path{paths.source} / "tests/fuzz" / folder}) {
    SCOPED_TRACE(entry.path());
    const std::string text = read_file(entry.path());
    for (std::size_t length = 0; length <= text.size(); ++length) run(std::string_view{text}.substr(0, length));
    std::string changed = text;
    for (char& byte : changed) {
      const char before = byte;
      for (const char other : others(before)) {
        byte = other;
        run(std::string_view{changed});
      }
      byte = before;
    }
    ++inputs;
  }
  return inputs;
}

}  // namespace terrace::test
